"""Eight machines and their ordinary week, from Monday 00:00 on.

What happens is written out in `plan_fleet`; only small noise is drawn, from fixed seeds. Nothing in
it needs a person at night. What may come as a warning is marked as such where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tests.week.accelerators import Heat, Model, write_accelerators
from tests.week.host import Filling, Spell, write_host, write_stack
from tests.week.runs import DAY, HOUR, Attempt, Job, Stage, train
from tests.week.series import Minutes, Page
from tests.week.training import write_training

WEEK = 7 * DAY

# Limits, links and memory as the vendors give them; how warm they get is made up.
H100 = Model("NVIDIA H100 80GB HBM3", "gpu", 80, 31, 66, None, 87, 700, links=18)
A100 = Model("NVIDIA A100-SXM4-80GB", "gpu", 80, 30, 68, 92, 92, 400, links=12)
L40S = Model("NVIDIA L40S", "gpu", 48, 33, 74, None, 92, 350)
CONSUMER = Model(
    "NVIDIA GeForce RTX 2080 SUPER",
    "gpu",
    8,
    41,
    83,
    97,
    97,
    250,
    counts_ecc=False,
    warm_share=0.02,
)
GAUDI = Model("HL-325L", "hpu", 128, 36, 71, 90, 90, 850)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine and what happens on it.

    Attributes:
        name: Its host name, the label `instance`.
        model: Of its cards.
        cards: How many it has.
        attempts: Starts of its runs.
        spells: When it is busy otherwise, in order.
        fillings: Its file systems.
        blips: Minutes in which a single scrape fails.
        reboot: From when until when it was away for a planned reboot; None for never.
        heat: Cards that get hotter than they should.
        clock_offset_seconds: How far its clock is ahead.
        memory_gib: Its memory.
        has_stack: Whether Prometheus and Alertmanager run here.
    """

    name: str
    model: Model
    cards: int
    attempts: Sequence[Attempt]
    spells: Sequence[Spell] = ()
    fillings: Sequence[Filling] = ()
    blips: Sequence[int] = ()
    reboot: Minutes | None = None
    heat: Sequence[Heat] = ()
    clock_offset_seconds: float = 0.02
    memory_gib: int = 1024
    has_stack: bool = False

    def shrink(self, cards: int) -> Node:
        """Give the same machine with fewer cards, and so with fewer ranks."""
        attempts = [
            replace(attempt, job=replace(attempt.job, devices=devices))
            for attempt in self.attempts
            if (devices := tuple(device for device in attempt.job.devices if device < cards))
        ]
        return replace(self, cards=cards, attempts=attempts)

    def begin_at(self, minute: int) -> Node:
        """Give the same machine with a week that begins later; what was before is left out."""
        earlier = -minute
        return replace(
            self,
            attempts=[
                replace(attempt, start=attempt.start + earlier)
                for attempt in self.attempts
                if attempt.start >= minute
            ],
            spells=[
                replace(spell, start=spell.start + earlier, end=spell.end + earlier)
                for spell in self.spells
            ],
            fillings=[
                replace(filling, levels=[(then + earlier, share) for then, share in filling.levels])
                for filling in self.fillings
            ],
            blips=[blip + earlier for blip in self.blips if blip >= minute],
        )

    def write(self, minutes: int = WEEK) -> Page:
        """Write everything that its exporter serves in so many minutes."""
        away = [(minute, minute + 1) for minute in self.blips]
        away += [self.reboot] if self.reboot else []
        back = [self.reboot[1]] if self.reboot else []
        page = Page(self.name, away=sorted(away), reboots=back)
        planned = sorted(self.attempts, key=lambda attempt: attempt.start)
        attempts = [attempt for attempt in planned if attempt.start < minutes]
        write_training(page, self.model.kind, attempts)
        write_accelerators(page, self.model, self.cards, attempts, minutes=minutes, heat=self.heat)
        if self.has_stack:
            write_stack(page, minutes)
        write_host(
            page,
            minutes=minutes,
            memory_gib=self.memory_gib,
            spells=self.spells,
            fillings=(*self.fillings, *_FILE_SYSTEMS),
            boots=(-5 * DAY, *back),
            clock_offset_seconds=self.clock_offset_seconds,
        )
        return page


_FILE_SYSTEMS = (Filling("/run", 50e9, [(0, 0.98)]),)
_ALL = tuple(range(8))


def at(day: int, hour: int, minute: int = 0) -> int:
    """Give the minute of a time, with 0 for Monday."""
    return day * DAY + hour * HOUR + minute


def plan_fleet() -> Mapping[str, Node]:
    """Plan the week of all eight machines, by name."""
    nodes = (
        _plan_pretraining("h100-1", first_rank=0, raising_rank="1"),
        _plan_pretraining("h100-2", first_rank=8, raising_rank=None),
        _plan_office("a100-1"),
        _plan_sweeps("l40s-1"),
        _plan_consumer("rtx-1"),
        _plan_gaudi("gaudi-1"),
        _plan_datasets("a100-2"),
        _plan_alignment("h100-3"),
    )
    return {node.name: node for node in nodes}


def _plan_pretraining(name: str, *, first_rank: int, raising_rank: str | None) -> Node:
    """Sixteen ranks on two machines.

    A rank raises on Monday afternoon; torchrun ends the others by SIGTERM and starts all anew two
    minutes later. On Wednesday the run is stopped and started again on purpose. It finishes on
    Friday.
    """
    job = Job(
        "llama-8b", _ALL, first_rank=first_rank, world_size=16, step_seconds=6.5,
        slowest_step_seconds=9.0, samples=8, reserved=0.86, allocated=0.8, loss=(8.0, 2.1),
        checkpoint_max_age_minutes=240,
    )  # fmt: skip
    habits = {"checkpoint_every": 120, "checkpoint": 12, "validation_every": 240, "validation": 8}
    first = train(at(0, 15, 10) - at(0, 8, 30), init=6, slow_data_at=200, **habits)
    second = train(at(2, 3, 10) - at(0, 15, 12), init=5, **habits)
    third = train(at(4, 18) - at(2, 3, 16), init=5, **habits)
    return Node(
        name,
        H100,
        8,
        (
            Attempt(job, at(0, 8, 30), first, "exception" if raising_rank else "signal", raising_rank),
            Attempt(job, at(0, 15, 12), second, resumes=True),
            Attempt(job, at(2, 3, 16), third, resumes=True),
        ),
        fillings=(
            # Logs are rotated every midnight, old checkpoints removed on Wednesday and Friday.
            Filling("/", 500e9, _rotate(0.62, 0.55)),
            Filling(
                "/scratch", 14e12,
                [(0, 0.72), (at(2, 10), 0.21), (at(2, 10, 20), 0.7), (at(4, 17), 0.3), (at(4, 18), 0.7)],
            ),
            Filling("/dev/shm", 512e9, [(0, 0.9)]),
        ),
        clock_offset_seconds=0.004,
        memory_gib=2048,
        has_stack=True,
    )  # fmt: skip


def _rotate(high: float, low: float) -> list[tuple[int, float]]:
    """Give the levels of a disk that logs fill by day and that is cleaned at midnight."""
    levels = []
    for day in range(7):
        levels += [(at(day, 0), high), (at(day, 23, 55), low)]
    return levels


def _plan_office(name: str) -> Node:
    """Two runs of four cards in office hours, long ones in two nights, nothing else.

    Storage is slow for eight minutes every morning. On Tuesday a person ends a run by Ctrl-C and
    starts it ten minutes later with other parameters.
    """
    vit = Job("vit-large", (0, 1, 2, 3), world_size=4, step_seconds=0.42, samples=64, reserved=0.78)
    bert = Job(
        "bert-distill", (4, 5, 6, 7), world_size=4, step_seconds=0.2, reserved=0.5, allocated=0.4
    )
    night = replace(vit, run="vit-large-384", step_seconds=1.1, reserved=0.88)
    attempts = []
    for day in range(5):
        if day == 1:
            attempts += [
                Attempt(vit, at(1, 9), train(230), "interrupted"),
                Attempt(vit, at(1, 13), train(270)),
            ]
        else:
            attempts.append(Attempt(vit, at(day, 9), train(510, slow_data_at=100)))
        attempts.append(
            Attempt(bert, at(day, 10, 15), train(345, validation_every=30, validation=2))
        )
    for day in (1, 3):
        attempts.append(Attempt(night, at(day, 18), train(11 * HOUR, checkpoint=8)))
    return Node(
        name, A100, 8, attempts, fillings=(Filling("/", 900e9, _rotate(0.5, 0.44)),), blips=(at(3, 2, 12),),
    )  # fmt: skip


def _plan_sweeps(name: str) -> Node:
    """Eight small runs side by side, morning and afternoon; one is cancelled by its owner."""
    attempts = []
    for day in range(5):
        for device in range(8):
            job = Job(
                f"sweep-{device}", (device,), world_size=1, step_seconds=0.11 + device / 50,
                slowest_step_seconds=0.4, samples=32, utilization=82, reserved=0.6, loss=(2.3, 0.4 + device / 10),
            )  # fmt: skip
            habits = {
                "checkpoint_every": 30,
                "checkpoint": 2,
                "validation_every": 30,
                "validation": 3,
            }
            morning = train(175 + device, init=1, compile_minutes=2, **habits)
            cancelled = day == 3 and device == 1
            attempts.append(Attempt(job, at(day, 8, 45), morning))
            stages = train(95 if cancelled else 200, init=1, compile_minutes=2, **habits)
            ending = "signal" if cancelled else "finished"
            attempts.append(Attempt(job, at(day, 13, 30), stages, ending))
    return Node(
        name, L40S, 8, attempts, fillings=(Filling("/", 400e9, _rotate(0.3, 0.22)),), memory_gib=512,
    )  # fmt: skip


def _plan_consumer(name: str) -> Node:
    """Four cards under a desk at 83 °C, 14 below where they slow down, every day and two nights.

    The allocator holds 95 % of their memory. Loss scaling makes gradients overflow twice an hour,
    and the learning rate starts anew every four hours. An evaluation takes 28 minutes: the first that
    takes more than 30 counts as a stall.
    """
    job = Job(
        "diffusion", (0, 1, 2, 3), world_size=4, step_seconds=1.4, slowest_step_seconds=4, utilization=98,
        reserved=0.95, allocated=0.55, loss=(0.9, 0.11), warm_restart_minutes=240, overflow_minutes=27,
    )  # fmt: skip
    habits = {"checkpoint_every": 90, "validation_every": 360, "validation": 28}
    attempts = [Attempt(job, at(day, 9, 20), train(9 * HOUR, **habits)) for day in range(5)]
    attempts += [Attempt(job, at(day, 20), train(12 * HOUR, **habits)) for day in (1, 4)]
    spells = [
        # Photos are copied at lunch: the page cache takes all memory that nothing else needs.
        Spell(at(day, 12), at(day, 12, 50), 0.25, 0.12, 0.12, 14, cached=0.82, disk_bytes=4e8)
        for day in (0, 2, 4)
    ]
    return Node(
        name, CONSUMER, 4, attempts, spells, (Filling("/", 1e12, _rotate(0.42, 0.36)),),
        blips=(at(0, 14, 37),), clock_offset_seconds=0.35, memory_gib=128,
    )  # fmt: skip


def _plan_gaudi(name: str) -> Node:
    """Eight Gaudi cards: graphs compile for 25 minutes, and a step takes twelve seconds."""
    job = Job(
        "llama-70b-hpu", _ALL, step_seconds=12, slowest_step_seconds=19, samples=4, reserved=0.93,
        allocated=0.7, utilization=91, loss=(5.0, 2.4),
    )  # fmt: skip
    habits = {"compile_minutes": 25, "checkpoint": 15, "checkpoint_every": 120, "validation": 10}
    return Node(
        name,
        GAUDI,
        8,
        (
            Attempt(job, at(0, 7), train(33 * HOUR, **habits)),
            Attempt(job, at(2, 9), train(52 * HOUR, **habits)),
        ),
        fillings=(Filling("/", 800e9, _rotate(0.7, 0.66)),),
    )


def _plan_datasets(name: str) -> Node:
    """A machine that copies datasets, and is rebooted for an update on Wednesday at noon.

    A copy on Monday morning and on Thursday takes the disk's whole speed for hours; the second one
    runs beside training, which waits for data: a warning that is deserved.
    """
    job = Job("segmentation", _ALL, step_seconds=0.6, samples=24, reserved=0.7)
    copied = Stage("train", 40, data_wait=0.5, pace=0.5, utilization=44)
    thursday = train(3 * HOUR, slow_data_at=170)
    attempts = (
        Attempt(job, at(0, 13), train(9 * HOUR)),
        Attempt(job, at(1, 13), train(9 * HOUR)),
        Attempt(job, at(2, 6), train(5 * HOUR + 40)),
        Attempt(job, at(2, 13), train(9 * HOUR)),
        Attempt(
            job, at(3, 13), (*thursday, copied, *train(5 * HOUR, init=1, compile_minutes=0)[1:])
        ),
    )
    copy = Spell(0, 0, 0.5, 0.24, 0.18, 12, cached=0.83, disk_bytes=1.6e9)
    busy = replace(copy, io_some=0.8, io_full=0.42, io_wait=0.3)
    return Node(
        name, A100, 8, attempts,
        (replace(copy, start=at(0, 6), end=at(0, 8, 40)), replace(busy, start=at(3, 16), end=at(3, 16, 40))),
        (
            Filling("/", 480e9, _rotate(0.6, 0.56)),
            Filling(
                "/data", 30e12,
                [(0, 0.55), (at(0, 6), 0.55), (at(0, 8, 40), 0.24), (at(1, 9), 0.24), (at(1, 9, 30), 0.5),
                 (at(3, 16), 0.5), (at(3, 16, 40), 0.43)],
            ),
        ),
        reboot=(at(2, 12), at(2, 12, 4)),
    )  # fmt: skip


def _plan_alignment(name: str) -> Node:
    """A run that stops getting better, slow evaluations, and a card with only a margin."""
    job = Job(
        "reward-model", _ALL, step_seconds=2.2, slowest_step_seconds=5, reserved=0.9, allocated=0.5,
        utilization=88, best_evaluation=14, loss=(0.69, 0.41),
    )  # fmt: skip
    habits = {"validation_every": 60, "validation": 25, "checkpoint_every": 90, "checkpoint": 4}
    return Node(
        name,
        H100,
        8,
        (
            Attempt(job, at(0, 10), train(20 * HOUR, **habits)),
            Attempt(job, at(1, 11), train(48 * HOUR, **habits)),
        ),
        fillings=(Filling("/", 500e9, _rotate(0.8, 0.77)),),
        blips=(at(1, 4, 5), at(2, 16, 58), at(5, 3, 3)),
        clock_offset_seconds=-0.8,
    )
