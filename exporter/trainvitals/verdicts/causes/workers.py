"""OOM kills of child processes: data loader workers, ranks, and programs started by a shell."""

from __future__ import annotations

import re

from trainvitals.sources.containers.log_owner import LEAST_HOST_PID
from trainvitals.units import format_duration
from trainvitals.verdicts.causes.advice import advise_higher_limit, advise_less_memory
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.oom_evidence import (
    OomEvidence,
    collect_oom_evidence,
    describe_memory_use,
    describe_missing_kernel_line,
    describe_oom_kills,
)
from trainvitals.verdicts.causes.requests import read_request
from trainvitals.verdicts.causes.signs import matches
from trainvitals.verdicts.causes.verdict import Cause, Confidence, Finding

_SIGKILL = 9
# After an OOM kill of a worker, the parent process fails when it fetches the next batch, or soon
# after.
_SOON_SECONDS = 60.0
_WORKER_KILLED = matches(
    r"DataLoader worker .{1,60}killed by signal: Killed"
    r"|exitcode\s{0,4}: -9\b|Signal 9 \(SIGKILL\) received by PID"
    r"|return code = -9\b|died with <Signals\.SIGKILL: 9>|terminated with signal SIGKILL"
    r"|exited on signal 9 \(Killed\)|workers are \{?\[?SIGKILL\(-9\)|exit ?code:? -9\b"
    r"|process \d{1,9} (?:was )?killed by signal 9\b"
)
# A launcher reports on its whole program, for which an OOM kill is not the most likely cause.
_PROGRAM_KILLED = matches(r"died with <Signals\.SIGKILL: 9>|exited on signal 9 \(Killed\)")
_WORKER_GONE = matches(
    r"DataLoader worker .{1,200}exited unexpectedly|terminated abruptly while the future was running"
    r"|A process in the process pool was terminated abruptly|TerminatedWorkerError: |worker process managed by the executor was unexpectedly"
)
_NUMBER = re.compile(r"(?<![0-9.])[0-9]{2,10}(?![0-9.])")
_SHELL_KILLED = matches(r"^(?:[\w./-]{1,200}: line \d+:\s+\d+ )?Killed\b\s*(?:$|\S)")


def find_killed_worker(case: Case) -> str | None:
    """Return the log text about a worker that SIGKILL ended; None if no text mentions a worker."""
    match = case.search(_WORKER_KILLED)
    return match[0] if match is not None else None


def is_of_program(text: str) -> bool:
    """Return whether a text about a killed process is a launcher's report on its whole program."""
    return _PROGRAM_KILLED(text)


def _find_lost_worker(case: Case) -> str | None:
    match = case.search(_WORKER_GONE)
    return match[0] if match is not None else None


def _detect_worker(case: Case) -> Finding | None:
    # If the log reports success and the exit code is unknown, the kill may concern another program.
    succeeded = case.exit_code == 0 or (bool(case.success) and case.exit_code is None)
    if not case.has_ended or succeeded:
        return None
    oom, log_line = collect_oom_evidence(case), find_killed_worker(case) or _find_lost_worker(case)
    is_main = case.signal == _SIGKILL and read_request(case) is None
    if is_main or (oom.is_sibling_killed and not oom.kills):
        return None
    if oom.may_be_child:
        return _write_worker(case, log_line, _grade_by_time(case, log_line))
    if log_line is None or not _could_be_unseen(case):
        return None
    if is_of_program(log_line) and not case.evidence.host_oom_kills:
        return None
    return _write_worker(case, log_line, "medium" if case.evidence.host_oom_kills else "low")


def _could_be_unseen(case: Case) -> bool:
    """Return whether an OOM kill of a worker may be missing from the evidence."""
    evidence = case.evidence
    if evidence.oom_kills is not None:
        return False
    return bool(evidence.host_oom_kills) or (evidence.state is None and not case.has_die_event)


def _grade_by_time(case: Case, log_line: str | None) -> Confidence:
    last = collect_oom_evidence(case).last_kill_time
    before = None if last is None else case.seconds_before_end(last)
    if log_line is not None or before is None or before <= _SOON_SECONDS:
        return "high"
    return "medium"


def _write_worker(case: Case, log_line: str | None, confidence: Confidence) -> Finding:
    sentences, against = list(describe_oom_kills(case)), list(describe_missing_kernel_line(case))
    last = collect_oom_evidence(case).last_kill_time
    before = None if last is None else case.seconds_before_end(last)
    when = "" if before is None else f" {format_duration(before)} before the end"
    if log_line is not None:
        sentences.append(f"The log contains `{log_line}`.")
    if case.evidence.host_oom_kills:
        sentences.append("The host's OOM kill count increased (`oom_kill` in /proc/vmstat).")
    if confidence == "low":
        against.append("Neither the kernel log nor the engine could be checked for an OOM kill.")
    if confidence == "medium" and last is not None:
        against.append("The kill was long before the end, which may have another cause.")
    return Finding(
        "oom-worker",
        f"SIGKILL ended a child process of {case.subject}; by whom is unknown, probably the OOM killer."
        if confidence == "low"
        else f"The OOM killer killed a child process of {case.subject}{when}.",
        confidence,
        (*sentences, *describe_memory_use(case)),
        tuple(against),
        (advise_higher_limit(case), *advise_less_memory(case))
        if case.memory_limit_bytes
        else (*advise_less_memory(case), advise_higher_limit(case)),
    )


def _detect_alive(case: Case) -> Finding | None:
    oom = collect_oom_evidence(case)
    if case.has_ended or case.was_never_started or not oom.may_be_child:
        return None
    is_sure = bool(oom.kills or oom.events or oom.counted)
    if not is_sure and case.evidence.restarts:
        return None  # `OOMKilled` may have been set by an earlier start
    return Finding(
        "oom-worker-alive",
        f"The OOM killer killed a child process; {case.subject} continues without it.",
        "high" if is_sure else "medium",
        (*describe_oom_kills(case), *describe_memory_use(case)),
        describe_missing_kernel_line(case),
        (
            f"Find the missing process: `{case.program} top {case.evidence.name}`.",
            (
                "Restart it if a worker is missing, because the next batch may hang:"
                f" `{case.program} restart {case.evidence.name}`."
            ),
            *advise_less_memory(case),
            advise_higher_limit(case),
        ),
    )


def _detect_hidden(case: Case) -> Finding | None:
    oom = collect_oom_evidence(case)
    if not case.has_ended or case.exit_code != 0 or not oom.may_be_child:
        return None
    shell = case.search(_SHELL_KILLED)
    if not _names_killed(case, oom):
        return None
    sentences = (f"The log contains `{shell[0]}`.",) if shell is not None else ()
    return Finding(
        "oom-hidden-exit0",
        f"The OOM killer killed a child process, but {case.subject} ended with exit code 0.",
        "high",
        (*describe_oom_kills(case), *sentences, *describe_memory_use(case)),
        (*describe_missing_kernel_line(case), "Exit code 0 indicates success."),
        (
            (
                "Make the wrapper return the exit code: `exec python train.py`, or `set -e` in the"
                " shell script, with `set -o pipefail` for pipes."
            ),
            (
                "Check which process was killed before you use the results:"
                f" `{case.program} logs {case.evidence.name}`."
            ),
            *advise_less_memory(case),
            advise_higher_limit(case),
        ),
    )


def _names_killed(case: Case, oom: OomEvidence) -> bool:
    """Return whether the log names a process that the OOM killer killed.

    If the log names no such process, the host's kernel log may concern another program. The result
    is also True if there is other evidence of the end, or if the log or the OOM kills are unknown.
    """
    evidence = case.evidence
    if evidence.state is not None or evidence.events or evidence.subject == "run":
        return True
    if evidence.log is None or not oom.kills:
        return True
    numbers = {str(kill.pid) for kill in oom.kills}
    if any(numbers & set(_NUMBER.findall(line)) for line in case.lines):
        return True
    shell = case.search(_SHELL_KILLED)
    if shell is None:
        return False
    number = _NUMBER.search(shell[0].rpartition("line ")[2].partition(":")[2])
    # The PIDs in a container's separate PID namespace are small.
    return number is None or (int(number[0]) < LEAST_HOST_PID and _names_task(shell.string, oom))


def _names_task(line: str, oom: OomEvidence) -> bool:
    programs = {word.rpartition("/")[2] for word in line.split()}
    return any(kill.task in programs for kill in oom.kills)


CAUSES: tuple[Cause, ...] = (
    Cause(
        "oom-worker",
        "A worker was OOM-killed",
        "An event `oom`, `OOMKilled` true or a kernel log line, and an exit code other than 137;"
        " the log may contain `DataLoader worker … killed by signal: Killed`, `… exited unexpectedly`"
        " or `exitcode  : -9`.",
        "The OOM killer killed a child process, and the main process failed because of it.",
        (
            "Reduce the data loader workers (`num_workers`) and `prefetch_factor`.",
            "Do not load the data in `Dataset.__init__`: every worker holds a copy.",
            "Raise the limit: `docker update --memory 24g --memory-swap 24g NAME`.",
        ),
        "high",
        _detect_worker,
    ),
    Cause(
        "oom-hidden-exit0",
        "OOM kill hidden by exit code 0",
        "An event `oom`, `OOMKilled` true or a kernel log line, and exit code 0.",
        "A wrapper, such as `sh -c 'train; echo done'`, did not return the exit code of the failure.",
        (
            "Return the exit code: `exec python train.py`, `set -e`, `set -o pipefail`.",
            "Raise the limit: `docker update --memory 24g --memory-swap 24g NAME`.",
        ),
        "high",
        _detect_hidden,
    ),
    Cause(
        "oom-worker-alive",
        "A worker was OOM-killed, the container still runs",
        "An event `oom` or a kernel log line since the last start, and it still runs.",
        "The OOM killer killed a child process. The job continues without it, or hangs.",
        (
            "Find the missing process with `docker top NAME`; restart the container if it is a worker.",
            "Raise the limit: `docker update --memory 24g --memory-swap 24g NAME`.",
        ),
        "high",
        _detect_alive,
    ),
)
