"""Determine how each rank ended, record the ending beside the run file, and log and count it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace

from trainvitals.runfile import ABSENT, STATE, STEP, State
from trainvitals.sources.runs.endings import (
    REASONS,
    Ending,
    describe_ending,
    determine_ending,
    read_ending,
    write_ending,
)
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.moment import find_state
from trainvitals.sources.runs.seen_files import SeenFile

# How long to wait for the kernel's report of an exit, which follows the parent's `wait` call.
PATIENCE_SECONDS = 10.0
# Of runs and of ranks whose files were deleted; the counts of one run take about 0.2 KB.
_MOST_RUNS = 512
_MOST_COUNTED = 2048
_STATE, _STATE_TIME = STATE["state"], STATE["state_time"]
_STEP_WALL, _STATE_WALL = STEP["wall_time"], STATE["wall_time"]

_log = logging.getLogger("trainvitals")


@dataclass(slots=True)
class _Death:
    """The end of one rank.

    Attributes:
        ending: How the rank ended, as far as that is known.
        liveness: The liveness from which `ending` was determined.
        seen_at: The time when the rank was first found to have ended, in Unix seconds.
        is_reported: Whether the rank's ending was counted and logged.
    """

    ending: Ending
    liveness: Liveness
    seen_at: float
    is_reported: bool = False


class DeathRegister:
    """The register of the endings of all ranks whose run files still exist.

    Args:
        describe: A function that takes the UUIDs of accelerators, and returns the state of the
            machine and of these accelerators as numbers in base units, by name.
    """

    def __init__(
        self, describe: Callable[[Collection[str]], Mapping[str, float]] = lambda _: {}
    ) -> None:
        self._describe = describe
        self._deaths: dict[Hashable, _Death] = {}
        self._living: set[Hashable] = set()
        self._exits: dict[str, dict[str, int]] = {}
        self._counted: dict[Hashable, None] = {}

    def note_living(self, key: Hashable) -> None:
        """Record that a rank is alive, so that the time of the rank's end will be known."""
        self._living.add(key)

    def find_ending(
        self, key: Hashable, file: SeenFile, now: float, gpu_uuids: Collection[str], *, run: str
    ) -> Ending:
        """Return how a rank ended.

        Args:
            key: The identity of the rank's run file.
            file: The run file of the rank.
            now: The current time, in Unix seconds.
            gpu_uuids: The UUIDs of the accelerators that the rank's process held.
            run: The name of the run.
        """
        death = self._deaths.get(key)
        if death is None:
            death = self._deaths[key] = self._register(key, file, now, gpu_uuids, run)
        elif death.liveness is not file.liveness:
            self._update(death, file)
        if not death.is_reported and not is_exit_known(death.ending):
            self._read_note(death, file, now)
        is_settled = death.ending.reason != "unknown" and (
            file.record.state[_STATE] != State.ENDED or is_exit_known(death.ending)
        )
        if not death.is_reported and (is_settled or abs(now - death.seen_at) >= PATIENCE_SECONDS):
            death.is_reported = True
            self._count(key, run, death.ending)
            _log_ending(run, file, death.ending)
        return death.ending

    def is_reported(self, key: Hashable) -> bool:
        """Return whether a rank's ending was counted and logged; the reason is then final."""
        death = self._deaths.get(key)
        return death is not None and death.is_reported

    def count_exits(self, run: str) -> Mapping[str, int]:
        """Return the number of a run's processes that have ended, for each reason in `REASONS`."""
        return self._exits.get(run) or dict.fromkeys(REASONS, 0)

    def forget(self, present: Collection[Hashable], runs: Collection[str]) -> None:
        """Drop the ranks whose files were deleted, but keep the counts of ended processes.

        If deleted files reappear, for example because a file system could not be read for a while,
        the ranks are not counted again.

        Args:
            present: The identities of the run files that exist.
            runs: The runs to which the run files in `present` belong; the counts of these runs are
                always kept.
        """
        self._living.intersection_update(present)
        for key in self._deaths.keys() - present:
            del self._deaths[key]
        spare = max(0, len(self._exits) - _MOST_RUNS)
        for run in [run for run in self._exits if run not in runs][:spare]:
            del self._exits[run]
        for key in list(self._counted)[: max(0, len(self._counted) - _MOST_COUNTED)]:
            del self._counted[key]

    def _register(
        self, key: Hashable, file: SeenFile, now: float, gpu_uuids: Collection[str], run: str
    ) -> _Death:
        note = read_ending(file.path) if file.can_be_noted else None
        if note is not None:
            note = replace(note, time=min(now, note.time))
            self._count(key, run, note)
            return _Death(note, file.liveness, now, is_reported=True)
        died_here = key in self._living
        self._living.discard(key)
        ending = determine_file(file, date_end(file, now, died_here=died_here))
        if died_here:
            ending = replace(ending, machine=self._describe(gpu_uuids))
        _note(file, ending)
        return _Death(ending, file.liveness, now, is_reported=key in self._counted)

    def _update(self, death: _Death, file: SeenFile) -> None:
        """Update a rank's ending with information that the kernel has reported since."""
        before, death.liveness = death.ending, file.liveness
        ending = replace(determine_file(file, before.time), machine=before.machine)
        if ending != before and not (death.is_reported and ending.reason != before.reason):
            death.ending = ending
            _note(file, ending)

    def _read_note(self, death: _Death, file: SeenFile, now: float) -> None:
        """Use the ending in a note by `trainvitals run` if the note says how the process exited."""
        note = read_ending(file.path) if file.can_be_noted else None
        if note is not None and is_exit_known(note):
            machine = death.ending.machine or note.machine
            death.ending = replace(note, time=min(now, note.time), machine=machine)

    def _count(self, key: Hashable, run: str, ending: Ending) -> None:
        if key in self._counted:
            return
        self._counted[key] = None
        exits = self._exits.pop(run, None) or dict.fromkeys(REASONS, 0)
        exits[ending.reason] += 1
        self._exits[run] = exits  # moved to the end, since the first are dropped


def is_exit_known(ending: Ending) -> bool:
    """Return whether a rank's exit code, or the signal that ended the rank, is known."""
    return ending.exit_code is not None or ending.signal is not None


def _note(file: SeenFile, ending: Ending) -> None:
    if file.can_be_noted:
        write_ending(file.path, ending)


def determine_file(file: SeenFile, when: float) -> Ending:
    """Return how the rank with a run file ended, according to the run file or the kernel.

    Args:
        file: The run file.
        when: The time when the rank ended, in Unix seconds.
    """
    record = file.record
    return determine_ending(find_state(record), record.last_words, file.liveness, when)


def date_end(file: SeenFile, now: float, *, died_here: bool) -> float:
    """Return the time when a rank ended, in Unix seconds.

    The result is the end time that the rank recorded. If the rank recorded no end time, the result
    is `now` if the exporter saw the rank alive, and otherwise the time of the rank's last record.

    If the rank wrote no record, the result is the time at which the run file was created. The
    result is never later than `now`, even if the clock was fast when the record was written.
    """
    record = file.record
    state = record.state
    if state[_STATE] in (State.FINISHED, State.FAILED, State.ENDED) and state[_STATE_TIME] > 0:
        return min(now, state[_STATE_TIME])
    if died_here:
        return now
    created = record.identity.created_time if record.identity is not None else ABSENT
    times = (created, record.step[_STEP_WALL], state[_STATE_WALL])
    return min(now, max((when for when in times if when > 0), default=file.made_time))


def _log_ending(run: str, file: SeenFile, ending: Ending) -> None:
    identity = file.record.identity
    if identity is None:
        return
    step = file.record.step[STEP["global_step"]]
    _log.log(
        logging.INFO if ending.reason == "finished" else logging.WARNING,
        "run %s rank %d %s%s",
        run,
        identity.rank,
        describe_ending(ending),
        f" at step {step:.0f}" if step >= 0 else "",
        extra={"run": run, "rank": identity.rank, "reason": ending.reason},
    )
