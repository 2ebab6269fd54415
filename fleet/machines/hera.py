"""The machine hera with 8 Gaudi cards, of which four are mostly idle: their run waits for data."""

from __future__ import annotations

from fleet.cards import Card, Use
from fleet.course import around, constant
from fleet.hosts import GIB, TIB, Life
from fleet.jobs import Job
from fleet.machine import Machine, Story, assemble, datasets, root, shared_memory, use_by
from fleet.models import GAUDI_3
from fleet.runs import Run
from trainvitals.runfile import ALERTS


def build(story: Story) -> Machine:
    """Build the machine hera."""
    names = tuple(f"01P4-HL3250A0-18-U4V{193 + index}-00-0{index}-00" for index in range(8))
    mixtral = _train_mixtral(story, names[:4])
    uses = [*(use_by(mixtral, rank) for rank in range(4)), *[Use()] * 4]
    return assemble(
        "hera",
        "mixtral-8x7b waits for its disk, so that four Gaudi cards hardly work",
        story,
        _LIFE,
        cards=[Card(at, names[at], GAUDI_3, use, story.start) for at, use in enumerate(uses)],
        runs=(mixtral,),
    )


def _train_mixtral(story: Story, devices: tuple[str, ...]) -> Run:
    job = Job(
        "mixtral-8x7b",
        ("optimum-habana", "1.19.0"),
        devices,
        pid=7_700,
        step_seconds=6.1,
        samples=4,
        tokens=4096,
        total_steps=30_000,
        epoch_steps=6_000,
        loss=(5.9, 1.9),
        memory_bytes=88 * GIB,
        reserved_bytes=96 * GIB,
        data_wait=0.86,
        flops_per_sample=3.2e14,
        peak_flops=1835e12,
        checkpoint_age_seconds=7200,
        nan_filter=True,
        alerts=1 << ALERTS.index("io_bottleneck"),
    )
    script = story.script(("train", 2400), ("checkpoint", 45), into=900)
    return Run(job, script, story.start, steps_before=5_200)


_LIFE = Life(
    cores=32,
    memory_bytes=1 * TIB,
    busy=around(0.21, 0.2, 31),
    used_bytes=around(240 * GIB, 0.04, 32),
    volumes=(root(0.5), shared_memory(512 * GIB, 0.05), datasets()),
    io_wait=around(0.16, 0.3, 33),
    cached_bytes=constant(610 * GIB),
    read_bytes=around(1.7e9, 0.12, 34),
    written_bytes=around(9e6, 0.5, 35),
    received_bytes=around(8e8, 0.15, 36),
    sent_bytes=around(9e6, 0.4, 37),
    io_stalled=around(0.52, 0.15, 38),
)
