"""Tests for finding the files that match a pattern."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainvitals.sources.runs.discovery import Search, count_open, name_runs


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Create folders and files, and return the folder that contains them."""
    for name in ("a.log", "one/a.log", "one/two/b.log", ".hidden/c.log", "one/.d.log", "x[1].log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.log", {"a.log"}),
        ("*.log", {"a.log", "x[1].log"}),
        ("*/*.log", {"one/a.log"}),
        ("**/*.log", {"a.log", "one/a.log", "one/two/b.log", "x[1].log"}),
        ("one/**/[bc].log", {"one/two/b.log"}),
        (".h*/*", {".hidden/c.log"}),
        ("one/.*", {"one/.d.log"}),
        ("x[[]1].log", {"x[1].log"}),
        ("none/*.log", set()),
        ("a.log/*", set()),
        ("one", set()),
        ("**", set()),
    ],
)
def test_patterns_are_those_of_a_shell(tree: Path, pattern: str, names: set[str]):
    """Only regular files match, and hidden files match only if the pattern begins with a dot."""
    search = Search()
    found = {os.path.relpath(file.path, tree) for file in search.find(f"{tree}/{pattern}")}
    assert found == names
    assert search.complaint is None


def test_a_relative_pattern_gives_relative_paths(tree: Path, monkeypatch: pytest.MonkeyPatch):
    """The files that match a relative pattern have relative paths."""
    monkeypatch.chdir(tree)
    assert {file.path for file in Search().find("o*/a.log")} == {"one/a.log"}


def test_the_work_is_bounded(tree: Path):
    """A search that exceeds the limit of names is incomplete, and suggests a narrower pattern."""
    search = Search(most_entries=3)
    search.find(f"{tree}/**/*.log")
    assert search.complaint == (
        f"{tree}/**/*.log leads to more than 3 names, of which the rest was not looked at; "
        "name a narrower place"
    )


def test_the_depth_is_bounded(tmp_path: Path):
    """A `**` pattern searches the twelve levels of folders below the named folder."""
    folder = tmp_path
    for _ in range(14):
        folder = folder / "d"
        folder.mkdir()
        (folder / "a.log").touch()
    assert len(Search().find(f"{tmp_path}/**/a.log")) == 12


def test_a_name_that_cannot_be_looked_up_is_a_complaint(tmp_path: Path):
    """A symbolic link to itself does not match, and the complaint of the search names the link."""
    (tmp_path / "loop.log").symlink_to("loop.log")
    search = Search()
    assert search.find(f"{tmp_path}/*.log") == []
    assert search.complaint is not None
    assert str(tmp_path / "loop.log") in search.complaint


def test_hostile_patterns_find_nothing(tmp_path: Path):
    """An invalid pattern finds no files and raises no error."""
    for pattern in ("", "\0", f"{tmp_path}/\0*", "[", f"{tmp_path}/[", "~nobody-has-this-name/*"):
        assert Search().find(pattern) == []


def test_names_are_as_short_as_they_can_be():
    """Names of runs that clash are extended by parent folders until they differ or none is left."""
    paths = [("/", "a", "train"), ("/", "b", "train"), ("/", "b", "x"), ("/", "c", "b", "x")]
    none = [None] * 4
    assert name_runs(paths, [1] * 4, none) == ["a/train", "b/train", "//b/x", "c/b/x"]
    assert name_runs([("x",), ("x",)], [1, 1], none[:2]) == ["x", "x"]
    assert name_runs([], [], []) == []


def test_a_name_that_was_given_stays():
    """A name that was given before does not change, and no other run takes it."""
    paths = [("/", "a", "train"), ("/", "b", "train"), ("/", "c", "train")]
    assert name_runs(paths, [1] * 3, ["train", None, None]) == ["train", "b/train", "c/train"]
    assert name_runs(paths, [1] * 3, [None, "a/train", None]) == ["//a/train", "a/train", "c/train"]


@pytest.mark.parametrize(
    ("pattern", "path", "count"),
    [
        ("/logs/train.log", "/logs/train.log", 1),
        ("/logs/*.log", "/logs/train.log", 1),
        ("/experiments/*/logs/*.log", "/experiments/unet/logs/train.log", 3),
        ("/experiments/**/*.log", "/experiments/train.log", 1),
        ("/experiments/**/*.log", "/experiments/unet/1/train.log", 3),
        ("/experiments/../logs/[ab]/train.log", "/experiments/../logs/a/train.log", 2),
        ("logs/*/train.log", "logs/a/train.log", 2),
    ],
)
def test_what_a_pattern_leaves_open(pattern: str, path: str, count: int):
    """Path components count from the pattern's first wildcard on, and at least the last one."""
    assert count_open(pattern, path) == count
