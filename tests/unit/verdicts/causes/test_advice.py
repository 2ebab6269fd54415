"""Batch sizes, worker counts and memory limits in advice."""

from __future__ import annotations

import pytest

from tests.unit.verdicts.causes.evidences import death
from trainvitals.sources.containers.evidence import Settings
from trainvitals.verdicts.causes.advice import (
    advise_fewer_workers,
    advise_smaller_batch,
    find_batch_size,
    find_workers,
    format_option,
    suggest_limit,
)
from trainvitals.verdicts.causes.case import open_case


def case(*log, command=("python", "train.py")):
    """Return a case with a log and a command."""
    return open_case(death(1, log=log, settings=Settings(command=command)))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--batch-size 32", "--batch-size 32"),
        ("--batch-size=32 --lr 0.1", "--batch-size 32"),
        ("config: batch_size=64, lr=0.1", "batch_size=64"),
        ("{'per_device_train_batch_size': 8}", "per_device_train_batch_size=8"),
        ("Batch size: 16", "Batch size=16"),
        ("batch_size 128", "batch_size=128"),
        ("  Instantaneous batch size per device = 4", "batch size per device=4"),
    ],
)
def test_a_batch_size_is_found_in_the_log(line, text):
    """A batch size in the log is found in the notations of all common frameworks."""
    hint = find_batch_size(case("epoch 1", line, "loss=0.1"))
    assert hint is not None
    assert hint.text == text


@pytest.mark.parametrize(
    "line", ["batch_size=0", "batch_size=1e5", "minibatch 32", "batch_size=None", "batch_size=0.5"]
)
def test_what_is_no_batch_size_is_not_taken_for_one(line):
    """Zero, fractions, None and parts of other words are not read as a batch size."""
    assert find_batch_size(case(line)) is None


def test_the_command_goes_before_the_log():
    """A batch size in the command takes precedence over one in the log."""
    hint = find_batch_size(case("batch_size=64", command=("train", "--batch_size", "16")))
    assert hint is not None
    assert (hint.name, hint.value) == ("--batch_size", 16)


def test_the_last_value_in_the_log_holds():
    """The last batch size in the log is used, because a batch size finder may have lowered it."""
    hint = find_batch_size(case("batch_size=64", "batch_size=32"))
    assert hint is not None
    assert hint.value == 32


def test_advice_has_half_the_number():
    """The advice halves the batch size or the number of workers in the option's own notation."""
    assert "from `--batch-size 32` to `--batch-size 16`" in advise_smaller_batch(
        case(command=("train", "--batch-size", "32"))
    )
    assert "from `num_workers=8` to `num_workers=4`" in advise_fewer_workers(case("num_workers=8"))


def test_advice_without_a_number_names_the_setting():
    """If the number is unknown or 1, the advice names only the setting."""
    for known in ((), ("batch_size=1", "num_workers=1")):
        assert "Reduce the batch size (`--batch-size`)" in advise_smaller_batch(case(*known))
        assert "(`num_workers`)" in advise_fewer_workers(case(*known))
    assert find_workers(case("num_workers=1")) is not None


MIB, GIB = 1024**2, 1024**3


@pytest.mark.parametrize(
    ("needed", "option"),
    [
        (48 * MIB, "128m"),
        (512 * MIB, "768m"),
        (GIB, "1536m"),
        (2 * GIB, "3g"),
        (16 * GIB, "24g"),
        (17 * GIB, "26g"),
    ],
)
def test_a_new_limit_is_half_as_high_again_in_round_numbers(needed, option):
    """The suggested limit is 1.5 times the needed memory, rounded up, in the form of `--memory`."""
    assert format_option(suggest_limit(needed)) == option
