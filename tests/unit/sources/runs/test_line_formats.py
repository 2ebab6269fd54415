"""Tests for files with rows of numbers: CSV files, JSON lines and the state file of a Trainer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.unit.sources.runs.test_log_files import append, make_source, read_all
from trainvitals.sources.runs.log_files import LogLineSource
from trainvitals.sources.runs.scalars import FoundRun

V5 = """\
               epoch,      train/box_loss,      train/obj_loss,      metrics/mAP_0.5,\
        val/box_loss,               x/lr0
                   0,                0.05,               0.125,               0.31,\
              0.0625,               0.070
"""
V8 = """\
epoch,time,train/box_loss,train/cls_loss,metrics/mAP50(B),val/box_loss,val/cls_loss,lr/pg0
1,11.5,1.5,2.5,0.31,1.25,2.25,0.001
2,23.1,1.25,2.0,0.42,1.0,2.0,0.002
"""
LIGHTNING = "epoch,step,train_loss,val_loss\n0,49,0.75,\n0,99,,0.5\n"


def read_file(path: Path, text: str) -> FoundRun | None:
    """Write a file and return its run; None if the file contains no run."""
    path.write_text(text)
    return next(iter(make_source(path).read(math.inf)), None)


def read_known(path: Path, text: str) -> FoundRun:
    """Write a file and return its run."""
    run = read_file(path, text)
    assert run is not None
    return run


def test_results_of_yolo_are_read_with_padded_names(tmp_path: Path):
    """The loss is the sum of the partial losses, and the epoch is the epoch that YOLO logs."""
    run = read_known(tmp_path / "results.csv", V5)
    assert (run.source, run.epoch, run.step) == ("csv", 0.0, None)
    assert run.values["loss"] == 0.175
    assert run.metrics["metrics/mAP_0.5", ""] == 0.31
    run = read_known(tmp_path / "v8.csv", V8)
    assert (run.epoch, run.values["loss"], run.values["validation_loss"]) == (2.0, 3.25, 3.0)
    assert run.values["learning_rate"] == 0.002
    assert ("time", "") not in run.metrics


def test_sparse_rows_of_lightning_are_one_run(tmp_path: Path):
    """Training and validation values in different rows are combined; empty cells are ignored."""
    run = read_known(tmp_path / "metrics.csv", LIGHTNING)
    assert (run.step, run.epoch) == (99, 0.0)
    assert run.values == {"loss": 0.75, "validation_loss": 0.5}


def test_a_header_that_grows_is_read_again(tmp_path: Path):
    """A CSV file that is rewritten with more columns is still the same run."""
    path = tmp_path / "metrics.csv"
    path.write_text(LIGHTNING)
    source = make_source(path)
    assert read_all(source)["metrics"].step == 99
    path.write_text(
        "epoch,step,test_acc,train_loss,val_loss\n0,49,,0.75,\n0,99,,,0.5\n1,149,0.5,,\n"
    )
    run = read_all(source)["metrics"]
    assert run.step == 149
    assert run.values["loss"] == 0.75
    path.write_text("")
    assert read_all(source)["metrics"].step == 149


def test_a_large_table_is_read_from_its_end(tmp_path: Path):
    """The header is read from the start of a large CSV file, and the rows from its end."""
    path = tmp_path / "log.csv"
    rows = "".join(f"{step},0.5,{'0' * 80}\n" for step in range(5000))
    run = read_known(path, f"step,loss,padding\n{rows}")
    assert (run.step, run.values["loss"]) == (4999, 0.5)
    assert run.steps_seen < 4000


def test_the_log_of_llama_factory_has_totals_and_tokens(tmp_path: Path):
    """LLaMA-Factory's names for the steps, the totals and the throughput are recognized."""
    first = {"current_steps": 10, "total_steps": 300, "loss": 1.5, "lr": 5e-05, "epoch": 0.1}
    second = {"current_steps": 20, "total_steps": 300, "eval_loss": 1.25, "throughput": 900.5}
    lines = [json.dumps({**each, "elapsed_time": "0:00:10"}) for each in (first, second)]
    run = read_known(tmp_path / "trainer_log.jsonl", "\n".join(lines) + "\n")
    assert (run.source, run.step, run.epoch) == ("json", 20, 0.1)
    assert run.values["total_steps"] == 300
    assert run.values["tokens_per_second"] == 900.5
    assert run.values["validation_loss"] == 1.25


def test_the_state_of_a_trainer_is_read_as_a_whole(tmp_path: Path):
    """While the state file is being rewritten, the values of its last complete version remain."""
    path = tmp_path / "trainer_state.json"
    entry = {"epoch": 0.5, "step": 50, "loss": 1.5, "grad_norm": 2.0, "learning_rate": 4e-05}
    state = {"max_steps": 300, "num_train_epochs": 3, "log_history": [entry]}
    path.write_text(json.dumps(state, indent=2))
    source = make_source(path)
    run = read_all(source)["trainer_state"]
    assert (run.step, run.epoch, run.values["total_steps"]) == (50, 0.5, 300.0)
    path.write_text('{"max_steps": 300, "log_hist')
    assert read_all(source)["trainer_state"].step == 50
    last = {"step": 300, "train_runtime": 60.0, "train_loss": 1.0, "epoch": 3.0}
    path.write_text(json.dumps({**state, "log_history": [entry, last]}, indent=2))
    run = read_all(source)["trainer_state"]
    assert (run.step, run.is_finished, run.values["loss"]) == (300, True, 1.5)


def test_an_evaluation_of_openmmlab_moves_no_step(tmp_path: Path):
    """The step of an evaluation row counts epochs, so the step and the step time do not change."""
    train = {"lr": 0.01, "data_time": 0.02, "loss": 0.5, "time": 0.25, "epoch": 1, "iter": 50}
    evaluation = {"coco/bbox_mAP": 0.3, "data_time": 0.1, "time": 0.75, "step": 1}
    lines = f"{json.dumps({**train, 'step': 50})}\n{json.dumps(evaluation)}\n"
    run = read_known(tmp_path / "scalars.json", lines)
    assert (run.step, run.values["step_seconds"]) == (50, 0.25)
    assert run.metrics["coco/bbox_mAP", ""] == 0.3


@pytest.mark.parametrize(
    ("row", "step", "values"),
    [
        ({"_step": 7, "_timestamp": 1.76e9, "train/loss": 0.5}, 7, {"loss": 0.5}),
        ({"step": 8, "train": {"loss": 0.25}}, 8, {"loss": 0.25}),
        (
            {"num_updates": "9", "loss": "0.125", "gnorm": "2"},
            9,
            {"loss": 0.125, "gradient_norm": 2.0},
        ),
        ({"mode": "val", "step": 3, "loss": 2.0}, 3, {"validation_loss": 2.0}),
        (
            {"event": "eval", "step": 3, "loss": 2.0, "samples_per_sec": 512},
            3,
            {"validation_loss": 2.0},
        ),
    ],
)
def test_rows_of_any_logger_are_read(
    tmp_path: Path, row: dict[str, object], step: int, values: dict[str, float]
):
    """Nested objects, quoted numbers and rows with a named data set are supported."""
    run = read_known(tmp_path / "log.jsonl", json.dumps(row) + "\n")
    assert (run.step, run.values) == (step, values)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data.csv", "id,name,price\n1,a,3.5\n2,b,4\n"),
        ("texts.jsonl", '{"prompt": "a", "score": 5}\n{"prompt": "b", "score": 4}\n'),
        ("requests.jsonl", '{"ts": 1.7e9, "level": "info", "status": 200, "msg": "GET /"}\n'),
        ("config.json", '{"epochs": 3, "model": {"layers": 2}}\n'),
        ("numbers.csv", "1,2,3\n4,5,6\n"),
        ("bad.jsonl", '{"step": 1, "loss": 0.5\n[[[[\n\x00\n'),
        ("deep.jsonl", '{"a":' * 5000 + "\n"),
    ],
)
def test_other_tables_are_not_runs(tmp_path: Path, name: str, text: str):
    """A table without a step, an epoch or a loss is not a run."""
    assert read_file(tmp_path / name, text) is None


def test_an_incomplete_row_waits_for_its_end(tmp_path: Path):
    """A row is read only after its line end, as its last number may be written in two parts."""
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,0.5\n2,0.2")
    source = make_source(path, clock=lambda: path.stat().st_mtime + 100)
    assert read_all(source)["metrics"].values["loss"] == 0.5
    append(path, "5\n")
    assert read_all(source)["metrics"].values["loss"] == 0.25


def test_huge_numbers_and_rows_are_bounded(tmp_path: Path):
    """An integer of a thousand digits is read as infinite, and an overlong row is counted."""
    huge = f'{{"step": 1, "loss": 1{"0" * 1000}}}\n'
    run = read_known(tmp_path / "log.jsonl", huge + '{"step": 2, "x": "' + "y" * 70_000 + '"}\n')
    assert (run.step, run.values["loss"], run.nonfinite["loss"]) == (1, math.inf, 1)
    assert run.omitted == 1


def test_files_that_are_not_understood_are_told(tmp_path: Path):
    """A file whose lines are not understood and a glob without a file are reported.

    A file with only a few lines is still reported as new.
    """
    (tmp_path / "a.log").write_text("warming up\n" * 30)
    (tmp_path / "b.log").write_text("warming up\n")
    (tmp_path / "c.csv").write_text(LIGHTNING)
    source = LogLineSource([f"{tmp_path}/*.log", f"{tmp_path}/*.csv", f"{tmp_path}/*.out"])
    source.read(math.inf)
    states = {Path(file.path).name: file.state for file in source.files}
    assert states == {"a.log": "not_understood", "b.log": "new", "c.csv": "understood"}
    assert source.unmatched == (f"{tmp_path}/*.out",)
