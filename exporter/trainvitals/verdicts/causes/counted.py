"""Lines that count up to a total, as 300/6000, which are progress in any language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_COUNTED = re.compile(r"(?<![\w./:-])([0-9]{1,9}) ?/ ?([0-9]{1,9})(?![\w/:]|\.[0-9])")
_NOT_WORK = re.compile(r"attempt|retr|\btry|\btries|wait|connect|restart", re.IGNORECASE)
_LEAST_LINES, _LEAST_TOTAL = 3, 10


def find_counted(lines: Sequence[str], simple: Sequence[str], rest: Iterable[str]) -> set[int]:
    """Return the lines that count to a total, at least three with the same words.

    Attempts and waiting count up too; they are left out.

    Args:
        lines: The lines of a log.
        simple: The lines in lower case, with 1 for each digit but a single 0.
        rest: The distinct ones of these that may be such, without a word of trouble.
    """
    texts = {
        text
        for text in rest
        if "/" in text and _COUNTED.search(text) and not _NOT_WORK.search(text)
    }
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for at, text in enumerate(simple) if texts else ():
        if text in texts and (found := _COUNTED.search(lines[at])):
            head = text[: found.start()].replace("1", "").replace("0", "")
            groups.setdefault((head.rstrip(), found[2]), []).append((int(found[1]), at))
    return {at for key, group in groups.items() if _rises(key[1], group) for _, at in group}


def _rises(total: str, group: Sequence[tuple[int, int]]) -> bool:
    counts = [count for count, _ in group]
    return (
        int(total) >= _LEAST_TOTAL and counts == sorted(counts) and len(set(counts)) >= _LEAST_LINES
    )
