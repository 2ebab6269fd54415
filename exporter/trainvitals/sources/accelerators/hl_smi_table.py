"""Parses the table that `hl-smi` prints.

A line describes a card only if the line contains the card's index or PCI address. Some versions
print a header that was not requested, or a human-readable table instead of the requested format.
"""

from __future__ import annotations

import re

from trainvitals.sources.accelerators.row import EMPTY_ROW, SLOT

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
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
# Fields that older versions may not know, grouped by the versions that introduced them.
MORE_FIELDS = (
    ("power.max",),
    ("clocks.current.soc", "clocks.max.soc"),
    ("ecc.errors.corrected.volatile.total", "ecc.errors.uncorrected.volatile.total"),
    ("pcie.link.gen.current", "pcie.link.width.current"),
    ("pcie.link.gen.max", "pcie.link.width.max"),
)
_MIB = 1 << 20
_LARGEST_MEMORY_MIB = 1 << 24  # 16 TiB; a larger number is probably in bytes
_LONGEST_NUMBER = 20
NOT_KNOWN = "N/A"

# The slot, unit, factor and divisor of each field. If the cell of a field outside CORE_FIELDS is
# not numeric, the value is unknown, because no public sample shows the format in every version.
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
    """One card's line in the table.

    Attributes:
        place: The card's position among the cards in the table, counted from 0.
        cells: The cells of the card's line.
        named: The line's cells by field name; empty if the number of cells differs from the number
            of fields.
    """

    __slots__ = ("cells", "named", "place")

    def __init__(self, place: int, cells: Sequence[str], named: Mapping[str, str]) -> None:
        self.place = place
        self.cells = cells
        self.named = named

    @property
    def index(self) -> int:
        """The driver's index for the card; `place` if the table contains no numeric index."""
        index = self.named.get("index", self.cells[0])
        return int(index) if _INDEX.fullmatch(index) else self.place

    @property
    def uuid(self) -> str | None:
        """The card's UUID; None if the card's line contains no valid UUID."""
        uuid = self.named.get("uuid", "")
        return uuid if _UUID.fullmatch(uuid) else None


class Table:
    """The output of one run of `hl-smi`.

    Args:
        fields: The fields that were requested from `hl-smi`.
        text: The output of `hl-smi`.

    Attributes:
        cards: The cards in the output.
        strange_lines: The output lines that are neither a card's line nor a header.
        strange_columns: The header cells of columns with a unit other than the documented unit.
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
        """Whether any card's line has as many cells as fields, or the output contains no card."""
        return not self.cards or any(card.named for card in self.cards)


def split_cells(text: str) -> list[list[str]]:
    """Return the cells of each output line that is not blank."""
    return [[cell.strip() for cell in line.split(",")] for line in text.split("\n") if line.strip()]


def _is_header(cells: Sequence[str]) -> bool:
    matches = filter(None, map(_HEADER.fullmatch, cells))
    return 2 * sum(match[1].lower() in _KNOWN_FIELDS for match in matches) >= len(cells)


def _name_column(cell: str) -> str:
    """Return the field name in a header cell, or the whole cell if the unit is unexpected."""
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
    """Return the number in a cell; None if the cell is `N/A`.

    Args:
        cell: Digits, with or without a decimal point, optionally followed by the unit.
        unit: The unit that may follow the number.

    Raises:
        ValueError: The cell does not contain a number, or contains another unit.
    """
    if cell == NOT_KNOWN:
        return None
    digits = cell.removesuffix(unit).rstrip() if unit else cell
    parts = digits.split(".", 1)
    if len(digits) > _LONGEST_NUMBER or not all(p.isascii() and p.isdigit() for p in parts):
        raise ValueError(f"not a number in {unit or 'no unit'}: {cell[:40]!r}")
    return float(digits) if len(parts) > 1 else int(digits)


def parse_row(named: Mapping[str, str]) -> tuple[Row, list[str]]:
    """Return a card's row, and a description of each cell that could not be parsed.

    Args:
        named: The card's cells by field.
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
    """Remove the memory sizes if they are too large to be in MiB, and yield an error message."""
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
