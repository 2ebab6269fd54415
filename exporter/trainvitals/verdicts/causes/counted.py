"""Lines that count up to a total, as 300/6000, which are progress in any language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

_COUNTED = re.compile(r"(?<![\w./:-])([0-9]{1,9}) ?/ ?([0-9]{1,9})(?![\w/]|[:.][0-9])")
_ROW = re.compile(
    r"^[\s|,;\[(]{0,8}([0-9]{1,9})[\s|,;\])]{1,8}[-+0-9][-+0-9.e%\s|,;]{4,400}[A-Za-z/%]{0,6}[\s|]{0,8}$"
)
_NOT_WORK = re.compile(r"attempt|retr|\btry|\btries|wait|connect|restart", re.IGNORECASE)
_LEAST_LINES, _LEAST_ROWS, _LEAST_TOTAL = 3, 10, 10


def find_counted(lines: Sequence[str], simple: Sequence[str], rest: Iterable[str]) -> set[int]:
    """Return the lines that count to a total, at least three with the same words, or rows of numbers.

    Attempts and waiting count up too; they are left out.

    Args:
        lines: The lines of a log.
        simple: The lines in lower case, with 1 for each digit but a single 0.
        rest: The distinct ones of these that may be such, without a word of trouble.
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
    """Return whether the counts rise, apart from new starts, such as one in each epoch."""
    counts = [count for count, _ in group]
    pairs = list(pairwise(counts))
    if sum(one < other for one, other in pairs) < 2 * sum(one > other for one, other in pairs):
        return False
    if not total:
        return len(set(counts)) >= _LEAST_ROWS
    return int(total) >= _LEAST_TOTAL and len(set(counts)) >= _LEAST_LINES
