"""The check that every metric block of every collector must pass."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

import pytest

from trainvitals.metrics.families import Block

SOURCED = re.compile(r"[A-Z0-9][^.]*\. Source: \S.*\.", re.DOTALL)
NAMED = re.compile(r"[a-z][a-z0-9_]*")

Samples = dict[str, float]


@pytest.fixture
def samples() -> Callable[[Iterable[Block]], Samples]:
    """Return a function that checks blocks and returns their samples."""
    return read_samples


def read_samples(blocks: Iterable[Block]) -> Samples:
    """Check the blocks and return their samples by name and labels."""
    samples: Samples = {}
    names: list[str] = []
    for block in blocks:
        hash(block.shape)
        families = block.describe()
        assert families == block.describe()
        keys = []
        for family in families:
            names.append(family.name)
            assert NAMED.fullmatch(family.name)
            assert (family.type == "counter") == family.name.endswith("_total")
            assert SOURCED.fullmatch(family.help), family.help
            assert family.samples, family.name
            for suffix, labels in family.samples:
                written = ",".join(f'{name}="{value}"' for name, value in labels)
                keys.append(
                    f"{family.name}{suffix}{{{written}}}" if labels else family.name + suffix
                )
        assert len(block.values) == len(keys), (keys, block.values)
        for key, value in zip(keys, block.values, strict=True):
            assert key not in samples
            assert math.isfinite(value)
            assert math.copysign(1, value) == 1 or value < 0, f"{key} is -0.0"
            assert type(value) in (int, float), key
            samples[key] = value
    assert len(names) == len(set(names))
    return samples
