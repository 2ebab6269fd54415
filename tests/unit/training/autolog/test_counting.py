"""Tests for counting training steps and batches."""

import pytest

from trainvitals.training.autolog.counting import Batches, StepCounter


class Optimizer:
    """An optimizer that supports weak references."""


def test_the_most_active_optimizer_counts():
    """The steps of the optimizer with the most steps are counted, whichever steps first."""
    one, other = Optimizer(), Optimizer()
    counter = StepCounter()
    for _ in range(10):
        counter.count(one)
        for _ in range(5):
            counter.count(other)
    assert counter.steps == 50


def test_an_optimizer_that_exists_no_more_is_succeeded_at_once():
    """If the leading optimizer no longer exists, the next optimizer continues the count."""
    counter, counts = StepCounter(), []
    for _ in range(3):
        optimizer = Optimizer()
        for _ in range(7):
            counter.count(optimizer)
            counts.append(counter.steps)
        del optimizer
    assert counts == list(range(1, 22))


def test_an_optimizer_that_is_silent_is_succeeded_after_fifty_steps():
    """If the leading optimizer takes none of 50 steps, another optimizer continues the count."""
    first, second, counter = Optimizer(), Optimizer(), StepCounter()
    for _ in range(200):
        counter.count(first)
    counted = [counter.count(second) for _ in range(100)]
    assert counted == [False] * 49 + [True] * 51
    assert counter.steps == 251


@pytest.mark.parametrize("ahead", [0, 1])
def test_each_batch_counts_once(ahead):
    """Each batch is counted once, even if one batch is fetched ahead."""
    batches = Batches()
    sizes = [8, 8, 8, 5]
    fetched = iter(sizes)
    for _ in range(ahead):
        batches.fetch([0] * next(fetched))
    for _ in sizes:
        size = next(fetched, None)
        if size:
            batches.fetch([0] * size)
        batches.use()
    assert batches.take() == (29, None)
    batches.use()
    assert batches.take() == (0, None)


def test_an_uncertain_batch_counts_when_it_is_confirmed():
    """A batch that was fetched while a model was in evaluation mode counts after confirmation."""
    batches = Batches()
    batches.fetch([0, 0], is_certain=False)
    batches.use()
    assert batches.take() == (0, None)
    batches.confirm()
    batches.use()
    assert batches.take() == (2, None)
