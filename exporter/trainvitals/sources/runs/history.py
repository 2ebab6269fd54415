"""Read the run directory once, in order to describe runs that have ended.

The module writes nothing: only the exporter, which may have observed more, records how ranks ended.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainvitals.errors import ConfigurationError, SourceError
from trainvitals.foreign_numbers import read_duration, read_time
from trainvitals.foreign_text import clean_text, join_names
from trainvitals.runfile import STATE, STEP, Identity, Record, State
from trainvitals.sources.runs.attempts import Attempt, AttemptHistory
from trainvitals.sources.runs.directory import RunDirectory
from trainvitals.sources.runs.endings import SUFFIX, Ending, determine_ending, read_ending
from trainvitals.sources.runs.launches import Launch, find_launch, read_launches
from trainvitals.sources.runs.liveness import Host, Liveness, read_host
from trainvitals.sources.runs.moment import Moment, find_phase, find_state
from trainvitals.sources.runs.namespaces import ContainerDirectories
from trainvitals.sources.runs.owners import RunNames, Users, rank_owner
from trainvitals.sources.runs.past_runs import LONGEST_TEXT, Run, Start
from trainvitals.sources.runs.processes import read_process_state
from trainvitals.sources.runs.rates import measure_progress, measure_rates
from trainvitals.sources.runs.seen_files import SeenFile
from trainvitals.sources.runs.stalls import detect_stall

_NANOSECONDS = 1e9
_MOST_NAMES = 8
_STOPPED = ("T", "t")
_SLACK_SECONDS = 1.0  # how fast a clock may have been before it was corrected
_STATE_TIME = STATE["state_time"]
_ENDED = (State.FINISHED, State.FAILED, State.ENDED)
# The words that contain the time of writing of each record: on the monotonic and the wall clock.
_CLOCKS = (
    (STEP["mono_ns"], STEP["wall_time"]),
    (STATE["mono_ns"], STATE["wall_time"]),
)


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The contents of a run directory when it was read.

    Attributes:
        directory: The run directory.
        time: The time when the directory was read, in Unix seconds.
        runs: All runs: first the ended runs, sorted from the last to end to the first to end, then
            the other runs.
        incompatible: The number of files that are not run files, are damaged, or have an unknown
            version.
        omitted: The number of run files that were not read because of the limit on run files.
        disbelieved: The number of notes on endings that were ignored because another user wrote
            them or because they are invalid.
        launches: The launches by `trainvitals run` with a run name in which no process reported a
            run, the latest first.
    """

    directory: Path
    time: float
    runs: tuple[Run, ...]
    incompatible: int = 0
    omitted: int = 0
    disbelieved: int = 0
    launches: tuple[Launch, ...] = ()


@dataclass(frozen=True, slots=True)
class _Context:
    """The time, the machine, the users whose files are read, and these users' launches."""

    now: Moment
    host: Host
    users: Users
    launches: tuple[Launch, ...] = ()

    def believe(self, told: float, file: SeenFile) -> float:
        """Return a stated end time, or the file's creation time if the end is in the future."""
        now = self.now.wall_time
        return min(told if told <= now + _SLACK_SECONDS else file.made_time, now)


def read_run_history(
    directory: Path,
    *,
    users: Users = Users(),  # noqa: B008 - immutable
    host: Host | None = None,
    clock: Callable[[], float] = time.time,
    monotonic_ns: Callable[[], int] = time.monotonic_ns,
) -> RunHistory:
    """Read a run directory, and the directories with the same path inside containers.

    Args:
        directory: The run directory; a missing directory counts as empty.
        users: The users whose run files are read.
        host: The machine on which the trainers run; None for this machine.
        clock: A function that returns the current time, in Unix seconds.
        monotonic_ns: A function that returns CLOCK_MONOTONIC in nanoseconds.

    Raises:
        SourceError: The directory exists but cannot be read.
    """
    host = host or read_host()
    launches = read_launches(directory, users)
    context = _Context(Moment(clock(), monotonic_ns(), host.boot_id), host, users, launches)
    files, incompatible, omitted = _read_directories(directory, context)
    starts = _read_starts(files, context)
    return RunHistory(
        directory=directory,
        time=context.now.wall_time,
        runs=_gather_runs(starts),
        incompatible=incompatible,
        omitted=omitted,
        disbelieved=sum(
            not start.liveness.is_alive and file.can_be_noted and _has_refused_note(file.path)
            for file, start in zip(files, starts, strict=True)
        ),
        launches=tuple(launch for launch in launches if launch.name and not launch.runs),
    )


def choose_run(history: RunHistory, name: str | None) -> Run:
    """Return the run with a name or name prefix; if the name is None, the run that ended last.

    Raises:
        ConfigurationError: No run matches, or more than one run matches.
    """
    if not history.runs:
        left = f" ({history.incompatible} other files were left aside)"
        raise ConfigurationError(
            f"no training run has left a file in {history.directory}"
            f"{left if history.incompatible else ''}; "
            "give the --run-dir of the run, or its TRAINVITALS_RUN_DIR"
        )
    if name is None:
        return history.runs[0]
    names = sorted(run.name for run in history.runs)
    found = [run for run in history.runs if run.name == name] or [
        run for run in history.runs if run.name.startswith(name)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        similar = join_names(sorted(run.name for run in found), most=_MOST_NAMES)
        raise ConfigurationError(f"{name!r} may be {similar}; write more")
    there = join_names(names, most=_MOST_NAMES)
    raise ConfigurationError(f"no run {name!r} in {history.directory}; there is {there}")


def _read_directories(directory: Path, context: _Context) -> tuple[list[SeenFile], int, int]:
    own = RunDirectory(directory, host=context.host, users=context.users)
    containers = ContainerDirectories(directory.absolute(), host=context.host, users=context.users)
    now = context.now.wall_time
    try:
        readings = [own.read(now)]
        for each in containers.find(now):
            with contextlib.suppress(SourceError):  # another user's directory, not readable
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


def _read_starts(files: Sequence[SeenFile], context: _Context) -> list[Start]:
    """Return the starts in all run files, sorted by the creation times that the files state.

    A run belongs to one user, so false creation times affect only the runs of the files' owner.
    """
    names = RunNames()
    for file in sorted(files, key=lambda file: rank_owner(file.owner, file.made_time)):
        names.name(_name(file), file.owner)
    attempts: dict[tuple[str, int], int] = {}
    starts = []
    for file in files:
        identity, run = _identify(file), names.name(_name(file), file.owner)
        who = (run, identity.rank)
        attempts[who] = max(identity.attempt, attempts.get(who, -1) + 1)
        starts.append(_read_start(file, run, attempts[who], context))
    return starts


def _name(file: SeenFile) -> str:
    return clean_text(_identify(file).run, most=LONGEST_TEXT)


def _read_start(file: SeenFile, run: str, attempt: int, context: _Context) -> Start:
    identity = _identify(file)
    record, liveness = file.record, file.liveness
    ending, is_end_seen, stall = None, True, None
    moment = context.now
    if liveness.is_alive:
        stall = detect_stall(record, moment, is_stopped=liveness.state in _STOPPED).cause
        if identity.boot_id != moment.boot_id:  # the clock of the other kernel is unknown
            moment = _move(record, identity, moment.wall_time)
    else:
        liveness = _add_exit(liveness, identity, context.host)
        ending, is_end_seen = _find_ending(file, identity, liveness, context)
        moment = _move(record, identity, ending.time)
    phase = find_phase(record)
    return Start(
        run=run,
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
        rates=measure_rates(record, _move(record, identity, _find_last_write(record, identity))),
        progress=measure_progress(record, is_alive=liveness.is_alive),
        made_time=file.made_time,
        launch=find_launch(context.launches, identity.run, file.owner, identity.created_time),
    )


def _find_ending(
    file: SeenFile, identity: Identity, liveness: Liveness, context: _Context
) -> tuple[Ending, bool]:
    """Return how a rank ended, and whether the end time is known."""
    note = read_ending(file.path) if file.can_be_noted else None
    state = find_state(file.record)
    is_recorded = state in _ENDED and file.record.state[_STATE_TIME] > 0
    if note is not None:  # an exporter notes the machine state only if it saw the end
        return note, is_recorded or bool(note.machine)
    when = file.record.state[_STATE_TIME] if is_recorded else 0.0
    when = context.believe(when or _find_last_write(file.record, identity), file)
    return determine_ending(state, file.record.last_words, liveness, when), is_recorded


def _add_exit(liveness: Liveness, identity: Identity, host: Host) -> Liveness:
    """Return a liveness with the exit added if the kernel still reports the rank as a zombie."""
    if liveness.exit is not None or liveness.host_pid is None:
        return liveness
    state = read_process_state(liveness.host_pid, procfs=host.procfs)
    if state is None or state.start_ticks != identity.start_ticks or state.letter != "Z":
        return liveness
    return replace(liveness, exit=state.exit)


def _has_refused_note(path: Path) -> bool:
    try:
        path.with_name(path.name + SUFFIX).lstat()
    except OSError:
        return False
    return read_ending(path) is None


def _find_last_write(record: Record, identity: Identity) -> float:
    """Return the Unix time when a rank last wrote a record; 0 if the time is unknown."""
    times = [record.step[STEP["wall_time"]], record.state[STATE["wall_time"]]]
    if record.live is not None:
        times.append(record.live[0] / _NANOSECONDS + _offset_clocks(record, identity))
    times.append(identity.created_time)
    return max((known for each in times if (known := read_time(each)) is not None), default=0.0)


def _offset_clocks(record: Record, identity: Identity) -> float:
    """Return the offset from the trainer's CLOCK_MONOTONIC to Unix time, in seconds."""
    stamps = [(identity.created_mono_ns, identity.created_time)]
    for row, (mono_at, wall_at) in zip((record.step, record.state), _CLOCKS, strict=True):
        stamps.append((int(max(0.0, row[mono_at])), row[wall_at]))
    known = [(mono_ns, wall) for mono_ns, wall in stamps if mono_ns and wall > 0]
    mono_ns, wall = max(known, default=(0, 0.0))
    return wall - mono_ns / _NANOSECONDS


def _move(record: Record, identity: Identity, wall_time: float) -> Moment:
    """Return a Unix time and the corresponding time on the trainer's monotonic clock."""
    mono = wall_time - _offset_clocks(record, identity)
    return Moment(wall_time, int(mono * _NANOSECONDS) + 1000, identity.boot_id)


def _measure_phase(record: Record, moment: Moment) -> float | None:
    if record.live is not None:
        return _check((moment.mono_ns - record.live[0]) / _NANOSECONDS)
    return _check(moment.wall_time - record.step[STEP["phase_start_time"]])


def _check(seconds: float | None) -> float | None:
    return None if seconds is None else read_duration(max(0.0, seconds))


def _gather_runs(starts: Sequence[Start]) -> tuple[Run, ...]:
    losses = AttemptHistory().update(
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
    return True, -max(start.made_time for start in run.starts)
