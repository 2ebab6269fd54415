"""Near matches of a regular expression, derived from the expression, and the time they take.

Python's engine tries every way to split a text among the repeats of an expression. If a text can
be split in several ways, as with `(a+)+$`, a near match takes time exponential in its length. If a
match can begin anywhere and fail much later, as with `a.*b`, the time is quadratic.

The generated texts therefore match up to a repeat, continue with text that the repeat matches, and
then fail. Short texts are tried first, because a single long text might take years.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

MOST_SECONDS = 0.05
LONGEST = 1 << 16
_PARSER = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
# A few repeated parts reveal exponential time; some longer texts reveal polynomial time.
_FEW_PARTS = (8, 12, 16, 20, 24, 28, 32)
_SHORT = (64, 128, 256, 512, 1024)
# The times at these two lengths predict the time at `LONGEST`, which is measured only if needed.
_SOME, _MANY = 2048, 8192
_SAFETY = 1.5
_BEYOND_DOUBT = 10
_LEAST_REPEATS = 16  # a repeat with a lower upper bound cannot take long by itself
_TAILS = ("", "\0\n\0")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_USUAL_LETTERS = "a0 _A.:/=-\"'"
_MOST_LETTERS = 4
_CATEGORIES = {
    "CATEGORY_DIGIT": "0",
    "CATEGORY_NOT_DIGIT": "a ",
    "CATEGORY_SPACE": " \t\n",
    "CATEGORY_NOT_SPACE": "a0.",
    "CATEGORY_WORD": "a0_",
    "CATEGORY_NOT_WORD": " .",
}

# The time of this known search shows how much slower this machine is, now or always.
_KNOWN, _KNOWN_TEXT = re.compile(r"(?i:(?:ab|cd|ef).{0,20}\bx)"), "ab " * 6000
_KNOWN_SECONDS = 0.0029

_Tree = Any  # a parsed expression: a sequence of operations with their arguments


@dataclass(frozen=True, slots=True)
class SlowText:
    """A text on which an expression takes too long.

    Attributes:
        head: The beginning of the text.
        part: The part that is repeated after the beginning.
        tail: The end of the text.
        length: The length in characters, without the end.
        seconds: The processor time of the match.
    """

    head: str
    part: str
    tail: str
    length: int
    seconds: float


def find_slow_text(
    pattern: re.Pattern[Any],
    method: str = "search",
    *,
    clock: Callable[[], float] = time.thread_time,
) -> SlowText | None:
    """Return a text of about 64 KiB at most that takes more than `MOST_SECONDS`, or None.

    Args:
        pattern: The expression.
        method: The method that applies the expression: `search`, `match` or `fullmatch`.
        clock: A function that returns the processor time.
    """
    apply: Callable[[Any], object] = getattr(pattern, method)
    is_text = isinstance(pattern.pattern, str)
    for head, part in list_pumps(pattern):
        for tail in _TAILS:

            def measure(length: int, head: str = head, part: str = part, tail: str = tail) -> float:
                text = f"{head}{part * (length // len(part) + 1)}"[:length] + tail
                subject = text if is_text else text.encode("latin-1", "replace")
                return _measure(apply, subject, clock)

            few = (len(head) + len(part) * count for count in _FEW_PARTS)
            lengths = sorted({*few, *_SHORT, _SOME, _MANY})
            length, seconds = _find_slow_length(measure, lengths, clock)
            if seconds > MOST_SECONDS:
                return SlowText(head, part, tail, length, seconds)
    return None


def _find_slow_length(
    measure: Callable[[int], float], lengths: Iterable[int], clock: Callable[[], float]
) -> tuple[int, float]:
    """Return the first length that takes too long, or the longest length tried, and its time."""
    times = {}
    for length in lengths:
        times[length] = measure(length)
        if times[length] > MOST_SECONDS:
            return length, times[length]
    growth = max(times[_MANY] / max(times[_SOME], 1e-7), _MANY / _SOME)
    power = math.log(growth, _MANY / _SOME)
    expected = times[_MANY] * (LONGEST / _MANY) ** power * _SAFETY
    if expected < MOST_SECONDS or expected < MOST_SECONDS * measure_slowness(clock):
        return _MANY, times[_MANY]
    return LONGEST, measure(LONGEST)


def _measure(
    apply: Callable[[Any], object], subject: str | bytes, clock: Callable[[], float]
) -> float:
    """Return the processor time of a match.

    A time above the limit is scaled to that of the reference machine at rest, and is measured up to
    three times.
    """
    least = math.inf
    for _ in range(3):
        began = clock()
        apply(subject)
        seconds = clock() - began
        if seconds <= MOST_SECONDS:
            return seconds
        least = min(least, seconds / measure_slowness(clock))
        if least <= MOST_SECONDS or seconds > _BEYOND_DOUBT * MOST_SECONDS:
            break
    return least


def measure_slowness(clock: Callable[[], float]) -> float:
    """Return how many times as long as on the reference machine at rest a search takes now."""
    began = clock()
    _KNOWN.search(_KNOWN_TEXT)
    return max(1.0, (clock() - began) / _KNOWN_SECONDS)


def list_pumps(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    """Return beginnings of texts, each with a part to repeat after the beginning."""
    source = pattern.pattern
    tree = _PARSER.parse(
        source if isinstance(source, str) else source.decode("latin-1"),
        pattern.flags & ~re.UNICODE & ~re.LOCALE,
    )
    letters = _choose_letters(tree)
    pumps = []
    for head, body in _find_repeats(tree, "", letters):
        for part in _write_parts(body, letters):
            pumps += [(head, part), ("", part), ("", head + part)]
    whole = _write(tree, letters)
    return list(dict.fromkeys([*pumps, *([("", whole)] if whole else [])]))


def _find_repeats(tree: _Tree, head: str, letters: str) -> Iterator[tuple[str, _Tree]]:
    """Yield each long repeat: a text that matches up to the repeat, and the repeat's body."""
    for operation, value in tree:
        for inner in _list_inner(str(operation), value):
            yield from _find_repeats(inner, head, letters)
        if str(operation) in _REPEATS and value[1] >= _LEAST_REPEATS:
            yield head, value[2]
        head += _write([(operation, value)], letters)


def _list_inner(name: str, value: _Tree) -> Iterable[_Tree]:
    """Return the expressions inside an operation."""
    match name:
        case "SUBPATTERN":
            return (value[-1],)
        case "ATOMIC_GROUP":
            return (value,)
        case "BRANCH":
            return tuple(value[1])
        case "ASSERT" | "ASSERT_NOT":
            return (value[1],)
        case _ if name in _REPEATS:
            return (value[2],)
    return ()


def _write(tree: _Tree, letters: str) -> str:
    """Return a short text that an expression matches, apart from its assertions."""
    return "".join(_write_one(str(operation), value, letters) for operation, value in tree)


def _write_one(name: str, value: _Tree, letters: str) -> str:
    match name:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL" | "ANY" | "IN":
            return next(iter(_choose(name, value, letters)), "")
        case "SUBPATTERN" | "ATOMIC_GROUP" | "BRANCH":
            return _write(next(iter(_list_inner(name, value))), letters)
        case _ if name in _REPEATS:
            return _write(value[2], letters) * max(value[0], 1)
    return ""  # an assertion, an anchor or a back-reference


def _write_parts(body: _Tree, letters: str) -> Iterator[str]:
    """Yield texts that the body of a repeat matches: single characters, or one longer text."""
    nodes = [(str(operation), value) for operation, value in body]
    name, value = nodes[0] if len(nodes) == 1 else ("", None)
    if name in {"IN", "ANY", "NOT_LITERAL"}:
        yield from _choose(name, value, letters)
    elif name in {"BRANCH", "SUBPATTERN", "ATOMIC_GROUP"}:
        for inner in _list_inner(name, value):
            yield from _write_parts(inner, letters)
    elif text := _write(body, letters):
        yield text


def _choose(name: str, value: _Tree, letters: str) -> list[str]:
    """Return some characters that a single-character operation matches."""
    known = [each for each in letters if _takes(name, value, each)]
    if name == "IN":
        known += [chr(of[0]) for operation, of in value if str(operation) == "RANGE"]
    return known[:_MOST_LETTERS]


def _takes(name: str, value: _Tree, letter: str) -> bool:
    match name:
        case "ANY":
            return letter != "\n"
        case "LITERAL" | "NOT_LITERAL":
            return (chr(value) == letter) == (name == "LITERAL")
        case "RANGE":
            return bool(value[0] <= ord(letter) <= value[1])
        case "CATEGORY":
            return letter in _CATEGORIES.get(str(value).replace("UNI_", ""), "")
        case "IN":
            is_negated = str(value[0][0]) == "NEGATE"
            return is_negated != any(_takes(str(each), of, letter) for each, of in value)
    return False


def _choose_letters(tree: _Tree) -> str:
    """Return the characters for texts: some that the expression names, then common characters."""
    named = dict.fromkeys(_find_letters(tree))
    signs = [each for each in named if not each.isalnum()]
    others = [each for each in named if each.isalnum()]
    return "".join(dict.fromkeys([*signs[:3], *others[:2], *_USUAL_LETTERS, *signs, *others]))


def _find_letters(tree: _Tree) -> Iterator[str]:
    for operation, value in tree:
        if str(operation) == "LITERAL":
            yield chr(value)
        elif str(operation) == "IN":
            yield from _find_letters(value)
        for inner in _list_inner(str(operation), value):
            yield from _find_letters(inner)
