"""A quick scan of a log; all signs and causes share its results.

A line is progress if it contains words that indicate progress. In any language, a line is also
progress if it counts up to a total, such as `300/6000`, or belongs to a table of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from trainvitals.verdicts.causes.lines import simplify
from trainvitals.verdicts.causes.words import is_progress, may_be_trouble

_COUNTED = re.compile(r"(?<![\w./:-])([0-9]{1,9}) ?/ ?([0-9]{1,9})(?![\w/]|[:.][0-9])")
_ROW = re.compile(
    r"^[\s|,;\[(]{0,8}([0-9]{1,9})[\s|,;\])]{1,8}[-+0-9][-+0-9.e%\s|,;]{4,400}[A-Za-z/%]{0,6}[\s|]{0,8}$"
)
_NOT_WORK = re.compile(r"attempt|retr|\btry|\btries|wait|connect|restart", re.IGNORECASE)
_LEAST_LINES, _LEAST_ROWS, _LEAST_TOTAL = 3, 10, 10


@dataclass(frozen=True, slots=True)
class Reading:
    """A log with the results of a quick scan of its lines.

    Attributes:
        steps: Whether each line of the log is training progress.
        quiet: Whether each line of the log has words of progress and no word of trouble; no sign
            matches such a line.
        simple: The lines of the log in lower case, with 1 for each digit except a single 0.
        digest: The distinct lines of `simple`, joined by newlines.
    """

    simple: tuple[str, ...]
    steps: tuple[bool, ...]
    quiet: tuple[bool, ...]
    digest: str


@lru_cache(maxsize=8)  # A case reads its log with and without survived errors.
def read_log(lines: tuple[str, ...]) -> Reading:
    """Return the results of a quick scan of the lines of a log."""
    simple = simplify("\n".join(lines)).split("\n")
    looks = {text: (is_progress(text), may_be_trouble(text)) for text in dict.fromkeys(simple)}
    rest = (text for text, (is_step, is_trouble) in looks.items() if not (is_step or is_trouble))
    counted = _find_counted(lines, simple, rest)
    return Reading(
        simple=tuple(simple),
        steps=tuple(looks[text][0] or at in counted for at, text in enumerate(simple)),
        quiet=tuple(looks[text] == (True, False) for text in simple),
        digest="\n".join(looks),
    )


def _find_counted(lines: Sequence[str], simple: Sequence[str], rest: Iterable[str]) -> set[int]:
    """Return the indices of lines that count up to a total, and of lines that are rows of numbers.

    Counts must have at least three distinct values, the same preceding words and the same total of
    at least 10. Rows must have at least ten distinct first numbers. Most values must rise. Counts
    of attempts and of waits are ignored.

    Args:
        lines: The lines of a log.
        simple: The lines of the log in lower case, with each digit except a single 0 replaced by 1.
        rest: The distinct simplified lines without words of progress or trouble.
    """
    texts = {text for text in rest if _may_count(text)}
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for at, text in enumerate(simple) if texts else ():
        if text not in texts:
            continue
        if found := _COUNTED.search(lines[at]):
            head = text[: found.start()].replace("1", "").replace("0", "")
            groups.setdefault((head.rstrip(), found[2]), []).append((int(found[1]), at))
        elif found := _ROW.match(lines[at]):
            groups.setdefault(("", ""), []).append((int(found[1]), at))
    return {at for key, group in groups.items() if _rises(key[1], group) for _, at in group}


def _may_count(text: str) -> bool:
    if "/" in text and _COUNTED.search(text):
        return _NOT_WORK.search(text) is None
    return _ROW.match(text) is not None


def _rises(total: str, group: Sequence[tuple[int, int]]) -> bool:
    """Return whether enough counts rise, apart from resets, such as at the start of an epoch."""
    counts = [count for count, _ in group]
    pairs = list(pairwise(counts))
    if sum(one < other for one, other in pairs) < 2 * sum(one > other for one, other in pairs):
        return False
    if not total:
        return len(set(counts)) >= _LEAST_ROWS
    return int(total) >= _LEAST_TOTAL and len(set(counts)) >= _LEAST_LINES
