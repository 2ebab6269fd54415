"""Log lines that a scheduler, a service or the kernel wrote about the end of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_ends import is_being_ended, is_resumed, precedes_output
from trainvitals.verdicts.causes.log_matches import OF_A_PIPE, LogMatch, describe_steps, quote
from trainvitals.verdicts.causes.log_reading import read_log
from trainvitals.verdicts.causes.signs import Sign

_MOST_KERNEL_LINES = 3
_MOST_STEPS_AFTER_NOTICE = 10
_STEPD_ENDED = " STEPD TERMINATED ON "


def find_notice(case: Case, sign: Sign, *, leave_out: Sequence[str] = ()) -> LogMatch | None:
    """Return the last line in which a scheduler or a service reports that it ended the program.

    Such a report explains a signal, and the errors that follow the report are consequences. The
    confidence is low if the exit code is 0. The confidence is also low if training continued after
    the report, for example in a log to which several starts append. The confidence is medium if the
    subject has not ended.

    Args:
        case: The case to examine.
        sign: The sign of a line that contains such a report.
        leave_out: Prefixes of lines that do not count as training progress.
    """
    candidates = set(sign.list_candidates(case.lines))
    after, is_resumed_after, is_ending = 0, False, False
    reading = read_log(case.lines)
    for index in range(len(case.lines) - 1, min(candidates, default=len(case.lines)) - 1, -1):
        line, is_step = case.lines[index], reading.steps[index]
        if index in candidates and not reading.quiet[index] and sign(line):
            match = LogMatch(
                index,
                line,
                "high",
                speaks_for=(f"Log line {index + 1} of {len(case.lines)} is {quote(line)}.",),
            )
            is_long = after > _MOST_STEPS_AFTER_NOTICE and not is_being_ended(case.lines, index)
            if is_long or is_resumed_after:
                return match.cap("low", describe_steps(after))
            if not case.has_ended:
                return match.cap("medium", f"{case.subject.capitalize()} has not ended.")
            return match if case.exit_code != 0 else match.cap("low", OF_A_PIPE)
        is_resumed_after = is_resumed_after or (after > 0 and is_resumed(line))
        is_ending = is_ending or _STEPD_ENDED in line
        after += is_step and not is_ending and not line.startswith(tuple(leave_out))
        if precedes_output(line):
            after, is_resumed_after = 0, False
    return None


def describe_kernel(case: Case, sign: Sign) -> tuple[str, ...]:
    """Return a sentence for each of the last three kernel log lines that match a sign."""
    lines = tuple(dict.fromkeys(line for line in case.evidence.kernel_lines if sign(line)))
    return tuple(f"The kernel logged {quote(line)}." for line in lines[-_MOST_KERNEL_LINES:])


def find_kernel_line(case: Case, sign: Sign, *, named: Sign | None = None) -> LogMatch | None:
    """Return the last kernel log line that indicates a cause, if the program's log is missing.

    The result is None without such a line, if the subject has not ended, or if its exit code is 0.

    Args:
        case: The case to examine.
        sign: The sign of a line that indicates the cause.
        named: The sign of a line that names a training program. Such a line counts even if the
            program's log was read. None if no kernel log line counts in that case.
    """
    lines = case.evidence.kernel_lines
    if not lines or not case.has_ended or case.exit_code == 0:
        return None
    if case.evidence.log is not None:
        lines = tuple(line for line in lines if named is not None and named(line))
    line = next((line for line in reversed(lines) if sign(line)), None)
    if line is None:
        return None
    speaks_for = (f"The kernel logged {quote(line)}.",)
    return LogMatch(0, line, "medium", speaks_for=speaks_for)


def add_kernel_line(case: Case, match: LogMatch, sign: Sign) -> LogMatch:
    """Add kernel log lines that match a sign to the evidence for a match in the log."""
    return replace(match, speaks_for=(*match.speaks_for, *describe_kernel(case, sign)))
