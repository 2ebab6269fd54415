"""The table that `hl-smi` prints: its fields, its lines, and the meaning of their cells.

A line is a card only if it says which: other versions print a header that was not requested, or a
table for people instead of what was asked for.
"""

from __future__ import annotations

import re

from trainvitals.sources.accelerators.row import EMPTY_ROW, SLOT

TYPE_CHECKING = False
if TYPE_CHECKING:  # each megabyte is paid for by every reader process
    from collections.abc import Iterator, Mapping, Sequence

    from trainvitals.sources.accelerators.row import Row

CORE_FIELDS = (
    "index",
    "uuid",
    "name",
    "bus_id",
    "driver_version",
    "temperature.aip",
    "utilization.aip",
    "memory.total",
    "memory.used",
    "memory.free",
    "power.draw",
)
# What older versions may not know, by what came together.
MORE_FIELDS = (
    ("power.max",),
    ("clocks.current.soc", "clocks.max.soc"),
    ("ecc.errors.corrected.volatile.total", "ecc.errors.uncorrected.volatile.total"),
    ("pcie.link.gen.current", "pcie.link.width.current"),
    ("pcie.link.gen.max", "pcie.link.width.max"),
)
_MIB = 1 << 20
_LARGEST_MEMORY_MIB = 1 << 24  # 16 TiB: more would be bytes in truth
_LONGEST_NUMBER = 20
NOT_KNOWN = "N/A"

# Unit, factor and divisor of each field; those outside CORE_FIELDS whose cell is no number are
# not known, as no public sample shows their format for every version.
_NUMBERS = {
    "temperature.aip": ("temperature_core_celsius", "C", 1, 1),
    "utilization.aip": ("utilization_ratio", "%", 1, 100),
    "memory.total": ("memory_total_bytes", "MiB", _MIB, 1),
    "memory.used": ("memory_used_bytes", "MiB", _MIB, 1),
    "memory.free": ("memory_free_bytes", "MiB", _MIB, 1),
    "power.draw": ("power_watts", "W", 1, 1),
    "power.max": ("power_limit_watts", "W", 1, 1),
    "clocks.current.soc": ("clock_core_hertz", "MHz", 1_000_000, 1),
    "clocks.max.soc": ("clock_core_max_hertz", "MHz", 1_000_000, 1),
    "ecc.errors.corrected.volatile.total": ("ecc_corrected_errors_total", "", 1, 1),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected_errors_total", "", 1, 1),
    "pcie.link.gen.current": ("pcie_link_generation", "", 1, 1),
    "pcie.link.width.current": ("pcie_link_width", "", 1, 1),
    "pcie.link.gen.max": ("pcie_link_generation_max", "", 1, 1),
    "pcie.link.width.max": ("pcie_link_width_max", "", 1, 1),
}


_BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_INDEX = re.compile(r"[0-9]{1,3}")
_UUID = re.compile(r"(?=.*[0-9])[0-9A-Za-z][0-9A-Za-z._-]{2,63}")
_HEADER = re.compile(r"([A-Za-z_.-]+?) ?(?:\[(.*)\])?")
_KNOWN_FIELDS = frozenset((*CORE_FIELDS, *(field for group in MORE_FIELDS for field in group)))


class Card:
    """The line of one card.

    Attributes:
        place: Its place among the cards.
        cells: The cells.
        named: The cells by field; empty if there are more or fewer than fields.
    """

    __slots__ = ("cells", "named", "place")

    def __init__(self, place: int, cells: Sequence[str], named: Mapping[str, str]) -> None:
        self.place = place
        self.cells = cells
        self.named = named

    @property
    def index(self) -> int:
        """The driver's index; the place if it is not a number."""
        index = self.named.get("index", self.cells[0])
        return int(index) if _INDEX.fullmatch(index) else self.place

    @property
    def uuid(self) -> str | None:
        """The card's own name; None if the line has none."""
        uuid = self.named.get("uuid", "")
        return uuid if _UUID.fullmatch(uuid) else None


class Table:
    """The output of one run.

    Args:
        fields: The requested fields.
        text: The output.

    Attributes:
        cards: The cards in it.
        strange_lines: The lines that are neither a card nor a header.
        strange_columns: The columns whose unit is not the documented one, as a header names them.
    """

    def __init__(self, fields: Sequence[str], text: str) -> None:
        self.cards: list[Card] = []
        self.strange_lines: list[str] = []
        self.strange_columns: list[str] = []
        for cells in split_cells(text):
            if _is_header(cells):
                fields = [_name_column(cell) for cell in cells]
                self.strange_columns = [field for field in fields if "[" in field]
                continue
            named = dict(zip(fields, cells, strict=True)) if len(cells) == len(fields) else {}
            if _is_card(cells, named):
                self.cards.append(Card(len(self.cards), cells, named))
            else:
                self.strange_lines.append(", ".join(cells))

    @property
    def fits(self) -> bool:
        """Whether the cards have the requested fields, as far as there are any."""
        return not self.cards or any(card.named for card in self.cards)


def split_cells(text: str) -> list[list[str]]:
    """Return the cells of each line that has any."""
    return [[cell.strip() for cell in line.split(",")] for line in text.split("\n") if line.strip()]


def _is_header(cells: Sequence[str]) -> bool:
    matches = filter(None, map(_HEADER.fullmatch, cells))
    return 2 * sum(match[1].lower() in _KNOWN_FIELDS for match in matches) >= len(cells)


def _name_column(cell: str) -> str:
    """Return a column's field; the whole cell, which is no field, if it has another unit."""
    match = _HEADER.fullmatch(cell)
    name = match[1].lower() if match is not None else cell
    unit = match[2] if match is not None else None
    return name if unit is None or name not in _NUMBERS or unit == _NUMBERS[name][1] else cell


def _is_card(cells: Sequence[str], named: Mapping[str, str]) -> bool:
    if named:
        return bool(
            _BUS_ID.fullmatch(named.get("bus_id", "")) or _INDEX.fullmatch(named.get("index", ""))
        )
    return any(map(_BUS_ID.fullmatch, cells))


def parse_number(cell: str, unit: str = "") -> float | None:
    """Return the number in a cell; None if unknown.

    Args:
        cell: Digits, with a decimal point or without.
        unit: The unit that may follow the number.

    Raises:
        ValueError: The text is not a number with this unit.
    """
    if cell == NOT_KNOWN:
        return None
    digits = cell.removesuffix(unit).rstrip() if unit else cell
    parts = digits.split(".", 1)
    if len(digits) > _LONGEST_NUMBER or not all(p.isascii() and p.isdigit() for p in parts):
        raise ValueError(f"not a number in {unit or 'no unit'}: {cell[:40]!r}")
    return float(digits) if len(parts) > 1 else int(digits)


def parse_row(named: Mapping[str, str]) -> tuple[Row, list[str]]:
    """Return a card's row, and in words what of it was not understood.

    Args:
        named: The cells by field.
    """
    row: Row = list(EMPTY_ROW)
    troubles = []
    for field, cell in named.items():
        if field in _NUMBERS:
            name, unit, factor, divisor = _NUMBERS[field]
            try:
                value = _parse_field(field, cell, unit)
            except ValueError:
                troubles.append(f"{field} is {cell[:40]!r}")
                continue
            if value is not None:
                row[SLOT[name]] = value * factor if divisor == 1 else value / divisor
    troubles += _refuse_bytes(row)
    utilization = row[SLOT["utilization_ratio"]]
    if isinstance(utilization, float):
        row[SLOT["utilization_ratio"]] = min(utilization, 1.0)
    return row, troubles


def _refuse_bytes(row: Row) -> Iterator[str]:
    """Remove memory that is too large for the documented unit."""
    total = row[SLOT["memory_total_bytes"]]
    if isinstance(total, (int, float)) and total > _LARGEST_MEMORY_MIB * _MIB:
        for name in ("memory_total_bytes", "memory_used_bytes", "memory_free_bytes"):
            row[SLOT[name]] = None
        yield f"memory.total is not in MiB: {total / _MIB:.0f}"


def _parse_field(field: str, cell: str, unit: str) -> float | None:
    if field in CORE_FIELDS:
        return parse_number(cell, unit)
    try:
        return parse_number(cell.removeprefix("x") if "width" in field else cell, unit)
    except ValueError:
        return None
