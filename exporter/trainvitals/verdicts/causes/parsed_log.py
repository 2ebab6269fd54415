"""A log with its tracebacks and launcher reports, and the traceback that ended the program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.ranks import RootCause, is_launcher_line, read_root_cause
from trainvitals.verdicts.causes.tracebacks import Error, Traceback, read_tracebacks
from trainvitals.verdicts.causes.words import is_progress

_OF_COLLECTIVE = re.compile(
    r"NCCL|RCCL|HCCL|hccl|\bnccl|DistBackendError|DistNetworkError|DistStoreError|ProcessGroup|TCPStore|[Gg]loo\b|\bcollective (?:operation|call|mismatch|timed)|\bbarrier\b|[Tt]imed out|KeyboardInterrupt|SystemExit"
)
# The watchdog aborts the process of a rank that has waited too long for another rank.
_WATCHDOG = re.compile(
    r"taking the entire process down|terminated by NCCL watchdog|watchdog thread"
)
_SIGABRT = 6
SOON_LINES = 60
FEW_STEPS = 2


@dataclass(frozen=True, slots=True)
class ParsedLog:
    """A log with its tracebacks and launcher reports.

    Attributes:
        lines: The lines of the log.
        tracebacks: All tracebacks that the log contains.
        fatal: The traceback that ended the program; None if no traceback ended it.
        root_cause: The first failure according to torchrun's report; None if the log contains no
            such report.
        reported: Whether each line of the log belongs to a traceback or to a launcher's report.
    """

    lines: tuple[str, ...]
    tracebacks: tuple[Traceback, ...]
    fatal: Traceback | None
    root_cause: RootCause | None
    reported: tuple[bool, ...]


def parse_log(case: Case) -> ParsedLog:
    """Return the parsed log of a case, with tracebacks and launcher reports."""
    return _parse_log(case.lines, bool(case.evidence.exception))


def find_before_fatal(log: ParsedLog) -> Traceback | None:
    """Return an earlier traceback of the same rank that may explain the fatal one, or None."""
    fatal = log.fatal
    earlier = (
        each
        for each in reversed(log.tracebacks)
        if fatal is not None
        and each.rank == fatal.rank
        and each.errors[-1].text != fatal.errors[-1].text
    )
    return next((each for each in earlier if leads_to_end(log, each)), None)


def find_first_failure(case: Case, at: int) -> Traceback | None:
    """Return the first traceback before a line, unless training continued in between.

    Tracebacks of collective operations and of launchers are skipped, because these tracebacks are
    consequences of another failure. The result is None if no traceback qualifies.
    """
    log = parse_log(case)
    earlier = (
        each
        for each in log.tracebacks
        if each.end < at
        and not (each.is_aside or each.is_launcher or each.is_consequence)
        and not _OF_COLLECTIVE.search(each.errors[-1].text)
        and count_between(log, each.end, at)[0] <= FEW_STEPS
    )
    return next(earlier, None)


def leads_to_end(log: ParsedLog, traceback: Traceback) -> bool:
    """Return whether the fatal traceback soon follows a traceback, without training in between."""
    fatal = log.fatal
    if fatal is None or traceback.is_aside or fatal.start <= traceback.end:
        return False
    steps, between = count_between(log, traceback.end, fatal.start)
    return steps <= FEW_STEPS and between <= SOON_LINES


def count_between(log: ParsedLog, end: int, start: int) -> tuple[int, int]:
    """Return the number of progress lines, and of all lines, between two lines of a log.

    Empty lines and the lines of tracebacks and launcher reports are not counted.
    """
    inside = slice(end + 1, start)
    rest = [
        line
        for line, reported in zip(log.lines[inside], log.reported[inside], strict=True)
        if line.strip() and not reported
    ]
    return sum(map(is_progress, rest)), len(rest)


@lru_cache(maxsize=4)  # About fifty causes parse the same log in turn.
def _parse_log(lines: tuple[str, ...], has_exception: bool) -> ParsedLog:  # noqa: FBT001 - a key
    root = read_root_cause(lines)
    tracebacks = read_tracebacks(lines[:-1] if has_exception else lines)
    if root is not None and root.exit_code == -_SIGABRT and any(map(_WATCHDOG.search, lines)):
        fatal = choose_fatal(tracebacks, replace(root, rank=None, exit_code=None))
    else:
        fatal = choose_fatal(tracebacks, root)
    if has_exception and (fatal is None or not _is_same(fatal, lines[-1])):
        last = len(lines) - 1
        error = Error(lines[last].split(":", 1)[0].strip(), lines[last], last)
        fatal = Traceback(start=last, end=last, rank=None, errors=(error,))
        tracebacks += (fatal,)
    return ParsedLog(lines, tracebacks, fatal, root, _mark_reported(lines, tracebacks, root))


def _mark_reported(
    lines: Sequence[str], tracebacks: Sequence[Traceback], root: RootCause | None
) -> tuple[bool, ...]:
    reported = [is_launcher_line(line) for line in lines]
    for traceback in tracebacks:
        for index in range(traceback.start, traceback.end + 1):
            reported[index] = True
    if root is not None:
        reported[root.line :] = [True] * (len(lines) - root.line)
    return tuple(reported)


def _is_same(fatal: Traceback, exception: str) -> bool:
    name = exception.split(":", 1)[0].strip().rpartition(".")[2]
    return any(error.name.rpartition(".")[2] == name for error in fatal.errors)


def choose_fatal(tracebacks: Sequence[Traceback], root: RootCause | None) -> Traceback | None:
    """Return the traceback that ended the program.

    For one process, the result is the last traceback. For several ranks, the result is the
    traceback of the rank that failed first according to torchrun, or else the earliest of the
    ranks' last tracebacks. A traceback that only reports the loss of another rank is chosen only if
    the log contains no other traceback. The result is None if no traceback qualifies. For example,
    a killed rank writes no traceback, and the other ranks only report the loss of that rank.
    """
    real = [traceback for traceback in tracebacks if not traceback.is_aside]
    own = [traceback for traceback in real if not traceback.is_launcher]
    threads = [each for each in tracebacks if each.is_aside and not each.is_dropped]
    last = {traceback.rank: _find_origin((*threads, *own), traceback) for traceback in own}
    causes = [traceback for traceback in last.values() if not traceback.is_consequence]
    if root is not None:
        return _choose_rank(own, causes, root)
    if causes and len(last) > 1:
        return min(causes, key=lambda traceback: traceback.start)
    if own:
        return (
            next(iter(last.values()))
            if len(last) == 1
            else min(last.values(), key=lambda one: one.start)
        )
    return real[-1] if real else None


def _find_origin(own: Sequence[Traceback], last: Traceback) -> Traceback:
    """Return the traceback before `last` if `last` only reports a lost process or thread.

    In all other cases, `last` itself is returned.
    """
    if not last.is_consequence:
        return last
    before = (
        each
        for each in reversed(own)
        if each.rank == last.rank
        and not each.is_consequence
        and 0 <= last.start - each.end <= SOON_LINES
    )
    return next(before, last)


def _choose_rank(
    own: Sequence[Traceback], causes: Sequence[Traceback], root: RootCause
) -> Traceback | None:
    of_rank = [one for one in own if one.rank is not None and one.rank == root.rank]
    if of_rank and not of_rank[-1].is_consequence:
        return of_rank[-1]
    if root.exit_code is not None and root.exit_code < 0:
        return None
    if causes:
        return min(causes, key=lambda traceback: traceback.start)
    return of_rank[-1] if of_rank else (own[-1] if own else None)
