"""Damaged copies of real inputs, as a faulty disk, an attacker or chance would produce them.

A copy depends only on the random generator that is passed, so its seed reproduces the copy.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from random import Random

LONGEST = 1 << 18
_MOST_CHANGES = 4
_LONGEST_REPEATED = 64
_NUMBER = re.compile(rb"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_TEXT = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]+")
# Numbers in usual and unusual notations.
NUMBERS = (
    *(b"0", b"-0", b"-1", b"1", b"nan", b"NaN", b"inf", b"-Infinity", b"1e308", b"-1e308", b"1e400"),
    *(b"5e-324", b"1e30", b"4294967296", b"2147483648", b"9223372036854775808", b"-9223372036854775809"),
    *(b"18446744073709551616", b"9" * 39, b"9" * 5000, b"0x10", b"1_000", b"1,000", b"true", b"null"),
    *("\N{SUPERSCRIPT TWO}".encode(), "\N{ARABIC-INDIC DIGIT FOUR}".encode()),
)  # fmt: skip
DOUBLES = tuple(
    struct.pack("<d", value)
    for value in (
        *(float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 1e30, 5e-324, 0.0, -0.0, -1.0),
        *(1.0, 2.0**31, 2.0**53, 2.0**63, 4e9, 1e18),
    )
)
WORDS = (
    bytes(8),
    b"\xff" * 8,
    b"\xff" * 7 + b"\x7f",
    b"\0\0\0\x80",
    b"\xff\xff\xff\x7f",
    b"\xff" * 4,
)
TEXTS = (
    *(b"", b"\0", b"\n", b"\r\n", b"\r", b"\x08", b"\t", b" ", b'"', b"'", b"\\", b"/", b"%", b"{", b"}"),
    *(b"[", b"]", b"<", b">", b"&", b";", b":", b",", b"=", b"#", b"|", b"`", b"$", b"\xff", b"\xed\xa0\x80"),
    *(b"\xc3", b"\xef\xbb\xbf", "\u2028".encode(), "\u202e".encode(), "\x85".encode(), "\U0010ffff".encode()),
    *(b"\x1b[31m", b"\x1b]0;", b"\x1b[" + b"1;" * 200, b"../" * 8, b"..", b"%2e%2e/", b"/dev/zero"),
    *(b"{{.}}", b"${x}", b"%s%n", b"</script>", b"nan", b"null", b"[" * 3000, b'{"a":' * 3000, b"a" * 70_000),
)  # fmt: skip

Change = Callable[[bytes, Random], bytes]


class Mutations:
    """Damaged copies of some inputs.

    Args:
        corpus: Real inputs.
        texts: Other texts to insert that are typical of the input: field names, paths, signs.
        longest: The largest length of a copy, in bytes.
    """

    def __init__(
        self, corpus: Sequence[bytes], texts: Sequence[bytes] = (), *, longest: int = LONGEST
    ) -> None:
        assert corpus, "there is nothing to damage"
        self._longest = longest
        self._corpus = corpus
        self._texts = (*TEXTS, *texts, *texts)
        self._changes: tuple[Change, ...] = (
            *(flip, flip, cut, cut_out, repeat, self._splice, self._insert, self._insert),
            *(replace_number, replace_number, replace_double, swap_words),
        )

    def draw(self, random: Random) -> bytes:
        """Return one of the inputs with up to four random changes, sometimes with none."""
        data = random.choice(self._corpus)
        for _ in range(random.randint(0, _MOST_CHANGES)):
            data = random.choice(self._changes)(data, random)[: self._longest]
        return data

    def _splice(self, data: bytes, random: Random) -> bytes:
        """Replace the end of the input with the end of another input."""
        other = random.choice(self._corpus)
        return data[: _place(data, random)] + other[_place(other, random) :]

    def _insert(self, data: bytes, random: Random) -> bytes:
        """Insert a text at a random place, or replace a word with the text."""
        text = random.choice(self._texts)
        found = _find(_TEXT, data, random) if random.random() < 0.5 else None
        begin, end = found.span() if found else (_place(data, random),) * 2
        return data[:begin] + text + data[end:]


def flip(data: bytes, random: Random) -> bytes:
    """Change some bits."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 8, 64)) if data else 0):
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(data: bytes, random: Random) -> bytes:
    """Keep only the beginning or the end."""
    place = _place(data, random)
    return data[:place] if random.random() < 0.7 else data[place:]


def cut_out(data: bytes, random: Random) -> bytes:
    """Remove a piece."""
    begin, end = _piece(data, random)
    return data[:begin] + data[end:]


def repeat(data: bytes, random: Random) -> bytes:
    """Repeat a piece, up to a quarter of a mebibyte."""
    begin, end = _piece(data, random)
    end = min(end, begin + random.choice((1, 8, _LONGEST_REPEATED, len(data))))
    part = data[begin:end]
    count = random.choice((2, 100, LONGEST // max(1, len(part))))
    return data[:begin] + (part * count)[:LONGEST] + data[end:]


def replace_number(data: bytes, random: Random) -> bytes:
    """Replace a number with an extreme number."""
    found = _find(_NUMBER, data, random)
    if found is None:
        return data
    return data[: found.start()] + random.choice(NUMBERS) + data[found.end() :]


def replace_double(data: bytes, random: Random) -> bytes:
    """Overwrite bytes with an extreme double or integer, often at a multiple of eight."""
    word = random.choice(DOUBLES if random.random() < 0.7 else WORDS)
    at = _place(data, random)
    at = at - at % 8 if random.random() < 0.8 else at
    return data[:at] + word + data[at + len(word) :]


def swap_words(data: bytes, random: Random) -> bytes:
    """Replace one word of the input with another word of the input."""
    one, other = _find(_TEXT, data, random), _find(_TEXT, data, random)
    if one is None or other is None:
        return data
    return data[: one.start()] + other[0] + data[one.end() :]


def _place(data: bytes, random: Random) -> int:
    return random.randint(0, len(data))


def _piece(data: bytes, random: Random) -> tuple[int, int]:
    one, other = _place(data, random), _place(data, random)
    return min(one, other), max(one, other)


def _find(pattern: re.Pattern[bytes], data: bytes, random: Random) -> re.Match[bytes] | None:
    """Return a match after a random place, or else the first match."""
    return pattern.search(data, _place(data, random)) or pattern.search(data)
