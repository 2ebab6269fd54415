"""What the exporter remembers of each device, so that its counters never go backwards.

A driver's counters start anew when it is reloaded, and a reader process may be replaced at any
time. The ledger outlives both.
"""

from __future__ import annotations

from trainvitals.sources.accelerators.reader import XidEvent
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    Identity,
    Measurements,
    ProcessMemory,
    State,
    XidCount,
)
from trainvitals.sources.accelerators.row import EMPTY_ROW, ROW_FIELDS, SLOT

MOST_XIDS = 16
MOST_PROCESSES = 8
_OTHER_XIDS = -1
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
_BUSY, _UNOBSERVED = SLOT["busy_seconds_total"], SLOT["busy_unobserved_seconds_total"]
_ACTIVE, _EXPECTED = SLOT["links_active"], SLOT["links_expected"]


class Account:
    """One device's page in the ledger.

    Args:
        identity: Which device.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.since: int | None = None
        self._state: State = "ok"
        self._last_seen: float | None = None
        self._measurements: Measurements | None = None
        self._processes: tuple[ProcessMemory, ...] = ()
        self._omitted = 0
        self._busy = 0.0
        self._unobserved = 0.0
        self._links_expected: int | None = None
        self._totals = _Totals()
        self._xids: dict[int, XidCount] = {}

    @property
    def state(self) -> State:
        """The state at the latest reading."""
        return self._state

    def enter(
        self,
        row: list[object],
        busy: tuple[int, float, float] | None,
        processes: list[tuple[int, int | None]],
        at: float,
    ) -> None:
        """Enter a whole reading; the arguments are those of `child`, and Unix time."""
        self._totals.continue_with(row)
        if busy is not None:
            self.since, gained, unobserved = busy
            self._busy += gained
            self._unobserved += unobserved
            row[_BUSY], row[_UNOBSERVED] = self._busy, self._unobserved
        active = row[_ACTIVE]
        if isinstance(active, int):
            self._links_expected = max(self._links_expected or 0, active)
            row[_EXPECTED] = self._links_expected
        self._measurements = Measurements(*row)  # type: ignore[arg-type]  # a row is in the fields' order
        holders = [ProcessMemory(pid, used) for pid, used in processes if used is not None]
        self._processes = tuple(holders[:MOST_PROCESSES])
        self._omitted = len(holders) - len(self._processes)
        self._state = "ok"
        self._last_seen = at

    def miss(self, state: State) -> None:
        """Enter that the device could not be read."""
        self._state = state
        self._measurements = None
        self._processes = ()
        self._omitted = 0
        if state == "no_driver":
            self.since = None

    def count(self, event: XidEvent) -> None:
        """Count an error the device reported; codes past the bound are counted together as -1."""
        code = event.code
        if code not in self._xids and len(self._xids) >= MOST_XIDS:
            code = _OTHER_XIDS
        before = self._xids[code].count if code in self._xids else 0
        self._xids[code] = XidCount(code, before + 1, event.at)

    def read(self) -> AcceleratorReading:
        """Give what is known of the device now."""
        return AcceleratorReading(
            identity=self.identity,
            state=self._state,
            last_seen_timestamp_seconds=self._last_seen,
            measurements=self._measurements,
            processes=self._processes,
            xids=tuple(self._xids[code] for code in sorted(self._xids)),
        )

    @property
    def omitted_processes(self) -> int:
        """How many processes the bound left out of the latest reading."""
        return self._omitted


class _Totals:
    """A device's counters, which go on where their sources start anew."""

    __slots__ = ("_bases", "_last")

    def __init__(self) -> None:
        self._last: list[float | None] = []
        self._bases: list[float] | None = None  # None until a source first started anew

    def continue_with(self, row: list[object]) -> None:
        """Take up a row's raw counters, and where a source started anew put the sums in place."""
        raw = _flatten(row)
        last = self._last or raw
        if self._bases is None and _went_back(raw, last):
            self._bases = [0] * len(raw)
        if self._bases is not None:
            for at, (now, before) in enumerate(zip(raw, last, strict=True)):
                if now is not None and before is not None and now < before:
                    self._bases[at] += before
            _put_back(
                row,
                [
                    None if now is None else base + now
                    for base, now in zip(self._bases, raw, strict=True)
                ],
            )
        self._last = [before if now is None else now for now, before in zip(raw, last, strict=True)]


def _flatten(row: list[object]) -> list[float | None]:
    flat = [row[slot] for slot in _COUNTERS]
    for slot in _COUNTER_TUPLES:
        flat += row[slot]  # type: ignore[arg-type]  # a tuple, by its empty value
    return flat  # type: ignore[return-value]  # a counter's slot holds a number or None


def _put_back(row: list[object], sums: list[float | None]) -> None:
    at = len(_COUNTERS)
    for slot, total in zip(_COUNTERS, sums, strict=False):
        row[slot] = total
    for slot in _COUNTER_TUPLES:
        width = len(EMPTY_ROW[slot])  # type: ignore[arg-type]  # a tuple, by choice
        row[slot] = tuple(sums[at : at + width])
        at += width


def _went_back(raw: list[float | None], last: list[float | None]) -> bool:
    for now, before in zip(raw, last, strict=True):
        if now is not None and before is not None and now < before:
            return True
    return False
