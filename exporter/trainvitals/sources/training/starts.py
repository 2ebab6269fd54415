"""Every start of every rank whose run file is there, and which of them are shown.

Each start of a rank leaves a run file. The latest start of each rank is shown, while it lives and for
a while after; the others tell what restarts cost.
"""

from __future__ import annotations

import os
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainvitals.runfile import ALERTS, STATE, Identity, Record
from trainvitals.sources.training.deaths import DeathRegister
from trainvitals.sources.training.directory import SeenFile
from trainvitals.sources.training.endings import Ending
from trainvitals.sources.training.surroundings import Surroundings

MOST_RUNS = 16
MOST_RANKS = 64
DEAD_SECONDS = 900.0
_JUST_DEAD_SECONDS = 120.0
_MOST_NAME_CHARACTERS = 128
_ALERTS = STATE["alerts"]
_NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one rank.

    Attributes:
        key: Tells its run file from all others.
        file: The run file.
        identity: Who wrote it.
        run: The run's name, cut to 128 characters; with the user behind it, where another user's
            run was there first by that name.
        ending: How its process ended; None while it lives.
        gpu_uuids: The accelerators that its process holds, or held last.
        alerts_seen: A bit for each of `runfile.ALERTS` that was ever active.
        is_settled: It is as it was the last time and will not change: its process is dead, and
            how it ended was told.
    """

    key: Hashable
    file: SeenFile
    identity: Identity
    run: str
    ending: Ending | None
    gpu_uuids: tuple[str, ...]
    alerts_seen: int
    is_settled: bool = False


class StartRegister:
    """Knows every start whose run file is there, reading after reading.

    Args:
        surroundings: Knows the accelerators that processes hold.

    Attributes:
        deaths: Knows how those ended that are dead.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self.deaths = DeathRegister(surroundings.describe)
        self._surroundings = surroundings
        self._starts: dict[Hashable, Start] = {}
        self._owners: dict[str, int] = {}

    def take_up(self, files: Iterable[SeenFile], now: float) -> Sequence[Start]:
        """Take up the run files that are there now.

        Args:
            files: All of them; a file that is there twice counts once.
            now: Unix seconds.
        """
        held = self._surroundings.holders()
        starts: dict[Hashable, Start] = {}
        for file in files:
            identity = file.record.identity
            if identity is None:
                continue
            # A file that is gone may leave its number to another.
            key = (file.key.device, file.key.inode, identity.created_time)
            if key not in starts:
                starts[key] = self._take_up(key, file, identity, held, now)
        self.deaths.forget(starts.keys(), {start.run for start in starts.values()})
        names = {_cut(start.identity.run) for start in starts.values()}
        self._owners = {name: uid for name, uid in self._owners.items() if name in names}
        self._starts = starts
        return list(starts.values())

    def _take_up(
        self,
        key: Hashable,
        file: SeenFile,
        identity: Identity,
        held: Mapping[int, tuple[str, ...]],
        now: float,
    ) -> Start:
        before = self._starts.get(key)
        if (
            before is not None
            and before.is_settled
            and before.file.liveness is file.liveness
            and before.file.record is file.record
        ):
            return before
        run = self._name(identity, file.owner) if before is None else before.run
        uuids = _read_uuids(identity) if before is None else before.gpu_uuids
        seen = _read_bits(file.record) | (0 if before is None else before.alerts_seen)
        ending, is_settled = None, False
        if file.liveness.is_alive:
            self.deaths.note_living(key)
            uuids = held.get(file.liveness.host_pid or 0) or uuids
        else:
            ending = self.deaths.judge(key, file, now, uuids, run=run)
            was_dead = before is not None and before.ending is not None
            is_settled = was_dead and self.deaths.is_told(key)
        return Start(key, file, identity, run, ending, uuids, seen, is_settled)

    def _name(self, identity: Identity, owner: int) -> str:
        """Name a run, so that those of two users are never taken for one."""
        name = _cut(identity.run)
        return name if self._owners.setdefault(name, owner) == owner else f"{name} (uid {owner})"


def find_latest(starts: Iterable[Start]) -> list[Start]:
    """Give the latest start of each rank; one that lives goes before one that does not."""
    latest: dict[tuple[str, int], Start] = {}
    for start in starts:
        who = (start.run, start.identity.rank)
        other = latest.get(who)
        if other is None or _standing(start) > _standing(other):
            latest[who] = start
    return list(latest.values())


def count_overtaken(starts: Iterable[Start], latest: Iterable[Start]) -> int:
    """Count the processes that live beside a later one of the same run and rank, so are not shown.

    Two runs of one user by the same name are such, or a start whose successor came too early. A
    process that has begun another run and never ended the one before is none.
    """
    shown = {(start.run, start.identity.rank): start for start in latest}
    alive = [start for start in starts if start.ending is None]
    pairs = [(start, shown[start.run, start.identity.rank]) for start in alive]
    return sum(_process(start) != _process(other) for start, other in pairs)


def choose_shown(
    starts: Iterable[Start], now: float, shown: Container[str] = ()
) -> tuple[list[Start], int]:
    """Give the ranks that are shown, by run and rank, and count those that the bounds left out.

    Runs that live go before those that are over, and among the former those that have been here the
    longest, so that what is shown stays. One that was shown and has just ended keeps its place for 2
    minutes, or its end would never be told where there are too many runs.

    Args:
        starts: The latest of each rank.
        now: Unix seconds.
        shown: The names of the runs that were shown the last time.
    """
    runs: dict[str, list[Start]] = {}
    for start in starts:
        if start.ending is None or now - start.ending.time < DEAD_SECONDS:
            runs.setdefault(start.run, []).append(start)
    ordered = sorted(
        runs.values(), key=lambda of_run: _order(of_run, now, was_shown=of_run[0].run in shown)
    )
    chosen = [start for of_run in ordered[:MOST_RUNS] for start in _sort(of_run)][:MOST_RANKS]
    chosen.sort(key=lambda start: (start.run, start.identity.rank))
    return chosen, sum(map(len, ordered)) - len(chosen)


def _process(start: Start) -> tuple[int, int, int]:
    identity = start.identity
    return identity.pid_namespace, identity.pid, identity.start_ticks


def _cut(name: str) -> str:
    return name[:_MOST_NAME_CHARACTERS]


def _standing(start: Start) -> tuple[bool, float]:
    return start.file.liveness.is_alive, start.identity.created_time


def _order(of_run: Sequence[Start], now: float, *, was_shown: bool) -> tuple[bool, float]:
    present = [
        start.identity.created_time
        for start in of_run
        if start.ending is None or (was_shown and now - start.ending.time < _JUST_DEAD_SECONDS)
    ]
    if present:
        return False, min(present)
    return True, -max(start.identity.created_time for start in of_run)


def _sort(of_run: Iterable[Start]) -> list[Start]:
    return sorted(of_run, key=lambda start: (start.ending is not None, start.identity.rank))


def date_start(identity: Identity) -> float | None:
    """Tell when a process started: as long before its run file as its clocks say."""
    if not identity.start_ticks:
        return identity.created_time or None
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    before = identity.created_mono_ns / _NANOSECONDS - identity.start_ticks / ticks_per_second
    return round(identity.created_time - max(0.0, before), 2)


def _read_uuids(identity: Identity) -> tuple[str, ...]:
    uuids = identity.static.get("accelerator_uuids", ())
    return () if isinstance(uuids, str) else tuple(uuids)


def _read_bits(record: Record) -> int:
    bits = record.state[_ALERTS]
    return int(bits) if 0 <= bits < 1 << len(ALERTS) else 0
