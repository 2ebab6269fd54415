"""Rank failures that torchrun reports, and ports that are already in use."""

from __future__ import annotations

import re

from trainvitals.sources.signals import name_signal
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import (
    LogMatch,
    find_match,
    weigh_report,
)
from trainvitals.verdicts.causes.parsed_log import parse_log
from trainvitals.verdicts.causes.ranks import RootCause
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.verdict import Cause, Finding

_PORT = re.compile(
    r"(?:[Pp]ort:? `?|[Pp]ort=|\]:|(?:\d{1,3}\.){3}\d{1,3}:|', )(\d{2,5})\b|[A-Za-z][\w-]{0,60}:(\d{4,5})\b"
)
_OF_SOURCE = re.compile(r"(?<![\w/])[\w/]+\.(?:cpp|cc|cu|c|hpp|h|py|go|rs|rb):\d{1,6}")
_MASTER_PORT = re.compile(
    r"--?(?:master[-_]port|rdzv[-_]endpoint|main[-_]process[-_]port)[= ](\S{1,80})"
)
_TAKEN = (
    "address already in use",
    "Address already in use",
    "EADDRINUSE",
    "port is already allocated",
    "another process is utilizing it",
    "it was already in use",
    "is in use by another program",
    "errno: 98",
)
_LONGEST_TEXT = 2000

_TORCHRUN_CHILD = contains("ChildFailedError", "ProcessExitedException")
# Messages of JAX's coordination service and of Horovod when they end the remaining processes.
PEER_LOST = matches(
    r"heartbeat timeout\. This indicates that the remote task has failed|detected missing heartbeats"
    r"|Terminating process because the (?:coordinator|JAX distributed service) detected"
    r"|ORTE has lost communication|mpirun detected that one or more processes exited with non-zero status"
    r"|Horovod has been shut ?down\b.{0,40}(?:caused by|due to)|HorovodInternalError\b.{0,120}shut ?down"
)
_PORT_IN_USE = contains(*_TAKEN, "[Errno 98]", ": Binding port ", "] Binding port ")


def detect_torchrun_child(case: Case) -> Finding | None:
    """Detect a rank that, according to the launcher's report, failed without a traceback."""
    log = parse_log(case)
    match = find_match(case, _TORCHRUN_CHILD)
    root = log.root_cause
    if match is None and root is None:
        return _detect_lost_peer(case)
    fatal = log.fatal
    if fatal is not None and not fatal.is_launcher and not fatal.is_consequence:
        return None
    if root is not None:
        match = weigh_report(case, LogMatch(root.line, case.lines[root.line], "high"))
    return None if match is None else _conclude_child(case, match, root)


def _detect_lost_peer(case: Case) -> Finding | None:
    """Detect a process that ended because another process of its job ended first."""
    match = find_match(case, PEER_LOST)
    if match is None:
        return None
    return match.cap("medium").conclude(
        "torchrun-child",
        "Another process of the job failed or no longer answered, so this one ended. Its cause is unknown.",
        (
            "Read the logs of the other processes, where one stopped before this: the line names its task or rank.",
            "Look there for an OOM kill, a preemption or a lost GPU: `sudo dmesg -T`, `kubectl describe pod`.",
        ),
    )


def _conclude_child(case: Case, match: LogMatch, root: RootCause | None) -> Finding:
    code = root.exit_code if root is not None else None
    rank = "A rank" if root is None or root.rank is None else f"Rank {root.rank}"
    sentences: tuple[str, ...] = ()
    if root is not None:
        pid = f", process {root.pid} in {root.host}" if root.pid else ""
        sentences = (
            f"torchrun reports {rank.lower()} as the first to fail, with exit code {code}{pid}.",
        )
    how = f"{rank} failed" if code is None else f"{rank} ended with exit code {code}"
    if code is not None and code < 0:
        how = f"{name_signal(-code)} ended {rank[0].lower()}{rank[1:]}"
    return match.cap("medium").conclude(
        "torchrun-child",
        f"{how}; torchrun ended the other ranks. The cause is unknown.",
        (*_advise_signal(code), *_advise_log(case)),
        speaks_for=sentences,
    )


def _advise_signal(code: int | None) -> tuple[str, ...]:
    steps = {
        -9: "SIGKILL is usually sent by the OOM killer: `sudo dmesg -T | grep -i 'killed process'`.",
        -11: "SIGSEGV is a crash in native code: run it with `PYTHONFAULTHANDLER=1`.",
        -6: "SIGABRT is an abort in native code: find `what():` in the log, and set `NCCL_DEBUG=INFO`.",
        -7: "SIGBUS usually means that /dev/shm is full: `docker run --shm-size=8g`, or `--ipc=host`.",
        -15: "SIGTERM came from outside or from the launcher: check whether the job was stopped.",
    }
    return (steps[code],) if code in steps else ()


def _advise_log(case: Case) -> tuple[str, ...]:
    return (
        (
            f"Read the log before torchrun's report: `{case.program} logs --tail 1000"
            f" {case.evidence.name}`; or write a log file for each rank:"
            " `torchrun --log-dir logs --redirects 3 --tee 3`."
            if case.is_container
            else "Write a log file for each rank: `torchrun --log-dir logs --redirects 3 --tee 3`."
        ),
        (
            "Decorate `main()` with `@record` (`torch.distributed.elastic.multiprocessing.errors`), so"
            " that torchrun prints the rank's traceback."
        ),
    )


def detect_port_in_use(case: Case) -> Finding | None:
    """Detect a port on which another program already listens."""
    error = case.evidence.state.error if case.evidence.state is not None else ""
    if case.was_never_started and any(text in error for text in _TAKEN):
        sentence = f"The engine reported the error `{error[:240]}`."
        match = LogMatch(0, error, "high", speaks_for=(sentence,))
    else:
        found = find_match(case, _PORT_IN_USE)
        if found is None:
            return None
        match = found
    port = _find_port(case, match.text)
    number = port or "PORT"
    following = int(port) + 1 if port else 29501
    apart = (
        f"Or publish it on another port of the host: `-p {following}:{number}`."
        if case.was_never_started
        else f"Or use another port for each job: `--master-port {following}`, or let torchrun choose:"
        " `torchrun --rdzv-backend c10d --rdzv-endpoint localhost:0`."
    )
    return match.conclude(
        "port-in-use",
        f"Another program already listens on {f'port {port}' if port else 'the port'}.",
        (
            (
                f"Find the program: `sudo ss -ltnp 'sport = :{number}'`, `{case.program} ps --filter"
                f" publish={number}`; usually a remaining process of this job, or another job on the host."
            ),
            apart,
        ),
    )


def _find_port(case: Case, text: str) -> str:
    found = _PORT.search(_OF_SOURCE.sub("", text[:_LONGEST_TEXT]))
    if found is not None:
        return found[1] or found[2]
    command = " ".join(case.evidence.settings.command) if case.evidence.settings else ""
    master = _MASTER_PORT.search(command)
    port = master[1].rpartition(":")[2] if master else ""
    return port if port.isascii() and port.isdigit() and len(port) <= 5 else ""  # noqa: PLR2004


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="port-in-use",
        title="The port is already in use",
        signs="The log contains `Address already in use` (`Errno 98`, `EADDRINUSE`); the engine reports"
        " `port is already allocated`.",
        meaning="Another job uses the same master port, or an old process still runs.",
        steps=(
            "Find the program that listens: `sudo ss -ltnp`.",
            "Let torchrun choose: `--rdzv-endpoint localhost:0`, or set another `--master-port`.",
        ),
        confidence="high",
        detect=detect_port_in_use,
    ),
)

CHILD = Cause(
    reason="torchrun-child",
    title="A rank failed",
    signs="The log ends with torchrun's `ChildFailedError`, Horovod's `has been shut down` or JAX's `detected"
    " missing heartbeats`; the exit code is 1 or 134 whatever the cause.",
    meaning="`Root Cause (first observed failure)` names the rank and its exit code; where that rank"
    " left a traceback, the traceback is the cause.",
    steps=(
        (
            "Read the log before torchrun's report, or write a file for each rank: `torchrun --log-dir"
            " logs --redirects 3`."
        ),
        "-9: check for an OOM kill with `dmesg -T`; -11: set `PYTHONFAULTHANDLER=1`.",
    ),
    confidence="medium",
    detect=detect_torchrun_child,
)
