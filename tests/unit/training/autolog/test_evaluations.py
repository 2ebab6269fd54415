"""Tests for the detection of evaluations and of nested optimizer steps."""

import pytest

from trainvitals.training.autolog.evaluations import Evaluations
from trainvitals.training.autolog.nesting import StepNesting


class Module:
    """A stand-in for a PyTorch module."""

    def __init__(self, *children):
        self._children = children
        self.training = True

    def children(self):
        """Return the child modules."""
        return iter(self._children)

    def eval(self):
        """Set the module to evaluation mode, and return it."""
        self.training = False
        return self


@pytest.fixture
def evaluations():
    """A detector of evaluations."""
    return Evaluations()


def fetch(evaluations, *, has_gradients=True):
    """Fetch a batch, and return whether it is used for an evaluation."""
    found = evaluations.begin_fetch(has_gradients, has_passes=True)
    assert evaluations.end_fetch() == has_gradients
    return found


def test_a_model_in_evaluation_is_a_sign_until_any_model_is_trained(evaluations):
    """A model in evaluation mode indicates an evaluation until any model is trained."""
    model, average = Module(Module()), Module(Module())
    assert evaluations.set_mode(average.eval()) == "validation"
    assert [fetch(evaluations) for _ in range(4)] == [True] * 4
    assert evaluations.set_mode(model) == "other"
    assert not fetch(evaluations)
    assert evaluations.set_mode(model) is None


def test_a_model_in_evaluation_while_another_is_trained_is_no_sign_again(evaluations):
    """A model in evaluation mode during a backward pass is ignored from then on, like a teacher."""
    teacher = Module(Module()).eval()
    evaluations.set_mode(teacher)
    assert fetch(evaluations)
    assert evaluations.use_batch()
    assert evaluations.set_mode(teacher) is None
    assert not fetch(evaluations)


def test_a_frozen_layer_is_no_sign(evaluations):
    """A module without children in evaluation mode is a frozen layer and no evaluation."""
    assert evaluations.set_mode(Module().eval()) is None
    assert not fetch(evaluations)


def test_batches_without_gradients_or_without_passes_are_for_an_evaluation(evaluations):
    """Batches without gradients, or without backward passes, are used for an evaluation.

    The first three batches without a backward pass may have been fetched ahead.
    """
    assert fetch(evaluations, has_gradients=False)
    assert [fetch(evaluations) for _ in range(5)] == [False, False, False, True, True]
    evaluations.use_batch()
    assert not fetch(evaluations)


def test_the_outermost_step_counts():
    """Only the outermost of several nested optimizer steps counts."""
    nesting, outer, inner = StepNesting(), object(), object()
    assert nesting.begin(outer, 1)
    assert [nesting.begin(inner, 1), nesting.begin(outer, 1)] == [False, False]
    assert [nesting.end(), nesting.end(), nesting.end()] == [False, False, True]


def test_a_step_that_raised_an_exception_is_forgotten():
    """A step that began before the last backward pass and did not end is discarded."""
    nesting, optimizer = StepNesting(), object()
    assert nesting.begin(optimizer, 1)
    assert nesting.begin(optimizer, 2)
    assert nesting.end()
    assert not nesting.in_progress


def test_an_optimizer_that_steps_again_begins_a_step():
    """An optimizer that takes a second step begins a new training step."""
    nesting, one, other = StepNesting(), object(), object()
    assert [nesting.repeats(each) for each in (one, other, one)] == [False, False, True]
    nesting.lone.clear()
    assert not nesting.repeats(one)
