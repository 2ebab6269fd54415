"""A simulated machine, and functions that assemble machines from their parts."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from fleet.cards import Card, Use
from fleet.containers import Container, read_containers
from fleet.course import DAY_SECONDS, Course, around, constant
from fleet.hosts import GIB, TIB, Host, Life, Volume
from fleet.runs import Attempts, Run, read_runs
from fleet.script import Script, Stage
from trainvitals.sources.accelerators.reading import AcceleratorsReading, Kind

BEFORE_SECONDS = 8 * 3600.0
"""The time between the start of the counters and the start of the story, in seconds."""

_UP_SECONDS = 9.4 * DAY_SECONDS


@dataclass(frozen=True, slots=True)
class Machine:
    """A simulated machine.

    Attributes:
        name: The host name.
        about: A description of the events on the machine.
        readers: Functions that return a collector's reading at a time, by the collector's name.
        expected: The number of accelerators that the machine should have.
    """

    name: str
    about: str
    readers: Mapping[str, Callable[[float], object]]
    expected: Mapping[Kind, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Story:
    """The times of a machine's events.

    Repeating scripts are at the same position when the demo goes live, independently of the time of
    day.

    Attributes:
        begin: The time at which the demo goes live, in Unix seconds; like the stages, a multiple of
            15 s.
        before_seconds: The time for which the counters run before `begin`.
        booted: The boot time in Unix seconds; None for a boot several days ago.
    """

    begin: float
    before_seconds: float = BEFORE_SECONDS
    booted: float | None = None

    @property
    def start(self) -> float:
        """The time at which the counters start, in Unix seconds."""
        return self.begin - self.before_seconds

    def script(self, *stages: tuple[str, float], into: float) -> Script:
        """Return a script that is at a given position when the demo goes live.

        Args:
            stages: The names of the stages with their durations in seconds.
            into: The position in the round, in seconds.
        """
        seconds = sum(seconds for _, seconds in stages)
        rounds = (self.before_seconds - into) // seconds
        named = [Stage(name, seconds) for name, seconds in stages]
        return Script(named, self.begin - into - rounds * seconds)


def assemble(
    name: str,
    about: str,
    story: Story,
    life: Life,
    *,
    cards: Sequence[Card] = (),
    runs: Sequence[Run | Attempts] = (),
    containers: Sequence[Container] = (),
    memory_limit_bytes: int | None = None,
    temperature_limit_celsius: float | None = None,
) -> Machine:
    """Assemble a machine from its parts.

    Args:
        name: The host name.
        about: A description of the events on the machine.
        story: The times of the machine's events.
        life: The activity of the host.
        cards: The accelerators, all of the same kind.
        runs: The training runs.
        containers: The containers.
        memory_limit_bytes: The limit on the memory of each accelerator; None for no limit.
        temperature_limit_celsius: The limit on the temperature of each accelerator; None for none.
    """
    booted = story.begin - _UP_SECONDS if story.booted is None else story.booted
    host = Host(life, story.start, booted)
    expected: dict[Kind, int] = {cards[0].identity.kind: len(cards)} if cards else {}

    def read_accelerators(now: float) -> AcceleratorsReading:
        return AcceleratorsReading(
            tuple(card.read(now) for card in cards),
            tuple(expected.items()),
            memory_limit_bytes=memory_limit_bytes,
            temperature_limit_celsius=temperature_limit_celsius,
        )

    readers: dict[str, Callable[[float], object]] = {
        **host.readers(),
        "container": partial(read_containers, containers),
        "training": partial(read_runs, runs),
        "accelerator": read_accelerators,
    }
    return Machine(name, about, readers, expected)


def use_by(run: Run | Attempts, rank: int) -> Use:
    """Return the use of a card by a rank of a run."""
    return Use(load=run.load, held_bytes=run.held_bytes, pids=partial(run.pids, rank))


def use_by_both(first: Use, second: Use) -> Use:
    """Return the combined use of a card by two users, one after the other."""
    return Use(
        load=lambda now: first.load(now) + second.load(now),
        held_bytes=lambda now: first.held_bytes(now) + second.held_bytes(now),
        pids=lambda now: first.pids(now) + second.pids(now),
    )


def name_cards(machine: str, count: int) -> tuple[str, ...]:
    """Return constant names for a machine's cards in NVIDIA's format."""
    names = (f"{machine}-{index}.demo.trainvitals" for index in range(count))
    return tuple(f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, name)}" for name in names)


def volume(mountpoint: str, device: str, fstype: str, size: int, share: Course) -> Volume:
    """Return a file system of which the given share is used."""
    return Volume(mountpoint, device, fstype, size, lambda now: size * share(now))


def root(share: float) -> Volume:
    """Return the root file system of a host."""
    return volume("/", "/dev/nvme0n1p2", "ext4", 880 * GIB, constant(share))


def shared_memory(size: int, share: float) -> Volume:
    """Return the file system `/dev/shm`."""
    return volume("/dev/shm", "tmpfs", "tmpfs", size, around(share, 0.2, 5))


def datasets() -> Volume:
    """Return the file system with data sets that all machines share."""
    return volume("/datasets", "storage:/datasets", "nfs4", 90 * TIB, constant(0.71))
