"""The machine orion with a container that is OOM-killed repeatedly and a run that hangs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fleet.cards import Card, Use
from fleet.containers import FAILED, OOM, Container
from fleet.course import around, constant, ramp
from fleet.hosts import GIB, TIB, Life
from fleet.jobs import DEAD, KILLED, OUT_OF_MEMORY, Job
from fleet.machine import (
    Machine,
    Story,
    assemble,
    name_cards,
    root,
    shared_memory,
    use_by,
    volume,
)
from fleet.models import A100
from fleet.runs import Run
from fleet.script import Script
from trainvitals.sources.accelerators.reading import Identity

_TORCH = ("torch", "2.13.0")


def build(story: Story) -> Machine:
    """Build the machine orion."""
    names = name_cards("orion", 4)
    loop = story.script(("init", 15), ("train", 120), (DEAD, 30), into=60)
    bert, sweep = _train_bert(story, names[:2]), _train_sweep(story, names[2:3], loop)
    answering = Use(around(0.35, 0.6, 26), constant(31 * GIB), lambda _: (15_020,))
    uses = [use_by(bert, 0), use_by(bert, 1), use_by(sweep, 0), answering]
    cards = [Card(index, names[index], A100, use, story.start) for index, use in enumerate(uses)]
    sweeper = _run_sweep_worker(story, loop, cards[2].identity)
    scratch = volume("/scratch", "/dev/nvme1n1", "xfs", 4 * TIB, partial(_fill_up, story.begin))
    life = replace(_LIFE, volumes=(*_LIFE.volumes, scratch), oom_kills=sweeper.count_deaths)
    return assemble(
        "orion",
        "sweep-worker-1 is OOM-killed every three minutes, and its run sweep-17 with it; "
        "bert-large trains, stalls, dies and starts again; /scratch fills up",
        story,
        life,
        cards=cards,
        runs=(bert, sweep),
        containers=(sweeper, _run_inference(story, cards[3].identity), *_run_others(story)),
    )


def _train_bert(story: Story, devices: tuple[str, ...]) -> Run:
    job = Job(
        "bert-large",
        _TORCH,
        devices,
        pid=9_100,
        step_seconds=0.32,
        samples=64,
        tokens=512,
        total_steps=150_000,
        epoch_steps=12_000,
        loss=(9.8, 1.9),
        accuracy=(0.05, 0.71),
        memory_bytes=37 * GIB,
        reserved_bytes=40 * GIB,
        flops_per_sample=1.1e12,
        peak_flops=312e12,
        checkpoint_age_seconds=3600,
    )
    script = story.script(
        ("init", 30),
        ("compile", 45),
        ("train", 780),
        ("validation", 45),
        ("checkpoint", 15),
        ("train", 390),
        ("hung", 600),
        (DEAD, 300),
        into=1605,
    )
    return Run(job, script, story.start, outcome=KILLED)


def _train_sweep(story: Story, devices: tuple[str, ...], script: Script) -> Run:
    job = Job(
        "sweep-17",
        _TORCH,
        devices,
        pid=12_400,
        step_seconds=0.09,
        samples=32,
        total_steps=40_000,
        epoch_steps=2_000,
        loss=(2.3, 0.4),
        accuracy=(0.1, 0.93),
        memory_bytes=11 * GIB,
        reserved_bytes=12 * GIB,
    )
    return Run(job, script, story.start, outcome=OUT_OF_MEMORY)


def _run_sweep_worker(story: Story, script: Script, accelerator: Identity) -> Container:
    return Container(
        "sweep-worker-1",
        "registry.example/sweep:17",
        service="worker",
        project="sweep",
        start=story.start,
        fill=lambda seconds: 0.18 + 0.82 * seconds / 130,
        limit_bytes=8 * GIB,
        cores=around(3.6, 0.1, 21),
        limit_cores=4,
        script=script,
        end=OOM,
        accelerators=(accelerator,),
    )


def _run_inference(story: Story, accelerator: Identity) -> Container:
    return Container(
        "inference-1",
        "registry.example/inference:2.4",
        service="inference",
        project="chat",
        start=story.start,
        fill=constant(0.7),
        limit_bytes=40 * GIB,
        is_limited=False,
        cores=around(2.4, 0.4, 27),
        received_bytes=around(3e6, 0.6, 28),
        accelerators=(accelerator,),
    )


def _run_others(story: Story) -> tuple[Container, ...]:
    """Return a nearly full, a repeatedly failing, an unhealthy and a healthy container."""
    return (
        Container(
            "dataprep-1",
            "registry.example/dataprep:3.1",
            service="dataprep",
            project="data",
            start=story.start,
            fill=constant(0.968),
            limit_bytes=24 * GIB,
            cores=around(5.2, 0.2, 22),
            limit_cores=6,
            read_bytes=around(9e7, 0.3, 23),
        ),
        Container(
            "export-1",
            "registry.example/export:1.0",
            service="export",
            project="data",
            start=story.start,
            fill=constant(0.4),
            limit_bytes=2 * GIB,
            cores=constant(0.8),
            limit_cores=2,
            script=story.script(("running", 1500), (DEAD, 300), into=1560),
            end=FAILED,
            is_restarted=False,
        ),
        Container(
            "jupyter-1",
            "jupyter/pytorch-notebook",
            service="jupyter",
            project="notebooks",
            start=story.start,
            fill=constant(0.33),
            limit_bytes=16 * GIB,
            cores=around(0.2, 0.5, 24),
            health="unhealthy",
        ),
        Container(
            "tensorboard-1",
            "tensorflow/tensorflow",
            service="tensorboard",
            project="notebooks",
            start=story.start,
            fill=constant(0.21),
            limit_bytes=4 * GIB,
            cores=around(0.1, 0.4, 25),
            health="healthy",
        ),
    )


def _fill_up(begin: float, now: float) -> float:
    """Return the used share of a file system that is cleaned every four hours, when almost full."""
    into = (now - begin + 9400) % 14_400
    return 0.88 + 0.11 * ramp(into, 0, 14_100) - 0.11 * ramp(into, 14_100, 14_400)


_LIFE = Life(
    cores=32,
    memory_bytes=256 * GIB,
    busy=around(0.46, 0.15, 11),
    used_bytes=around(118 * GIB, 0.06, 12),
    volumes=(root(0.62), shared_memory(128 * GIB, 0.2)),
    cached_bytes=constant(84 * GIB),
    read_bytes=around(1.9e8, 0.4, 14),
    written_bytes=around(3.1e7, 0.4, 15),
    received_bytes=around(3e7, 0.4, 16),
    sent_bytes=around(1.2e7, 0.4, 17),
    io_stalled=around(0.04, 0.6, 18),
)
