"""What a recorded machine is, and what machines are made of."""

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
"""So long before the story begins the counters do."""

_UP_SECONDS = 9.4 * DAY_SECONDS


@dataclass(frozen=True, slots=True)
class Machine:
    """A recorded machine.

    Attributes:
        name: Its host name.
        about: A description of what happens on it.
        readers: Returns the reading of a collector at a moment, by the collector's name.
        expected: How many accelerators it should have.
    """

    name: str
    about: str
    readers: Mapping[str, Callable[[float], object]]
    expected: Mapping[Kind, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Story:
    """When things happen.

    What comes in rounds is at the same place of its round when the story begins, whenever that is.

    Attributes:
        begin: When the demo goes live, Unix seconds: a whole number of 15 s, as stages are.
        before_seconds: How long before that the counters begin.
        booted: When the machine booted; None for some days ago.
    """

    begin: float
    before_seconds: float = BEFORE_SECONDS
    booted: float | None = None

    @property
    def start(self) -> float:
        """When the counters begin, Unix seconds."""
        return self.begin - self.before_seconds

    def script(self, *stages: tuple[str, float], into: float) -> Script:
        """Return a script that is so many seconds into a round when the story begins.

        Args:
            stages: Names and seconds.
            into: How far it is.
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
    """Put a machine together.

    Args:
        name: Its host name.
        about: A description of what happens on it.
        story: When things happen.
        life: What goes on on the host.
        cards: Its accelerators, all of one kind.
        runs: Its training runs.
        containers: Its containers.
        memory_limit_bytes: How much memory of each accelerator may be used; None for all of it.
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
    """Return the use that a rank of a run makes of a card."""
    return Use(load=run.load, held_bytes=run.held_bytes, pids=partial(run.pids, rank))


def use_by_both(first: Use, second: Use) -> Use:
    """Return the use that one makes of a card, and then another."""
    return Use(
        load=lambda now: first.load(now) + second.load(now),
        held_bytes=lambda now: first.held_bytes(now) + second.held_bytes(now),
        pids=lambda now: first.pids(now) + second.pids(now),
    )


def name_cards(machine: str, count: int) -> tuple[str, ...]:
    """Name the cards of a machine as NVIDIA does, always alike."""
    names = (f"{machine}-{index}.demo.trainvitals" for index in range(count))
    return tuple(f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, name)}" for name in names)


def volume(mountpoint: str, device: str, fstype: str, size: int, share: Course) -> Volume:
    """Return a file system of which a share is used."""
    return Volume(mountpoint, device, fstype, size, lambda now: size * share(now))


def root(share: float) -> Volume:
    """Return the file system that the host boots from."""
    return volume("/", "/dev/nvme0n1p2", "ext4", 880 * GIB, constant(share))


def shared_memory(size: int, share: float) -> Volume:
    """Return `/dev/shm`."""
    return volume("/dev/shm", "tmpfs", "tmpfs", size, around(share, 0.2, 5))


def datasets() -> Volume:
    """Return the data sets that all machines share."""
    return volume("/datasets", "storage:/datasets", "nfs4", 90 * TIB, constant(0.71))
