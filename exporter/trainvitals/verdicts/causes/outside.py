"""Unobserved ends, and ends by a signal that the engine and the OOM killer do not explain."""

from __future__ import annotations

from trainvitals.sources.signals import describe_code
from trainvitals.units import count_noun, format_duration
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.launchers import detect_term, find_reported_kill
from trainvitals.verdicts.causes.log_matches import (
    quote,
)
from trainvitals.verdicts.causes.memory import was_oom_killed
from trainvitals.verdicts.causes.oom_evidence import collect_oom_evidence
from trainvitals.verdicts.causes.requests import read_request
from trainvitals.verdicts.causes.verdict import Cause, Confidence, Finding
from trainvitals.verdicts.causes.workers import find_killed_worker, is_of_program

_SIGKILL, _SIGTERM = 9, 15
# Docker records exit code 255 for a container that has already ended when Docker starts
# (moby/moby#45800).
_LOST_CODE = 255


def _detect_outside(case: Case) -> Finding | None:
    if not case.has_ended or was_oom_killed(case):
        return None
    if case.signal != _SIGKILL:
        return _detect_killed_worker(case) or _detect_reported_kill(case)
    if read_request(case) is not None:
        return None
    confidence: Confidence = "low"
    if case.has_die_event or not case.is_container:
        confidence = "medium"
    return Finding(
        "kill-outside",
        f"SIGKILL ended {case.subject}; neither the engine nor the OOM killer sent it."
        if case.has_die_event
        else f"SIGKILL ended {case.subject}; its sender is unknown, and there is no evidence of an OOM"
        " kill.",
        confidence,
        (*_describe_killed(case), *_describe_no_memory(case), *_describe_engine(case)),
        _describe_doubts(case),
        _advise_outside(case),
    )


def _detect_killed_worker(case: Case) -> Finding | None:
    """Detect a worker that SIGKILL ended, if there is no evidence of an OOM kill."""
    log_line = find_killed_worker(case)
    oom = collect_oom_evidence(case)
    evidence = case.evidence
    is_watched = case.has_die_event or (evidence.oom_kills, evidence.state) != (None, None)
    if log_line is None or oom.may_be_child:
        return None
    if not is_watched:
        return (
            _conclude_unseen(case, f"The log contains `{log_line}`.")
            if is_of_program(log_line)
            else None
        )
    return Finding(
        "kill-outside",
        f"SIGKILL ended a worker of {case.subject}; its sender is unknown, and there is no evidence of"
        " an OOM kill.",
        "medium",
        (f"The log contains `{log_line}`.", *_describe_no_memory(case)),
        _describe_doubts(case),
        _advise_outside(case),
    )


def _conclude_unseen(case: Case, sentence: str) -> Finding:
    """Return a finding about a reported SIGKILL from an unknown sender."""
    return Finding(
        "kill-outside",
        f"SIGKILL ended {case.subject}; its sender is unknown, most often the OOM killer.",
        "low",
        (sentence,),
        _describe_doubts(case),
        _advise_outside(case),
    )


def _detect_reported_kill(case: Case) -> Finding | None:
    """Detect a SIGKILL that a shell or a scheduler reports at the end of a log."""
    line = find_reported_kill(case)
    if line is None or case.exit_code is not None:
        return None
    return _conclude_unseen(case, f"The log ends with {quote(line)}.")


def _describe_killed(case: Case) -> tuple[str, ...]:
    if case.evidence.signal == _SIGKILL:
        return ("Signal 9 (SIGKILL) ended it.",)
    return (f"Exit code {describe_code(case.exit_code or 0)}.",)


def _describe_no_memory(case: Case) -> tuple[str, ...]:
    evidence, sentences = case.evidence, []
    if case.has_die_event:
        sentences.append(
            "The engine reported the event `die`, but no `kill`, `stop` or `oom` before it."
        )
    if evidence.state is not None and not evidence.state.is_oom_killed:
        sentences.append("The engine's state has `OOMKilled` false.")
    if evidence.oom_kills is not None and not case.list_own_kills():
        sentences.append("The kernel log could be read and has no OOM kill of it.")
    if collect_oom_evidence(case).is_sibling_killed:
        sentences.append(
            "The OOM killer killed a process of another control group, at the limit of a common parent."
        )
    if evidence.host_oom_kills == 0:
        sentences.append("The host's OOM kill count did not increase.")
    return tuple(sentences)


def _describe_engine(case: Case) -> tuple[str, ...]:
    delay = case.engine_start_delay_seconds
    if delay is None or delay < 0 or not case.is_near_engine_start:
        return ()
    return (
        (
            f"The engine was started {format_duration(delay)} after the end; without `live-restore`, a"
            " restart of the engine stops its containers."
        ),
    )


def _describe_doubts(case: Case) -> tuple[str, ...]:
    evidence, doubts = case.evidence, []
    if case.is_container and not case.has_die_event:
        doubts.append(
            "The engine's events were not followed, so a `kill` or `stop` cannot be ruled out."
        )
    if evidence.oom_kills is None:
        doubts.append("The kernel log could not be read, so an OOM kill cannot be ruled out.")
    if evidence.host_oom_kills:
        kills = count_noun(evidence.host_oom_kills, "OOM kill")
        doubts.append(f"The host counted {kills} around its end; the killed process is unknown.")
    if case.is_container and case.signal == _SIGKILL:
        doubts.append("A program may also return exit code 137 itself.")
    return tuple(doubts)


def _advise_outside(case: Case) -> tuple[str, ...]:
    steps = [
        "Check the scheduler: `sacct -j JOB --format=State,ExitCode,MaxRSS`, `kubectl describe pod`.",
        "Check for user-space OOM killers: `journalctl -u earlyoom -u systemd-oomd --since -1h`.",
    ]
    if case.is_container:
        steps.append(f"Read the engine's log: `journalctl -u {case.program} --since -1h`.")
    if case.evidence.oom_kills is None:
        training = case.evidence.training
        process = f" {training.pid}" if training is not None and training.pid else ""
        steps.append(f"Check for an OOM kill: `sudo dmesg -T | grep -i 'killed process{process}'`.")
    return tuple(steps)


def _detect_term(case: Case) -> Finding | None:
    if case.signal is None and (received := detect_term(case)) is not None:
        return received
    if not case.has_ended or case.signal != _SIGTERM or read_request(case) is not None:
        return None
    is_sure = case.has_die_event or not case.is_container
    code = describe_code(case.exit_code or 0)
    sentences = [f"Exit code {code}." if code else "Signal 15 (SIGTERM) ended it."]
    if case.has_die_event:
        sentences.append("The engine reported the event `die`, but no `kill` or `stop` before it.")
    doubts = (
        ()
        if is_sure
        else ("The engine's events were not followed, so a `stop` cannot be ruled out.",)
    )
    return Finding(
        "term-outside",
        f"SIGTERM ended {case.subject}; its sender is unknown. Likely senders are a shutdown, a"
        " scheduler's time limit or the preemption of a spot instance.",
        "medium" if is_sure else "low",
        (*sentences, *_describe_engine(case)),
        doubts,
        (
            "Save a checkpoint on SIGTERM: `signal.signal(signal.SIGTERM, …)`.",
            (
                "Find the sender: `journalctl --since -1h | grep -iE 'shutdown|preempt|terminat'`,"
                " `sacct -j JOB`."
            ),
        ),
    )


def _detect_lost(case: Case) -> Finding | None:
    if not case.is_container or not case.has_ended or case.exit_code != _LOST_CODE:
        return None
    if case.has_die_event:
        return None
    is_near = case.is_near_engine_start
    near = ("The recorded end coincides with the start of the engine.",) if is_near else ()
    return Finding(
        "daemon-lost",
        "The host or the engine went down while the container ran; its actual end is unknown.",
        "medium" if is_near else "low",
        ("The exit code is 255 and there is no event `die`: the engine observed no end.", *near),
        ("A program may also return exit code 255 itself.",),
        (
            "Read the end of the previous boot's log: `journalctl -b -1 -e`, and `last -x reboot`.",
            f"Read the engine's log: `journalctl -u {case.program} --since -2h`.",
            (
                "Keep containers running during a restart of the engine: set `live-restore` in"
                " /etc/docker/daemon.json (`trainvitals docker-logging --apply`)."
            ),
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        "kill-outside",
        "SIGKILL from outside",
        "Exit code 137, no event `kill`, and no evidence of an OOM kill in events, state, control"
        " group and kernel log; or a worker that SIGKILL ended in this way.",
        "An administrator, a scheduler, `earlyoom` or `systemd-oomd` on the host; or the program"
        " returned 137 itself.",
        (
            "Check for user-space OOM killers: `journalctl -u earlyoom -u systemd-oomd --since -1h`.",
            "Check the scheduler: `sacct -j JOB --format=State,ExitCode`.",
        ),
        "medium",
        _detect_outside,
    ),
    Cause(
        "term-outside",
        "SIGTERM from outside",
        "Exit code 143, and no event `kill` or `stop`.",
        "The preemption of a spot instance, a shutdown, or a scheduler's time limit.",
        (
            "Save a checkpoint on SIGTERM: `signal.signal(signal.SIGTERM, …)`.",
            "Find the sender: `journalctl --since -1h`, `sacct -j JOB`.",
        ),
        "medium",
        _detect_term,
    ),
    Cause(
        "daemon-lost",
        "The host or the engine went down",
        "Exit code 255, no event `die`, and a recorded end that coincides with the engine's start.",
        "The host crashed or lost power, or the engine was killed together with its shims.",
        (
            "Read the end of the previous boot's log: `journalctl -b -1 -e`, `last -x reboot`.",
            "Set `live-restore` in /etc/docker/daemon.json (`trainvitals docker-logging --apply`).",
        ),
        "medium",
        _detect_lost,
    ),
)
