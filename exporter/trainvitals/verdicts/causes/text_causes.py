"""Causes that a single log line identifies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import LogMatch, find_match
from trainvitals.verdicts.causes.notices import add_kernel_line, find_kernel_line, find_notice
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
    """Return a cause that a log line identifies, with a confidence based on the lines that follow.

    Args:
        reason: The value of the attribute `Cause.reason`.
        title: The value of the attribute `Cause.title`.
        signs: The value of the attribute `Cause.signs`.
        meaning: The value of the attribute `Cause.meaning`.
        steps: The value of the attribute `Cause.steps`.
        summary: The summary of each finding about the cause.
        lines: The sign of lines that indicate the cause, or a function that finds the match.
        kernel_lines: The sign of kernel log lines that indicate the cause. Such a line supports a
            match in the log, or replaces the match if the log is missing. None if no kernel log
            line indicates the cause.
        confidence: The maximum confidence of a finding about the cause.
        advise: A function that returns the steps for a case; None if `steps` apply to every case.
    """

    def find(case: Case) -> LogMatch | None:
        match = find_match(case, lines) if isinstance(lines, Sign) else lines(case)
        if kernel_lines is None:
            return match
        if match is None:
            return find_kernel_line(case, kernel_lines)
        return add_kernel_line(case, match, kernel_lines)

    def detect(case: Case) -> Finding | None:
        match = find(case)
        if match is None:
            return None
        return match.cap(confidence).conclude(reason, summary, advise(case) if advise else steps)

    return Cause(reason, title, signs, meaning, steps, confidence, detect)


def notice(sign: Sign, *, leave_out: Sequence[str] = ()) -> Callable[[Case], LogMatch | None]:
    """Return the argument `lines` for a cause that a scheduler or a service reports in the log.

    Args:
        sign: The sign of lines that report the cause.
        leave_out: Prefixes of lines that do not count as training progress.
    """
    return partial(find_notice, sign=sign, leave_out=leave_out)
