"""Causes that a log line identifies, and whose advice does not depend on the case."""

from __future__ import annotations

from collections.abc import Callable

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import (
    LogMatch,
    add_kernel_line,
    find_kernel_line,
    find_match,
    find_notice,
)
from trainvitals.verdicts.causes.signs import Sign
from trainvitals.verdicts.causes.verdict import Cause, Confidence, Finding


def text_cause(
    reason: str,
    title: str,
    signs: str,
    meaning: str,
    steps: tuple[str, ...],
    *,
    summary: str,
    lines: Sign | Callable[[Case], LogMatch | None],
    kernel_lines: Sign | None = None,
    confidence: Confidence = "high",
    advise: Callable[[Case], tuple[str, ...]] | None = None,
) -> Cause:
    """Return a cause that a line of the program identifies, weighed by the lines after it.

    Args:
        reason: As those of `Cause`, and so the next four.
        title: Likewise.
        signs: Likewise.
        meaning: Likewise.
        steps: Likewise.
        summary: The sentence of its findings.
        lines: Returns whether a line indicates it; or the line that does, for a case.
        kernel_lines: Returns whether a line of the kernel log indicates it, alone or beside the log;
            None for no such.
        confidence: The highest confidence of its findings.
        advise: Returns the steps for a case; None where they are the general ones.
    """

    def find(case: Case) -> LogMatch | None:
        match = find_match(case, lines) if isinstance(lines, Sign) else lines(case)
        if kernel_lines is None:
            return match
        if match is None:
            return find_kernel_line(case, kernel_lines)
        return add_kernel_line(case, match, kernel_lines)

    return Cause(
        reason,
        title,
        signs,
        meaning,
        steps,
        confidence,
        _detect_by(find, reason, summary, advise or (lambda _: steps), confidence),
    )


def notice_cause(
    reason: str,
    title: str,
    signs: str,
    meaning: str,
    steps: tuple[str, ...],
    *,
    summary: str,
    lines: Sign,
    leave_out: tuple[str, ...] = (),
    advise: Callable[[Case], tuple[str, ...]] | None = None,
) -> Cause:
    """Return a cause that a scheduler or a service reports in the log; as `text_cause`.

    Args:
        reason: As those of `Cause`, and so the next four.
        title: Likewise.
        signs: Likewise.
        meaning: Likewise.
        steps: Likewise.
        summary: The sentence of its findings.
        lines: Returns whether a line reports it.
        leave_out: Starts of lines that are no progress of the training.
        advise: Returns the steps for a case; None where they are the general ones.
    """

    def find(case: Case) -> LogMatch | None:
        return find_notice(case, lines, leave_out=leave_out)

    return Cause(
        reason,
        title,
        signs,
        meaning,
        steps,
        "high",
        _detect_by(find, reason, summary, advise or (lambda _: steps), "high"),
    )


def _detect_by(
    find: Callable[[Case], LogMatch | None],
    reason: str,
    summary: str,
    advise: Callable[[Case], tuple[str, ...]],
    most: Confidence,
) -> Callable[[Case], Finding | None]:
    def detect(case: Case) -> Finding | None:
        match = find(case)
        return None if match is None else match.cap(most).conclude(reason, summary, advise(case))

    return detect
