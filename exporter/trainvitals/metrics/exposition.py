"""A writer for the Prometheus text format 0.0.4 and OpenMetrics 1.0.

The output is identical to the output of prometheus_client's `generate_latest` for the same
families. The text that does not change between scrapes (HELP, TYPE, names, escaped labels) is
cached for each block shape, as pieces between which a scrape inserts only the numbers.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from trainvitals.metrics.families import Block, Family, Labels

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_KEPT_SHAPES = 256
# The limit corresponds to about 1.5 MB. The page for 64 training ranks has 13,000 pieces, some of
# which are replaced whenever a rank enters another phase or a run begins.
_KEPT_PIECES = 20_000
_KEPT_NUMBERS = 3072
_NOT_OF_A_NAME = re.compile("^[0-9]|[^a-zA-Z0-9_]")
_NEGATIVE_ZERO = struct.pack("=d", -0.0)


@dataclass(slots=True)
class _Shape:
    """The text pieces of a block shape, and the number of the last page that used the shape."""

    pieces: list[str]
    page: int = 0


class Exposition:
    """A writer for metric blocks in one of the two exposition formats.

    Args:
        openmetrics: Whether to write OpenMetrics 1.0 instead of the Prometheus text format.
    """

    def __init__(self, *, openmetrics: bool = False) -> None:
        self._openmetrics = openmetrics
        self._kept: dict[Hashable, _Shape] = {}
        self._kept_pieces = 0
        self._page = 0
        self._numbers = _Numbers()

    @property
    def content_type(self) -> str:
        """The Content-Type header of the pages that `write` returns."""
        return OPENMETRICS_TYPE if self._openmetrics else TEXT_TYPE

    def write(self, blocks: Iterable[Block]) -> bytes:
        """Return the complete metrics page that contains the blocks.

        Raises:
            ValueError: The number of a block's values differs from the number of its families'
                samples.
        """
        self._page += 1
        try:
            parts = [self._fill(block) for block in blocks]
        finally:
            if self._is_full():
                self._forget()
        if self._openmetrics:
            parts.append("# EOF\n")
        # A name that contains lone surrogates must not make the whole page fail.
        return "".join(parts).encode(errors="replace")

    def _fill(self, block: Block) -> str:
        shape = self._kept.get(block.shape)
        if shape is None:
            shape = self._keep(block)
        shape.page = self._page
        pieces = shape.pieces
        if len(pieces) != 2 * len(block.values) + 1:
            raise ValueError(
                f"{block.describe()[0].name} and its block have {len(pieces) // 2} samples"
                f" but {len(block.values)} values"
            )
        filled = pieces.copy()
        filled[1::2] = self._numbers.write(block.values)
        return "".join(filled)

    def _keep(self, block: Block) -> _Shape:
        shape = _Shape(_write_pieces(block.describe(), openmetrics=self._openmetrics))
        self._kept_pieces += len(shape.pieces)
        self._kept[block.shape] = shape
        return shape

    def _is_full(self) -> bool:
        return len(self._kept) > _KEPT_SHAPES or self._kept_pieces > _KEPT_PIECES

    def _forget(self) -> None:
        """Drop the least recently used shapes, except the shapes on the latest page."""
        for key, shape in sorted(self._kept.items(), key=lambda item: item[1].page):
            if shape.page == self._page or not self._is_full():
                return
            self._kept_pieces -= len(shape.pieces)
            del self._kept[key]


class _Numbers(dict[float, str]):
    """A cache of formatted numbers, because most values are unchanged or occur repeatedly.

    Equal numbers are formatted as equal text, except for -0.0, which equals 0.0.
    """

    def write(self, values: Sequence[float]) -> list[str]:
        if _has_negative_zero(values):
            return [format_number(value) for value in values]
        if len(self) > _KEPT_NUMBERS:
            self.clear()
        return [self[value] for value in values]

    def __missing__(self, value: float) -> str:
        text = format_number(value)
        if value == value:  # noqa: PLR0124 - NaN is not cached, because a lookup would not find it
            self[value] = text
        return text


def _has_negative_zero(values: Sequence[float]) -> bool:
    packed = struct.pack(f"={len(values)}d", *values)
    at = packed.find(_NEGATIVE_ZERO)
    while at > 0 and at % 8:  # a match that spans two numbers does not count
        at = packed.find(_NEGATIVE_ZERO, at + 1)
    return at >= 0


def format_number(value: float) -> str:
    """Return a number in prometheus_client's format: a float's repr, with exponents as in Go."""
    number = float(value)
    if -1e6 < number < 1e6:  # noqa: PLR2004 - seven digits before the point require an exponent
        return repr(number)
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if math.isnan(number):
        return "NaN"
    text = repr(number)
    whole, _, fraction = text.partition(".")
    if number > 0 and fraction and len(whole) > 6:  # noqa: PLR2004 - as above
        mantissa = f"{whole[0]}.{whole[1:]}{fraction}".rstrip("0.")
        return f"{mantissa}e+{len(whole) - 1:02d}"
    return text


def _write_pieces(families: Iterable[Family], *, openmetrics: bool) -> list[str]:
    """Return the text of families as pieces: before, between and after the numbers."""
    pieces = []
    before = ""
    for family in families:
        name, type_, help_ = _head(family, openmetrics=openmetrics)
        before += f"# HELP {name} {help_}\n# TYPE {name} {type_}\n"
        for suffix, labels in family.samples:
            pieces += [f"{before}{family.name}{suffix}{_write_labels(labels)} ", ""]
            before = "\n"
    return [*pieces, before]


def _head(family: Family, *, openmetrics: bool) -> tuple[str, str, str]:
    help_ = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    if openmetrics:
        stem = {"counter": "_total", "info": "_info"}.get(family.type, "")
        return family.name.removesuffix(stem), family.type, help_.replace('"', '\\"')
    type_ = {"info": "gauge", "unknown": "untyped"}.get(family.type, family.type)
    return family.name, type_, help_


def _write_labels(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = [
        f'{_NOT_OF_A_NAME.sub("_", name)}="{escape_value(value)}"' for name, value in sorted(labels)
    ]
    return "{" + ",".join(pairs) + "}"


def escape_value(value: str) -> str:
    """Return a label value, escaped as the text format requires between quotes."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
