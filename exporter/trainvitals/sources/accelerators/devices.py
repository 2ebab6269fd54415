"""The histories of a driver's devices, which are kept until the exporter exits.

A driver's counters restart from zero when the driver is reloaded, and a reader process may be
replaced at any time. A device's history survives both events, so exported counters never decrease.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from trainvitals.sources.accelerators.reader import Answer, Reader, XidEvent
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    Identity,
    Measurements,
    ProcessMemory,
    State,
)
from trainvitals.sources.accelerators.row import MOST_DEVICES, SLOT, Holder
from trainvitals.sources.accelerators.totals import Totals
from trainvitals.sources.accelerators.xid_counts import XidCounts
from trainvitals.sources.host.kernel_lines import XidError
from trainvitals.sources.host.kernel_log import name_as_nvml

MOST_PROCESSES = 8
_BUSY, _UNOBSERVED = SLOT["busy_seconds_total"], SLOT["busy_unobserved_seconds_total"]
_ACTIVE, _EXPECTED = SLOT["links_active"], SLOT["links_expected"]


class DeviceHistory:
    """The history of one device: the latest reading and the totals, which never decrease.

    Args:
        identity: The identity of the device.

    Attributes:
        xids: The device's error counts by Xid code.
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
        self._totals = Totals()
        self.xids = XidCounts()

    @property
    def state(self) -> State:
        """The device's state at the latest reading."""
        return self._state

    def enter(
        self,
        row: list[object],
        busy: tuple[int, float, float] | None,
        processes: list[Holder],
        at: float,
    ) -> None:
        """Record a complete reading of the device.

        Args:
            row: The device's values; see `row`.
            busy: The device's busy time, in the format `row.BusyTime`; None if the driver keeps no
                utilization samples.
            processes: The processes on the device, by descending memory usage.
            at: The Unix time of the reading.
        """
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
        self._processes = tuple(ProcessMemory(*one) for one in processes[:MOST_PROCESSES])
        self._omitted = len(processes) - len(self._processes)
        self._state = "ok"
        self._last_seen = at

    def miss(self, state: State) -> None:
        """Record that the device could not be read."""
        self._state = state
        self._measurements = None
        self._processes = ()
        self._omitted = 0
        if state == "no_driver":
            self.since = None
        if state != "hung":
            self._totals.expect_restart()

    def read(self) -> AcceleratorReading:
        """Return the latest reading of the device."""
        return AcceleratorReading(
            identity=self.identity,
            state=self._state,
            last_seen_timestamp_seconds=self._last_seen,
            measurements=self._measurements,
            processes=self._processes,
            xids=self.xids.read(),
        )

    @property
    def omitted_processes(self) -> int:
        """The number of processes that the latest reading omits because of `MOST_PROCESSES`."""
        return self._omitted


_PLACEHOLDER = "unknown-"


class Devices:
    """The histories of a driver's devices.

    A device that cannot be opened may not report its UUID. Until the UUID is known, a placeholder
    identifies the device. If a known device with the same index is missing, the placeholder
    identifies the missing device. Otherwise, the placeholder identifies a new device.
    """

    def __init__(self) -> None:
        self._histories: dict[str, DeviceHistory] = {}
        self._meant: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._histories)

    @property
    def since(self) -> dict[str, int | None]:
        """The timestamp of the newest counted sample, by device UUID; see `Device.read`."""
        return {uuid: history.since for uuid, history in self._histories.items()}

    @property
    def omitted_processes(self) -> int:
        """The number of processes that the latest reading omits because of `MOST_PROCESSES`."""
        return sum(history.omitted_processes for history in self._histories.values())

    @property
    def hung(self) -> list[Identity]:
        """The identities of the devices that do not respond, sorted by index."""
        hung = [history.identity for history in self._histories.values() if history.state == "hung"]
        return sorted(hung, key=lambda identity: identity.index)

    def readable(self, reader: Reader) -> set[str]:
        """Return the UUIDs of a reader's open devices whose state is `ok` or `hung`."""
        return {
            who.uuid
            for who in reader.identities
            if who.uuid in self._histories and self._histories[who.uuid].state in ("ok", "hung")
        }

    def are_missing(self, reader: Reader) -> bool:
        """Return whether a new reader might find a device that the given reader cannot read."""
        held = {who.uuid for who in reader.identities}
        return any(
            history.state in ("lost", "resetting") or (history.state == "hung" and uuid not in held)
            for uuid, history in self._histories.items()
        )

    def register(self, reader: Reader) -> None:
        """Create a history for each new device of a reader, and update the known identities."""
        shown = [*reader.identities, *(identity for identity, _ in reader.unreadable)]
        uuids = {identity.uuid for identity in shown}
        for uuid in [uuid for uuid in self._histories if uuid.startswith(_PLACEHOLDER)]:
            if uuid not in uuids:
                del self._histories[uuid]
        self._meant = {}
        for identity in shown:
            known = self._find(identity, uuids)
            if known is not None:
                self._meant[identity.uuid] = known
            elif len(self._histories) < MOST_DEVICES:
                self._histories[identity.uuid] = DeviceHistory(identity)

    def enter(self, answer: Answer, unreadable: Iterable[tuple[Identity, State]]) -> None:
        """Record a reading of all devices.

        Args:
            answer: The reader's answer.
            unreadable: The devices that the reader could not open, with their states. A device that
                is neither in the answer nor in this list is lost.
        """
        at = time.time()
        states = {self._meant.get(who.uuid, who.uuid): state for who, state in unreadable}
        states |= dict(answer.states)
        rows = {uuid: (row, busy, holders) for uuid, row, busy, holders in answer.rows}
        for uuid, history in self._histories.items():
            if uuid in rows:
                history.enter(*rows[uuid], at)
            else:
                history.miss(states.get(uuid, "lost"))

    def miss_all(self, state: State, *, keep_samples: bool = False) -> None:
        """Record that no device could be read.

        Args:
            state: The new state of every device.
            keep_samples: Whether the driver is still loaded, so that the driver's sample buffers
                still contain the earlier samples.
        """
        for history in self._histories.values():
            since = history.since
            history.miss(state)
            if keep_samples:
                history.since = since

    def count(self, events: Iterable[XidEvent], *, but_of: Collection[str] = ()) -> None:
        """Count the Xid errors that devices reported.

        Args:
            events: The errors that devices reported.
            but_of: The UUIDs of the devices whose errors have already been counted.
        """
        for event in events:
            history = self._histories.get(event.uuid)
            if history is not None and event.uuid not in but_of:
                history.xids.count(event.code, event.at)

    def witness(self, errors: Iterable[XidError]) -> None:
        """Count Xid errors from the kernel log that the driver did not report."""
        for error in errors:
            bus_id = name_as_nvml(error.bus_id)
            for history in self._histories.values():
                if name_as_nvml(history.identity.bus_id) == bus_id:
                    history.xids.witness(error.code, error.time)

    def read(self) -> list[AcceleratorReading]:
        """Return the latest reading of every device, sorted by device index."""
        readings = [history.read() for history in self._histories.values()]
        return sorted(readings, key=lambda reading: reading.identity.index)

    def _find(self, identity: Identity, shown: Collection[str]) -> str | None:
        """Return the UUID under which a device's history is stored; None if there is no history.

        If the identity contains the device's UUID, the identity in the history is updated.
        """
        history = self._histories.get(identity.uuid)
        if history is not None:
            history.identity = identity
            return identity.uuid
        if identity.uuid.startswith(_PLACEHOLDER):
            for uuid, other in self._histories.items():
                if other.identity.index == identity.index and uuid not in shown:
                    return uuid
        return None
