"""Tests for the log formats that are recognized without configuration."""

from __future__ import annotations

import time

import pytest

from trainvitals.sources.runs.formats import FORMATS
from trainvitals.sources.runs.formats.entry import Format, list_patterns
from trainvitals.sources.runs.line_matcher import LineMatcher
from trainvitals.sources.runs.lines import LineReader
from trainvitals.sources.runs.profiles import PROFILES
from trainvitals.sources.runs.scalars import FoundRun

_MEGABYTE = 1 << 20
NAMES = [entry.name for entry in FORMATS]


def read(text: str) -> FoundRun:
    """Return the run that is read from a log with all formats."""
    reader = LineReader()
    matcher = LineMatcher(PROFILES)
    for line in text.splitlines():
        matcher.take(line, lambda _: reader)
    return reader.scalars.describe("run", "log", "path", started_time=None, last_time=0.0)


@pytest.mark.parametrize("entry", FORMATS, ids=NAMES)
def test_the_example_of_a_format_is_read(entry: Format):
    """The example of a format yields exactly the values that the format lists."""
    run = read(entry.example)
    values = dict(run.values)
    values |= {
        name: value
        for name, value in (("step", run.step), ("epoch", run.epoch))
        if value is not None
    }
    assert values == pytest.approx(dict(entry.reads))


@pytest.mark.parametrize("entry", FORMATS, ids=NAMES)
def test_a_megabyte_of_near_matches_takes_no_time(entry: Format):
    """No expression takes a second to search a million characters of its own incomplete lines."""
    near = [line[:-1] for line in entry.example.splitlines()]
    texts = [(line * (_MEGABYTE // len(line) + 1))[:_MEGABYTE] for line in near if line]
    for pattern in list_patterns(entry):
        for text in texts:
            began = time.thread_time()
            pattern.regex.search(text)
            assert time.thread_time() - began < 1, pattern.regex.pattern


def test_every_format_has_one_name():
    """No two formats have the same name."""
    assert len(set(NAMES)) == len(NAMES)


def test_a_value_is_not_shown_after_the_log_goes_on_in_another_form():
    """Values are dropped if the log continues in a form that no pattern recognizes."""
    first = "Epoch 1: loss: 0.5 | val_loss: 0.75\n"
    run = read(first)
    assert run.values == {"loss": 0.5, "validation_loss": 0.75}
    run = read(first + "".join(f"loss of epoch <{n}> step 10 is 0.4\n" for n in range(2, 7)))
    assert (run.values, run.metrics, run.step, run.epoch) == ({}, {}, None, None)


def test_an_epoch_without_values_does_not_keep_those_of_an_earlier_one():
    """The loss of an earlier epoch is dropped if the values of later epochs cannot be read."""
    run = read("Epoch 1/20\n8/8 ━━━━ 0s 9ms/step - loss: 0.5\n" + "Epoch 2/20\nmae 0.4\n" * 5)
    assert "loss" not in run.values
    assert run.epoch == 2.0


def test_a_value_that_is_logged_rarely_stays():
    """A value is kept if as many unrecognized lines follow the value as preceded it."""
    unknown = "".join(f"the step {n} is done\n" for n in range(100))
    run = read(unknown + "Epoch 1: val_loss: 0.75\n" + unknown)
    assert run.values == {"validation_loss": 0.75}


def test_lines_that_are_not_about_training_make_nothing_old():
    """A value is kept if a thousand lines that are not about training follow it."""
    run = read("Epoch 1: val_loss: 0.75\n" + "UserWarning: the loss has another shape\n" * 1000)
    assert run.values == {"validation_loss": 0.75}


def test_the_loss_that_is_logged_more_often_is_the_loss():
    """The loss that is logged more often is chosen, even if an evaluation logs one first."""
    run = read(
        "Iteration 0: train_loss = 9.5, val_loss = 9.0\nIter 1: loss 8.5\nIter 2: loss 8.0\n"
    )
    assert run.values["loss"] == 8.0


def test_epochs_of_unknown_length_are_added():
    """If the length of an epoch is unknown, the steps in the last bar of each epoch are added."""
    bar = "Epoch {}: {}it [00:02, 20.00it/s, train_loss=0.5]\n"
    assert read(bar.format(0, 30) + bar.format(0, 40) + bar.format(1, 5)).step == 45
    assert read(bar.format(3, 30)).step is None


@pytest.mark.parametrize(
    ("text", "step", "total_epochs"),
    [
        (
            "Epoch gpu_mem box obj cls labels img_size\n 2/9 3.62G 0.1 0.2 0.3 24 640: 50%|# | 5/10",
            25,
            10,
        ),
        (
            "Epoch GPU_mem box_loss cls_loss dfl_loss Size\n 2/9 3.6G 1.1 2.2 3.3 640: 50%|# | 5/10",
            15,
            9,
        ),
    ],
)
def test_the_versions_of_yolo_count_epochs_from_another_number(
    text: str, step: int, total_epochs: int
):
    """The columns of the heading show whether a YOLO version counts epochs from 0 or from 1."""
    run = read(text.replace(" ", "  ").replace("5/10", "5/10 [00:01<00:01, 4.0it/s]"))
    assert (run.step, run.values["total_epochs"]) == (step, total_epochs)


@pytest.mark.parametrize(
    "line",
    [
        "Step 3/10 : RUN pip install torch",
        'GET /loss?epoch=3 HTTP/1.1" 200 512',
        "Args: {'lr': 0.1, 'epochs': 10, 'loss': 'ce'}",
        '{"lr": 0.1, "epochs": 10, "loss": "ce"}',
        "Loading checkpoint shards: 100%|######| 2/2 [00:05<00:00,  2.50s/it]",
        "| loss      | 0.5   |",
        " 12  34  56.5  78",
    ],
)
def test_a_line_that_only_looks_like_training_is_not_read(line: str):
    """Settings, build steps, requests and other tables yield no values of a run."""
    run = read(line)
    assert (run.step, run.epoch, run.values, run.metrics) == (None, None, {}, {})
