"""Ends that somebody asked for, from inside the engine or from outside."""

from __future__ import annotations

import re

from trainvitals.causes.case import Case
from trainvitals.causes.figures import write_count, write_span
from trainvitals.causes.memory import has_died_of_memory
from trainvitals.causes.oomkills import trace
from trainvitals.causes.requests import read_request
from trainvitals.causes.verdict import Cause, Confidence, Finding
from trainvitals.causes.workers import find_killed_worker

_SIGINT, _SIGKILL, _SIGTERM = 2, 9, 15
_USUAL_GRACE_SECONDS = 10
_LEAST_GRACE_SECONDS = 60
# SIGKILL cannot be ignored, but a process in a driver or on a dead file system ends late.
_PROMPT_SECONDS = 10.0
_ENGINE_NEAR_SECONDS = 120.0
_LAST_LINES = 60
_INTERRUPTED = re.compile(r"^(?:\[rank\d+\]:\s*)?KeyboardInterrupt\b")


def _look_kill(case: Case) -> Finding | None:
    request = read_request(case)
    if request is None or request.kind != "kill":
        return None
    late = case.measure_before_end(request.asked)
    against: tuple[str, ...] = ()
    if not request.is_signal_known:
        against = ("This engine does not tell the signal; SIGKILL is what the exit code says.",)
    if late is not None and late > _PROMPT_SECONDS:
        against = (
            *against,
            f"It took {write_span(late)} to end: it waited in a driver or for a file system.",
        )
    return Finding(
        "kill-operator",
        f"Somebody killed it through the engine: `{case.program} kill`, `{case.program} rm -f` or"
        " `compose kill`.",
        "high" if request.is_signal_known else "medium",
        (
            (
                f"The engine told of `kill` with SIGKILL{_tell_before(case, request.asked)}, and of no"
                " SIGTERM before it."
            ),
        ),
        against,
        (
            f"Look who did it: `history | grep {case.program}`, scripts, CI jobs, `last`.",
            f"Nothing says that the job is at fault: {_advise_start(case)}.",
        ),
    )


def _advise_start(case: Case) -> str:
    evidence = case.evidence
    if not case.is_container:
        return "start it again from the last checkpoint, in `tmux` if that was an accident"
    if evidence.compose_service:
        return f"`docker compose up -d {evidence.compose_service}`, from the last checkpoint"
    if evidence.settings is not None and evidence.settings.is_removed_at_end:
        return f"`{case.program} run …` again, from the last checkpoint"
    return f"`{case.program} start {evidence.name}`, from the last checkpoint"


def _tell_before(case: Case, time: float) -> str:
    before = case.measure_before_end(time)
    return "" if before is None else f" {write_span(before)} before the end"


def _look_timeout(case: Case) -> Finding | None:
    request = read_request(case)
    if request is None or request.kind != "timeout" or request.killed is None:
        return None
    waited = request.killed - request.asked
    return Finding(
        "stop-timeout",
        f"It was asked to stop, did not in {write_span(waited)}, and was killed.",
        "high",
        (
            (
                f"The engine sent it a signal to stop{_tell_before(case, request.asked)} and SIGKILL"
                f" {write_span(waited)} later: exit code 137 is no OOM here."
            ),
        ),
        (),
        _advise_grace(case, waited),
    )


def _advise_grace(case: Case, waited: float) -> tuple[str, ...]:
    settings = case.evidence.settings
    longer = max(_LEAST_GRACE_SECONDS, int(3 * waited))
    service = case.evidence.compose_service
    init = (
        f"`init: true` for the service `{service}` in the Compose file"
        if service
        else f"`{case.program} run --init`"
    )
    first = (
        f"Use {init}: as PID 1 a program that sets no handler, such as Python, never sees SIGTERM.",
    )
    where = (
        f"`stop_grace_period: {longer}s` for the service `{service}`"
        if service
        else f"`{case.program} run --stop-timeout {longer}`, or `{case.program} stop -t {longer}`"
    )
    return (
        *(() if settings is not None and settings.has_init else first),
        f"Give a checkpoint time to be written: {where}.",
        "Save and leave on SIGTERM: `signal.signal(signal.SIGTERM, …)` in the training script.",
        (
            "The checkpoint that it was writing may be cut off: resume from the one before"
            " (`torch.load` says whether it is whole)."
        ),
    )


def _look_stop(case: Case) -> Finding | None:
    request = read_request(case)
    if request is None or request.kind != "stop":
        return None
    code = case.exit_code
    against: tuple[str, ...] = ()
    if code not in {0, 143, None}:
        against = (f"Exit code {code} is neither 0 nor 143: something went wrong on the way out.",)
    return Finding(
        "stop-graceful",
        f"It was asked to stop ({case.program} stop, compose down or the engine's end), and did.",
        "high",
        (f"The engine told of the request{_tell_before(case, request.asked)}.", *_tell_code(case)),
        against,
        (f"Nothing is wrong: {_advise_start(case)}.",),
    )


def _tell_code(case: Case) -> tuple[str, ...]:
    code = case.exit_code
    if code is None:
        return ()
    name = {137: "SIGKILL", 143: "SIGTERM", 130: "SIGINT"}.get(code)
    return (f"The exit code is {code}{f' ({name})' if name else ''}.",)


def _look_outside(case: Case) -> Finding | None:
    if not case.has_ended or has_died_of_memory(case):
        return None
    if case.signal != _SIGKILL:
        return _look_killed_worker(case)
    if read_request(case) is not None:
        return None
    confidence: Confidence = "low"
    if case.was_end_watched or not case.is_container:
        confidence = "medium"
    return Finding(
        "kill-outside",
        f"SIGKILL ended {case.thing}, and neither the engine nor the OOM killer sent it."
        if case.was_end_watched
        else f"SIGKILL ended {case.thing}, and nothing says that it was the OOM killer.",
        confidence,
        (*_tell_killed(case), *_tell_no_memory(case), *_tell_engine(case)),
        _tell_doubts(case),
        _advise_outside(case),
    )


def _look_killed_worker(case: Case) -> Finding | None:
    """Look for a worker that was killed although nothing ran out of memory."""
    said = find_killed_worker(case)
    traces = trace(case)
    is_watched = case.was_end_watched or case.evidence.oom_kills is not None
    if said is None or not is_watched or traces.are_of_worker:
        return None
    return Finding(
        "kill-outside",
        "SIGKILL ended one of its workers, and nothing says that it was the OOM killer.",
        "medium",
        (f"The log says `{said}`.", *_tell_no_memory(case)),
        _tell_doubts(case),
        _advise_outside(case),
    )


def _tell_killed(case: Case) -> tuple[str, ...]:
    if case.evidence.signal == _SIGKILL:
        return ("It ended by signal 9 (SIGKILL).",)
    return ("Exit code 137 is SIGKILL (128 + 9).",)


def _tell_no_memory(case: Case) -> tuple[str, ...]:
    evidence, told = case.evidence, []
    if case.was_end_watched:
        told.append("The engine told of its end, but of no `kill`, `stop` or `oom` before it.")
    if evidence.state is not None and not evidence.state.is_oom_killed:
        told.append("The engine's state says `OOMKilled` false.")
    if evidence.oom_kills is not None and not case.list_own_kills():
        told.append("The kernel log could be read and has no OOM kill of it.")
    if trace(case).is_spared:
        told.append("The kernel killed another one for memory, at a limit above both.")
    if evidence.host_oom_kills == 0:
        told.append("The host's count of OOM kills did not rise.")
    return tuple(told)


def _tell_engine(case: Case) -> tuple[str, ...]:
    ended, started = case.evidence.ended, case.evidence.engine_started
    if ended is None or started is None or not 0 <= started - ended <= _ENGINE_NEAR_SECONDS:
        return ()
    return (
        (
            f"The engine was started {write_span(started - ended)} after it: without `live-restore` an"
            " engine that is restarted ends its containers."
        ),
    )


def _tell_doubts(case: Case) -> tuple[str, ...]:
    evidence, doubts = case.evidence, []
    if case.is_container and not case.was_end_watched:
        doubts.append(
            "Nobody listened to the engine's events, so `kill` and `stop` cannot be ruled out."
        )
    if evidence.oom_kills is None:
        doubts.append("The kernel log could not be read, so an OOM kill cannot be ruled out.")
    if evidence.host_oom_kills:
        kills = write_count(evidence.host_oom_kills, "OOM kill")
        doubts.append(f"The host counted {kills} around its end; of which process is not known.")
    if case.is_container and case.signal == _SIGKILL:
        doubts.append("A program that leaves with exit code 137 by itself looks the same.")
    return tuple(doubts)


def _advise_outside(case: Case) -> tuple[str, ...]:
    unit = "podman" if case.program == "podman" else "docker"
    steps = [
        "Ask the scheduler: `sacct -j JOB --format=State,ExitCode,MaxRSS`, `kubectl describe pod`.",
        "Look for guards of memory: `journalctl -u earlyoom -u systemd-oomd --since -1h`.",
    ]
    if case.is_container:
        steps.append(f"Look what the engine says of that time: `journalctl -u {unit} --since -1h`.")
    if case.evidence.oom_kills is None:
        steps.append("Look for an OOM kill: `sudo dmesg -T | grep -i 'killed process'`.")
    return tuple(steps)


def _look_term(case: Case) -> Finding | None:
    if not case.has_ended or case.signal != _SIGTERM or read_request(case) is not None:
        return None
    is_sure = case.was_end_watched or not case.is_container
    told = [
        "Exit code 143 is SIGTERM (128 + 15)." if case.is_container else "Signal 15 is SIGTERM."
    ]
    if case.was_end_watched:
        told.append("The engine told of its end, but of no `kill` or `stop` before it.")
    doubts = (
        () if is_sure else ("Nobody listened to the engine's events: it may have been a stop.",)
    )
    return Finding(
        "term-outside",
        f"SIGTERM from outside ended {case.thing}: a shutdown, a time limit or a spot machine's end.",
        "medium" if is_sure else "low",
        (*told, *_tell_engine(case)),
        doubts,
        (
            "Save on SIGTERM: `signal.signal(signal.SIGTERM, …)` in the training script.",
            (
                "Look for the notice: `journalctl --since -1h | grep -iE 'shutdown|preempt|terminat'`,"
                " `sacct -j JOB`."
            ),
        ),
    )


def _look_interrupt(case: Case) -> Finding | None:
    if not case.has_ended or case.exit_code == 0:
        return None
    request = read_request(case)
    by_engine = request is not None and request.kind == "interrupt"
    by_code = case.signal == _SIGINT
    by_log = any(_INTERRUPTED.search(line) for line in case.lines[-_LAST_LINES:])
    if not (by_engine or by_code or by_log) or (request is not None and not by_engine):
        return None
    if case.signal not in {None, _SIGINT}:
        return None
    told = []
    if request is not None:
        told.append(f"The engine told of `kill` with SIGINT{_tell_before(case, request.asked)}.")
    if by_code:
        told.append("It ended by SIGINT (exit code 130 where a shell tells it).")
    if by_log:
        told.append("The log ends with `KeyboardInterrupt`.")
    return Finding(
        "interrupted",
        "It was interrupted: Ctrl-C, `docker kill -s INT`, or a launcher that ends its ranks.",
        "high" if by_engine or by_code else "medium",
        tuple(told),
        (),
        (f"Nothing is wrong: {_advise_start(case)}.",),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        "kill-operator",
        "Killed through the engine",
        "137 and an event `kill` with signal 9 right before `die`, none with signal 15 before it",
        "`docker kill`, `docker rm -f` or `docker compose kill`. Nothing says that the job is at"
        " fault.",
        (
            "Look who did it: `history | grep docker`, scripts, CI jobs.",
            "Start it again from its last checkpoint: `docker start NAME`.",
        ),
        "high",
        _look_kill,
    ),
    Cause(
        "stop-timeout",
        "A stop that ran into its timeout",
        "137 and an event `kill` with signal 15, then one with signal 9",
        "It was asked to stop and did not in time: as PID 1 Python ignores SIGTERM, or its checkpoint"
        " takes longer than the grace period.",
        (
            "Use `docker run --init`, or `init: true` in the Compose file.",
            "Give it time: `stop_grace_period: 2m`, `docker stop -t 120`.",
            "Save on SIGTERM: `signal.signal(signal.SIGTERM, …)`.",
        ),
        "high",
        _look_timeout,
    ),
    Cause(
        "stop-graceful",
        "Stopped as asked",
        "an event `kill` with signal 15 or an event `stop`, and an exit code other than 137",
        "`docker stop`, `docker compose down`, or the end of the engine. It obeyed.",
        ("Nothing is wrong: `docker start NAME` from the last checkpoint.",),
        "high",
        _look_stop,
    ),
    Cause(
        "interrupted",
        "Interrupted",
        "130, an event `kill` with signal 2, or `KeyboardInterrupt` at the end of the log",
        "Ctrl-C, `docker kill -s INT`, or a launcher that ends its ranks.",
        ("Nothing is wrong: start it again from the last checkpoint, in `tmux` if by accident.",),
        "high",
        _look_interrupt,
    ),
)

OUTSIDE: tuple[Cause, ...] = (
    Cause(
        "kill-outside",
        "SIGKILL from outside",
        "137, no event `kill`, and no sign of an OOM kill in events, state, control group and kernel"
        " log; or a worker that was killed so",
        "An administrator, a scheduler, `earlyoom` or `systemd-oomd` on the host; or the program left"
        " with 137 by itself.",
        (
            "Look for guards of memory: `journalctl -u earlyoom -u systemd-oomd --since -1h`.",
            "Ask the scheduler: `sacct -j JOB --format=State,ExitCode`.",
        ),
        "medium",
        _look_outside,
    ),
    Cause(
        "term-outside",
        "SIGTERM from outside",
        "143, and no event `kill` or `stop`",
        "The end of a spot machine, a shutdown, or a scheduler's time limit.",
        (
            "Save on SIGTERM: `signal.signal(signal.SIGTERM, …)`.",
            "Look for the notice: `journalctl --since -1h`, `sacct -j JOB`.",
        ),
        "medium",
        _look_term,
    ),
)
