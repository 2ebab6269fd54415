"""The machine vega without accelerators and without problems, on which the stack itself runs."""

from __future__ import annotations

from fleet.course import around, daylight, ripple
from fleet.hosts import GIB, Life
from fleet.machine import Machine, Story, assemble, root, shared_memory


def build(story: Story) -> Machine:
    """Build the machine vega."""
    life = Life(
        cores=16,
        memory_bytes=64 * GIB,
        busy=lambda now: 0.03 + 0.05 * daylight(now) + 0.01 * ripple(1, now),
        used_bytes=around(9 * GIB, 0.05, 2),
        volumes=(root(0.31), shared_memory(32 * GIB, 0.01)),
    )
    return assemble("vega", "no accelerator, nothing wrong", story, life)
