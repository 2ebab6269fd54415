"""Makes a verdict of the evidence: every cause looks at it, and the order of the table decides."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.causes.case import Case, open_case
from trainvitals.causes.evidence import Evidence
from trainvitals.causes.table import CAUSES, TOLD_BY_LOG
from trainvitals.causes.verdict import Finding, Verdict

REASONS: tuple[str, ...] = tuple(cause.reason for cause in CAUSES)

# How a process ended where the log may say why: a sure line there goes before these.
_ENDINGS_BY_SIGNAL = frozenset({"abort", "segfault", "fpe"})
# True beside any cause, and none by themselves.
_NOTES = frozenset({"log-lost"})
# What is said only where nothing else is.
_OUTCOMES = frozenset({"finished", "running", "unknown"})
_FROM_THE_LOG = frozenset(cause.reason for cause in TOLD_BY_LOG)
# Name a consequence, or no more than the last line.
_VAGUE = frozenset({"exception", "torchrun-child"})


def judge(evidence: Evidence) -> Verdict:
    """Say what somebody or something died of, or what is wrong with it while it runs.

    The first cause of the table that fits is the verdict. One that is not sure, or only tells which
    signal it was, gives way to a sure one from the log. While it runs the log alone is no verdict,
    and neither is a line that it says itself was dealt with.

    Args:
        evidence: All that is known.

    Returns:
        The verdict, always with a reason of `REASONS`.
    """
    case = open_case(evidence)
    findings = [finding for cause in CAUSES if (finding := cause.look(case)) is not None]
    first = _choose([finding for finding in findings if _can_be_first(case, finding)])
    is_named = any(_names_a_cause(finding) for finding in findings)
    others = tuple(
        finding
        for finding in findings
        if finding is not first
        and finding.reason not in _OUTCOMES
        and not (is_named and finding.reason in _VAGUE)
    )
    return Verdict(_tell_contradiction(first, others), others)


def _names_a_cause(finding: Finding) -> bool:
    """Tell whether it names what a traceback or a launcher only reports."""
    return finding.reason in _FROM_THE_LOG - _VAGUE and finding.confidence != "low"


def _can_be_first(case: Case, finding: Finding) -> bool:
    if finding.reason in _NOTES:
        return False
    if finding.reason not in _FROM_THE_LOG:
        return True
    return finding.confidence != "low" and (case.has_ended or case.was_never_started)


def _choose(findings: list[Finding]) -> Finding:
    """Choose the verdict; the last row of the table always fits, so there is one."""
    first = findings[0]
    if first.confidence == "high" and first.reason not in _ENDINGS_BY_SIGNAL:
        return first
    sure = (
        finding
        for finding in findings
        if finding.reason in _FROM_THE_LOG - _VAGUE and finding.confidence == "high"
    )
    return next(sure, first)


def _tell_contradiction(first: Finding, others: tuple[Finding, ...]) -> Finding:
    """Say against a success what the log shows of a failure."""
    if first.reason != "finished":
        return first
    doubts = [f"The log looks like `{other.reason}`." for other in others if _is_doubt(other)]
    return replace(first, speaks_against=(*first.speaks_against, *doubts))


def _is_doubt(other: Finding) -> bool:
    return other.reason in _FROM_THE_LOG and other.confidence == "high"
