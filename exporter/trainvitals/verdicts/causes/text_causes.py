"""Causes that a log line identifies, and whose advice does not depend on the case."""

from __future__ import annotations

from collections.abc import Callable

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import (
    LogMatch,
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
    lines: Sign,
    kernel_lines: Sign | None = None,
    confidence: Confidence = "high",
) -> Cause:
    """Return a cause that a line of the program identifies, weighed by the lines after it.

    Args:
        reason: As those of `Cause`, and so the next four.
        title: Likewise.
        signs: Likewise.
        meaning: Likewise.
        steps: Likewise.
        summary: The sentence of its findings.
        lines: Returns whether a line indicates it.
        kernel_lines: Returns whether a line of the kernel log alone indicates it; None for no such.
        confidence: The highest confidence of its findings.
    """

    def find(case: Case) -> LogMatch | None:
        match = find_match(case, lines)
        if match is None and kernel_lines is not None:
            match = find_kernel_line(case, kernel_lines)
        return match

    return Cause(
        reason,
        title,
        signs,
        meaning,
        steps,
        confidence,
        _detect_by(find, reason, summary, steps, confidence),
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
        _detect_by(find, reason, summary, steps, "high"),
    )


def _detect_by(
    find: Callable[[Case], LogMatch | None],
    reason: str,
    summary: str,
    steps: tuple[str, ...],
    most: Confidence,
) -> Callable[[Case], Finding | None]:
    def detect(case: Case) -> Finding | None:
        match = find(case)
        return None if match is None else match.cap(most).conclude(reason, summary, steps)

    return detect
