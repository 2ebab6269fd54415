"""What is read from batches and forward passes of real PyTorch models."""

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
    """A batch of a user's own making."""

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
    """The first dimension, or the number of members where there is none in common."""
    assert count_samples(batch) == samples


def test_a_batch_that_contains_itself_ends():
    """Nesting is followed a few levels only."""
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
    """Whether a mapping or an object has them."""
    assert count_tokens(batch) == tokens


class Tower(torch.nn.Module):
    """Return the mean of its input as its loss, as a dictionary, a tuple or an object."""

    def __init__(self, form="dictionary"):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))
        self.form = form

    def forward(self, input_ids, num_items_in_batch=None):
        """Divide by the number of items where it is given."""
        loss = self.weight * input_ids.float().sum() / (num_items_in_batch or input_ids.numel())
        if self.form == "dictionary":
            return {"loss": loss}
        if self.form == "tuple":
            return (loss, input_ids)
        return type("Output", (), {"loss": loss})()


@pytest.fixture
def monitor(tmp_path):
    """Return a monitor of the test's own."""
    with TrainingMonitor("forwards", run_dir=tmp_path) as monitor:
        yield monitor


def watch(monitor, model, **settings):
    """Return what watches a model, at the begin of a step."""
    passes = ForwardPasses(monitor, batch_size=7, **settings)
    passes.watch(model)
    passes.start_step()
    return passes


@pytest.mark.parametrize("form", ["dictionary", "tuple", "object"])
def test_a_step_is_its_micro_batches(monitor, form):
    """Two of 2 rows of 3 tokens, with the losses 1 and 3, are 4 rows, 12 tokens and the loss 2."""
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
    """Of 12 items the first 6 give 6/12, the others 18/12; together that is 2."""
    model = Tower()
    passes = watch(monitor, model)
    model(input_ids=torch.full((2, 3), 1), num_items_in_batch=12)
    passes.end_micro_batch()
    model(input_ids=torch.full((2, 3), 3), num_items_in_batch=12)
    passes.end_step()
    assert passes.loss.item() == 2


def test_the_items_of_other_ranks_are_taken_out(monitor):
    """With two ranks' items in the divisor it is doubled, also where it is scaled in place later."""
    model = Tower()
    passes = watch(monitor, model, ranks=2)
    outputs = model(input_ids=torch.full((2, 3), 1), num_items_in_batch=12)
    outputs["loss"] *= 2
    passes.end_step()
    assert passes.loss.item() == 1


def test_forwards_without_gradients_do_not_count(monitor):
    """Generation and reference models run within a step of training."""
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
    """Whoever asked for it, and with gradients or without."""
    model = Tower()
    passes = watch(monitor, model)
    model.eval()(input_ids=torch.ones(2, 3))
    assert monitor.current_phase == "validation"
    assert passes.samples == 0


def test_two_towers_see_the_same_samples(monitor):
    """Of two forwards in a micro-batch both have tokens, and neither has the step's loss alone."""
    model = Tower()
    passes = watch(monitor, model)
    model(input_ids=torch.ones(2, 3))
    model(input_ids=torch.ones(2, 5))
    passes.end_step()
    assert (passes.samples, passes.tokens) == (2, 16)
    assert passes.loss is None


def test_a_step_that_was_not_seen_has_the_batch_size(monitor):
    """Two micro-batches of 7 rows are 14; tokens and loss are unknown."""
    passes = watch(monitor, Tower())
    passes.end_micro_batch()
    passes.end_step()
    assert (passes.samples, passes.tokens, passes.loss) == (14, None, None)


def test_other_threads_are_left_alone(monitor):
    """The replicas of DataParallel have the model's hooks and run side by side."""
    model = Tower()
    passes = watch(monitor, model)
    thread = threading.Thread(target=lambda: model(input_ids=torch.ones(2, 3)))
    thread.start()
    thread.join()
    passes.end_step()
    assert (passes.samples, passes.tokens, passes.loss) == (7, None, None)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_a_model_that_is_traced_is_left_alone(monitor):
    """What the hooks do is no part of the model, and would fail the check of the trace."""

    class Line(torch.nn.Linear):
        """Return its loss beside its output."""

        def forward(self, x):
            """Return both."""
            y = super().forward(x)
            return {"loss": y.mean(), "logits": y}

    model = Line(3, 1)
    passes = watch(monitor, model)
    torch.jit.trace(model, torch.ones(2, 3), strict=False)
    passes.end_step()
    assert (passes.samples, passes.loss) == (7, None)
    assert monitor.errors.count == 0


def test_what_is_no_model_is_not_watched(monitor):
    """A Trainer without a model, or with one of another framework, goes on."""
    passes = ForwardPasses(monitor, batch_size=7)
    passes.watch(None)
    passes.close()
    assert monitor.errors.count == 0
