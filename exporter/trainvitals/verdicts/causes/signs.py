"""Signs: line patterns that indicate a cause, with a quick test whether a log can contain a sign.

A long log is repetitive, and hardly any of its lines matches one of the several hundred signs. For
this reason, literal texts are derived from each sign; every line that matches the sign contains at
least one of these texts. The texts are searched in a digest of the log, which consists of the log's
distinct lines in lower case, with 1 for each digit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from trainvitals.verdicts.causes.lines import simplify
from trainvitals.verdicts.causes.log_reading import read_log

# Texts shorter than this length occur in nearly every log.
_LEAST_LITERAL = 3
_NEAR_LETTERS = 120

# Messages of these exceptions quote a value, and words in the value do not indicate a cause.
_ABOUT_VALUE = re.compile(
    r"\b(?:Key|Value|Assertion|Argument|Argument\w{0,20}|Type|Attribute|Name|Lookup|Index|Validation)Error\b|: error: (?:argument|unrecognized|invalid)"
    r"|[Ii]nvalid value|\bUsageError\b"
)
_VALUE = re.compile(
    r"(?<!\w)'[^'()/]{1,200}'(?!\w)|(?<!\w)\"[^\"'()/]{1,200}\"(?!\w)|unrecognized arguments: .{1,400}$"
)
_ATOM = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:P<\w+>|<?[=!]|[a-zA-Z]*[:)]|P=\w+\)))?|.", re.DOTALL
)
_QUANTIFIER = re.compile(r"([*?+]|\{([0-9]*)(?:,[0-9]*)?\})[?+]?")
_LOOKAROUND = ("(?=", "(?!", "(?<=", "(?<!")
_ZERO_WIDTH = frozenset({"^", "$", r"\b", r"\B", r"\A", r"\Z"})


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign of a cause in a line of text.

    Attributes:
        pattern: A pattern that occurs in a matching line.
        without: Texts that do not occur in a matching line.
        near: A second pattern that occurs within 120 characters of the match; None if no second
            pattern is required.
    """

    pattern: re.Pattern[str]
    without: tuple[str, ...] = ()
    near: re.Pattern[str] | None = None

    def search(self, line: str) -> re.Match[str] | None:
        """Return the match of the sign in a line; None if the line does not match the sign."""
        found = self.pattern.search(line)
        if found is not None and _ABOUT_VALUE.search(line):
            values = [value.span() for value in _VALUE.finditer(line)]
            matches = self.pattern.finditer(line)
            found = next((each for each in matches if not _is_within(each.span(), values)), None)
        if found is None or any(text in line for text in self.without):
            return None
        around = max(0, found.start() - _NEAR_LETTERS), found.end() + _NEAR_LETTERS
        return found if self.near is None or self.near.search(line, *around) else None

    def __call__(self, line: str) -> bool:
        """Return whether a line matches the sign."""
        return self.search(line) is not None

    def may_be_in(self, lines: tuple[str, ...]) -> bool:
        """Return whether any of the lines may match the sign; only the result False is certain."""
        if not lines:
            return False
        literals = find_literals(self.pattern.pattern)
        return not literals or any(map(read_log(lines).digest.__contains__, literals))

    def list_candidates(self, lines: tuple[str, ...]) -> Iterator[int]:
        """Yield the indices of the lines that may match the sign, the last first.

        No other line matches the sign.
        """
        if not self.may_be_in(lines):
            return
        literals, simple = find_literals(self.pattern.pattern), read_log(lines).simple
        for at in range(len(lines) - 1, -1, -1):
            if not literals or any(map(simple[at].__contains__, literals)):
                yield at


def _is_within(span: tuple[int, int], values: Sequence[tuple[int, int]]) -> bool:
    return any(
        (start < span[0] and span[1] < end) or start < span[0] < span[1] == end
        for start, end in values
    )


def contains(*texts: str, without: Sequence[str] = (), ignore_case: bool = False) -> Sign:
    """Return the sign of lines that contain one of the texts and none of the texts in `without`."""
    return matches(*map(re.escape, texts), without=without, ignore_case=ignore_case)


def matches(*patterns: str, without: Sequence[str] = (), ignore_case: bool = False) -> Sign:
    """Return the sign of lines that match one of the patterns and contain no text in `without`."""
    flags = re.IGNORECASE if ignore_case else re.RegexFlag(0)
    return Sign(re.compile("|".join(patterns), flags), tuple(without))


def matches_words(*patterns: str) -> Sign:
    """Return the sign of lines in which a match begins a word; such a match is quick to find."""
    return matches(rf"(?<![A-Za-z])(?:{'|'.join(patterns)})")


@lru_cache(maxsize=1024)
def find_literals(pattern: str) -> tuple[str, ...]:
    """Return texts for the search in a digest; each match of a pattern contains at least one text.

    The result is empty if no such texts are known.
    """
    return _read_alternatives(pattern, 0)[0]


def _read_alternatives(pattern: str, at: int) -> tuple[tuple[str, ...], int]:
    """Return the literals of a pattern's alternatives, and the position after their parenthesis."""
    found: list[tuple[str, ...]] = []
    while True:
        best, at = _read_sequence(pattern, at)
        found.append(best)
        at += 1
        if at > len(pattern) or pattern[at - 1] == ")":
            break
    is_complete = all(found)
    return tuple(dict.fromkeys(text for best in found for text in best)) if is_complete else (), at


def _read_sequence(pattern: str, at: int) -> tuple[tuple[str, ...], int]:
    """Return the rarest literals of an alternative in a pattern, and the alternative's end."""
    best: tuple[str, ...] = ()
    run = ""
    while at < len(pattern) and pattern[at] not in "|)":
        found = _ATOM.match(pattern, at)
        atom = found[0] if found else pattern[at]
        at += len(atom)
        inner: tuple[str, ...] = ()
        if atom.startswith("(") and not atom.endswith(")"):
            inner, at = _read_alternatives(pattern, at)
            inner = () if atom in _LOOKAROUND else inner
        quantifier = _QUANTIFIER.match(pattern, at)
        at = quantifier.end() if quantifier else at
        if atom in _ZERO_WIDTH:
            continue
        is_optional = quantifier is not None and (quantifier[1][0] in "*?" or quantifier[2] == "0")
        literal = "" if is_optional else _read_literal(atom)
        if literal and quantifier is None:
            run += literal
            continue
        best = _choose(_choose(best, run + literal), () if is_optional else inner)
        run = ""
    return _choose(best, run), at


def _read_literal(atom: str) -> str:
    """Return the only character that a pattern's atom matches; an empty string for other atoms."""
    if len(atom) == 1:
        return "" if atom in ".[(0123456789" else simplify(atom)
    is_escaped = atom.startswith("\\") and not atom[1].isalnum()
    return atom[1] if is_escaped else ""


def _choose(best: tuple[str, ...], other: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the rarer of two sets of literals."""
    new = (other,) if isinstance(other, str) else other
    if min(map(len, new), default=0) < _LEAST_LITERAL:
        return best
    return new if not best or _rate(new) > _rate(best) else best


def _rate(literals: tuple[str, ...]) -> int:
    """Return the rarity of literals, which increases with length and decreases with their count."""
    return min(map(len, literals)) - len(literals)
