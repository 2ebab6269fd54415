"""Tests for the values that are read from the lines of a log."""

from __future__ import annotations

import math
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.sources.runs.line_matcher import LineMatcher
from trainvitals.sources.runs.lines import LineReader
from trainvitals.sources.runs.patterns import Pattern
from trainvitals.sources.runs.profiles import PROFILES
from trainvitals.sources.runs.scalars import FoundRun

HOSTILE = [
    "a" * 8192,
    "a " * 4096,
    "loss: " * 1365,
    "Epoch 1 " * 1024,
    "Epoch 1:" + "a " * 4000 + "=",
    "Epoch 1" + " " * 8000 + "%|",
    "Epoch 1 1%|" + "| 1/1 [" * 1100,
    "0" * 8000 + "%|",
    "1" * 8000 + "it [",
    "1%|" * 2700,
    "val" + "%" * 8000 + "%|",
    "{'epoch': '" * 700,
    "1/1 s/step" * 800,
    "iteration 1/ 1 | " + "a b c " * 1300,
    "step: 1 loss:" + "  " * 4000,
    " " * 4000 + "1%|" + " " * 4000,
    "Epoch 1: loss=" + "1" * 8000 + "x",
    "Epoch 1: loss=" + "1,111" * 1600 + "x",
    "1/1 " + "1" * 8000 + " s/step",
    "1it [" * 1600,
]


def describe(reader: LineReader) -> FoundRun:
    """Return the run that a reader has read."""
    return reader.scalars.describe("run", "log", "path", started_time=None, last_time=0.0)


def take(*lines: str, patterns: tuple[Pattern, ...] = PROFILES) -> FoundRun:
    """Read some lines and return the run."""
    reader = LineReader()
    matcher = LineMatcher(patterns)
    for line in lines:
        matcher.take(line, lambda _: reader)
    return describe(reader)


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_no_line_takes_long(line: str):
    """No built-in pattern takes longer than 100 ms for a hostile line of 8 KiB."""
    matcher = LineMatcher(PROFILES)
    reader = LineReader()
    started = time.thread_time()
    matcher.take(line, lambda _: reader)
    assert time.thread_time() - started < 0.1
    assert matcher.complaint is None


def test_a_slow_pattern_is_given_up():
    """A pattern that takes too long is disabled, and a message explains how to correct it."""
    slow = Pattern("slow", re.compile("(?P<loss>.*)x"), ())
    good = Pattern("good", re.compile(r"loss (?P<loss>\S+)"), ())
    ticks = iter([0.0, 0.5, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0])
    cpu = iter([0.0, 0.25])
    matcher = LineMatcher((slow, good), clock=lambda: next(ticks), cpu_clock=lambda: next(cpu))
    reader = LineReader()
    matcher.take("loss 0.5", lambda _: reader)
    assert matcher.complaint == (
        "pattern slow took 250ms for one line and is not used any more; "
        "make its expression simpler and restart"
    )
    matcher.take("loss 0.25", lambda _: reader)
    assert describe(reader).values == {"loss": 0.25}


def test_a_line_that_is_too_long_for_a_pattern_is_left_to_the_others():
    """A pattern with a length limit is not tried on longer lines; the other patterns are."""
    short = Pattern("short", re.compile(r"loss (?P<loss>\S+)"), longest=20)
    other = Pattern("other", re.compile(r"acc (?P<accuracy>\S+)"))
    reader = LineReader()
    matcher = LineMatcher((short, other))
    matcher.take(f"loss 0.5 acc 0.25{' ' * 3}", lambda _: reader)
    matcher.take(f"loss 0.7 acc 0.75{' ' * 4}", lambda _: reader)
    assert describe(reader).values == {"loss": 0.5, "accuracy": 0.75}


def test_a_busy_machine_does_not_make_a_pattern_slow():
    """Only CPU time is counted, so a pattern is not disabled because the machine is busy."""
    good = Pattern("good", re.compile(r"loss (?P<loss>\S+)"), ())
    ticks = iter([0.0, 5.0])
    matcher = LineMatcher((good,), clock=lambda: next(ticks))
    reader = LineReader()
    matcher.take("loss 0.5", lambda _: reader)
    assert matcher.complaint is None
    assert describe(reader).values == {"loss": 0.5}


def test_a_loss_that_is_no_number_is_counted():
    """Each line with a `nan` or `inf` loss, gradient norm or evaluation is counted once."""
    line = "{{'loss': {}, 'grad_norm': {}, 'epoch': 0.5}}"
    run = take(line.format("nan", "1.0"), line.format("'nan'", "inf"), line.format("0.5", "1.0"))
    assert run.nonfinite == {"loss": 2, "gradient": 1, "evaluation": 0}
    run = take("{'eval_loss': nan, 'epoch': 1.0}")
    assert run.nonfinite == {"loss": 0, "gradient": 0, "evaluation": 1}
    assert (run.evaluations, run.evaluations_since_improvement) == (1, 1)


def test_a_bar_that_is_drawn_again_counts_a_loss_once_per_step():
    """A progress bar that is redrawn several times within a step counts a NaN loss once."""
    bar = "train: 5%|# | {}/100 [00:00<00:00, 9.0it/s, loss=nan]"
    run = take(*[bar.format(1)] * 5, *[bar.format(2)] * 5)
    assert run.nonfinite["loss"] == 2


def test_a_new_bar_does_not_move_the_run_back():
    """Lightning draws a new epoch's bar with the previous step number, which is ignored."""
    bar = "Epoch {}: 5%|# | {}/8 [00:00<00:00, 9.0it/s, train_loss=0.5]"
    run = take(bar.format(0, 8), bar.format(0, 0), bar.format(1, 0), bar.format(1, 1))
    assert (run.step, run.steps_seen) == (9, 1)


def test_the_bar_of_an_evaluation_is_not_that_of_the_steps():
    """The Trainer's two bars have no names; the bar before the first loss counts the steps."""
    bar = "  5%|#   | {}/{} [00:00<00:00, 9.0it/s]"
    loss = "{'loss': '0.5', 'epoch': '1'}"
    run = take(bar.format(3, 16), loss, bar.format(4, 16), bar.format(8, 8), loss)
    assert (run.step, run.values["total_steps"]) == (4, 16.0)


def test_the_steps_of_a_headline_are_counted():
    """A line `Epoch 2/3` sets the epoch of the progress bars that follow."""
    run = take("Epoch 2/3", "5/10 ━━━━ 0s 9ms/step - loss: 0.5")
    assert (run.step, run.epoch, run.values["total_epochs"]) == (15, 2.0, 3.0)


@pytest.mark.untraced
@given(st.lists(st.text(max_size=80), max_size=4))
def test_any_line_is_read(lines: list[str]):
    """Reading arbitrary lines raises no exception."""
    take(*lines)


PARTS = st.sampled_from(
    [
        "Epoch ", "epoch: ", "1", "/", "10", "%|", "| ", " [", "00:00<00:00, ", "it/s", "s/it", ", ",
        "loss", "val_loss", "=", ": ", "0.5", "nan", "-inf", "1e999", "9" * 30, "]", "{'", "': ", "'",
        "'epoch': ", "}", "'train_runtime'", "iteration ", " | ", "step:", "ms/step", "s/step", " - ",
        "validate step: ", "validation loss at iteration ", "number of nan iterations: ",
        "elapsed time per iteration (ms): ", "`Trainer.fit` stopped", "\x1b[31m", "🙂", "\x00",
    ]
)  # fmt: skip


@pytest.mark.untraced
@given(st.lists(st.lists(PARTS, max_size=25).map("".join), max_size=4))
def test_any_line_that_looks_like_training_is_read(lines: list[str]):
    """Malformed lines of training logs raise no exception, and no count becomes negative."""
    run = take(*lines)
    assert run.steps_seen >= 0
    assert run.evaluations >= 0
    assert all(count >= 0 for count in run.nonfinite.values())
    assert not math.isnan(run.last_time)


def test_an_evaluation_after_an_epoch_is_not_the_training():
    """The line of Keras' `evaluate` looks like an epoch's line and does not change the run."""
    found = take(
        "Epoch 9/20",
        "625/625 - 24s - loss: 0.4103 - val_loss: 0.8260 - 24s/epoch - 39ms/step",
        "157/157 - 5s - loss: 0.7984 - accuracy: 0.7311 - 5s/epoch - 31ms/step",
    )
    assert (found.step, found.values["loss"], found.values["step_seconds"]) == (5625, 0.4103, 0.039)
    assert "accuracy" not in found.values


def test_the_errors_that_boosting_minimizes_are_losses():
    """An RMSE is read as a loss, and an error rate is not."""
    found = take("[460]\ttraining's rmse: 0.376\tvalid_1's rmse: 0.475")
    assert (found.values["loss"], found.values["validation_loss"]) == (0.376, 0.475)
    assert "loss" not in take("[460]\ttrain-error:0.376").values
