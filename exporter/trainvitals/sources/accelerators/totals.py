"""One device's totals, which do not decrease when the driver's counters restart from 0.

If a counter decreases, the decrease is a restart only if the next reading is also below the earlier
value. A single lower reading is treated as an error of the driver, because an addition to the total
cannot be undone.
"""

from __future__ import annotations

from trainvitals.sources.accelerators.row import EMPTY_ROW, ROW_FIELDS, SLOT

_COUNTERS = tuple(
    SLOT[name]
    for name, empty in zip(ROW_FIELDS, EMPTY_ROW, strict=True)
    if name.endswith("_total") and not name.startswith("busy_") and not isinstance(empty, tuple)
)
_COUNTER_TUPLES = tuple(
    SLOT[name]
    for name, empty in zip(ROW_FIELDS, EMPTY_ROW, strict=True)
    if name.endswith("_total") and isinstance(empty, tuple)
)


class Totals:
    """The totals of one device's counters; see `continue_with`."""

    __slots__ = ("_bases", "_last", "_lower")

    def __init__(self) -> None:
        self._last: list[float | None] = []
        self._bases: list[float] | None = None  # None until a counter first decreases
        self._lower: set[int] = set()

    def expect_restart(self) -> None:
        """Treat the next decrease of each counter as a restart.

        The method is called when the driver or the device becomes unavailable.
        """
        self._lower = set(range(len(self._last)))

    def continue_with(self, row: list[object]) -> None:
        """Replace a row's raw counters with totals, which do not decrease at a restart."""
        raw = _flatten(row)
        last = self._last or raw
        if self._bases is None and _went_back(raw, last):
            self._bases = [0] * len(raw)
        if self._bases is not None:
            for at, (now, before) in enumerate(zip(raw, last, strict=True)):
                raw[at] = self._settle(at, now, before, self._bases)
            _put_back(
                row,
                [
                    None if now is None else base + now
                    for base, now in zip(self._bases, raw, strict=True)
                ],
            )
        self._last = [before if now is None else now for now, before in zip(raw, last, strict=True)]

    def _settle(
        self, at: int, now: float | None, before: float | None, bases: list[float]
    ) -> float | None:
        """Return a counter's new value, or the previous value if a decrease is unconfirmed."""
        if now is None or before is None:
            return now
        if now >= before:
            self._lower.discard(at)
            return now
        if at not in self._lower:
            self._lower.add(at)
            return before
        self._lower.discard(at)
        bases[at] += before
        return now


def _flatten(row: list[object]) -> list[float | None]:
    flat = [row[slot] for slot in _COUNTERS]
    for slot in _COUNTER_TUPLES:
        flat += row[slot]  # type: ignore[arg-type]  # the empty value is a tuple
    return flat  # type: ignore[return-value]  # a counter's slot holds a number or None


def _put_back(row: list[object], sums: list[float | None]) -> None:
    at = len(_COUNTERS)
    for slot, total in zip(_COUNTERS, sums, strict=False):
        row[slot] = total
    for slot in _COUNTER_TUPLES:
        width = len(EMPTY_ROW[slot])  # type: ignore[arg-type]  # the slot holds a tuple
        row[slot] = tuple(sums[at : at + width])
        at += width


def _went_back(raw: list[float | None], last: list[float | None]) -> bool:
    for now, before in zip(raw, last, strict=True):
        if now is not None and before is not None and now < before:
            return True
    return False
