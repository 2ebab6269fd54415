"""Tests for the values that are collected for one run."""

from __future__ import annotations

import math

from trainvitals.sources.runs.scalars import FoundRun, RunScalars


def describe(scalars: RunScalars) -> FoundRun:
    """Return the run with all its values."""
    return scalars.describe("run", "log", "path", started_time=None, last_time=0.0)


def test_nothing_is_known_at_first():
    """Values that were not logged are absent."""
    scalars = RunScalars()
    assert scalars.is_empty
    assert describe(scalars) == FoundRun(
        run="run",
        source="log",
        path="path",
        started_time=None,
        last_time=0.0,
        step=None,
        epoch=None,
        values={},
        metrics={},
        nonfinite={"loss": 0, "gradient": 0, "evaluation": 0},
        evaluations=0,
        evaluations_since_improvement=None,
        steps_seen=0,
        is_finished=None,
        omitted=0,
    )


def test_a_better_name_takes_the_word_over():
    """The value of the less suitable name becomes a free metric."""
    scalars = RunScalars()
    scalars.record("train_loss_epoch", 0.5)
    assert describe(scalars).values == {"loss": 0.5}
    scalars.record("train_loss_step", 0.25)
    run = describe(scalars)
    assert run.values == {"loss": 0.25}
    assert run.metrics == {("train_loss_epoch", "train"): 0.5}


def test_accuracies_are_better_when_they_are_higher():
    """The highest accuracy is the best; accuracies are compared only without a validation loss."""
    scalars = RunScalars()
    for accuracy in (0.5, 0.75, 0.7, 0.75):
        scalars.record("val_acc", accuracy)
    run = describe(scalars)
    assert (run.evaluations, run.evaluations_since_improvement) == (4, 2)
    scalars.record("val_loss", 0.5)
    run = describe(scalars)
    assert (run.evaluations, run.evaluations_since_improvement) == (1, 0)


def test_names_are_bounded():
    """At most 64 free metrics are kept, and at most 1024 names are counted."""
    scalars = RunScalars()
    for number in range(70):
        scalars.record(f"m{number}", 1.0)
    scalars.record("loss", 0.5)
    run = describe(scalars)
    assert (len(run.metrics), run.omitted, run.values) == (64, 6, {"loss": 0.5})
    for number in range(5000):
        scalars.record(f"n{number}", 1.0)
    assert describe(scalars).omitted == 960


def test_a_name_of_endless_length_is_left_out():
    """A name of more than 512 characters is left out, as a tag may contain a megabyte."""
    scalars = RunScalars()
    scalars.record("m" * 513, 1.0)
    assert (describe(scalars).metrics, describe(scalars).omitted) == ({}, 1)
    scalars.record("m" * 512, 1.0)
    assert len(describe(scalars).metrics) == 1


def test_a_run_has_a_name_that_can_be_shown():
    """Invalid bytes and line feeds become underscores, and only the end of a long name is kept."""
    scalars = RunScalars()
    name = "a" * 100 + "/\udcff\n" + "b" * 126
    run = scalars.describe(name, "log", "path", started_time=None, last_time=0.0)
    assert run.run == "__" + "b" * 126


def test_steps_are_counted_from_the_first_that_was_seen():
    """Going back to an earlier step, and the first step after a resume, add no steps."""
    scalars = RunScalars()
    for step in (1000, 1010, 1005, 1020):
        scalars.move(step)
    assert describe(scalars).steps_seen == 25
    scalars.resume()
    scalars.move(5000)
    scalars.move(5001)
    assert describe(scalars).steps_seen == 26


def test_the_time_of_a_step_is_reckoned_from_the_last_two():
    """The step time is estimated from the last two steps, unless a step time was logged."""
    scalars = RunScalars()
    scalars.move(10, 1000.0)
    scalars.move(20, 1005.0)
    assert describe(scalars).values == {"step_seconds": 0.5}
    scalars.record("batch_size", 32.0)
    assert describe(scalars).values == {"step_seconds": 0.5, "samples_per_second": 64.0}
    scalars.set_word("step_seconds", 0.25)
    assert describe(scalars).values == {"step_seconds": 0.25, "samples_per_second": 128.0}


def test_a_step_that_goes_on_takes_back_the_end():
    """A run that continues with a new step after its logged end is not finished."""
    scalars = RunScalars()
    scalars.move(10)
    scalars.is_finished = True
    scalars.move(10)
    assert describe(scalars).is_finished is True
    scalars.move(11)
    assert describe(scalars).is_finished is None


def test_values_that_are_no_numbers_are_kept_and_counted():
    """A NaN or infinite value replaces the last finite value and is counted."""
    scalars = RunScalars()
    scalars.record("loss", 0.5)
    scalars.record("loss", math.nan)
    scalars.record("loss", -math.inf)
    run = describe(scalars)
    assert run.values == {"loss": -math.inf}
    assert run.nonfinite["loss"] == 2
