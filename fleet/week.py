"""Eight machines during an ordinary week, which starts on Monday at 00:00.

`plan_week` defines all events; random variation has fixed seeds. Nothing in the week is urgent, so
no critical alert may fire; expected warnings are marked. Times are in minutes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise

from fleet.cards import Card, Use
from fleet.course import DAY_SECONDS, Course, around, constant
from fleet.hosts import GIB, TIB, Life, Volume
from fleet.jobs import DEAD, FINISHED, INTERRUPTED, TERMINATED, Job, Outcome
from fleet.machine import Machine, Story, assemble, datasets, use_by, use_by_both, volume
from fleet.models import A100, GAUDI_3, H100, L40S, RTX_2080, Model
from fleet.promtool import MINUTE, Served, write_input_series
from fleet.runs import Attempts, Run
from fleet.script import Script, Stage

HOUR, DAY = 60, 24 * 60
WEEK = 7 * DAY
_ALL = tuple(range(8))
_TORCH = ("torch", "2.13.0")
_UP_DAYS = 5
_RAISED = Outcome("exception", exit_code=1, exception="RuntimeError")

Stages = Sequence[Stage]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a run.

    Attributes:
        job: The training job; its devices and processes are filled in later.
        cards: The cards of the attempt on this machine, one for each rank on the machine.
        start: The minute in which the attempt begins.
        stages: The stages of the attempt.
        outcome: The outcome of the attempt; None if it continues beyond the week.
        resumes: Whether the attempt continues from the checkpoint of the previous attempt.
    """

    job: Job
    cards: tuple[int, ...]
    start: int
    stages: Stages
    outcome: Outcome | None = FINISHED
    resumes: bool = False

    @property
    def trained_seconds(self) -> float:
        """The duration of training in seconds."""
        return sum(stage.seconds for stage in self.stages if stage.name in ("train", "slow"))


@dataclass(frozen=True, slots=True)
class Spell:
    """A period in which a machine is busy with other work.

    Attributes:
        start: The minute in which the period begins.
        end: The minute in which the period ends.
        busy: The share of the cores that is busy.
        io_wait: The share of the cores that is idle and waits for I/O.
        io_stalled: The share of the time in which all tasks wait for I/O.
        cached: The share of memory used by the page cache.
        disk_bytes: The bytes read and written per second.
    """

    start: int
    end: int
    busy: float = 0.08
    io_wait: float = 0.01
    io_stalled: float = 0.01
    cached: float = 0.3
    disk_bytes: float = 1e6


@dataclass(frozen=True, slots=True)
class Node:
    """A machine and its events.

    Attributes:
        name: The host name, which is the label `instance`.
        model: The model of the cards.
        cards: The number of cards.
        attempts: The attempts of all runs.
        volumes: The file systems.
        spells: The periods in which the machine is busy with other work.
        blips: The minutes in which a single scrape fails.
        reboot: The minutes in which a planned reboot begins and ends; None for no reboot.
        hotter_by: The difference in °C from the temperature of the card's model, by card index.
        clock_ahead_seconds: The number of seconds by which the clock is fast.
        memory_gib: The memory size in GiB.
    """

    name: str
    model: Model
    cards: int
    attempts: Sequence[Attempt]
    volumes: Sequence[Filling]
    spells: Sequence[Spell] = ()
    blips: Collection[int] = ()
    reboot: tuple[int, int] | None = None
    hotter_by: Mapping[int, Course] | None = None
    clock_ahead_seconds: float = 0.02
    memory_gib: int = 1024

    def shrink(self, cards: int) -> Node:
        """Return the same machine with fewer cards and therefore fewer ranks."""
        attempts = [
            replace(attempt, cards=kept)
            for attempt in self.attempts
            if (kept := tuple(card for card in attempt.cards if card < cards))
        ]
        return replace(self, cards=cards, attempts=attempts)

    def begin_at(self, minute: int) -> Node:
        """Return the same machine with a week that begins later, without the attempts before it."""
        return replace(
            self,
            attempts=[
                replace(each, start=each.start - minute)
                for each in self.attempts
                if each.start >= minute
            ],
            spells=[
                replace(each, start=each.start - minute, end=each.end - minute)
                for each in self.spells
            ],
            volumes=[
                replace(each, free=[(then - minute, share) for then, share in each.free])
                for each in self.volumes
            ],
            blips=[blip - minute for blip in self.blips],
        )

    def write(self, minutes: int, names: Collection[str]) -> Iterator[tuple[str, str]]:
        """Return the series of some metrics with their values, for `promtool test rules`."""
        lives = [self._serve(0, minutes)]
        if self.reboot is not None:
            down, back = self.reboot
            lives = [self._serve(0, down), self._serve(back, minutes)]
        return write_input_series(lives, minutes, lambda name: name in names)

    def _serve(self, start: int, end: int) -> Served:
        booted = start * MINUTE - (0 if start else _UP_DAYS * DAY_SECONDS) + 45
        return Served(self._build(start * MINUTE, booted), start, end, self.blips)

    def _build(self, start: float, booted: float) -> Machine:
        names = [f"{self.model.kind.upper()}-{self.name}-{card}" for card in range(self.cards)]
        runs = self._plan_runs(names)
        uses: list[Use] = []
        for card in range(self.cards):
            users = [
                use_by(run, attempt.cards.index(card))
                for attempt, run in runs
                if card in attempt.cards
            ]
            use = reduce(use_by_both, users) if users else Use()
            uses.append(replace(use, hotter_by=(self.hotter_by or {}).get(card, constant(0.0))))
        cards = [Card(at, names[at], self.model, use, start) for at, use in enumerate(uses)]
        return assemble(
            self.name,
            "an ordinary week",
            Story(start, before_seconds=0.0, booted=booted),
            self._live(),
            cards=cards,
            runs=[run for _, run in runs],
        )

    def _plan_runs(self, names: Sequence[str]) -> list[tuple[Attempt, Attempts]]:
        """Return the first attempt of each run with the run."""
        runs = []
        for number, name in enumerate(dict.fromkeys(each.job.run for each in self.attempts)):
            attempts = sorted(
                (each for each in self.attempts if each.job.run == name),
                key=lambda each: each.start,
            )
            trained, planned = 0.0, []
            for attempt in attempts:
                trained = trained if attempt.resumes else 0.0
                planned.append(self._plan_run(attempt, 1000 * (number + 1), names, trained))
                trained += attempt.trained_seconds
            runs.append((attempts[0], Attempts(planned)))
        return runs

    def _plan_run(
        self, attempt: Attempt, pid: int, names: Sequence[str], trained_seconds: float
    ) -> Run:
        job, start = attempt.job, attempt.start * MINUTE
        # Only the GPU driver lists the processes of a card.
        known = [names[card] if self.model.kind == "gpu" else "" for card in attempt.cards]
        planned = trained_seconds + attempt.trained_seconds
        job = replace(
            job,
            devices=tuple(known),
            pid=pid,
            total_steps=int(1.3 * planned / job.step_seconds),
            memory_bytes=job.memory_bytes * self.model.memory_bytes // 100,
            reserved_bytes=job.reserved_bytes * self.model.memory_bytes // 100,
        )
        return Run(
            job,
            Script([*attempt.stages, Stage(DEAD, 1e9)], start),
            start,
            outcome=attempt.outcome,
            steps_before=int(trained_seconds / job.step_seconds),
        )

    def _live(self) -> Life:
        spells, memory = self.spells, self.memory_gib * GIB
        usual = Spell(0, 0)

        def course(name: str, factor: float, seed: int) -> Course:
            def value(now: float) -> float:
                found = [each for each in spells if each.start <= now / MINUTE < each.end]
                return factor * float(getattr(found[0] if found else usual, name))

            wander = around(1.0, 0.1, seed)
            return lambda now: value(now) * wander(now)

        return Life(
            cores=64,
            memory_bytes=memory,
            busy=course("busy", 1.0, 1),
            used_bytes=around(0.15 * memory, 0.1, 2),
            cached_bytes=course("cached", memory, 3),
            io_wait=course("io_wait", 1.0, 4),
            io_stalled=course("io_stalled", 1.0, 5),
            read_bytes=course("disk_bytes", 1.0, 6),
            written_bytes=course("disk_bytes", 1.0, 7),
            received_bytes=around(1e6, 0.2, 8),
            clock_ahead_seconds=self.clock_ahead_seconds,
            volumes=(
                *(each.build() for each in self.volumes),
                volume("/run", "tmpfs", "tmpfs", 50 * GIB, constant(0.02)),
                datasets(),
            ),
        )


@dataclass(frozen=True, slots=True)
class Filling:
    """A file system that fills up and is cleaned.

    Attributes:
        mountpoint: The mount point.
        size_bytes: The size in bytes.
        free: Minutes with the free share at that minute, in order; interpolated linearly.
    """

    mountpoint: str
    size_bytes: int
    free: Sequence[tuple[int, float]]

    def build(self) -> Volume:
        """Return the file system as a volume of a host."""
        return volume(self.mountpoint, "/dev/nvme0n1p2", "ext4", self.size_bytes, self._used)

    def _used(self, now: float) -> float:
        minute = now / MINUTE
        for (start, share), (end, following) in pairwise(self.free):
            if start <= minute < end:
                return 1 - share - (following - share) * (minute - start) / (end - start)
        return 1 - (self.free[0] if minute < self.free[0][0] else self.free[-1])[1]


def at(day: int, hour: int, minute: int = 0) -> int:
    """Return the minute of a day and time of day; day 0 is Monday."""
    return day * DAY + hour * HOUR + minute


def train(
    minutes: int,
    *,
    init: int = 3,
    compile_minutes: int = 4,
    checkpoint_every: int = 60,
    checkpoint: int = 3,
    validation_every: int = 120,
    validation: int = 6,
    slow_data_at: int = 0,
    slow_data: int = 8,
) -> list[Stage]:
    """Return the stages of an attempt that trains, evaluates and saves at intervals.

    Args:
        minutes: The total duration in minutes.
        init: The number of minutes until the model is loaded.
        compile_minutes: The number of minutes from then until the first step.
        checkpoint_every: The number of minutes of training between two checkpoints.
        checkpoint: The duration of saving a checkpoint in minutes.
        validation_every: The number of minutes of training between two evaluations.
        validation: The duration of an evaluation in minutes.
        slow_data_at: The number of minutes of training after which storage becomes slow; 0 for
            never.
        slow_data: The number of minutes for which storage is slow.
    """
    planned = [("init", init), ("compile", compile_minutes)]
    left, trained = minutes - init - compile_minutes, 0
    slow = range(slow_data_at, slow_data_at + slow_data) if slow_data_at else range(0)
    while left > 0:
        marks = [every - trained % every for every in (checkpoint_every, validation_every)]
        marks += [mark - trained for mark in (slow.start, slow.stop) if mark > trained]
        length = min(left, *marks)
        planned.append(("slow" if trained in slow else "train", length))
        trained, left = trained + length, left - length
        for name, every, lasting in (
            ("validation", validation_every, validation),
            ("checkpoint", checkpoint_every, checkpoint),
        ):
            if left > 0 and trained % every == 0:
                planned.append((name, min(lasting, left)))
                left -= lasting
    return [Stage(name, length * MINUTE) for name, length in planned if length]


def _describe(
    run: str,
    *,
    step_seconds: float = 0.8,
    samples: int = 16,
    reserved_percent: int = 80,
    allocated_percent: int = 60,
    loss: tuple[float, float] = (4.0, 1.8),
    checkpoint_age_minutes: int = 180,
) -> Job:
    """Return a job; its memory is in percent of the card's memory until the model is known."""
    return Job(
        run,
        _TORCH,
        (),
        pid=0,
        step_seconds=step_seconds,
        samples=samples,
        tokens=2048,
        total_steps=0,
        epoch_steps=10_000,
        loss=loss,
        memory_bytes=allocated_percent,
        reserved_bytes=reserved_percent,
        checkpoint_age_seconds=checkpoint_age_minutes * MINUTE,
        slowest=2.5,
    )


def plan_week() -> Mapping[str, Node]:
    """Return all eight machines with their events, by name."""
    nodes = (
        _plan_pretraining("h100-1", first_rank=0, raising_rank=1),
        _plan_pretraining("h100-2", first_rank=8, raising_rank=None),
        _plan_office("a100-1"),
        _plan_sweeps("l40s-1"),
        _plan_consumer("rtx-1"),
        _plan_gaudi("gaudi-1"),
        _plan_datasets("a100-2"),
        _plan_alignment("h100-3"),
    )
    return {node.name: node for node in nodes}


def _rotate(high: float, low: float) -> list[tuple[int, float]]:
    """Return the free share of a disk that logs fill by day and that is cleaned at midnight."""
    days = ([(at(day, 0), high), (at(day, 23, 55), low)] for day in range(7))
    return [level for levels in days for level in levels]


def _plan_pretraining(name: str, *, first_rank: int, raising_rank: int | None) -> Node:
    """Plan sixteen ranks on two machines.

    A rank raises an exception on Monday afternoon; torchrun terminates the other ranks with SIGTERM
    and restarts all ranks two minutes later. On Wednesday, the run is deliberately stopped and
    restarted. The run finishes on Friday.
    """
    job = replace(
        _describe(
            "llama-8b", step_seconds=6.5, samples=8, reserved_percent=86, allocated_percent=80,
            loss=(8.0, 2.1), checkpoint_age_minutes=240,
        ),
        first_rank=first_rank, world_size=16, slowest=1.4,
    )  # fmt: skip
    plan = partial(train, checkpoint_every=120, checkpoint=12, validation_every=240, validation=8)
    raised = replace(_RAISED, raising_rank=raising_rank) if raising_rank else TERMINATED
    first = plan(at(0, 15, 10) - at(0, 8, 30), init=6, slow_data_at=200)
    second = plan(at(2, 3, 10) - at(0, 15, 12), init=5)
    third = plan(at(4, 18) - at(2, 3, 16), init=5)
    return Node(
        name,
        H100,
        8,
        (
            Attempt(job, _ALL, at(0, 8, 30), first, raised),
            Attempt(job, _ALL, at(0, 15, 12), second, resumes=True),
            Attempt(job, _ALL, at(2, 3, 16), third, resumes=True),
        ),
        (
            # Logs are rotated every midnight; old checkpoints are removed on Wednesday and Friday.
            Filling("/", 500 * GIB, _rotate(0.62, 0.55)),
            Filling(
                "/scratch", 14 * TIB,
                [(0, 0.72), (at(2, 10), 0.21), (at(2, 10, 20), 0.7), (at(4, 17), 0.3), (at(4, 18), 0.7)],
            ),
            Filling("/dev/shm", 512 * GIB, [(0, 0.9)]),
        ),
        clock_ahead_seconds=0.004,
        memory_gib=2048,
    )  # fmt: skip


def _plan_office(name: str) -> Node:
    """Plan two four-card runs in office hours, longer runs in two nights, and no other runs.

    Storage is slow for eight minutes every morning. On Tuesday, a user interrupts a run with Ctrl-C
    and starts it ten minutes later with different parameters.
    """
    low, high = (0, 1, 2, 3), (4, 5, 6, 7)
    vit = _describe("vit-large", step_seconds=0.42, samples=64, reserved_percent=78)
    bert = _describe("bert-distill", step_seconds=0.2, reserved_percent=50, allocated_percent=40)
    night = _describe("vit-large-384", step_seconds=1.1, samples=64, reserved_percent=88)
    attempts = [
        Attempt(vit, low, at(1, 9), train(230), INTERRUPTED),
        Attempt(vit, low, at(1, 13), train(270)),
    ]
    for day in range(5):
        if day != 1:
            attempts.append(Attempt(vit, low, at(day, 9), train(510, slow_data_at=100)))
        evaluated = train(345, validation_every=30, validation=2)
        attempts.append(Attempt(bert, high, at(day, 10, 15), evaluated))
    at_night = train(11 * HOUR, checkpoint=8)
    attempts += [Attempt(night, low, at(day, 18), at_night) for day in (1, 3)]
    disk = Filling("/", 900 * GIB, _rotate(0.5, 0.44))
    return Node(name, A100, 8, attempts, (disk,), blips=(at(3, 2, 12),))


def _plan_sweeps(name: str) -> Node:
    """Plan eight small simultaneous runs, morning and afternoon; the owner cancels one of them."""
    plan = partial(
        train, init=1, compile_minutes=2, checkpoint_every=30, checkpoint=2, validation_every=30,
        validation=3,
    )  # fmt: skip
    attempts = []
    for day in range(5):
        for card in range(8):
            job = _describe(
                f"sweep-{card}", step_seconds=0.11 + card / 50, samples=32, reserved_percent=60,
                loss=(2.3, 0.4 + card / 10),
            )  # fmt: skip
            job = replace(job, utilization=0.85)
            cancelled = (day, card) == (3, 1)
            attempts += [
                Attempt(job, (card,), at(day, 8, 45), plan(175 + card)),
                Attempt(
                    job,
                    (card,),
                    at(day, 13, 30),
                    plan(95 if cancelled else 200),
                    TERMINATED if cancelled else FINISHED,
                ),
            ]
    disk = Filling("/", 400 * GIB, _rotate(0.3, 0.22))
    return Node(name, L40S, 8, attempts, (disk,), memory_gib=512)


def _plan_consumer(name: str) -> Node:
    """Plan a workstation whose four cards run at 83 °C by day and in two nights.

    The cards are 14 °C below the temperature at which they slow down. The allocator holds 95 % of
    their memory. Loss scaling makes gradients overflow twice an hour, and the learning rate
    schedule restarts every four hours. An evaluation takes 28 minutes; the first evaluation that
    took more than 30 minutes would count as a stall.
    """
    model = replace(RTX_2080, full_celsius=83, slowdown_celsius=97, warm_share=0.02)
    job = replace(
        _describe(
            "diffusion", step_seconds=1.4, reserved_percent=95, allocated_percent=55,
            loss=(0.9, 0.11),
        ),
        warm_restart_seconds=4 * 3600, overflow_seconds=27 * MINUTE,
    )  # fmt: skip
    plan = partial(train, checkpoint_every=90, validation_every=360, validation=28)
    starts = [(at(day, 9, 20), 9 * HOUR) for day in range(5)]
    starts += [(at(day, 20), 12 * HOUR) for day in (1, 4)]
    return Node(
        name,
        model,
        4,
        [Attempt(job, (0, 1, 2, 3), start, plan(minutes)) for start, minutes in starts],
        (Filling("/", TIB, _rotate(0.42, 0.36)),),
        # Photos are copied at lunchtime: the page cache uses all memory that programs do not need.
        [
            Spell(at(day, 12), at(day, 12, 50), 0.14, 0.12, 0.12, cached=0.82, disk_bytes=4e8)
            for day in (0, 2, 4)
        ],
        blips=(at(0, 14, 37),),
        clock_ahead_seconds=0.35,
        memory_gib=128,
    )


def _plan_gaudi(name: str) -> Node:
    """Plan eight Gaudi cards with graph compilation of 25 minutes and steps of twelve seconds."""
    job = _describe(
        "llama-70b-hpu", step_seconds=12, samples=4, reserved_percent=93, allocated_percent=70,
        loss=(5.0, 2.4),
    )  # fmt: skip
    plan = partial(train, compile_minutes=25, checkpoint=15, checkpoint_every=120, validation=10)
    attempts = (
        Attempt(job, _ALL, at(0, 7), plan(33 * HOUR)),
        Attempt(job, _ALL, at(2, 9), plan(52 * HOUR)),
    )
    return Node(name, GAUDI_3, 8, attempts, (Filling("/", 800 * GIB, _rotate(0.7, 0.66)),))


def _plan_datasets(name: str) -> Node:
    """Plan a machine that copies data sets, and is rebooted for an update on Wednesday at noon.

    On Monday morning and on Thursday, a copy uses the full bandwidth of the disk for hours. The
    second copy runs during training, which therefore waits for data, so that a warning is
    justified.
    """
    job = _describe("segmentation", step_seconds=0.6, samples=24, reserved_percent=70)
    job = replace(job, slow_data_wait=0.55)
    beside_copy = train(8 * HOUR + 40, slow_data_at=181, slow_data=40)
    attempts = (
        Attempt(job, _ALL, at(0, 13), train(9 * HOUR)),
        Attempt(job, _ALL, at(1, 13), train(9 * HOUR)),
        Attempt(job, _ALL, at(2, 6), train(5 * HOUR + 40)),
        Attempt(job, _ALL, at(2, 13), train(9 * HOUR)),
        Attempt(job, _ALL, at(3, 13), beside_copy),
    )
    copy = Spell(at(0, 6), at(0, 8, 40), 0.12, 0.18, 0.24, cached=0.83, disk_bytes=1.6e9)
    busy = replace(copy, start=at(3, 16, 22), end=at(3, 17, 2), io_wait=0.3, io_stalled=0.45)
    return Node(
        name,
        A100,
        8,
        attempts,
        (
            Filling("/", 480 * GIB, _rotate(0.6, 0.56)),
            Filling(
                "/data", 30 * TIB,
                [(0, 0.55), (at(0, 6), 0.55), (at(0, 8, 40), 0.24), (at(1, 9), 0.24), (at(1, 9, 30), 0.5),
                 (at(3, 16, 22), 0.5), (at(3, 17, 2), 0.43)],
            ),
        ),
        (copy, busy),
        reboot=(at(2, 12), at(2, 12, 4)),
    )  # fmt: skip


def _plan_alignment(name: str) -> Node:
    """Plan a run that stops improving, slow evaluations, and cards that report only a margin."""
    job = replace(
        _describe(
            "reward-model", step_seconds=2.2, reserved_percent=90, allocated_percent=50,
            loss=(0.69, 0.41),
        ),
        stale_after=14, utilization=0.92,
    )  # fmt: skip
    plan = partial(train, validation_every=60, validation=25, checkpoint_every=90, checkpoint=4)
    attempts = (
        Attempt(job, _ALL, at(0, 10), plan(20 * HOUR)),
        Attempt(job, _ALL, at(1, 11), plan(48 * HOUR)),
    )
    return Node(
        name,
        H100,
        8,
        attempts,
        (Filling("/", 500 * GIB, _rotate(0.8, 0.77)),),
        blips=(at(1, 4, 5), at(2, 16, 58), at(5, 3, 3)),
        clock_ahead_seconds=-0.8,
    )
