"""How the ranks that died ended: judged once, noted beside the run file, told in the log, counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace

from trainvitals.runfile import ABSENT, STATE, STEP, Record, State
from trainvitals.sources.training.directory import SeenFile
from trainvitals.sources.training.endings import (
    REASONS,
    Ending,
    judge_ending,
    read_ending,
    write_ending,
)
from trainvitals.sources.training.liveness import Liveness

# How long the kernel may take to tell how a process ended: it does so once the parent has looked.
PATIENCE_SECONDS = 10.0
_MOST_RUNS = 1024
_MOST_COUNTED = 4096
_STATE, _STATE_TIME = STATE["state"], STATE["state_time"]
_STEP_WALL, _STATE_WALL = STEP["wall_time"], STATE["wall_time"]

_log = logging.getLogger("trainvitals")


@dataclass(slots=True)
class _Death:
    """One rank that is dead.

    Attributes:
        ending: How it ended, as well as is known.
        liveness: What the kernel told when that was judged.
        seen_at: When it was first seen dead, Unix seconds.
        is_told: It was counted and told in the log.
    """

    ending: Ending
    liveness: Liveness
    seen_at: float
    is_told: bool = False


class DeathRegister:
    """Knows how every rank ended whose run file is still there.

    Args:
        describe: Gives what the machine looks like now, numbers by name in base units, with the
            accelerators of these UUIDs.
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
        """Take note that a rank lives, so that the moment of its death is known."""
        self._living.add(key)

    def judge(
        self, key: Hashable, file: SeenFile, now: float, gpu_uuids: Collection[str], *, run: str
    ) -> Ending:
        """Tell how a rank ended.

        Args:
            key: Tells its run file from all others.
            file: Its run file.
            now: Unix seconds.
            gpu_uuids: The accelerators that its process held.
            run: What its run is called.
        """
        death = self._deaths.get(key)
        if death is None:
            death = self._deaths[key] = self._meet(key, file, now, gpu_uuids, run)
        elif death.liveness is not file.liveness:
            self._judge_again(death, file)
        is_settled = death.ending.reason != "unknown" and (
            file.record.state[_STATE] != State.ENDED or file.liveness.exit is not None
        )
        if not death.is_told and (is_settled or abs(now - death.seen_at) >= PATIENCE_SECONDS):
            death.is_told = True
            self._count(key, run, death.ending)
            _tell(run, file, death.ending)
        return death.ending

    def is_told(self, key: Hashable) -> bool:
        """Tell whether a rank's death was counted and told, so that nothing more will be."""
        death = self._deaths.get(key)
        return death is not None and death.is_told

    def count_exits(self, run: str) -> Mapping[str, int]:
        """Count the processes of a run that ended, by each of `REASONS`."""
        return self._exits.get(run) or dict.fromkeys(REASONS, 0)

    def forget(self, present: Collection[Hashable], runs: Collection[str]) -> None:
        """Let go of the ranks whose files are gone; what was counted stays counted.

        Should they come back, as from a file system that could not be read for a while, they are
        not counted again.

        Args:
            present: The ranks whose files are there.
            runs: Their runs, whose counts are kept in any case.
        """
        self._living.intersection_update(present)
        for key in self._deaths.keys() - present:
            del self._deaths[key]
        spare = max(0, len(self._exits) - _MOST_RUNS)
        for run in [run for run in self._exits if run not in runs][:spare]:
            del self._exits[run]
        for key in list(self._counted)[: max(0, len(self._counted) - _MOST_COUNTED)]:
            del self._counted[key]

    def _meet(
        self, key: Hashable, file: SeenFile, now: float, gpu_uuids: Collection[str], run: str
    ) -> _Death:
        note = read_ending(file.path) if file.can_be_noted else None
        if note is not None:
            note = replace(note, time=min(now, note.time))
            self._count(key, run, note)
            return _Death(note, file.liveness, now, is_told=True)
        died_here = key in self._living
        self._living.discard(key)
        ending = _judge(file, _date(file.record, now, died_here=died_here))
        if died_here:
            ending = replace(ending, machine=self._describe(gpu_uuids))
        _note(file, ending)
        return _Death(ending, file.liveness, now, is_told=key in self._counted)

    def _judge_again(self, death: _Death, file: SeenFile) -> None:
        """Take up what the kernel has told since."""
        before, death.liveness = death.ending, file.liveness
        ending = replace(_judge(file, before.time), machine=before.machine)
        if ending != before and not (death.is_told and ending.reason != before.reason):
            death.ending = ending
            _note(file, ending)

    def _count(self, key: Hashable, run: str, ending: Ending) -> None:
        if key in self._counted:
            return
        self._counted[key] = None
        exits = self._exits.pop(run, None) or dict.fromkeys(REASONS, 0)
        exits[ending.reason] += 1
        self._exits[run] = exits  # at the end, for the oldest are forgotten


def _note(file: SeenFile, ending: Ending) -> None:
    if file.can_be_noted:
        write_ending(file.path, ending)


def _judge(file: SeenFile, when: float) -> Ending:
    number = file.record.state[_STATE]
    state = State(int(number)) if number in tuple(State) else None
    return judge_ending(state, file.record.last_words, file.liveness, when)


def _date(record: Record, now: float, *, died_here: bool) -> float:
    """Tell when a rank ended: by its own word, or when it was found dead, or by its last record.

    It was not later than now, whatever the clock was when the record was written.
    """
    state = record.state
    if state[_STATE] in (State.FINISHED, State.FAILED, State.ENDED) and state[_STATE_TIME] > 0:
        return min(now, state[_STATE_TIME])
    if died_here:
        return now
    created = record.identity.created_time if record.identity is not None else ABSENT
    told = (created, record.step[_STEP_WALL], state[_STATE_WALL])
    return min(now, max((when for when in told if when > 0), default=0.0))


def _tell(run: str, file: SeenFile, ending: Ending) -> None:
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


def describe_ending(ending: Ending) -> str:
    """Say in a few words how a rank ended."""
    match ending.reason:
        case "finished":
            return "finished"
        case "exception":
            if ending.exception is None and ending.exit_code is None:
                return "failed"
            return f"failed with {ending.exception or f'exit code {ending.exit_code}'}"
        case "oom":
            return "was killed because memory ran out"
        case "signal":
            return f"died of signal {ending.signal}"
        case _:
            return "died for reasons unknown"
