"""What a log tells of the end: its tracebacks, and which of them ended the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from trainvitals.causes.case import Case
from trainvitals.causes.ranks import RootCause, is_launcher_line, read_root_cause
from trainvitals.causes.tracebacks import Error, Traceback, read_tracebacks


@dataclass(frozen=True, slots=True)
class Account:
    """What a log tells of the end.

    Attributes:
        lines: Its lines.
        tracebacks: All tracebacks.
        fatal: The one that ended the program; None where none did.
        root: What torchrun saw fail first; None where there is no such block.
        told: For each line whether it is part of a traceback or of the launcher's report.
    """

    lines: tuple[str, ...]
    tracebacks: tuple[Traceback, ...]
    fatal: Traceback | None
    root: RootCause | None
    told: tuple[bool, ...]


def read_account(case: Case) -> Account:
    """Read what the log tells of the end."""
    return _read_account(case.lines, bool(case.evidence.exception))


@lru_cache(maxsize=4)  # fifty causes ask about the same log one after the other
def _read_account(lines: tuple[str, ...], has_exception: bool) -> Account:  # noqa: FBT001 - a key
    root = read_root_cause(lines)
    tracebacks = read_tracebacks(lines[:-1] if has_exception else lines)
    fatal = choose_fatal(tracebacks, root)
    if has_exception and (fatal is None or not _is_same(fatal, lines[-1])):
        last = len(lines) - 1
        error = Error(lines[last].split(":", 1)[0].strip(), lines[last], last)
        fatal = Traceback(start=last, end=last, rank=None, errors=(error,))
        tracebacks += (fatal,)
    told = [False] * len(lines)
    for traceback in tracebacks:
        told[traceback.start : traceback.end + 1] = [True] * (traceback.end + 1 - traceback.start)
    for index, line in enumerate(lines):
        told[index] |= is_launcher_line(line)
    if root is not None:
        told[root.line :] = [True] * (len(lines) - root.line)
    return Account(lines, tracebacks, fatal, root, tuple(told))


def _is_same(fatal: Traceback, exception: str) -> bool:
    name = exception.split(":", 1)[0].strip().rpartition(".")[2]
    return any(error.name.rpartition(".")[2] == name for error in fatal.errors)


def choose_fatal(tracebacks: Sequence[Traceback], root: RootCause | None) -> Traceback | None:
    """Choose the traceback that ended the program.

    Of one process that is its last. Of many ranks it is the one of the rank that torchrun saw fail
    first, else the earliest of the ranks' last ones; but never one that says no more than that
    another rank is gone, where there is a better one. None where nothing fits: a rank that was
    killed leaves none, and those of the others tell only that.
    """
    real = [traceback for traceback in tracebacks if not traceback.is_aside]
    own = [traceback for traceback in real if not traceback.is_launcher]
    last = {traceback.rank: traceback for traceback in own}
    telling = [traceback for traceback in last.values() if not traceback.is_consequence]
    if root is not None:
        return _choose_rank(own, telling, root)
    if telling and len(last) > 1:
        return min(telling, key=lambda traceback: traceback.start)
    if own:
        return own[-1] if len(last) == 1 else min(last.values(), key=lambda one: one.start)
    return real[-1] if real else None


def _choose_rank(
    own: Sequence[Traceback], telling: Sequence[Traceback], root: RootCause
) -> Traceback | None:
    of_rank = [one for one in own if one.rank is not None and one.rank == root.rank]
    if of_rank and not of_rank[-1].is_consequence:
        return of_rank[-1]
    if root.exit_code is not None and root.exit_code < 0:
        return None
    if telling:
        return min(telling, key=lambda traceback: traceback.start)
    return of_rank[-1] if of_rank else (own[-1] if own else None)
