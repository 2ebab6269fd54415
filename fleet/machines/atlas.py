"""The machine atlas with 8 GPUs, of which one overheats, one is lost and one is held idle."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fleet.cards import Card, Use
from fleet.course import around, constant, ramp
from fleet.hosts import GIB, TIB, Life
from fleet.jobs import DEAD, Job, Outcome, Slowdown
from fleet.machine import (
    Machine,
    Story,
    assemble,
    datasets,
    name_cards,
    root,
    shared_memory,
    use_by,
    use_by_both,
    volume,
)
from fleet.models import H100
from fleet.runs import Run
from fleet.script import Script, Stage

_TORCH = ("torch", "2.13.0")
_FELL_OFF_THE_BUS, _PAGE_FAULT = 79, 31
_LOST_BEFORE_SECONDS = 4200.0
_AGAIN_BEFORE_SECONDS = 2700.0
_FAULTS_EVERY_SECONDS = 5400.0
_CARD_LOST = Outcome("exception", exit_code=1, exception="AcceleratorError")


def build(story: Story) -> Machine:
    """Build the machine atlas."""
    names = name_cards("atlas", 8)
    lost_at = story.begin - _LOST_BEFORE_SECONDS
    faults = tuple(story.begin - 90 + _FAULTS_EVERY_SECONDS * number for number in range(-4, 50))
    heat = partial(_overheat, story.begin)
    hot = Card(3, names[3], H100, Use(load=constant(0.97), hotter_by=heat), story.start)
    slowdown = Slowdown(3, lambda now: 1 + 0.8 * hot.slowed_by_heat(now))
    llama = _train_llama(story, names[:4], slowdown)
    vit = _train_vit(story, names[5:], lost_at)
    again = _train_vit_again(story, names[6:])
    notebook = Use(held_bytes=constant(23 * GIB), pids=lambda _: (38_211,))
    uses = [
        *(use_by(llama, rank) for rank in range(3)),
        replace(use_by(llama, 3), hotter_by=heat),
        notebook,
        replace(use_by(vit, 0), lost_at=lost_at, xids=((_FELL_OFF_THE_BUS, (lost_at,)),)),
        replace(use_by_both(use_by(vit, 1), use_by(again, 0)), xids=((_PAGE_FAULT, faults),)),
        use_by_both(use_by(vit, 2), use_by(again, 1)),
    ]
    cards = [Card(index, names[index], H100, use, story.start) for index, use in enumerate(uses)]
    xids = (
        (cards[5].identity.bus_id, _FELL_OFF_THE_BUS, (lost_at,)),
        (cards[6].identity.bus_id, _PAGE_FAULT, faults),
    )
    return assemble(
        "atlas",
        "GPU 3 overheats and slows llama-7b down; GPU 5 fell off the bus and took vit-b16 along; "
        "a notebook holds GPU 4",
        story,
        replace(_LIFE, xids=xids),
        cards=cards,
        runs=(llama, vit, again),
    )


def _train_llama(story: Story, devices: tuple[str, ...], slowdown: Slowdown) -> Run:
    job = Job(
        "llama-7b",
        _TORCH,
        devices,
        pid=41_000,
        step_seconds=2.4,
        samples=8,
        tokens=4096,
        total_steps=60_000,
        epoch_steps=15_000,
        loss=(6.4, 1.7),
        metrics={"perplexity": (600.0, 6.1)},
        memory_bytes=62 * GIB,
        reserved_bytes=66 * GIB,
        flops_per_sample=1.72e14,
        peak_flops=989e12,
        checkpoint_age_seconds=7200,
    )
    script = story.script(
        ("train", 1500), ("validation", 60), ("train", 1500), ("checkpoint", 30), into=600
    )
    return Run(job, script, story.start, steps_before=21_000, slowdown=slowdown)


def _train_vit(story: Story, devices: tuple[str, ...], lost_at: float) -> Run:
    """Return a run that trains until a card is lost and does not restart."""
    each = (Stage("train", 1200), Stage("validation", 45), Stage("checkpoint", 15))
    rounds, rest = divmod(lost_at - story.start, sum(stage.seconds for stage in each))
    stages = [*each * int(rounds), Stage("train", rest), Stage(DEAD, 1e9)]
    return Run(_describe_vit(devices), Script(stages, story.start), story.start, outcome=_CARD_LOST)


def _train_vit_again(story: Story, devices: tuple[str, ...]) -> Run:
    job = replace(_describe_vit(devices), run="vit-b16-on-2", pid=53_000, step_seconds=0.44)
    start = story.begin - _AGAIN_BEFORE_SECONDS
    stages = (Stage("train", 1200), Stage("validation", 45), Stage("checkpoint", 15))
    return Run(job, Script(stages, start), start)


def _describe_vit(devices: tuple[str, ...]) -> Job:
    return Job(
        "vit-b16",
        _TORCH,
        devices,
        pid=52_000,
        step_seconds=0.41,
        samples=256,
        total_steps=90_000,
        epoch_steps=5_000,
        loss=(6.9, 1.1),
        accuracy=(0.01, 0.82),
        memory_bytes=41 * GIB,
        reserved_bytes=44 * GIB,
        checkpoint_age_seconds=3600,
    )


def _overheat(begin: float, now: float) -> float:
    """Return the additional °C of a card whose fan fails for 90 minutes every three hours."""
    into = (now - begin + 2400) % 10_800
    return 27 * (ramp(into, 0, 900) - ramp(into, 4800, 5700))


_LIFE = Life(
    cores=32,
    memory_bytes=1 * TIB,
    busy=around(0.38, 0.1, 3),
    used_bytes=around(310 * GIB, 0.03, 4),
    volumes=(
        root(0.44),
        shared_memory(512 * GIB, 0.09),
        datasets(),
        volume("/scratch", "/dev/nvme1n1", "xfs", 14 * TIB, around(0.55, 0.01, 51)),
    ),
    cached_bytes=constant(420 * GIB),
    read_bytes=around(3.1e8, 0.3, 6),
    written_bytes=around(4e7, 0.5, 7),
    received_bytes=around(2.2e8, 0.3, 8),
    sent_bytes=around(3e7, 0.4, 9),
    io_stalled=around(0.02, 0.5, 10),
)
