"""Samples, tokens and losses that are read from forward passes of real PyTorch models."""

import threading
from collections import UserDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from trainvitals.training.frameworks import ForwardPasses, count_samples, count_tokens
from trainvitals.training.monitor import TrainingMonitor


class Pair(NamedTuple):
    """A batch that is a named tuple."""

    image: torch.Tensor
    label: torch.Tensor


@dataclass
class Both:
    """A batch that is a user's dataclass."""

    image: torch.Tensor
    label: torch.Tensor


IMAGES, LABELS = torch.zeros(8, 3, 4, 4), torch.zeros(8)


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (IMAGES, 8),
        ([IMAGES, LABELS], 8),
        ((IMAGES, LABELS), 8),
        (Pair(IMAGES, LABELS), 8),
        (Both(IMAGES, LABELS), 8),
        ({"image": IMAGES, "label": LABELS}, 8),
        (UserDict(image=IMAGES, label=LABELS), 8),
        ([{"image": IMAGES}, ["a", "b"]], 8),
        ({"name": ["a", "b", "c"]}, 3),
        ([torch.zeros(5), torch.zeros(9), torch.zeros(7)], 3),
        ([torch.zeros(5, 2), torch.zeros(9, 2)] * 50, 100),
        ([IMAGES, torch.zeros(37, 6)], 8),
        ((IMAGES, torch.zeros(37)), 8),
        (SimpleNamespace(shape="square", image=IMAGES), 8),
        (np.zeros((6, 2)), 6),
        (SimpleNamespace(num_graphs=4, x=torch.zeros(90, 3)), 4),
        ([IMAGES, torch.tensor(1.0)], 8),
        (torch.tensor(1.0), None),
        (None, None),
        ({}, None),
        (7, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_samples_are_counted_by_shapes(batch, samples):
    """The sample count is the first dimension, or the number of members if they differ in it."""
    assert count_samples(batch) == samples


def test_a_batch_that_contains_itself_ends():
    """A batch that contains itself has no sample count, because nesting is limited."""
    batch = {}
    batch["self"] = batch
    assert count_samples(batch) is None


@pytest.mark.parametrize(
    ("batch", "tokens"),
    [
        ({"input_ids": torch.zeros(4, 128, dtype=torch.long)}, 512),
        (SimpleNamespace(input_ids=torch.zeros(2, 10)), 20),
        ([{"input_ids": torch.zeros(2, 10)}, LABELS], 20),
        ({"image": IMAGES}, None),
        (IMAGES, None),
        (None, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_tokens_are_the_elements_of_input_ids(batch, tokens):
    """The token count is the size of `input_ids` in a mapping or an object."""
    assert count_tokens(batch) == tokens


class Tower(torch.nn.Module):
    """A model that returns the mean of its input as loss in a dictionary, tuple or object."""

    def __init__(self, form="dictionary"):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))
        self.form = form

    def forward(self, input_ids, num_items_in_batch=None):
        """Return the loss, divided by the number of items if that is given."""
        loss = self.weight * input_ids.float().sum() / (num_items_in_batch or input_ids.numel())
        if self.form == "dictionary":
            return {"loss": loss}
        if self.form == "tuple":
            return (loss, input_ids)
        return type("Output", (), {"loss": loss})()


@pytest.fixture
def monitor(tmp_path):
    """Return a training monitor."""
    with TrainingMonitor("forwards", run_dir=tmp_path) as monitor:
        yield monitor


def watch(monitor, model, **settings):
    """Return `ForwardPasses` that watch a model, at the beginning of a step."""
    passes = ForwardPasses(monitor, batch_size=7, **settings)
    passes.watch(model)
    passes.start_step()
    return passes


@pytest.mark.parametrize("form", ["dictionary", "tuple", "object"])
def test_a_step_is_its_micro_batches(monitor, form):
    """Samples and tokens of micro-batches are summed, and their losses 1 and 3 have the mean 2."""
    model = Tower(form)
    passes = watch(monitor, model)
    model(input_ids=torch.full((2, 3), 1))
    assert monitor.current_phase == "backward"
    passes.end_micro_batch()
    model(input_ids=torch.full((2, 3), 3))
    passes.end_step()
    assert (passes.samples, passes.tokens) == (4, 12)
    assert passes.loss.item() == 2
    assert not passes.loss.requires_grad


def test_scaled_losses_are_parts(monitor):
    """Losses that the model divides by all items of the step are summed to 6/12 + 18/12 = 2."""
    model = Tower()
    passes = watch(monitor, model)
    model(input_ids=torch.full((2, 3), 1), num_items_in_batch=12)
    passes.end_micro_batch()
    model(input_ids=torch.full((2, 3), 3), num_items_in_batch=12)
    passes.end_step()
    assert passes.loss.item() == 2


def test_the_items_of_other_ranks_are_taken_out(monitor):
    """With the items of two ranks in the divisor, the loss is doubled; later scaling is ignored."""
    model = Tower()
    passes = watch(monitor, model, ranks=2)
    outputs = model(input_ids=torch.full((2, 3), 1), num_items_in_batch=12)
    outputs["loss"] *= 2
    passes.end_step()
    assert passes.loss.item() == 1


def test_forwards_without_gradients_do_not_count(monitor):
    """Forward passes without gradients, as of reference models, count no samples or tokens."""
    model = Tower()
    passes = watch(monitor, model)
    monitor.mark("other")
    with torch.no_grad():
        model(input_ids=torch.ones(2, 3))
    assert monitor.current_phase == "other"
    model(input_ids=torch.ones(1, 3))
    passes.end_step()
    assert (passes.samples, passes.tokens) == (1, 3)


def test_a_forward_in_evaluation_mode_is_validation(monitor):
    """A forward pass in evaluation mode is in the validation phase and counts no samples."""
    model = Tower()
    passes = watch(monitor, model)
    model.eval()(input_ids=torch.ones(2, 3))
    assert monitor.current_phase == "validation"
    assert passes.samples == 0


def test_two_towers_see_the_same_samples(monitor):
    """Two forward passes in a micro-batch share its samples, sum their tokens and have no loss."""
    model = Tower()
    passes = watch(monitor, model)
    model(input_ids=torch.ones(2, 3))
    model(input_ids=torch.ones(2, 5))
    passes.end_step()
    assert (passes.samples, passes.tokens) == (2, 16)
    assert passes.loss is None


def test_a_step_that_was_not_seen_has_the_batch_size(monitor):
    """Without a forward pass a micro-batch counts the batch size, and its tokens are unknown."""
    passes = watch(monitor, Tower())
    passes.end_micro_batch()
    passes.end_step()
    assert (passes.samples, passes.tokens, passes.loss) == (14, None, None)


def test_other_threads_are_left_alone(monitor):
    """Forward passes in other threads, as of DataParallel's replicas, do not count."""
    model = Tower()
    passes = watch(monitor, model)
    thread = threading.Thread(target=lambda: model(input_ids=torch.ones(2, 3)))
    thread.start()
    thread.join()
    passes.end_step()
    assert (passes.samples, passes.tokens, passes.loss) == (7, None, None)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_a_model_that_is_traced_is_left_alone(monitor):
    """The hooks do nothing while a model is traced, because they would fail the trace's check."""

    class Line(torch.nn.Linear):
        """A linear layer that returns a loss with its output."""

        def forward(self, x):
            """Return the loss and the output."""
            y = super().forward(x)
            return {"loss": y.mean(), "logits": y}

    model = Line(3, 1)
    passes = watch(monitor, model)
    torch.jit.trace(model, torch.ones(2, 3), strict=False)
    passes.end_step()
    assert (passes.samples, passes.loss) == (7, None)
    assert monitor.errors.count == 0


def test_what_is_no_model_is_not_watched(monitor):
    """Watching None instead of a model is not an error."""
    passes = ForwardPasses(monitor, batch_size=7)
    passes.watch(None)
    passes.close()
    assert monitor.errors.count == 0
