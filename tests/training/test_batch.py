"""Samples and tokens in what data loaders give."""

from collections import UserDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from trainvitals.training.batch import count_samples, count_tokens


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
