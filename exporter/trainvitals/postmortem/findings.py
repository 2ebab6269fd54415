"""Reading the run directory once, as it is after a run has ended.

Nothing is written: notes on how ranks ended are the exporter's to write, which may have seen more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainvitals.errors import ConfigurationError, SourceError
from trainvitals.postmortem.cases import Run, Start, clean_text, is_length
from trainvitals.runfile import STATE, STEP, Identity, Record, State
from trainvitals.sources.training.attempts import Attempt, AttemptLedger
from trainvitals.sources.training.directory import RunDirectory, SeenFile
from trainvitals.sources.training.endings import SUFFIX, Ending, judge_ending, read_ending
from trainvitals.sources.training.liveness import Host, Liveness, read_host
from trainvitals.sources.training.moment import Moment, find_phase
from trainvitals.sources.training.namespaces import ContainerDirectories
from trainvitals.sources.training.processes import read_process_state
from trainvitals.sources.training.rates import measure_progress, measure_rates
from trainvitals.sources.training.stalls import judge_stall

_NANOSECONDS = 1e9
_MOST_NAMES = 8
_STOPPED = ("T", "t")
_STATE, _STATE_TIME = STATE["state"], STATE["state_time"]
_ENDED = (State.FINISHED, State.FAILED, State.ENDED)
# The words of both records that say when they were written, by either clock.
_CLOCKS = (
    (STEP["mono_ns"], STEP["wall_time"]),
    (STATE["mono_ns"], STATE["wall_time"]),
)
_LATEST_TIME = 4e9


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found in the run directory.

    Attributes:
        directory: The run directory.
        time: When it was read, Unix seconds.
        runs: Every run: those that are over first, the last to end before all others.
        incompatible: How many files are no run files, damaged, or of an unknown version.
        omitted: How many run files there are beyond the limit.
        disbelieved: How many notes of an end were left aside, because a stranger wrote them or
            they make no sense.
    """

    directory: Path
    time: float
    runs: tuple[Run, ...]
    incompatible: int = 0
    omitted: int = 0
    disbelieved: int = 0


@dataclass(frozen=True, slots=True)
class _Scene:
    """The moment of the reading, and the machine."""

    now: Moment
    host: Host


def read_findings(
    directory: Path,
    *,
    host: Host | None = None,
    clock: Callable[[], float] = time.time,
    monotonic_ns: Callable[[], int] = time.monotonic_ns,
) -> Findings:
    """Read a run directory and those of the same path inside containers.

    Args:
        directory: The run directory; one that is missing is empty.
        host: The machine; the one we run on when None.
        clock: Tells Unix seconds.
        monotonic_ns: Tells CLOCK_MONOTONIC in nanoseconds.

    Raises:
        SourceError: The directory is there but cannot be read.
    """
    host = host or read_host()
    scene = _Scene(Moment(clock(), monotonic_ns(), host.boot_id), host)
    files, incompatible, omitted = _read_directories(directory, scene)
    starts = _judge_starts(files, scene)
    return Findings(
        directory=directory,
        time=scene.now.wall_time,
        runs=_gather_runs(starts),
        incompatible=incompatible,
        omitted=omitted,
        disbelieved=sum(
            not start.liveness.is_alive and file.can_be_noted and _has_unbelievable_note(file.path)
            for file, start in zip(files, starts, strict=True)
        ),
    )


def choose_run(findings: Findings, name: str | None) -> Run:
    """Choose the run to tell of: by its name or the beginning of it, else the last to end.

    Raises:
        ConfigurationError: There is no such run, or more than one.
    """
    if not findings.runs:
        left = f" ({findings.incompatible} other files were left aside)"
        raise ConfigurationError(
            f"no training run has left a file in {findings.directory}"
            f"{left if findings.incompatible else ''}; "
            "give the --run-dir of the run, or its TRAINVITALS_RUN_DIR"
        )
    if name is None:
        return findings.runs[0]
    names = sorted(run.name for run in findings.runs)
    found = [run for run in findings.runs if run.name == name] or [
        run for run in findings.runs if run.name.startswith(name)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigurationError(
            f"{name!r} may be {_list(sorted(run.name for run in found))}; write more"
        )
    raise ConfigurationError(f"no run {name!r} in {findings.directory}; there is {_list(names)}")


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _read_directories(directory: Path, scene: _Scene) -> tuple[list[SeenFile], int, int]:
    own = RunDirectory(directory, host=scene.host)
    containers = ContainerDirectories(directory.absolute(), host=scene.host)
    now = scene.now.wall_time
    try:
        readings = [own.read(now)]
        for each in containers.find(now):
            with contextlib.suppress(SourceError):  # one that we may not read is not ours
                readings.append(each.read(now))
    finally:
        own.close()
        containers.close()
    files = {file.key: file for reading in reversed(readings) for file in reading.files}
    return (
        sorted(files.values(), key=lambda file: _identify(file).created_time),
        sum(reading.incompatible for reading in readings),
        sum(reading.omitted for reading in readings),
    )


def _identify(file: SeenFile) -> Identity:
    return file.record.identity or Identity(run="")


def _judge_starts(files: Iterable[SeenFile], scene: _Scene) -> list[Start]:
    """Judge every run file; the files are in the order in which they were made."""
    attempts: dict[tuple[str, int], int] = {}
    starts = []
    for file in files:
        identity = _identify(file)
        who = (identity.run, identity.rank)
        attempts[who] = max(identity.attempt, attempts.get(who, -1) + 1)
        starts.append(_judge_start(file, identity, attempts[who], scene))
    return starts


def _judge_start(file: SeenFile, identity: Identity, attempt: int, scene: _Scene) -> Start:
    record, liveness = file.record, file.liveness
    ending, is_end_seen, stall = None, True, None
    moment = scene.now
    if liveness.is_alive:
        stall = judge_stall(record, moment, is_stopped=liveness.state in _STOPPED).cause
        if identity.boot_id != moment.boot_id:  # of another kernel, whose clock we do not know
            moment = _move(record, identity, moment.wall_time)
    else:
        liveness = _ask_for_exit(liveness, identity, scene.host)
        ending, is_end_seen = _find_ending(file, identity, liveness)
        moment = _move(record, identity, ending.time)
    phase = find_phase(record)
    return Start(
        run=clean_text(identity.run),
        attempt=attempt,
        identity=identity,
        record=record,
        liveness=liveness,
        ending=ending,
        is_end_seen=is_end_seen,
        stall=stall,
        phase=None if phase is None else phase.name.lower(),
        phase_seconds=_measure_phase(record, moment) if is_end_seen else None,
        progress_age_seconds=_check(moment.progress_age_seconds(record)) if is_end_seen else None,
        rates=measure_rates(record, _move(record, identity, _find_last_word(record, identity))),
        progress=measure_progress(record, is_alive=liveness.is_alive),
    )


def _find_ending(file: SeenFile, identity: Identity, liveness: Liveness) -> tuple[Ending, bool]:
    """Tell how a dead rank ended, and whether the time of it is known."""
    note = read_ending(file.path) if file.can_be_noted else None
    number = file.record.state[_STATE]
    state = State(int(number)) if number in tuple(State) else None
    has_said_so = state in _ENDED and 0 < file.record.state[_STATE_TIME] < _LATEST_TIME
    if note is not None:  # only who saw it die has noted what the machine looked like
        return note, has_said_so or bool(note.machine)
    when = file.record.state[_STATE_TIME] if has_said_so else 0.0
    when = when or _find_last_word(file.record, identity)
    return judge_ending(state, file.record.last_words, liveness, when), has_said_so


def _ask_for_exit(liveness: Liveness, identity: Identity, host: Host) -> Liveness:
    """Add how a process ended whose parent has not asked yet, so that the kernel still tells."""
    if liveness.exit is not None or liveness.host_pid is None:
        return liveness
    state = read_process_state(liveness.host_pid, procfs=host.procfs)
    if state is None or state.start_ticks != identity.start_ticks or state.letter != "Z":
        return liveness
    return replace(liveness, exit=state.exit)


def _has_unbelievable_note(path: Path) -> bool:
    try:
        path.with_name(path.name + SUFFIX).lstat()
    except OSError:
        return False
    return read_ending(path) is None


def _find_last_word(record: Record, identity: Identity) -> float:
    """Tell when a rank was last heard of, Unix seconds; 0 unknown."""
    times = [record.step[STEP["wall_time"]], record.state[STATE["wall_time"]]]
    if record.live is not None:
        times.append(record.live[0] / _NANOSECONDS + _offset_clocks(record, identity))
    times.append(identity.created_time)
    return max((each for each in times if 0 < each < _LATEST_TIME), default=0.0)


def _offset_clocks(record: Record, identity: Identity) -> float:
    """Tell what to add to the trainer's CLOCK_MONOTONIC, in seconds, to get Unix seconds."""
    stamps = [(identity.created_mono_ns, identity.created_time)]
    for row, (mono_at, wall_at) in zip((record.step, record.state), _CLOCKS, strict=True):
        stamps.append((int(max(0.0, row[mono_at])), row[wall_at]))
    sane = [(mono_ns, wall) for mono_ns, wall in stamps if mono_ns and 0 < wall < _LATEST_TIME]
    mono_ns, wall = max(sane, default=(0, 0.0))
    return wall - mono_ns / _NANOSECONDS


def _move(record: Record, identity: Identity, wall_time: float) -> Moment:
    """Give a moment by the trainer's own clocks."""
    mono = wall_time - _offset_clocks(record, identity)
    return Moment(wall_time, int(mono * _NANOSECONDS) + 1000, identity.boot_id)


def _measure_phase(record: Record, moment: Moment) -> float | None:
    if record.live is not None:
        return _check((moment.mono_ns - record.live[0]) / _NANOSECONDS)
    return _check(moment.wall_time - record.step[STEP["phase_start_time"]])


def _check(seconds: float | None) -> float | None:
    if seconds is None or not is_length(max(0.0, seconds)):
        return None
    return max(0.0, seconds)


def _gather_runs(starts: Sequence[Start]) -> tuple[Run, ...]:
    losses = AttemptLedger().update(
        Attempt(
            key=number,
            run=start.run,
            rank=str(start.rank),
            created_time=start.identity.created_time,
            record=start.record,
            is_alive=start.liveness.is_alive,
        )
        for number, start in enumerate(starts)
    )
    by_name: dict[str, list[Start]] = {}
    for start in starts:
        by_name.setdefault(start.run, []).append(start)
    runs = [
        Run(name, tuple(sorted(of_run, key=_order_start)), losses[name])
        for name, of_run in by_name.items()
    ]
    return tuple(sorted(runs, key=_order_run))


def _order_start(start: Start) -> tuple[int, int]:
    return start.attempt, start.rank


def _order_run(run: Run) -> tuple[bool, float]:
    ended = run.ended_time
    if ended is not None:
        return False, -ended
    return True, -max(start.identity.created_time for start in run.starts)
