"""Gaudi cards, read with HLML and its binding habana-pyhlml, or with the command `hl-smi`.

All sensors are queried from the cards' firmware through a single mailbox for the whole machine.
Therefore, the cards are read one after the other, and an unsupported value is queried again only
after five minutes. NIC counters and PCIe throughput are never read, because each value takes 25 ms
to 100 ms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from trainvitals.sources.accelerators.hl_smi import find_hl_smi, open_hl_smi
from trainvitals.sources.accelerators.hlml import (
    UNSUPPORTED,
    Hlml,
    decode,
    find_library,
    is_binding_installed,
)
from trainvitals.sources.accelerators.row import (
    EMPTY_ROW,
    MOST_DEVICES,
    SLOT,
    THROTTLE_REASONS,
    DeviceError,
    DeviceRow,
    DriverAbsentError,
    DriverGoneError,
    IdentityFields,
    Row,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from typing import Any

    from trainvitals.sources.accelerators.vendor import Session

LARGEST_GROWTH_BYTES = 64 << 20

_RETRY_UNSUPPORTED_SECONDS = 300.0
_NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)

# The numbers of sensors, clocks, policies and error kinds in hlml.h.
_AIP, _HBM = 0, 3
_SLOWDOWN = 1
_SOC = 0
_CORRECTED, _UNCORRECTED = 0, 1
_SINCE_LOAD = 0
_SINGLE_BIT, _DOUBLE_BIT = 0, 1
_VIOLATIONS = {"sw_power_cap": 0, "hw_thermal": 1}
_THROTTLE_BITS = {"sw_power_cap": 0x1, "hw_thermal": 0x2}
_PCIE_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}


def open_habana() -> Session:
    """Open the Gaudi driver with HLML and its binding, or with `hl-smi` if either is missing.

    Raises:
        DriverAbsentError: Neither HLML nor `hl-smi` is installed, or the driver is not loaded.
        DriverGoneError: The driver refuses to open, or HLML is installed but neither its binding
            nor `hl-smi` is installed.
    """
    path = find_library()
    if path is not None and is_binding_installed():
        return HabanaSession(Hlml(path))
    command = find_hl_smi()
    if command is not None:
        return open_hl_smi(command)
    if path is not None:
        raise DriverGoneError(
            "libhlml.so needs its Python binding: pip install 'trainvitals[habana]'"
        )
    raise DriverAbsentError("neither libhlml.so nor hl-smi is installed")


def read_resident_bytes() -> int:
    """Return this process's resident memory in bytes."""
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - pathlib would cost a megabyte
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class HabanaSession:
    """A Gaudi driver that was opened with HLML; see `Session`.

    Args:
        hlml: The opened HLML binding.
        read_resident_bytes: A function that returns this process's resident memory in bytes.
    """

    parallel = 1
    troubles: tuple[str, ...] = ()

    def __init__(
        self, hlml: Hlml, *, read_resident_bytes: Callable[[], int] = read_resident_bytes
    ) -> None:
        self._hlml = hlml
        self._read_resident_bytes = read_resident_bytes
        self._resident_bytes: int | None = None
        self._driver = hlml.ask_text("hlmlGetDriverVersion")
        code, self._shown = self._count()
        if code != 0:
            raise DriverGoneError(f"hlmlDeviceGetCount failed with code {code}")
        self.devices: list[HabanaDevice] = []
        self.unreadable: list[tuple[IdentityFields, str]] = []
        for index in range(self._shown):
            self._open_device(index)

    def is_current(self) -> bool:
        """Return whether the number of cards is unchanged and HLML has leaked at most 64 MiB.

        HLML leaks memory with each temperature reading. If the reader process is replaced, the
        leaked memory is freed. A temporary failure to count the cards is ignored.
        """
        code, shown = self._count()
        return (code != 0 or shown == self._shown) and not self._is_bloated()

    def watch(self, report: Callable[[str, int], None]) -> None:  # noqa: ARG002 - no Xids
        """Return immediately, because HLML events contain no Xid codes."""
        return

    def stop_watching(self) -> None:
        """Do nothing, because `watch` does not wait for events."""

    def close(self) -> None:
        """Shut down HLML."""
        self._hlml.close()

    def _is_bloated(self) -> bool:
        now = self._read_resident_bytes()
        if self._resident_bytes is None:  # the first reading has allocated all it needs
            self._resident_bytes = now
        return now - self._resident_bytes > LARGEST_GROWTH_BYTES

    def _count(self) -> tuple[int, int]:
        """Return HLML's return code and the number of cards."""
        count, code = self._hlml.ask("hlmlDeviceGetCount")
        return code, min(int(count or 0), MOST_DEVICES)

    def _open_device(self, index: int) -> None:
        state = "unsupported"
        try:
            handle, _ = self._hlml.ask("hlmlDeviceGetHandleByIndex", index)
            identity = self._identify(index, handle) if handle is not None else None
        except DeviceError as error:
            state, identity = error.state, None
        except DriverGoneError:
            self._count()  # raises if the driver is gone; one card's answer is no proof
            identity = None
        if identity is None:
            unknown = ("hpu", index, f"unknown-{index}", "", "", self._driver, None)
            self.unreadable.append((unknown, state))
        else:
            self.devices.append(HabanaDevice(self._hlml, handle, identity))

    def _identify(self, index: int, handle: object) -> IdentityFields | None:
        pci, _ = self._hlml.ask("hlmlDeviceGetPCIInfo", handle)
        bus_id = decode(pci.bus_id) if pci is not None else ""
        uuid = self._hlml.ask_text("hlmlDeviceGetUUID", handle) or bus_id
        if not uuid:
            return None
        return (
            "hpu",
            index,
            uuid,
            self._hlml.ask_text("hlmlDeviceGetName", handle),
            bus_id,
            self._driver,
            self._hlml.ask_text("hlmlDeviceGetFirmwareSPIVersion", handle) or None,
        )


class HabanaDevice:
    """A Gaudi card that is read with HLML; see `Device`.

    Args:
        hlml: The opened HLML binding.
        handle: The binding's handle for the card.
        identity: The identity of the card.
    """

    def __init__(self, hlml: Hlml, handle: object, identity: IdentityFields) -> None:
        self.identity = identity
        self._handle = handle
        self._hlml = hlml
        self._unsupported: set[tuple[str, tuple[int, ...]]] = set()
        self._lasting: Row = list(EMPTY_ROW)
        self._lasting_until = float("-inf")

    def read(self, since: int | None) -> DeviceRow:  # noqa: ARG002 - there is no sample buffer
        """Read all of the card's values; see `Device.read`."""
        if "reset" in decode(self._ask("hlmlDeviceGetOperationStatus")):
            raise DeviceError("resetting")
        if time.monotonic() >= self._lasting_until:
            self._read_lasting()
        row = self._lasting.copy()
        self._read_utilization(row)
        self._read_memory(row)
        self._read_sensors(row)
        self._read_throttle(row)
        self._read_errors(row)
        self._read_pcie(row)
        if row == self._lasting:
            raise DeviceError("unsupported")
        return row, None, []

    def _ask(self, function: str, *arguments: int) -> Any:  # noqa: ANN401 - the binding has no types
        """Return one of the card's values; None if the driver does not report the value."""
        key = (function, arguments)
        if key in self._unsupported:
            return None
        answer, code = self._hlml.ask(function, self._handle, *arguments)
        if code in UNSUPPORTED:
            self._unsupported.add(key)
        return None if answer in _NOT_AVAILABLE else answer

    def _read_lasting(self) -> None:
        """Read the card's values that rarely change, and allow unsupported calls again."""
        self._unsupported.clear()
        row: Row = list(EMPTY_ROW)
        threshold = self._ask("hlmlDeviceGetTemperatureThreshold", _SLOWDOWN)
        row[SLOT["temperature_slowdown_celsius"]] = threshold or None  # no chip slows down at 0 °C
        clock = self._ask("hlmlDeviceGetMaxClockInfo", _SOC)
        row[SLOT["clock_core_max_hertz"]] = None if clock is None else clock * 1_000_000
        pci = self._ask("hlmlDeviceGetPCIInfo")
        if pci is not None:
            row[SLOT["pcie_link_generation_max"]] = parse_link_speed(
                decode(pci.caps.link_max_speed)
            )
            row[SLOT["pcie_link_width_max"]] = parse_link_width(decode(pci.caps.link_max_width))
        self._lasting = row
        self._lasting_until = time.monotonic() + _RETRY_UNSUPPORTED_SECONDS

    def _read_utilization(self, row: Row) -> None:
        rates = self._ask("hlmlDeviceGetUtilizationRates")
        percent = getattr(rates, "aip", rates)  # a plain number before release 1.19
        if percent is not None:
            row[SLOT["utilization_ratio"]] = min(percent, 100) / 100

    def _read_memory(self, row: Row) -> None:
        memory = self._ask("hlmlDeviceGetMemoryInfo")
        if memory is not None and memory.total not in _NOT_AVAILABLE:
            row[SLOT["memory_total_bytes"]] = memory.total
            # The driver may report a negative difference as a huge number.
            row[SLOT["memory_used_bytes"]] = memory.used if memory.used <= memory.total else None
            row[SLOT["memory_free_bytes"]] = memory.free if memory.free <= memory.total else None

    def _read_sensors(self, row: Row) -> None:
        temperature = self._ask("hlmlDeviceGetTemperature", _AIP)
        slowdown = row[SLOT["temperature_slowdown_celsius"]]
        row[SLOT["temperature_core_celsius"]] = temperature
        if isinstance(slowdown, int) and temperature is not None:
            row[SLOT["temperature_headroom_celsius"]] = slowdown - temperature
        row[SLOT["temperature_memory_celsius"]] = self._ask("hlmlDeviceGetTemperature", _HBM)
        row[SLOT["power_watts"]] = _divide(self._ask("hlmlDeviceGetPowerUsage"), 1000)
        limit = self._ask("hlmlDeviceGetPowerManagementLimit")
        if limit is None:
            limit = self._ask("hlmlDeviceGetPowerManagementDefaultLimit")
        row[SLOT["power_limit_watts"]] = _divide(limit, 1000)
        energy = self._ask("hlmlDeviceGetTotalEnergyConsumption")
        row[SLOT["energy_joules_total"]] = _divide(energy, 1000)
        clock = self._ask("hlmlDeviceGetClockInfo", _SOC)
        row[SLOT["clock_core_hertz"]] = None if clock is None else clock * 1_000_000

    def _read_throttle(self, row: Row) -> None:
        bits = self._ask("hlmlDeviceGetCurrentClocksThrottleReasons")
        if bits is not None:
            row[SLOT["throttle_active"]] = tuple(
                int(bits & mask != 0) if (mask := _THROTTLE_BITS.get(reason)) else None
                for reason in THROTTLE_REASONS
            )
        row[SLOT["throttle_seconds_total"]] = tuple(map(self._read_violation, THROTTLE_REASONS))

    def _read_violation(self, reason: str) -> float | None:
        policy = _VIOLATIONS.get(reason)
        status = None if policy is None else self._ask("hlmlDeviceGetViolationStatus", policy)
        return None if status is None else _divide(status.violation_time, 10**9)

    def _read_errors(self, row: Row) -> None:
        row[SLOT["ecc_corrected_errors_total"]] = self._ask(
            "hlmlDeviceGetTotalECCErrors", _CORRECTED, _SINCE_LOAD
        )
        row[SLOT["ecc_uncorrected_errors_total"]] = self._ask(
            "hlmlDeviceGetTotalECCErrors", _UNCORRECTED, _SINCE_LOAD
        )
        row[SLOT["rows_remapped_corrected"]] = self._ask(
            "hlmlDeviceGetReplacedRowsCount", _SINGLE_BIT
        )
        row[SLOT["rows_remapped_uncorrected"]] = self._ask(
            "hlmlDeviceGetReplacedRowsCount", _DOUBLE_BIT
        )
        row[SLOT["row_remap_pending"]] = self._ask("hlmlDeviceGetReplacedRowsPendingStatus")

    def _read_pcie(self, row: Row) -> None:
        row[SLOT["pcie_link_generation"]] = self._ask("hlmlDeviceGetCurrPCIELinkGeneration")
        row[SLOT["pcie_link_width"]] = self._ask("hlmlDeviceGetCurrPCIELinkWidth")
        row[SLOT["pcie_replays_total"]] = self._ask("hlmlDeviceGetPCIEReplayCounter")


def parse_link_speed(text: str) -> int | None:
    """Return the PCIe generation for a transfer rate such as "32.0GT/s"; None if it is unknown."""
    return _PCIE_GENERATIONS.get(text.partition("GT/s")[0].strip())


def parse_link_width(text: str) -> int | None:
    """Return the number of lanes in a link width such as "x16"; None if the width is invalid."""
    lanes = text.removeprefix("x")
    return int(lanes) if lanes in ("1", "2", "4", "8", "16") else None


def _divide(value: int | None, by: int) -> float | None:
    return None if value is None else value / by
