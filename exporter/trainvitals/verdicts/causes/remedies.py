"""The remedy that an exception's message contains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.ranks import split_rank
from trainvitals.verdicts.causes.signs import matches
from trainvitals.verdicts.causes.tracebacks import Traceback, ends_message

# Words which show that a message contains a remedy.
_REMEDY = matches(
    r"\b(?:please|try|install|re-?run|export|upgrade|increase|make sure|instead|documentation|idiom)\b"
    r"|\bset (?:the|your|to|`|')|\byou (?:can|need|must|should|may|might|have)\b|\buse [`'\"(\w]",
    ignore_case=True,
)
_LONGEST_REMEDY, _MOST_REMEDY_LINES = 1600, 60


def quote_remedy(case: Case, fatal: Traceback | None) -> tuple[str, ...]:
    """Return a step that quotes an exception's message if the message contains a remedy.

    The message is truncated to 1600 characters.
    """
    if fatal is None:
        return ()
    message = " ".join(_read_message(case.lines, fatal))[:_LONGEST_REMEDY].replace("`", "'")
    return (f"Follow the message: {message}",) if _REMEDY(message) else ()


def _read_message(lines: Sequence[str], fatal: Traceback) -> Iterator[str]:
    """Yield the lines of an exception's message, including a remedy after an empty line."""
    is_behind, start = False, fatal.errors[-1].line
    for index, line in enumerate(lines[start : start + _MOST_REMEDY_LINES]):
        rank, text = split_rank(line)
        if rank != fatal.rank:
            continue
        is_new = is_behind and text[:1].strip() != "" and not _REMEDY(text)
        if index and (ends_message(text) or is_new):
            return
        is_behind = is_behind or not text.strip()
        if text.strip():
            yield text.strip()
