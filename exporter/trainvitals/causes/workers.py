"""OOM kills that did not end the main process: workers, launched programs, children."""

from __future__ import annotations

import re

from trainvitals.causes.case import Case
from trainvitals.causes.figures import write_span
from trainvitals.causes.limits import advise_higher_limit, advise_less_memory
from trainvitals.causes.oomkills import tell_level, tell_silence, tell_traces, trace
from trainvitals.causes.requests import read_request
from trainvitals.causes.verdict import Cause, Confidence, Finding

_SIGKILL = 9
# A parent that lost a worker to the OOM killer ends at its next batch, or a little later.
_SOON_SECONDS = 60.0
_WORKER_KILLED = re.compile(
    r"DataLoader worker .*killed by signal: Killed"
    r"|exitcode\s*: -9\b|Signal 9 \(SIGKILL\) received by PID"
)
_WORKER_GONE = re.compile(
    r"DataLoader worker .*exited unexpectedly|terminated abruptly while the future was running"
)
_SHELL_KILLED = re.compile(r"^(?:[\w./-]+: line \d+:\s+\d+ )?Killed\b\s*(?:$|\S)")


def find_killed_worker(case: Case) -> str | None:
    """Give what the log says of a worker that was killed by SIGKILL; None where it says nothing."""
    match = case.search(_WORKER_KILLED)
    return match[0] if match is not None else None


def _find_lost_worker(case: Case) -> str | None:
    match = case.search(_WORKER_GONE)
    return match[0] if match is not None else None


def _look_worker(case: Case) -> Finding | None:
    if not case.has_ended or case.exit_code == 0:
        return None
    traces, said = trace(case), find_killed_worker(case) or _find_lost_worker(case)
    is_main = case.signal == _SIGKILL and read_request(case) is None
    if is_main or (traces.is_spared and not traces.kills):
        return None
    if traces.are_of_worker:
        return _write_worker(case, said, _judge_time(case, said))
    if said is None or not _could_be_unseen(case):
        return None
    return _write_worker(case, said, "medium" if case.evidence.host_oom_kills else "low")


def _could_be_unseen(case: Case) -> bool:
    """Tell whether an OOM kill of a worker could have left no trace in this evidence."""
    evidence = case.evidence
    if evidence.oom_kills is not None:
        return False
    return bool(evidence.host_oom_kills) or (evidence.state is None and not case.was_end_watched)


def _judge_time(case: Case, said: str | None) -> Confidence:
    last = trace(case).last
    before = None if last is None else case.measure_before_end(last)
    if said is not None or before is None or before <= _SOON_SECONDS:
        return "high"
    return "medium"


def _write_worker(case: Case, said: str | None, confidence: Confidence) -> Finding:
    told, against = list(tell_traces(case)), list(tell_silence(case))
    last = trace(case).last
    before = None if last is None else case.measure_before_end(last)
    when = "" if before is None else f" {write_span(before)} before the end"
    if said is not None:
        told.append(f"The log says `{said}`.")
    if case.evidence.host_oom_kills:
        told.append("The host's count of OOM kills rose (`oom_kill` in /proc/vmstat).")
    if confidence == "low":
        against.append("Neither the kernel log nor the engine could be asked about an OOM kill.")
    if confidence == "medium" and last is not None:
        against.append("That was long before the end, which may have another cause.")
    return Finding(
        "oom-worker",
        f"The kernel killed one of its processes for memory{when}, not the main one.",
        confidence,
        (*told, *tell_level(case)),
        tuple(against),
        (*advise_less_memory(case), advise_higher_limit(case)),
    )


def _look_alive(case: Case) -> Finding | None:
    traces = trace(case)
    if case.has_ended or case.was_never_started or not traces.are_of_worker:
        return None
    is_sure = bool(traces.kills or traces.events or traces.counted)
    if not is_sure and case.evidence.restarts:
        return None  # the flag may be of an earlier start
    return Finding(
        "oom-worker-alive",
        "The kernel killed one of its processes for memory, and the rest goes on without it.",
        "high" if is_sure else "medium",
        (*tell_traces(case), *tell_level(case)),
        tell_silence(case),
        (
            f"Look which process is missing: `{case.program} top {case.evidence.name}`.",
            (
                "Restart it if workers are missing: it may hang at the next batch"
                f" (`{case.program} restart {case.evidence.name}`)."
            ),
            *advise_less_memory(case),
            advise_higher_limit(case),
        ),
    )


def _look_hidden(case: Case) -> Finding | None:
    traces = trace(case)
    if not case.has_ended or case.exit_code != 0 or not traces.are_of_worker:
        return None
    shell = case.search(_SHELL_KILLED)
    told = (f"The log says `{shell[0]}`.",) if shell is not None else ()
    return Finding(
        "oom-hidden-exit0",
        "The kernel killed one of its processes for memory, yet it ended with exit code 0.",
        "high",
        (*tell_traces(case), *told, *tell_level(case)),
        (*tell_silence(case), "The exit code says success."),
        (
            (
                "Let the wrapper pass the code on: `exec python train.py`, or `set -e` in the shell"
                " script, with `set -o pipefail` for pipes."
            ),
            (
                "Do not trust this run's results before you know what was killed: read"
                f" `{case.program} logs {case.evidence.name}`."
            ),
            *advise_less_memory(case),
            advise_higher_limit(case),
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        "oom-worker",
        "A worker was OOM-killed",
        "an event `oom`, `OOMKilled` or a line of the kernel log, and an exit code other than 137;"
        " the log may say `DataLoader worker … killed by signal: Killed`, `… exited unexpectedly` or"
        " `exitcode  : -9`",
        "One of its processes was killed for memory, and the main one gave up because of it.",
        (
            "Use fewer data loader workers (`num_workers`) and a smaller `prefetch_factor`.",
            "Keep no copy of the data in `Dataset.__init__`: each worker has its own.",
            "Raise the limit: `docker update --memory 24g --memory-swap 24g NAME`.",
        ),
        "high",
        _look_worker,
    ),
    Cause(
        "oom-hidden-exit0",
        "OOM kill behind exit code 0",
        "an event `oom`, `OOMKilled` or a line of the kernel log, and exit code 0",
        "A wrapper, such as `sh -c 'train; echo done'`, swallowed the failure.",
        (
            "Pass the code on: `exec python train.py`, `set -e`, `set -o pipefail`.",
            "Raise the limit: `docker update --memory 24g --memory-swap 24g NAME`.",
        ),
        "high",
        _look_hidden,
    ),
    Cause(
        "oom-worker-alive",
        "A process was OOM-killed, the rest goes on",
        "an event `oom` or a line of the kernel log since the last start, and it still runs",
        "A child was killed for memory. The job goes on crippled, or hangs.",
        (
            "See who is missing: `docker top NAME`; restart it if workers are.",
            "Raise the limit: `docker update --memory 24g --memory-swap 24g NAME`.",
        ),
        "high",
        _look_alive,
    ),
)
