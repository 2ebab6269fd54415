"""Tests that the files in grafana/dashboards are those that grafana/build writes."""

import json

import pytest

from grafana.build import __main__ as build
from tests.unit.dashboards.boards import DASHBOARDS
from tests.unit.dashboards.boardwide import BOARDS

PATHS = [DASHBOARDS / f"{uid}.json" for uid in BOARDS]


def test_there_are_five():
    """The five dashboard files are named by their uids."""
    assert sorted(DASHBOARDS.glob("*.json")) == sorted(PATHS)
    assert [json.loads(path.read_text(encoding="utf-8"))["uid"] for path in PATHS] == list(BOARDS)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_file_is_what_the_builder_writes(path):
    """Each dashboard file is identical to the output of the builder."""
    written = build.list_files()[path]
    assert path.read_text(encoding="utf-8").splitlines() == written.splitlines(), (
        f"{path.name} differs: run `make dashboards`"
    )


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_keys_are_sorted(path):
    """The keys of a dashboard file are sorted, so that a diff shows only actual changes."""
    text = path.read_text(encoding="utf-8")
    document = json.loads(text)
    assert text == json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def test_a_change_by_hand_is_told(monkeypatch, tmp_path, capsys):
    """`python -m grafana.build --check` names changed files and files that it does not write."""
    monkeypatch.setattr(build, "DIRECTORY", tmp_path)
    assert build.main([]) == 0
    assert build.main(["--check"]) == 0
    path = tmp_path / "trainvitals-host.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"unit": "bytes"', '"unit": "watt"'))
    (tmp_path / "mine.json").touch()
    capsys.readouterr()
    assert build.main(["--check"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in said] == ["mine.json", "trainvitals-host.json"]
    assert build.main([]) == 0
    assert build.main(["--check"]) == 0
