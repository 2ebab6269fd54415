"""The table that `hl-smi` prints: which fields there are, and what their cells mean."""

from __future__ import annotations

from trainvitals.sources.accelerators.row import EMPTY_ROW, SLOT

TYPE_CHECKING = False
if TYPE_CHECKING:  # each megabyte is paid for by every reader process
    from collections.abc import Sequence

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
# not known, as no public sample shows what they look like everywhere.
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


def split_cells(text: str) -> list[list[str]]:
    """Give the cells of each line that has any."""
    return [[cell.strip() for cell in line.split(",")] for line in text.split("\n") if line.strip()]


def parse_number(cell: str, unit: str = "") -> float | None:
    """Give the number in a cell; None when it is not known.

    Args:
        cell: Digits, with a decimal point or without.
        unit: What may follow them.

    Raises:
        ValueError: It is something else.
    """
    if cell == NOT_KNOWN:
        return None
    digits = cell.removesuffix(unit).rstrip() if unit else cell
    parts = digits.split(".", 1)
    if len(digits) > _LONGEST_NUMBER or not all(p.isascii() and p.isdigit() for p in parts):
        raise ValueError(f"not a number in {unit or 'no unit'}: {cell[:40]!r}")
    return float(digits) if len(parts) > 1 else int(digits)


def parse_row(fields: Sequence[str], cells: Sequence[str]) -> Row:
    """Give a card's row.

    Args:
        fields: What was asked for.
        cells: What was answered.

    Raises:
        ValueError: There are more or fewer cells than fields, a core one is no number, or the
            memory is so large that the unit cannot be what is documented.
    """
    row: Row = list(EMPTY_ROW)
    for field, cell in zip(fields, cells, strict=True):
        if field in _NUMBERS:
            name, unit, factor, divisor = _NUMBERS[field]
            value = _parse_field(field, cell, unit)
            if value is not None:
                row[SLOT[name]] = value * factor if divisor == 1 else value / divisor
    total = row[SLOT["memory_total_bytes"]]
    if isinstance(total, (int, float)) and total > _LARGEST_MEMORY_MIB * _MIB:
        raise ValueError(f"memory.total is not in MiB: {total / _MIB:.0f}")
    utilization = row[SLOT["utilization_ratio"]]
    if isinstance(utilization, float):
        row[SLOT["utilization_ratio"]] = min(utilization, 1.0)
    return row


def _parse_field(field: str, cell: str, unit: str) -> float | None:
    if field in CORE_FIELDS:
        return parse_number(cell, unit)
    try:
        return parse_number(cell.removeprefix("x") if "width" in field else cell, unit)
    except ValueError:
        return None
