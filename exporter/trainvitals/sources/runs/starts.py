"""The starts of all ranks that have a run file, and the choice of the starts to show.

Each start of a rank creates a run file. The latest start of each rank is shown while the rank is
alive and for a limited time after the rank's end; the other starts show the work lost because of
restarts.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainvitals.runfile import ALERTS, STATE, Identity, Record
from trainvitals.sources.runs.deaths import DeathRegister
from trainvitals.sources.runs.endings import Ending
from trainvitals.sources.runs.machine_state import MachineState
from trainvitals.sources.runs.owners import RunNames, Users, is_trusted, rank_owner, take_turns
from trainvitals.sources.runs.seen_files import SeenFile

MOST_RUNS = 16
MOST_RANKS = 64
DEAD_SECONDS = 900.0
_JUST_DEAD_SECONDS = 120.0
_MOST_NAME_CHARACTERS = 128
_ALERTS = STATE["alerts"]
_NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one rank of a training run.

    Attributes:
        key: The identity of the start's run file.
        file: The run file of the start.
        identity: The identity of the process that wrote the run file.
        run: The name of the run, cut to 128 characters and followed by the user ID if another
            user's run used the name first.
        ending: How the process ended; None while the process is alive.
        gpu_uuids: The UUIDs of the accelerators that the process holds, or held last.
        alerts_seen: A bit mask of the alerts in `runfile.ALERTS` that were ever active.
        is_settled: Whether the start is final, because the process has ended and the ending was
            logged.
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
    """The register of all starts that have a run file, kept between readings.

    Args:
        machine: The machine state, which contains the accelerators that processes hold.

    Attributes:
        deaths: The register that determines how the processes of ranks ended.
    """

    def __init__(self, machine: MachineState) -> None:
        self.deaths = DeathRegister(machine.describe)
        self._machine = machine
        self._starts: dict[Hashable, Start] = {}
        self._names = RunNames()

    def take_up(self, files: Iterable[SeenFile], now: float) -> Sequence[Start]:
        """Update the register with the existing run files, and return the starts.

        Args:
            files: All run files; a file that occurs twice is counted once.
            now: The current time, in Unix seconds.
        """
        held = self._machine.holders()
        found = {
            # The inode number of a deleted file may be reused, so the key contains the time.
            (file.key.device, file.key.inode, identity.created_time): (file, identity)
            for file in files
            if (identity := file.record.identity) is not None
        }
        new = [pair for key, pair in found.items() if key not in self._starts]
        for file, identity in sorted(
            new, key=lambda pair: rank_owner(pair[0].owner, pair[0].made_time)
        ):
            self._names.name(_cut(identity.run), file.owner)
        starts: dict[Hashable, Start] = {
            key: self._take_up(key, *pair, held, now) for key, pair in found.items()
        }
        self.deaths.forget(starts.keys(), {start.run for start in starts.values()})
        names = {_cut(start.identity.run) for start in starts.values()}
        names |= {start.run for start in starts.values()}
        self._names.keep(names)
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
        run = self._names.name(_cut(identity.run), file.owner) if before is None else before.run
        uuids = _read_uuids(identity) if before is None else before.gpu_uuids
        seen = _read_bits(file.record) | (0 if before is None else before.alerts_seen)
        ending, is_settled = None, False
        if file.liveness.is_alive:
            self.deaths.note_living(key)
            uuids = held.get(file.liveness.host_pid or 0) or uuids
        else:
            ending = self.deaths.find_ending(key, file, now, uuids, run=run)
            was_dead = before is not None and before.ending is not None
            is_settled = was_dead and self.deaths.is_reported(key)
        return Start(key, file, identity, run, ending, uuids, seen, is_settled)


def find_latest(starts: Iterable[Start]) -> list[Start]:
    """Return the latest start of each rank; a living start is preferred to an ended start."""
    latest: dict[tuple[str, int], Start] = {}
    for start in starts:
        who = (start.run, start.identity.rank)
        other = latest.get(who)
        if other is None or _standing(start) > _standing(other):
            latest[who] = start
    return list(latest.values())


def count_overtaken(starts: Iterable[Start], latest: Iterable[Start]) -> int:
    """Return the number of living processes that are not shown because of a later start.

    Only the latest start of each run and rank is shown. Two living processes have the same run and
    rank if a user gives two runs the same name, or if a successor starts before its predecessor has
    ended. A process that has begun another run without ending the previous run is not counted.
    """
    shown = {(start.run, start.identity.rank): start for start in latest}
    alive = [start for start in starts if start.ending is None]
    pairs = [(start, shown[start.run, start.identity.rank]) for start in alive]
    return sum(_process(start) != _process(other) for start, other in pairs)


def choose_shown(
    starts: Iterable[Start],
    now: float,
    shown: Container[str] = (),
    users: Users = Users(),  # noqa: B008 - immutable
) -> tuple[list[Start], list[Start]]:
    """Return the ranks to show, and the ranks left out because of the limits.

    The ranks to show are sorted by run and rank.

    Living runs precede ended runs. Within both groups, runs are chosen from each user in turn, and
    from each of a user's directories in turn, so that no user displaces other users. Within one
    directory, the oldest living runs and the newest ended runs come first, so that the choice is
    stable. A run that was shown keeps its place for 2 minutes after its end; otherwise, the end
    would never be reported if there are too many runs.

    Args:
        starts: The latest start of each rank.
        now: The current time, in Unix seconds.
        shown: The names of the runs that were shown the last time.
        users: Determines which user IDs are treated as one user.
    """

    def owner(start: Start) -> int:
        return users.find_group(start.file.owner)

    runs: dict[str, list[Start]] = {}
    for start in starts:
        if start.ending is None or now - start.ending.time < DEAD_SECONDS:
            runs.setdefault(start.run, []).append(start)
    present: list[list[Start]] = []
    ended: list[list[Start]] = []
    for of_run in runs.values():
        is_present = _is_present(of_run, now, was_shown=of_run[0].run in shown)
        (present if is_present else ended).append(_sort(of_run))
    present.sort(key=lambda of_run: (_is_foreign(of_run), min(map(_made, of_run))))
    ended.sort(key=lambda of_run: (_is_foreign(of_run), -max(map(_made, of_run))))
    # Runs are chosen first; otherwise, one user's few ranks would compete with another user's many
    # runs.
    ordered = [
        of_run[0].run
        for group in (present, ended)
        for of_run in take_turns(group, lambda run: owner(run[0]), lambda run: _device(run[0]))
    ]
    names = frozenset(ordered[:MOST_RUNS])
    waiting = [
        start
        for group in (present, ended)
        for start in take_turns(itertools.chain(*group), owner, _device)
    ]
    of_names = [start for start in waiting if start.run in names]
    omitted = [start for start in waiting if start.run not in names] + of_names[MOST_RANKS:]
    chosen = of_names[:MOST_RANKS]
    chosen.sort(key=lambda start: (start.run, start.identity.rank))
    return chosen, omitted


def _device(start: Start) -> int:
    return start.file.key.device


def _process(start: Start) -> tuple[int, int, int]:
    identity = start.identity
    return identity.pid_namespace, identity.pid, identity.start_ticks


def _cut(name: str) -> str:
    return name[:_MOST_NAME_CHARACTERS]


def _standing(start: Start) -> tuple[bool, float]:
    return start.file.liveness.is_alive, start.file.made_time


def _is_present(of_run: Iterable[Start], now: float, *, was_shown: bool) -> bool:
    """Return whether a run is alive, or was shown and has just ended."""
    return any(
        start.ending is None or (was_shown and now - start.ending.time < _JUST_DEAD_SECONDS)
        for start in of_run
    )


def _is_foreign(of_run: Sequence[Start]) -> bool:
    return not is_trusted(of_run[0].file.owner)


def _made(start: Start) -> float:
    return start.file.made_time


def _sort(of_run: Iterable[Start]) -> list[Start]:
    return sorted(of_run, key=lambda start: (start.ending is not None, start.identity.rank))


def date_start(identity: Identity) -> float | None:
    """Return a process's start time in Unix seconds from its run file; None if it is unknown."""
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
