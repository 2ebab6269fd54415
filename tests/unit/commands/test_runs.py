"""Tests for `trainvitals runs explain`, which shows the values read from a file, line by line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.sources.runs import records
from trainvitals.cli import main

LOG = "loading\nEpoch 1: val_loss: 0.5 | val_iou: 0.25\nEpoch [1/10], Step [30/100], Loss: nan\n"


def explain(path: Path, *arguments: str) -> int:
    """Run `trainvitals runs explain` and return its exit code."""
    return main(["runs", "explain", str(path), *arguments])


def test_a_log_is_explained_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The explanation of a log begins with a summary and has a reason for each unread line."""
    path = tmp_path / "train.log"
    path.write_text(LOG)
    assert explain(path) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{path}: log, 2 of 3 lines understood\n")
    assert "not read: 1 line, no pattern matches" in output
    assert "val_iou 0.25" in output
    assert explain(path, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["lines_read"], document["lines_understood"]) == ("log", 3, 2)
    first, second, third = document["lines"]
    assert (first["format"], first["reason"]) == (None, "no pattern matches")
    assert second["numbers"]["val_loss"] == 0.5
    assert "NaN" in third["numbers"].values()


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("metrics.csv", "epoch,step,loss\n0,10,0.5\n", "csv"),
        ("log.jsonl", '{"step": 10, "loss": 0.5}\n', "json"),
        ("trainer_state.json", '{"log_history": [{"step": 10, "loss": 0.5}]}', "json"),
        ("mlruns/0/a/metrics/loss", "1764000000000 0.5 10\n", "mlflow"),
    ],
)
def test_each_kind_of_file_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, kind: str
):
    """Each kind of file is recognised, and its last step and loss are reported."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert explain(path, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["step"], document["values"]["loss"]) == (kind, 10, 0.5)


def test_the_state_of_a_trainer_is_explained_with_its_totals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A trainer_state.json is explained with its progress and its total number of steps."""
    path = tmp_path / "trainer_state.json"
    state = {"global_step": 20, "max_steps": 80, "num_train_epochs": -1}
    path.write_text(json.dumps(state | {"log_history": [{"step": 20, "loss": 0.5}]}))
    assert explain(path) == 0
    output = capsys.readouterr().out
    assert "2 of 2 lines understood" in output
    assert "last values: step 20 of 80 (25%)" in output
    assert '{"max_steps": 80}\n        Hugging Face state: total_steps 80' in output
    assert explain(path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["values"]["total_steps"] == 80


def test_an_event_file_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Each scalar in a TensorBoard event file counts as one line."""
    path = tmp_path / "events.out.tfevents.1764000000.host"
    records.write(path, (1764000000.0, 10, "train/loss", 0.5))
    assert explain(path) == 0
    output = capsys.readouterr().out
    assert "tensorboard, 1 of 1 line understood" in output
    assert "train/loss 0.5" in output


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.log", "hello\n", "no pattern matches"),
        ("b.log", "x" * 9000 + "\n", "longer than 8192 characters"),
        ("c.csv", "id,price\n1,2\n", "neither a step or epoch, nor a loss"),
        ("d.csv", "step,loss\n1,2,3\n", "it has 3 cells, and the header has 2 names"),
        ("e.jsonl", '{"prompt": "a", "score": 1}\n', "neither a step or epoch"),
        ("trainer_state.json", '{"log_hist', "it is not a complete JSON object"),
        ("events.out.tfevents.1.h", "garbage that is no record", "damaged at byte 0"),
    ],
)
def test_what_is_not_understood_has_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, reason: str
):
    """If no line is understood, the command exits with 1 and gives the reason."""
    (tmp_path / name).write_text(text)
    assert explain(tmp_path / name) == 1
    assert reason in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """For a missing file or a folder, the command exits with 2."""
    assert explain(tmp_path / "missing") == 2
    assert "cannot read" in capsys.readouterr().err
    assert explain(tmp_path) == 2


def test_own_patterns_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Patterns from --patterns are used, and a group that is not a number is reported."""
    patterns = tmp_path / "patterns.yml"
    patterns.write_text(
        "patterns:\n  - name: mine\n    regex: 'at (?P<step>\\S+) cost (?P<loss>\\S+)'\n"
    )
    path = tmp_path / "a.log"
    path.write_text("at 10 cost 0.5\nat ten cost 0.25\n")
    assert explain(path, "--patterns", str(patterns)) == 0
    output = capsys.readouterr().out
    assert "mine: step 10, loss 0.5" in output
    assert "left out: not a number: step" in output
