"""Log lines that indicate a cause, with the confidence that this cause ended the program.

A line in the traceback that ended the program has the highest confidence. Any other line has a high
confidence if the log ends soon after it, and a low confidence if training continued after it. If
the exit code is 0, only a line with high confidence counts.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainvitals.sources.signals import name_signal
from trainvitals.units import count_noun
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.handled import find_failed
from trainvitals.verdicts.causes.log_ends import is_resumed
from trainvitals.verdicts.causes.log_reading import read_log
from trainvitals.verdicts.causes.parsed_log import (
    FEW_STEPS,
    SOON_LINES,
    ParsedLog,
    count_between,
    leads_to_end,
    parse_log,
)
from trainvitals.verdicts.causes.ranks import RootCause, is_launcher_line
from trainvitals.verdicts.causes.signs import Sign
from trainvitals.verdicts.causes.tracebacks import Error, Traceback
from trainvitals.verdicts.causes.verdict import Confidence, Finding

# Messages about a stop that the user requested, not about a launcher that stops its other ranks.
_INTERRUPT = re.compile(
    r"^\W{0,4}(?:Detected )?KeyboardInterrupt\b|\b[Ii]nterrupted by (?:the )?user\b|\bKeyboardInterrupt (?:detected|caught|received)"
    r"|\b(?:attempting|performing|starting) (?:a )?graceful(?:ly)? (?:shutdown|stop|exit)|\bCtrl[-+]C\b"
)
_ORDER: tuple[Confidence, ...] = ("low", "medium", "high")
# If standard output is a pipe, Python buffers up to this amount of output. It flushes the buffer at
# exit, after it has written the traceback to standard error, which is not block-buffered.
_STDOUT_BUFFER_BYTES = 8192
_BESIDE_LINES = 6
_LONGEST_QUOTE = 240
_BEFORE = 60
_FROM_OUTSIDE = (signals.SIGKILL, signals.SIGTERM, signals.SIGINT)
OF_A_PIPE = (
    "The exit code is 0; after `python train.py | tee log` the shell returns that of `tee` unless"
    " `set -o pipefail` is set."
)


@dataclass(frozen=True, slots=True)
class LogMatch:
    """A log line that indicates a cause.

    Attributes:
        line: The index of the line in the log, from 0.
        text: The text of the line. In a traceback, this is the line that names the exception, with
            the message of the exception.
        confidence: How certain it is that the line shows why the program ended.
        rank: The rank that wrote the line; None if the rank is unknown.
        speaks_for: The evidence for the cause, as sentences.
        speaks_against: The evidence against the cause, as sentences.
    """

    line: int
    text: str
    confidence: Confidence
    rank: int | None = None
    speaks_for: tuple[str, ...] = ()
    speaks_against: tuple[str, ...] = ()

    def cap(self, most: Confidence, *why: str) -> LogMatch:
        """Return the match with at most the confidence `most` and with more evidence against it."""
        return replace(
            self,
            confidence=least(self.confidence, most),
            speaks_against=self.speaks_against + why,
        )

    def conclude(
        self, reason: str, summary: str, steps: Sequence[str], *, speaks_for: Sequence[str] = ()
    ) -> Finding:
        """Return the finding about the cause that the log line indicates."""
        return Finding(
            reason=reason,
            summary=summary,
            confidence=self.confidence,
            speaks_for=(*self.speaks_for, *speaks_for),
            speaks_against=self.speaks_against,
            steps=tuple(steps),
        )


def least(one: Confidence, other: Confidence) -> Confidence:
    """Return the lower of two confidences."""
    return min(one, other, key=_ORDER.index)


def quote(text: str) -> str:
    """Return the first line of a text in backquotes, truncated to 240 characters."""
    first = text.strip().split("\n", 1)[0].strip()
    return f"`{first if len(first) <= _LONGEST_QUOTE else first[:_LONGEST_QUOTE] + '…'}`"


def find_match(case: Case, sign: Sign) -> LogMatch | None:
    """Return the log line that indicates a cause, with its confidence.

    The traceback that ended the program takes precedence over lines outside of tracebacks, and
    these lines take precedence over other tracebacks.

    Args:
        case: The case to examine.
        sign: The sign of a line that indicates the cause.

    Returns:
        The match; None if no line indicates the cause, or if the exit code is 0 and the confidence
        is not high.
    """
    if not sign.may_be_in(case.lines):
        return None
    log = parse_log(case)
    match = (
        _find_fatal(case, log, sign) or _find_beside(case, log, sign) or _find_in_others(log, sign)
    )
    return None if match is None else weigh_end(case, match)


def find_surest(case: Case, *signs: Sign) -> LogMatch | None:
    """Return the match with the highest confidence of several signs; None if no sign matches."""
    found = [match for sign in signs if (match := find_match(case, sign)) is not None]
    return max(found, key=lambda match: _ORDER.index(match.confidence), default=None)


def _find_fatal(case: Case, log: ParsedLog, sign: Sign) -> LogMatch | None:
    fatal = log.fatal
    if fatal is None:
        return None
    error = _find_error(fatal, sign)
    return None if error is None else _add_decisive(weigh_fatal(case, error), error, sign)


def _find_error(traceback: Traceback, sign: Sign) -> Error | None:
    """Return the traceback's first exception that matches a sign; None if no exception matches."""
    return next((error for error in traceback.errors if _find_line(error, sign)), None)


def _find_line(error: Error, sign: Sign) -> str:
    """Return the line of an error message that matches a sign, or else an empty string."""
    return next(filter(sign, (*error.text.split("\n"), error.headline)), "")


def _add_decisive(match: LogMatch, error: Error, sign: Sign) -> LogMatch:
    """Add the matching part of an error message, unless the quoted start contains this part."""
    if sign(quote(error.headline)):
        return match
    line = _find_line(error, sign)
    found = sign.search(line)
    start = 0 if found is None or found.end() <= _LONGEST_QUOTE else found.start() - _BEFORE
    text = f"{'…' * bool(start)}{line[start:]}"
    return replace(match, speaks_for=(*match.speaks_for, f"Its message contains {quote(text)}."))


def weigh_fatal(case: Case, error: Error) -> LogMatch:
    """Return the match of an exception that ended the program.

    The confidence depends on the log lines that follow the exception.
    """
    log = parse_log(case)
    fatal = log.fatal
    end, rank = (error.line, None) if fatal is None else (fatal.end, fatal.rank)
    source = "The last traceback" if rank is None else f"The traceback of rank {rank}"
    verb = "ends with"
    if case.evidence.exception and case.evidence.log is None:
        source, verb = "The run file", "records the exception"
    match = LogMatch(
        line=error.line,
        text=error.text,
        confidence="high",
        rank=rank,
        speaks_for=(f"{source} {verb} {quote(error.headline)}.",),
    )
    if log.root_cause is not None and rank is not None and log.root_cause.rank == rank:
        first = f"torchrun reports rank {rank} as the first to fail."
        match = replace(match, speaks_for=(*match.speaks_for, first))
    return _weigh_rest(case, log, match, end)


def _find_beside(case: Case, log: ParsedLog, sign: Sign) -> LogMatch | None:
    """Return the last match of a sign outside of tracebacks and launcher reports.

    The result is None if no line matches.
    """
    quiet = read_log(log.lines).quiet
    for index in sign.list_candidates(log.lines):
        line = log.lines[index]
        if quiet[index] or (log.reported[index] and not is_launcher_line(line)):
            continue
        if sign(line):
            return _weigh_beside(case, log, index)
    return None


def _weigh_beside(case: Case, log: ParsedLog, index: int) -> LogMatch:
    line = log.lines[index]
    match = LogMatch(
        line=index,
        text=line,
        confidence="high",
        speaks_for=(f"Log line {index + 1} of {len(log.lines)} is {quote(line)}.",),
    )
    fatal = log.fatal
    is_error = fatal is not None and not (fatal.is_launcher or fatal.is_consequence)
    if fatal is not None and is_error and index < fatal.start:
        steps, between = count_between(log, index, fatal.start)
        is_soon = steps <= FEW_STEPS and between < _BESIDE_LINES
        near = is_soon or fatal.start - index <= _BESIDE_LINES
        return match.cap(
            "medium" if near else "low",
            f"The traceback that follows it ends with {quote(fatal.errors[-1].headline)}.",
        )
    steps, rest = _count_rest(log, index)
    if steps > FEW_STEPS:
        is_of_crash = is_error and fatal is not None and index - fatal.end <= SOON_LINES
        if is_of_crash and _may_be_buffer(case, log, index):
            return match.cap("medium", _describe_buffer(rest))
        return match.cap("low", describe_steps(steps))
    interrupt = next((each for each in log.lines[index + 1 :] if _INTERRUPT.search(each)), None)
    if interrupt is not None:
        return match.cap("low", f"The program was interrupted after it: {quote(interrupt)}.")
    if rest > SOON_LINES:
        return match.cap("medium", _describe_rest(rest))
    return match


def describe_steps(steps: int) -> str:
    """Return a sentence that states how many lines of training progress follow a log line."""
    return f"Training continued after it: {steps} log lines of training progress follow."


def _describe_rest(rest: int) -> str:
    return f"{count_noun(rest, 'more log line')} {'follows' if rest == 1 else 'follow'} it."


def _find_in_others(log: ParsedLog, sign: Sign) -> LogMatch | None:
    """Return the match of a sign in the last traceback that contains it; None if none does."""
    for traceback in reversed(log.tracebacks):
        error = _find_error(traceback, sign)
        if error is None:
            continue
        rank = "" if traceback.rank is None else f" of rank {traceback.rank}"
        match = LogMatch(
            line=error.line,
            text=error.text,
            confidence="medium" if leads_to_end(log, traceback) else "low",
            rank=traceback.rank,
            speaks_for=(f"A traceback{rank} contains {quote(error.headline)}.",),
        )
        return _add_decisive(match, error, sign).cap(match.confidence, _describe_end(log))
    return None


def _describe_end(log: ParsedLog) -> str:
    root, fatal = log.root_cause, log.fatal
    if root is not None and root.exit_code is not None and root.exit_code < 0:
        return f"{name_signal(-root.exit_code)} had already ended rank {root.rank}."
    if fatal is not None and _count_rest(log, fatal.end)[0] > FEW_STEPS:
        return f"The log goes on after its last traceback, {quote(fatal.errors[-1].headline)}."
    if fatal is not None:
        return f"The program ended with {quote(fatal.errors[-1].headline)}."
    return "This traceback did not end the program."


def _weigh_rest(case: Case, log: ParsedLog, match: LogMatch, end: int) -> LogMatch:
    """Return a match with a confidence based on the lines after a traceback.

    The lines may show that training continued, or they may be buffered output that Python flushed
    at exit.
    """
    steps, rest = _count_rest(log, end)
    if steps <= FEW_STEPS and rest <= SOON_LINES:
        return match
    if _may_be_buffer(case, log, end):
        is_known = case.evidence.settings is not None and case.exit_code == 1
        return match.cap("high" if is_known else "medium", _describe_buffer(rest))
    if steps > FEW_STEPS:
        return match.cap("low", describe_steps(steps))
    return match.cap("medium", _describe_rest(rest))


def _may_be_buffer(case: Case, log: ParsedLog, end: int) -> bool:
    """Return whether the lines after an error may be buffered output that Python wrote at exit.

    The program must have exited with code 1, or a launcher must report at the end of the log that a
    rank failed. In addition, the lines must fit into the buffer, and output must not be unbuffered.
    """
    settings = case.evidence.settings
    if settings is not None and (settings.is_unbuffered or settings.has_tty):
        return False
    rest = log.lines[end + 1 :]
    failed = find_failed(rest)
    if sum(len(line) + 1 for line in rest) > _STDOUT_BUFFER_BYTES or any(map(is_resumed, rest)):
        return False
    return case.exit_code == 1 or (
        failed >= 0 and count_between(log, end + 1 + failed, len(log.lines))[0] == 0
    )


def _describe_buffer(rest: int) -> str:
    return f"{_describe_rest(rest)[:-1]}; it may be buffered standard output that Python wrote at exit."


def _count_rest(log: ParsedLog, end: int) -> tuple[int, int]:
    """Count the progress lines and all lines after a line, except tracebacks and reports."""
    return count_between(log, end, len(log.lines))


def weigh_report(case: Case, match: LogMatch) -> LogMatch | None:
    """Return the match of a launcher's failure report.

    The confidence is limited if other lines follow the report, because it is expected at the end of
    the log.
    """
    _, rest = _count_rest(parse_log(case), match.line)
    return weigh_end(case, match if rest == 0 else match.cap("medium", _describe_rest(rest)))


def weigh_end(case: Case, match: LogMatch) -> LogMatch | None:
    """Return a match with a confidence based on the exit code, the signal and torchrun's report.

    The result is None if the exit code is 0 and the confidence of the match is not high.
    """
    if case.exit_code == 0:
        return match.cap("high", OF_A_PIPE) if match.confidence == "high" else None
    if not case.has_ended:
        return match.cap("medium", f"{case.subject.capitalize()} has not ended.")
    if case.signal in _FROM_OUTSIDE:
        signal = name_signal(case.signal or 0)
        return match.cap("medium", f"{signal} ended {case.subject}, which this does not explain.")
    return _weigh_root(parse_log(case).root_cause, match)


def _weigh_root(root: RootCause | None, match: LogMatch) -> LogMatch:
    """Return a match, with low confidence if a signal ended another rank first.

    torchrun's report names the rank that failed first. SIGABRT does not count as such a signal.
    """
    if root is None or root.exit_code is None or match.line >= root.line:
        return match
    is_own = match.rank is not None and match.rank == root.rank
    if is_own or root.exit_code >= 0 or -root.exit_code == signals.SIGABRT:
        return match
    signal = name_signal(-root.exit_code)
    return match.cap("low", f"torchrun reports that {signal} ended rank {root.rank} first.")
