"""Crashes of native code, rated by the training progress after the log line about the crash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import describe_steps
from trainvitals.verdicts.causes.log_reading import read_log
from trainvitals.verdicts.causes.signs import Sign
from trainvitals.verdicts.causes.verdict import Finding

_MOST_STEPS_AFTER = 10


def weigh_crash(
    detect: Callable[[Case], Finding | None], number: int, sign: Sign
) -> Callable[[Case], Finding | None]:
    """Return a detector of crashes whose confidence is low if training continued after the crash.

    The confidence is not lowered if the signal `number` ended the subject, or if at most ten lines
    of progress follow.
    """

    def detect_weighed(case: Case) -> Finding | None:
        finding = detect(case)
        if finding is None or case.signal == number:
            return finding
        steps = _count_steps_after(case.lines, sign)
        if steps <= _MOST_STEPS_AFTER:
            return finding
        against = (*finding.speaks_against, describe_steps(steps))
        return replace(finding, confidence="low", speaks_against=against)

    return detect_weighed


def _count_steps_after(lines: tuple[str, ...], sign: Sign) -> int:
    """Return the number of progress lines after the last line that contains the sign."""
    if not sign.may_be_in(lines):
        return 0
    steps = read_log(lines).steps
    last = next((at for at in range(len(lines) - 1, -1, -1) if sign(lines[at])), len(lines))
    return sum(steps[last + 1 :])
