"""Numbers of a training in its command and log."""

from __future__ import annotations

import pytest

from tests.causes.evidences import death
from trainvitals.causes.case import open_case
from trainvitals.causes.evidence import Settings
from trainvitals.causes.hints import (
    advise_fewer_workers,
    advise_smaller_batch,
    find_batch_size,
    find_workers,
)


def case(*log, command=("python", "train.py")):
    """Give a case with a log and a command."""
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
    """It is found however frameworks write it."""
    hint = find_batch_size(case("epoch 1", line, "loss=0.1"))
    assert hint is not None
    assert hint.text == text


@pytest.mark.parametrize(
    "line", ["batch_size=0", "batch_size=1e5", "minibatch 32", "batch_size=None", "batch_size=0.5"]
)
def test_what_is_no_batch_size_is_not_taken_for_one(line):
    """Zero, fractions and other words are not."""
    assert find_batch_size(case(line)) is None


def test_the_command_goes_before_the_log():
    """What was asked for is what can be changed."""
    hint = find_batch_size(case("batch_size=64", command=("train", "--batch_size", "16")))
    assert hint is not None
    assert (hint.name, hint.value) == ("--batch_size", 16)


def test_the_last_value_in_the_log_holds():
    """A finder of batch sizes may have lowered it."""
    hint = find_batch_size(case("batch_size=64", "batch_size=32"))
    assert hint is not None
    assert hint.value == 32


def test_advice_has_half_the_number():
    """The step can be copied."""
    assert "had `--batch-size 32`, try `--batch-size 16`" in advise_smaller_batch(
        case(command=("train", "--batch-size", "32"))
    )
    assert "had `num_workers=8`, try `num_workers=4`" in advise_fewer_workers(case("num_workers=8"))


def test_advice_without_a_number_names_the_setting():
    """One sample or one worker cannot be halved."""
    for known in ((), ("batch_size=1", "num_workers=1")):
        assert "smaller batch (`--batch-size`)" in advise_smaller_batch(case(*known))
        assert "(`num_workers`)" in advise_fewer_workers(case(*known))
    assert find_workers(case("num_workers=1")) is not None
