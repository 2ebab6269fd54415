"""The table of causes, whose order decides which of the detected causes is the verdict."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.sources.containers.evidence import Evidence
from trainvitals.verdicts.causes import (
    access,
    checkpoints,
    collectives,
    connections,
    container_faults,
    cuda,
    data,
    distributed,
    driver,
    gaudi,
    gpu,
    gpu_fabric,
    gpu_memory,
    guards,
    hardware,
    launchers,
    libraries,
    memory,
    network,
    outcomes,
    outside,
    pods,
    program,
    ray,
    rendezvous,
    requests,
    resources,
    schedulers,
    signals,
    slurm,
    start,
    storage,
    threads,
    tpu,
    training,
    workers,
)
from trainvitals.verdicts.causes.case import Case, open_case
from trainvitals.verdicts.causes.verdict import Cause, Finding, Verdict

# Causes that are detected mainly from log lines.
BY_LOG: tuple[Cause, ...] = (
    *slurm.CAUSES,
    *schedulers.CAUSES,
    *ray.CAUSES,
    *launchers.CAUSES,
    *storage.CAUSES,
    *access.CAUSES,
    *checkpoints.CAUSES,
    *data.CAUSES,
    *tpu.CAUSES,
    *gpu_memory.CAUSES,
    gpu.LOST,
    *gpu_fabric.CAUSES,
    *gpu.CAUSES,
    *cuda.CHOICE,
    *driver.CAUSES,
    *gaudi.CAUSES,
    *cuda.LIBRARIES,
    *rendezvous.CAUSES,
    *collectives.CAUSES,
    *distributed.CAUSES,
    *network.CAUSES,
    *connections.CAUSES,
    training.DIVERGED,
    *resources.CAUSES,
    *libraries.CAUSES,
    *program.CAUSES,
    ray.CHILD,
    distributed.CHILD,
    program.FALLBACK,
)

CAUSES: tuple[Cause, ...] = (
    *pods.CAUSES,
    *start.CAUSES,
    *requests.CAUSES,
    *memory.CAUSES,
    *workers.CAUSES,
    *guards.CAUSES,
    *hardware.CAUSES,
    *outside.CAUSES,
    outcomes.FINISHED,
    *signals.CAUSES,
    *BY_LOG,
    container_faults.UNHEALTHY,
    pods.LOOP,
    outcomes.LOG_LOST,
    training.STALLED,
    outcomes.RUNNING,
    outcomes.UNKNOWN,
)

REASONS: tuple[str, ...] = tuple(cause.reason for cause in CAUSES)

# Crashes whose origin the log may name. For example, NCCL's watchdog logs the collective operation
# that timed out and then throws, so that the process ends with SIGABRT. A cause that a log line
# indicates with high confidence takes precedence over the crash.
_ABORT = "abort"
_CRASHES = frozenset({_ABORT, "segfault", "fpe"})
_SIGNALS = frozenset(cause.reason for cause in signals.CAUSES)
# Causes that are reported in addition to the verdict, but are never the verdict.
_NOTES = frozenset({"log-lost"})
# Outcomes that are used only if no other cause matches.
_OUTCOMES = frozenset({"finished", "running", "unknown"})
_FROM_THE_LOG = frozenset(cause.reason for cause in BY_LOG)
# If no exit code is known, all of these causes explain the same OOM kill. The first of them is the
# best explanation.
_OOM_KILLS = frozenset(cause.reason for cause in (*memory.CAUSES, *workers.CAUSES))
# Causes that report only a consequence or only the last line of the log.
_VAGUE = frozenset({"exception", "torchrun-child", "ray-worker-died"})


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict on a death, or on a fault of a subject that is still running.

    The first matching cause of the table is the verdict, with two exceptions. An uncertain cause,
    or a cause that names only the signal, yields to a certain cause from the log. A cause with low
    confidence yields to the next cause with a higher confidence. While the subject is running, the
    log alone is not sufficient for a verdict. An error from which the subject recovered is not
    sufficient either.

    Args:
        evidence: All evidence that was collected about the subject.

    Returns:
        The verdict, whose reason is one of `REASONS`.
    """
    whole = open_case(evidence)
    case = whole.without_survived()
    findings = _examine(case)
    first = _choose([finding for finding in findings if _can_be_first(case, finding)])
    is_named = any(_is_specific(finding) for finding in findings)
    others = tuple(
        finding
        for finding in findings + ([] if case is whole else _examine_survived(whole, findings))
        if finding is not first
        and finding.reason not in _OUTCOMES
        and not (_is_one_kill(case) and {first.reason, finding.reason} <= _OOM_KILLS)
        and not (is_named and finding.reason in _VAGUE)
    )
    first = training.add_circumstances(case, _describe_contradiction(first, others))
    return Verdict(threads.add_thread_error(case, first), others)


def _examine(case: Case) -> list[Finding]:
    """Return the findings of all matching causes, in the order of the table."""
    findings = (cause.detect(case) for cause in CAUSES)
    return [_limit(case, finding) for finding in findings if finding is not None]


def _examine_survived(whole: Case, findings: list[Finding]) -> list[Finding]:
    """Return the findings about errors that the subject survived.

    These findings have low confidence, because they can only be contributing causes.
    """
    known = {finding.reason for finding in findings}
    return [
        replace(finding, confidence="low")
        for finding in _examine(whole)
        if finding.reason not in known | _VAGUE
    ]


def _limit(case: Case, finding: Finding) -> Finding:
    """Limit a vague finding or a crash to medium confidence if the subject's end is unobserved."""
    is_vague = finding.reason in _VAGUE | _CRASHES
    if not is_vague or not case.evidence.is_unobserved or finding.confidence != "high":
        return finding
    return replace(
        finding,
        confidence="medium",
        speaks_against=(*finding.speaks_against, "The exit code is unknown."),
    )


def _is_one_kill(case: Case) -> bool:
    return case.exit_code is None and case.signal is None


def _is_specific(finding: Finding) -> bool:
    """Return whether a finding names the cause of a traceback or of a launcher's report."""
    return finding.reason in _FROM_THE_LOG - _VAGUE and finding.confidence != "low"


def _can_be_first(case: Case, finding: Finding) -> bool:
    if finding.reason in _NOTES:
        return False
    if finding.confidence == "low" and finding.reason in _SIGNALS:
        return False
    if finding.reason not in _FROM_THE_LOG:
        is_history = finding.confidence == "low" and _is_running(case)
        return finding.reason in _OUTCOMES or not is_history
    return finding.confidence != "low" and (case.has_ended or case.was_never_started)


def _is_running(case: Case) -> bool:
    return not (case.has_ended or case.was_never_started)


def _choose(findings: list[Finding]) -> Finding:
    """Return the finding that is the verdict; at least the last cause of the table matches."""
    named = [each for each in findings if each.reason not in _OUTCOMES | _VAGUE]
    first = findings[0]
    if first.confidence == "low" and first.reason not in _OUTCOMES:
        sure = (each for each in findings if each in named or each.reason == "finished")
        first = next((each for each in sure if each.confidence != "low"), first)
    if first.confidence == "high" and first.reason not in _CRASHES:
        return first
    logged = [each for each in named if each.reason in _FROM_THE_LOG]
    certain = (finding for finding in logged if finding.confidence == "high")
    # An abort is always the consequence of another failure, such as a C++ exception.
    likely = (finding for finding in logged if first.reason == _ABORT)
    return next(certain, next(likely, first))


def _describe_contradiction(first: Finding, others: tuple[Finding, ...]) -> Finding:
    """Return the finding; if it is a success, failures in the log become evidence against it."""
    if first.reason != "finished":
        return first
    failures = [
        f"The log matches `{other.reason}`."
        for other in others
        if other.reason in _FROM_THE_LOG and other.confidence == "high"
    ]
    return replace(first, speaks_against=(*first.speaks_against, *failures))
