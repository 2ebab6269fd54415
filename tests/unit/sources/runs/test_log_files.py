"""Tests for runs that are read from their logs."""

from __future__ import annotations

import math
import os
import shutil
import time
from pathlib import Path

import pytest

from trainvitals.sources.runs.log_files import LogLineSource
from trainvitals.sources.runs.owners import Users
from trainvitals.sources.runs.patterns import read_patterns
from trainvitals.sources.runs.profiles import PROFILES
from trainvitals.sources.runs.scalars import FoundRun

FIXTURES = Path(__file__).parents[3] / "fixtures" / "training"
BAR = "Epoch 3:  {0}%|##        | {0}/100 [00:00<00:00, 50.00it/s, train_loss={1}]"


class Clock:
    """The time in Unix seconds, which a test may advance."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class RescanningSource(LogLineSource):
    """A source that searches for files at every reading instead of every two seconds."""

    def read(self, deadline: float) -> tuple[FoundRun, ...]:
        """Search for files and read."""
        self._budget._next_search = -math.inf
        return super().read(deadline)


def make_source(*globs: object, **rest: object) -> LogLineSource:
    """Return a source that searches for files at every reading."""
    return RescanningSource([str(glob) for glob in globs], **rest)


def read_all(source: LogLineSource) -> dict[str, FoundRun]:
    """Read without a deadline, and return the runs by name."""
    return {run.run: run for run in source.read(math.inf)}


def read_fixture(name: str) -> FoundRun:
    """Return the run of a recorded log."""
    (run,) = make_source(FIXTURES / name).read(math.inf)
    return run


def append(path: Path, text: str) -> None:
    """Append text to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_the_lines_of_a_log_are_read_one_by_one(tmp_path: Path):
    """The values of an epoch are reported at the first reading after its line was written."""
    path = tmp_path / "train.log"
    first, second = (FIXTURES / "epochs.log").read_text().splitlines(keepends=True)
    path.write_text(first)
    source = make_source(path)
    run = read_all(source)["train"]
    assert (run.source, run.path, run.epoch, run.step) == ("log", str(path), 1.0, None)
    assert run.values == {"validation_loss": 0.9075}
    assert run.metrics == {("val_iou", "validation"): 0.0902, ("val_dice", "validation"): 0.1623}
    assert (run.evaluations, run.evaluations_since_improvement) == (1, 0)
    append(path, second)
    run = read_all(source)["train"]
    assert run.epoch == 2.0
    assert run.values == {"validation_loss": 0.8833}
    assert run.metrics == {("val_iou", "validation"): 0.222, ("val_dice", "validation"): 0.3543}
    assert (run.evaluations, run.evaluations_since_improvement) == (2, 0)
    assert run.is_finished is None
    assert source.complaint is None


def test_epochs_without_improvement_are_counted(tmp_path: Path):
    """The count of evaluations without improvement restarts at each best value."""
    losses = [0.5, 0.6, 0.5, 0.7]
    path = tmp_path / "train.log"
    path.write_text("".join(f"Epoch {n}: val_loss: {v}\n" for n, v in enumerate(losses, 1)))
    source = make_source(path)
    run = read_all(source)["train"]
    assert (run.evaluations, run.evaluations_since_improvement) == (4, 3)
    append(path, "Epoch 5: val_loss: 0.4\n")
    assert read_all(source)["train"].evaluations_since_improvement == 0


def test_the_time_of_a_run_is_when_its_log_was_written(tmp_path: Path):
    """The time of a run is the modification time of its log, also if the log is read again."""
    path = tmp_path / "train.log"
    path.write_text("Epoch 1: val_loss: 0.5\n")
    written = path.stat().st_mtime
    source = make_source(path)
    assert read_all(source)["train"].last_time == written
    assert read_all(source)["train"].last_time == written


def test_a_log_of_hugging_face_is_read():
    """The log of a Hugging Face Trainer has quoted losses and a last line that marks the end."""
    run = read_fixture("huggingface.log")
    assert (run.step, run.epoch, run.is_finished) == (16, 2.0, True)
    assert run.values["loss"] == 1.486
    assert run.values["gradient_norm"] == 3.562
    assert run.values["learning_rate"] == 3.125e-06
    assert run.values["validation_loss"] == 1.214
    assert run.values["total_steps"] == 16.0
    assert run.values["step_seconds"] == pytest.approx(1 / 236.37)
    assert run.metrics["train_loss", "train"] == 1.215
    assert run.evaluations == 2


def test_a_log_of_lightning_is_read():
    """A value that Lightning's bar repeats is counted once, and an evaluation counts at its end."""
    run = read_fixture("lightning.log")
    assert (run.step, run.epoch, run.is_finished) == (24, 2.0, True)
    assert run.values["loss"] == 0.959
    assert run.values["validation_loss"] == 0.859
    assert run.values["validation_accuracy"] == 0.5
    assert run.values["epoch_steps"] == 8.0
    assert run.metrics == {("train_loss_epoch", "train"): 0.906}
    assert (run.evaluations, run.evaluations_since_improvement) == (3, 0)
    assert run.steps_seen == 22


def test_a_log_of_keras_is_read():
    """Keras ends its bars with backspaces and writes the epoch in an earlier line."""
    run = read_fixture("keras.log")
    assert (run.step, run.epoch) == (16, 2.0)
    assert run.values == {
        "total_epochs": 2.0,
        "epoch_step": 8.0,
        "epoch_steps": 8.0,
        "step_seconds": 0.01,
        "accuracy": 0.5312,
        "loss": 0.9905,
        "validation_accuracy": 0.5312,
        "validation_loss": 0.9874,
    }
    assert run.evaluations == 4


def test_a_log_of_tqdm_is_read():
    """The last of three tqdm bars determines the step, and its NaN loss is counted."""
    run = read_fixture("tqdm.log")
    assert run.step == 3
    assert run.values["accuracy"] == 0.9
    assert math.isnan(run.values["loss"])
    assert run.values["step_seconds"] == 1.1
    assert run.nonfinite["loss"] >= 1


def test_a_log_of_megatron_is_read():
    """Megatron's NaN iterations are counted, and the batch size gives the samples per second."""
    run = read_fixture("megatron.log")
    assert (run.step, run.steps_seen) == (200, 100)
    assert run.values == {
        "total_steps": 1000.0,
        "step_seconds": 1.6,
        "learning_rate": 0.000125,
        "loss": 7.5,
        "gradient_norm": 1.5,
        "validation_loss": 7.75,
        "samples_per_second": 160.0,
    }
    assert run.nonfinite == {"loss": 3, "gradient": 0, "evaluation": 0}
    assert run.metrics["consumed samples", ""] == 51200.0
    assert run.evaluations == 1


def test_a_log_of_torchtitan_is_read():
    """Colour codes, thousands separators and percentages of torchtitan are understood."""
    run = read_fixture("torchtitan.log")
    assert (run.step, run.is_finished) == (5, True)
    assert run.values == {
        "loss": 7.07623,
        "gradient_norm": 46.5,
        "tokens_per_second": 10007.0,
        "validation_loss": 7.125,
    }
    assert run.metrics == {
        ("tflops", ""): 313.36,
        ("mfu", ""): 0.1393,
        ("tps", "validation"): 20000.0,
    }


@pytest.mark.parametrize(
    ("line", "step", "values"),
    [
        ("Epoch [2/10], Step [30/100], Loss: 0.5", 130, {"loss": 0.5}),
        ("Epoch 2/10 - Loss: 0.5, Val Loss: 0.75", None, {"loss": 0.5, "validation_loss": 0.75}),
        ("Train Epoch: 2 [640/60000 (1%)]\tLoss: 0.5", None, {"loss": 0.5}),
        ("INFO root: Epoch 2: loss=0.5, acc=75%", None, {"loss": 0.5, "accuracy": 0.75}),
        ("  7it [00:01,  2.00s/it, loss=0.5]", 7, {"loss": 0.5, "step_seconds": 2.0}),
        ("Train: 50%|# | 5/10 [00:01<00:01, ?it/s, loss=tensor(0.5)]", 5, {"loss": 0.5}),
    ],
)
def test_common_habits_are_known(
    tmp_path: Path, line: str, step: int | None, values: dict[str, float]
):
    """Common formats of hand-written log lines are understood without a user's pattern."""
    path = tmp_path / "train.log"
    path.write_text(line + "\n")
    run = read_all(make_source(path))["train"]
    assert run.step == step
    counts = {"total_epochs", "epoch_step", "epoch_steps"}
    assert {word: v for word, v in run.values.items() if word not in counts} == values
    assert run.metrics == {}


@pytest.mark.parametrize(
    "line",
    [
        "{'lr': 0.1, 'batch_size': 8}",
        "Map: 100%|##########| 1000/1000 [00:00<00:00, 9000.0 examples/s]",
        " 50%|#####     | 5/10 [00:01<00:01, 4.00it/s]",
        "8/8 ━━━━━━━━━━━━━━━━━━━━ 0s 4ms/step",
        "Validating:  50%|##  | 5/10 [00:01<00:01, 4.00it/s, loss=0.5]",
        "Epoch 3 starting at 12:30:45",
        "Saved checkpoint epoch=3-step=100.ckpt",
        "",
    ],
)
def test_a_log_without_numbers_of_training_is_no_run(tmp_path: Path, line: str):
    """Progress bars without training, settings and messages are not read as a run."""
    path = tmp_path / "train.log"
    path.write_text(line + "\n")
    assert make_source(path).read(math.inf) == ()


def test_a_progress_bar_is_seen_before_its_line_ends(tmp_path: Path):
    """An unfinished last line, such as a bar after a carriage return, is read after one second."""
    path = tmp_path / "train.log"
    path.write_text("\r" + BAR.format(10, 0.9) + "\r" + BAR.format(20, 0.8))
    clock = Clock()
    source = make_source(path, clock=clock)
    run = read_all(source)["train"]
    assert (run.step, run.values["loss"]) == (310, 0.9)
    clock.now += 2.0
    run = read_all(source)["train"]
    assert (run.step, run.values["loss"]) == (320, 0.8)
    append(path, "\r" + BAR.format(30, 0.7) + "\r")
    run = read_all(source)["train"]
    assert (run.step, run.values["loss"], run.steps_seen) == (330, 0.7, 20)


def test_an_evaluation_without_a_line_end_counts_once(tmp_path: Path):
    """A line that was read before its line end is not counted again when the line end follows."""
    path = tmp_path / "train.log"
    path.write_text("Epoch 1: val_loss: 0.5")
    clock = Clock()
    source = make_source(path, clock=clock)
    assert source.read(math.inf) == ()
    clock.now += 2.0
    assert read_all(source)["train"].evaluations == 1
    assert read_all(source)["train"].evaluations == 1
    append(path, "\n")
    assert read_all(source)["train"].evaluations == 1


def test_a_repeated_evaluation_in_a_bar_counts_when_it_was_made_again(tmp_path: Path):
    """A second evaluation with an equal result is counted as another evaluation."""
    shown = "Epoch {0}: 100%|##| 8/8 [00:00<00:00, 9.0it/s, val_loss=0.500]\r"
    ended = "Validation DataLoader 0: 100%|##| 4/4 [00:00<00:00, 9.0it/s]\r"
    path = tmp_path / "train.log"
    path.write_text(ended + shown.format(0) + shown.format(1) + ended + shown.format(1) * 3)
    run = read_all(make_source(path))["train"]
    assert (run.evaluations, run.evaluations_since_improvement) == (2, 1)


def test_a_log_that_is_renamed_and_begun_anew_is_followed(tmp_path: Path):
    """A renamed log is read to its end and is not a second run, and the new log is followed."""
    path = tmp_path / "train.log"
    path.write_text("Epoch 1: val_loss: 0.5\n")
    source = make_source(tmp_path / "train.log*")
    assert read_all(source)["train"].evaluations == 1
    append(path, "Epoch 2: val_loss: 0.4\n")
    path.rename(tmp_path / "train.log.1")
    path.write_text("Epoch 3: val_loss: 0.3\n")
    read_all(source)
    runs = read_all(source)
    assert list(runs) == ["train"]
    assert (runs["train"].evaluations, runs["train"].epoch) == (3, 3.0)


def test_a_log_that_is_copied_and_truncated_is_followed(tmp_path: Path):
    """A truncated log is read again from its start."""
    path = tmp_path / "train.log"
    path.write_text("Epoch 1: val_loss: 0.5\nEpoch 2: val_loss: 0.4\n")
    source = make_source(path)
    read_all(source)
    shutil.copy(path, tmp_path / "train.log.1")
    path.write_text("Epoch 3: val_loss: 0.3\n")
    run = read_all(source)["train"]
    assert (run.evaluations, run.epoch) == (3, 3.0)


def test_a_log_that_was_written_anew_past_the_offset_is_noticed(tmp_path: Path):
    """A log that was overwritten with longer content between two readings is read again."""
    path = tmp_path / "train.log"
    path.write_text("Epoch 1: val_loss: 0.5\n")
    source = make_source(path)
    read_all(source)
    path.write_text("a new run\nEpoch 1: val_loss: 0.3\nEpoch 2: val_loss: 0.2\n")
    run = read_all(source)["train"]
    assert (run.evaluations, run.values) == (3, {"validation_loss": 0.2})


def test_a_large_log_is_read_from_its_end(tmp_path: Path):
    """Of a large log, only the complete lines in the last 256 KiB are read."""
    path = tmp_path / "train.log"
    line = "Epoch 1: val_loss: 0.5000\n"
    path.write_text(line * 100_000)
    run = read_all(make_source(path))["train"]
    assert run.evaluations == 10_082


def test_a_backlog_is_read_in_bounded_pieces(tmp_path: Path):
    """One reading takes about 4 MiB of a file, and the next readings take the rest."""
    path = tmp_path / "train.log"
    path.write_text("Epoch 1: val_loss: 0.5\n")
    still = time.monotonic()
    source = LogLineSource([str(path)], monotonic=lambda: still)
    source.read(math.inf)
    append(path, "nothing of interest stands here\n" * 300_000 + "Epoch 2: val_loss: 0.4\n")
    epochs = [source.read(math.inf)[0].epoch for _ in range(3)]
    assert epochs == [1.0, 1.0, 2.0]


def test_the_deadline_ends_a_reading(tmp_path: Path):
    """After the deadline, each reading takes one piece of one file, and the files take turns."""
    for number in range(3):
        (tmp_path / f"run{number}.log").write_text("Epoch 1: val_loss: 0.5\n")
    source = LogLineSource([str(tmp_path / "*.log")])
    assert [len(source.read(-math.inf)) for _ in range(4)] == [1, 2, 3, 3]


def test_an_endless_line_is_passed_over(tmp_path: Path):
    """A line that is too long to be kept is skipped, and the following line is read."""
    path = tmp_path / "train.log"
    path.write_text("Epoch 1: val_loss: 0.5\n" + "y" * 300_000)
    source = make_source(path)
    append(path, "Epoch 9: val_loss: 9\nEpoch 2: val_loss: 0.4\n")
    run = read_all(source)["train"]
    assert run.epoch == 2.0
    assert run.values == {"validation_loss": 0.4}


def test_an_overlong_line_is_counted(tmp_path: Path):
    """An overlong line is counted as omitted, even if a pattern would match it."""
    path = tmp_path / "train.log"
    path.write_text("Epoch 1: val_loss: 0.5\nEpoch 2: val_loss: 0.4" + " " * 9000 + "\n")
    run = read_all(make_source(path))["train"]
    assert (run.epoch, run.omitted) == (1.0, 1)


def write_logs(directory: Path, *names: str) -> None:
    """Write logs of one line each."""
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Epoch 1: val_loss: 0.5\n")


def test_runs_are_named_by_what_the_glob_leaves_open(tmp_path: Path):
    """A run's name is its path from the glob's first wildcard on, without the suffix."""
    write_logs(tmp_path, "a/logs/train.log", "b/logs/train.log", "b/logs/other.out")
    runs = read_all(make_source(tmp_path / "*/logs/*"))
    assert set(runs) == {"a/logs/train", "b/logs/train", "b/logs/other"}
    assert set(read_all(make_source(tmp_path / "a/logs/*"))) == {"train"}
    assert set(read_all(make_source(tmp_path / "a/logs/train.log"))) == {"train"}


@pytest.mark.parametrize("second", ["b/logs/train.log", "a/logs/eval.log", "a/train.log"])
def test_a_run_keeps_its_name_when_another_appears(tmp_path: Path, second: str):
    """A new file does not change the name of an existing run, even after a restart."""
    globs = (tmp_path / "*/logs/*.log", tmp_path / "*/*.log")
    write_logs(tmp_path, "a/logs/train.log")
    source = make_source(*globs)
    (name,) = read_all(source)
    write_logs(tmp_path, second)
    for each in (source, make_source(*globs)):
        runs = read_all(each)
        assert len(runs) == 2
        assert runs[name].path == str(tmp_path / "a/logs/train.log")


def test_a_run_keeps_its_name_beside_one_of_another_glob(tmp_path: Path):
    """If two globs give the same name, the later run's name contains more of its path."""
    write_logs(tmp_path, "a/train.log")
    source = make_source(tmp_path / "a/*.log", tmp_path / "b/*.log")
    assert set(read_all(source)) == {"train"}
    write_logs(tmp_path, "b/train.log")
    assert {name: run.path for name, run in read_all(source).items()} == {
        "train": str(tmp_path / "a/train.log"),
        "b/train": str(tmp_path / "b/train.log"),
    }
    (tmp_path / "b/train.log").unlink()
    assert set(read_all(source)) == {"train"}


def test_a_file_with_two_names_is_one_run(tmp_path: Path):
    """A symbolic link to a log does not create a second run."""
    (tmp_path / "run7.log").write_text("Epoch 1: val_loss: 0.5\n")
    (tmp_path / "latest.log").symlink_to(tmp_path / "run7.log")
    source = make_source(tmp_path / "*.log")
    assert len(read_all(source)) == 1
    assert len(read_all(source)) == 1


def test_the_latest_logs_are_followed(tmp_path: Path):
    """The newest logs are followed, up to the limit; further logs of the last day are counted."""
    now = time.time()
    for number in range(5):
        path = tmp_path / f"run{number}.log"
        path.write_text("Epoch 1: val_loss: 0.5\n")
        shutil.os.utime(path, (now, now - (100_000 if number == 4 else number)))
    source = make_source(tmp_path / "*.log")
    source.most_runs = 2
    assert set(read_all(source)) == {"run0", "run1"}
    assert source.omitted == 2


def test_what_is_not_there_is_quiet(tmp_path: Path):
    """A log that does not exist yet is no complaint and is read when it is created."""
    source = make_source(tmp_path / "logs/*.log")
    assert source.read(math.inf) == ()
    assert source.complaint is None
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/train.log").write_text("Epoch 1: val_loss: 0.5\n")
    assert set(read_all(source)) == {"train"}


def test_what_cannot_be_read_is_a_complaint(tmp_path: Path):
    """The complaint names the file and the remedy, and the other logs are still read."""
    (tmp_path / "good.log").write_text("Epoch 1: val_loss: 0.5\n")
    bad = tmp_path / "bad.log"
    bad.write_text("Epoch 1: val_loss: 0.5\n")
    source = make_source(tmp_path / "*.log")
    real = source._followed
    source.read(math.inf)
    assert len(real) == 2
    real[str(bad)].file.close()
    real[str(bad)].file.path = str(tmp_path)  # A folder replaced the file.
    runs = read_all(source)
    assert "good" in runs
    assert source.complaint is not None
    assert "it is no regular file; run as a user that may read it" in source.complaint


def test_own_patterns_are_tried_first(tmp_path: Path):
    """A user's patterns are tried before the built-in patterns and may name the run."""
    patterns = tmp_path / "patterns.yml"
    patterns.write_text(
        r"""
patterns:
  - name: nanogpt iteration
    contains: "iter "
    regex: 'iter (?P<step>\d+): loss (?P<loss>\S+), time (?P<step_milliseconds>[\d.]+)ms'
  - name: several runs
    regex: '^(?P<run>\w+) reward (?P<reward>\S+) of (?P<nothing>\S+)'
  - name: the end
    contains: [all, done]
    regex: 'all done'
    finished: true
"""
    )
    path = tmp_path / "train.log"
    path.write_text("iter 100: loss 2.5, time 50.20ms\niter 110: loss nan, time 50.20ms\n")
    source = make_source(path, patterns=(*read_patterns(patterns), *PROFILES))
    run = read_all(source)["train"]
    assert (run.step, run.steps_seen, run.nonfinite["loss"]) == (110, 10, 1)
    assert math.isnan(run.values["loss"])
    assert run.values["step_seconds"] == pytest.approx(0.0502)
    append(path, "red reward 1.5 of many\nblue reward 2.5 of many\nall is done\nall done\n")
    runs = read_all(source)
    assert set(runs) == {"train", "red", "blue"}
    assert runs["blue"].metrics == {("reward", ""): 2.5}
    assert runs["train"].is_finished is True
    append(path, "iter 120: loss 2.5, time 50.20ms\n")
    assert read_all(source)["train"].is_finished is None


def test_a_name_that_two_files_give_stays_unique(tmp_path: Path):
    """If a pattern gives two files the same run name, the file's name is added to the second."""
    patterns = tmp_path / "patterns.yml"
    patterns.write_text("patterns: [{name: p, regex: 'loss is (?P<loss>.*)', run: mine}]")
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("loss is 0.5\n")
    source = make_source(tmp_path / "*.log", patterns=read_patterns(patterns))
    assert set(read_all(source)) in ({"mine", "mine/a"}, {"mine", "mine/b"})


def test_a_closed_source_may_be_read_again(tmp_path: Path):
    """After a source was closed, its logs are read from the start again."""
    path = tmp_path / "train.log"
    path.write_text("Epoch 1: val_loss: 0.5\n")
    source = make_source(path)
    read_all(source)
    source.close()
    assert read_all(source)["train"].evaluations == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_user_s_logs_hide_none(tmp_path):
    """Logs are chosen from each user in turn, so many newer logs of other users hide no log.

    The logs that are left out are counted.
    """
    mine = tmp_path / "mine.log"
    mine.write_text("Epoch 1: val_loss: 0.5\n")
    for number in range(40):
        theirs = tmp_path / f"theirs{number:02}.log"
        theirs.write_text("Epoch 1: val_loss: 0.5\n")
        os.chown(theirs, 12345 + number % 2, -1)
        os.utime(theirs, (4e9, 4e9))
    os.utime(mine, (time.time() - 60.0,) * 2)
    source = LogLineSource([f"{tmp_path}/*.log"])
    assert "mine" in {run.run for run in source.read(time.monotonic() + 10.0)}
    assert source.omitted == 41 - 16
    source.close()
    source = LogLineSource([f"{tmp_path}/*.log"], users=Users(((0, 0),)))
    assert [run.run for run in source.read(time.monotonic() + 10.0)] == ["mine"]
    source.close()
