"""A filter for indented text that only quotes errors, such as the output of a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainvitals.verdicts.causes.success import FINISHED, RESULT, is_written
from trainvitals.verdicts.causes.tracebacks import read_tracebacks
from trainvitals.verdicts.causes.words import is_progress, may_be_trouble

_INDENT = ("  ", "\t")
_FEW_STEPS = 2
# Words in a line before the output of a model or the content of a data set.
_SPEECH = re.compile(
    r"\b(?:generat(?:ed|ion|ions)|samples?|completions?|answers?|examples?|prompts?|respon(?:se|ses|ds)"
    r"|repl(?:y|ies)|dialogs?|dialogues?|conversations?|transcripts?|predictions?|hypothes[ie]s|decoded)\b"
    r".{0,400}:\s{0,4}$",
    re.IGNORECASE,
)


_QUOTE = re.compile(r"(?<!\w)'[^']{0,200}'(?!\w)|\"[^\"]{0,200}\"|`[^`]{0,200}`")
_ITEM = re.compile(r"\s{1,16}#?([0-9]{1,4})[.):]? {1,4}(?!0x)\S")
_LEAST_ITEMS = 3
_OF_FAILURE = re.compile(r"err|exception|fail|crash|abort|kill|while", re.IGNORECASE)


def find_indented(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of indented lines that do not report an error in the program.

    A block of indented lines does not report an error in any of these cases: the lines are numbered
    from 0 or 1, each line ends with a count, or the line before the block announces generated text.
    The same applies if later unindented lines show that the program continued: more than two
    progress lines, a result or a success. The frames of a traceback are never part of such a block,
    unless the first line of the traceback is indented.
    """
    blocks = [
        block for block in _list_blocks(lines) if any(may_be_trouble(lines[at]) for at in block)
    ]
    if not blocks:
        return
    last = _find_last_work(lines)
    for block in blocks:
        if _is_listing([lines[at] for at in block], lines[block.start - 1]):
            yield from block
            continue
        is_speech = _is_speech(lines[block.start - 1])
        if block.stop < len(lines) and (is_speech or block.start <= last):
            yield from range(block.start - is_speech, block.stop)


def _is_speech(head: str) -> bool:
    """Return whether a line announces a model's text and, outside quotes, names no failure."""
    return _SPEECH.search(head) is not None and _OF_FAILURE.search(_QUOTE.sub("", head)) is None


def _is_listing(rows: Sequence[str], head: str) -> bool:
    """Return whether rows are counts, or numbered and after a line that names no failure."""
    if len(rows) < _LEAST_ITEMS:
        return False
    if all(row.rpartition(": ")[2].strip().isdecimal() and ": " in row for row in rows):
        return True
    items = [_ITEM.match(row) for row in rows]
    numbers = [int(item[1]) for item in items if item is not None]
    is_numbered = numbers in (list(range(len(rows))), list(range(1, len(rows) + 1)))
    return is_numbered and head.endswith(":") and _OF_FAILURE.search(_QUOTE.sub("", head)) is None


def _list_blocks(lines: Sequence[str]) -> Iterator[range]:
    """Yield every block of indented lines after an unindented line, without final blank lines."""
    if not any(line.startswith(_INDENT) for line in lines):
        return
    own = {
        at
        for each in read_tracebacks(lines)
        if not lines[each.start].startswith(_INDENT)
        for at in range(each.start, each.end + 1)
    }
    start: int | None = None
    end = 0
    for at, line in enumerate((*lines, ".")):
        if line.startswith(_INDENT) and line.strip() and at not in own:
            start, end = at if start is None else start, at + 1
        elif line.strip() or at in own:
            if start:
                yield range(start, end)
            start = None


def _find_last_work(lines: Sequence[str]) -> int:
    """Return the index of the last line that shows that the program continued; -1 if none does."""
    steps = 0
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        if not line or line.startswith(_INDENT):
            continue
        if FINISHED(line) or RESULT.search(line) or is_written(line):
            return at
        steps += is_progress(line)
        if steps > _FEW_STEPS:
            return at
    return -1
