"""What a telling line of a log is worth: whether the death came of it, or it was dealt with before.

A line in the traceback that ended the program is worth the most. A line by itself counts where the
log ends soon after it; one that the training survived by many steps does not. Beside the exit code
0 only what the log ends with is worth a word.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainvitals.causes.account import Account, read_account
from trainvitals.causes.case import Case, name_signal
from trainvitals.causes.ranks import RootCause, is_launcher_line
from trainvitals.causes.tracebacks import Error, is_progress
from trainvitals.causes.verdict import Confidence, Finding

_ORDER: tuple[Confidence, ...] = ("low", "medium", "high")
# Python keeps this much of what is printed into a pipe, and writes it behind the traceback.
_STDOUT_BUFFER_BYTES = 8192
_SOON_LINES = 60
_BESIDE_LINES = 6
_FEW_STEPS = 2
_LONGEST_QUOTE = 240
_FROM_OUTSIDE = (signals.SIGKILL, signals.SIGTERM, signals.SIGINT)
_OF_A_PIPE = (
    "The exit code is 0; of `python train.py | tee log` that is the one of `tee`, and"
    " `set -o pipefail` keeps the other."
)

Predicate = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Sign:
    """A line of the log that speaks for a cause.

    Attributes:
        line: Where it is, counted from 0.
        text: The line; of a traceback the exception's line and its message.
        confidence: How sure it is that the end came of it.
        rank: The rank that wrote it; None where nothing says that.
        speaks_for: What makes it likely, a sentence each.
        speaks_against: What makes it doubtful.
    """

    line: int
    text: str
    confidence: Confidence
    rank: int | None = None
    speaks_for: tuple[str, ...] = ()
    speaks_against: tuple[str, ...] = ()

    def cap(self, most: Confidence, *why: str) -> Sign:
        """Give the same with no more confidence than that, and what speaks against it."""
        return replace(
            self,
            confidence=least(self.confidence, most),
            speaks_against=self.speaks_against + why,
        )

    def conclude(
        self, reason: str, summary: str, steps: Sequence[str], *, speaks_for: Sequence[str] = ()
    ) -> Finding:
        """Make a finding of it."""
        return Finding(
            reason=reason,
            summary=summary,
            confidence=self.confidence,
            speaks_for=(*self.speaks_for, *speaks_for),
            speaks_against=self.speaks_against,
            steps=tuple(steps),
        )


def least(one: Confidence, other: Confidence) -> Confidence:
    """Give the lower of two confidences."""
    return min(one, other, key=_ORDER.index)


def has(*signs: str, without: Sequence[str] = ()) -> Predicate:
    """Make a question of a line: does it hold one of these texts, and none of those?"""

    def is_sign(text: str) -> bool:
        return any(sign in text for sign in signs) and not any(sign in text for sign in without)

    return is_sign


def matches(pattern: re.Pattern[str]) -> Predicate:
    """Make a question of a line: does the pattern occur in it?"""

    def is_sign(text: str) -> bool:
        return pattern.search(text) is not None

    return is_sign


def quote(text: str) -> str:
    """Quote the first line of a text, cut to what a person reads."""
    first = text.strip().split("\n", 1)[0].strip()
    return f"`{first if len(first) <= _LONGEST_QUOTE else first[:_LONGEST_QUOTE] + '…'}`"


def find(case: Case, is_sign: Predicate) -> Sign | None:
    """Find the line of the log that speaks the most for a cause.

    Args:
        case: The death.
        is_sign: Tells whether a line speaks for the cause.

    Returns:
        None where no line does.
    """
    if not case.lines:
        return None
    account = read_account(case)
    sign = (
        _find_fatal(case, account, is_sign)
        or _find_beside(account, is_sign)
        or _find_in_others(account, is_sign)
    )
    return None if sign is None else _weigh_end(case, sign)


def _find_fatal(case: Case, account: Account, is_sign: Predicate) -> Sign | None:
    fatal = account.fatal
    if fatal is None:
        return None
    for error in fatal.errors:
        if any(is_sign(line) for line in error.text.split("\n")):
            return weigh_fatal(case, error)
    return None


def weigh_fatal(case: Case, error: Error) -> Sign:
    """Weigh an exception of the traceback that ended the program by what comes after it."""
    account = read_account(case)
    fatal = account.fatal
    end, rank = (error.line, None) if fatal is None else (fatal.end, fatal.rank)
    whose = "The last traceback" if rank is None else f"Rank {rank}'s traceback"
    sign = Sign(
        line=error.line,
        text=error.text,
        confidence="high",
        rank=rank,
        speaks_for=(f"{whose} says {quote(error.headline)}.",),
    )
    if account.root is not None and rank is not None and account.root.rank == rank:
        sign = replace(
            sign, speaks_for=(*sign.speaks_for, f"torchrun saw rank {rank} fail before the others.")
        )
    return _weigh_rest(case, account, sign, end)


def _find_beside(account: Account, is_sign: Predicate) -> Sign | None:
    """Find a line that stands by itself, the last one first."""
    for index in range(len(account.lines) - 1, -1, -1):
        line = account.lines[index]
        if account.told[index] and not is_launcher_line(line):
            continue
        if is_sign(line):
            return _weigh_beside(account, index)
    return None


def _weigh_beside(account: Account, index: int) -> Sign:
    line = account.lines[index]
    sign = Sign(
        line=index,
        text=line,
        confidence="high",
        speaks_for=(f"Line {index + 1} of {len(account.lines)} says {quote(line)}.",),
    )
    fatal = account.fatal
    if fatal is not None and not fatal.is_launcher and index < fatal.start:
        near = fatal.start - index <= _BESIDE_LINES
        return sign.cap(
            "medium" if near else "low",
            f"The traceback behind it says {quote(fatal.errors[-1].headline)}.",
        )
    steps, rest = _count_rest(account, index)
    if steps > _FEW_STEPS:
        return sign.cap("low", f"The training went on after it: {steps} lines of steps follow.")
    if rest > _SOON_LINES:
        return sign.cap("medium", f"{rest} more lines follow it.")
    return sign


def _find_in_others(account: Account, is_sign: Predicate) -> Sign | None:
    """Find it in a traceback that did not end the program, or in the report about one."""
    for traceback in reversed(account.tracebacks):
        for error in traceback.errors:
            if any(is_sign(line) for line in error.text.split("\n")):
                whose = "A traceback" if traceback.rank is None else f"Rank {traceback.rank}"
                sign = Sign(
                    line=error.line,
                    text=error.text,
                    confidence="low",
                    rank=traceback.rank,
                    speaks_for=(f"{whose} says {quote(error.headline)}.",),
                )
                return sign.cap("low", _say_other(account))
    return None


def _say_other(account: Account) -> str:
    root, fatal = account.root, account.fatal
    if root is not None and root.exit_code is not None and root.exit_code < 0:
        return f"Rank {root.rank} was ended before by {name_signal(-root.exit_code)}."
    if fatal is not None:
        return f"The program ended with {quote(fatal.errors[-1].headline)}."
    return "That did not end the program."


def _weigh_rest(case: Case, account: Account, sign: Sign, end: int) -> Sign:
    """Weigh what stands behind a traceback: steps of a training that went on, or a late buffer."""
    steps, rest = _count_rest(account, end)
    if steps <= _FEW_STEPS and rest <= _SOON_LINES:
        return sign
    settings = case.evidence.settings
    bytes_after = sum(len(line) + 1 for line in account.lines[end + 1 :])
    may_be_buffer = bytes_after <= _STDOUT_BUFFER_BYTES and not (
        settings is not None and (settings.is_unbuffered or settings.has_tty)
    )
    if may_be_buffer and case.exit_code == 1:
        return sign.cap(
            "medium" if settings is None else "high",
            f"{rest} lines follow it; they may be standard output that Python wrote at its end.",
        )
    if steps > _FEW_STEPS:
        return sign.cap("low", f"The training went on after it: {steps} lines of steps follow.")
    return sign.cap("medium", f"{rest} more lines follow it.")


def _count_rest(account: Account, end: int) -> tuple[int, int]:
    """Count the lines of steps, and all lines, behind a line: without tracebacks and reports."""
    rest = [
        line
        for line, told in zip(account.lines[end + 1 :], account.told[end + 1 :], strict=True)
        if line.strip() and not told
    ]
    return sum(map(is_progress, rest)), len(rest)


def weigh_report(case: Case, sign: Sign) -> Sign | None:
    """Weigh a launcher's report of a failure, which stands at the end of its log."""
    _, rest = _count_rest(read_account(case), sign.line)
    return _weigh_end(
        case, sign if rest == 0 else sign.cap("medium", f"{rest} more lines follow it.")
    )


def _weigh_end(case: Case, sign: Sign) -> Sign | None:
    """Weigh it against how it ended."""
    if case.exit_code == 0:
        return sign.cap("high", _OF_A_PIPE) if sign.confidence == "high" else None
    if not case.has_ended:
        return sign.cap("medium", f"{case.thing.capitalize()} has not ended.")
    if case.signal in _FROM_OUTSIDE:
        return sign.cap("medium", f"It ended by {name_signal(case.signal or 0)}, not by itself.")
    return _weigh_root(read_account(case).root, sign)


def _weigh_root(root: RootCause | None, sign: Sign) -> Sign:
    """Weigh it against what torchrun saw fail first: what others say then is a consequence."""
    if root is None or root.exit_code is None or sign.line >= root.line:
        return sign
    is_own = sign.rank is not None and sign.rank == root.rank
    if is_own or root.exit_code >= 0 or -root.exit_code == signals.SIGABRT:
        return sign
    return sign.cap("low", f"torchrun saw rank {root.rank} end by {name_signal(-root.exit_code)}.")
