"""NVIDIA GPUs through NVML, by the binding nvidia-ml-py.

The binding loads the library, opens it and has its structures and constants. The calls of a
scrape are bound once to their arguments and result buffers, because reading a result through the
binding's structures costs more than the call; what the driver offers as field values comes in one
call. Every error code is looked at: a number the card does not report is None, a lost card is a
`DeviceError`, a driver that is gone a `DriverGoneError`.
"""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from collections.abc import Callable, Sequence

from trainvitals.sources.accelerators.row import (
    EMPTY_ROW,
    LINK_ERRORS,
    SLOT,
    THROTTLE_REASONS,
    BusyTime,
    DeviceError,
    DeviceRow,
    DriverAbsentError,
    DriverGoneError,
    Holder,
    IdentityFields,
    Row,
)
from trainvitals.sources.accelerators.samples import integrate_samples

LIBRARY = "libnvidia-ml.so.1"

_SUCCESS = 0
_NOT_SUPPORTED = 3
_NOT_FOUND = 6
_INSUFFICIENT_SIZE = 7
_TIMEOUT = 10
_ABSENT = {9: "driver not loaded", 12: "library not found"}
_GONE = {
    1: "the driver was unloaded or restarted (NVML_ERROR_UNINITIALIZED)",
    9: "the driver is not loaded (NVML_ERROR_DRIVER_NOT_LOADED)",
    18: "driver and library versions differ (NVML_ERROR_LIB_RM_VERSION_MISMATCH)",
}
_DEVICE_STATES = {15: "lost", 28: "lost", 16: "resetting", 4: "unsupported"}

_ALL_LINKS = 0xFFFFFFFF
_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
_LONGEST_WAIT_MS = 15_000
_RETRY_UNSUPPORTED_SECONDS = 300.0
_LINK_STATES_SECONDS = 5.0
_PAUSE_AFTER_EVENT_ERROR_SECONDS = 5.0
_MOST_LINKS = 36

_FIELD = struct.Struct("=IIqqIIQ")  # id, scope, time, latency, value type, return code, value
_PROCESS = struct.Struct("=I4xQII")  # pid, bytes, GPU instance, compute instance
_MEMORY_V2 = struct.Struct("=I4xQQQQ")  # version, total, reserved, free, used
_MEMORY_V1 = struct.Struct("=QQQ")  # total, free, used

# Result slots behind the row's own, for the members of its three tuples.
_THROTTLE_SECONDS = len(EMPTY_ROW)
_LINK_ERRORS = _THROTTLE_SECONDS + len(THROTTLE_REASONS)
_SLOTS = _LINK_ERRORS + len(LINK_ERRORS)


def _throttle(reason: str) -> int:
    return _THROTTLE_SECONDS + THROTTLE_REASONS.index(reason)


def _link_error(kind: str) -> int:
    return _LINK_ERRORS + LINK_ERRORS.index(kind)


class _Scalar:
    """A call with one number as its result: value * factor / divisor goes into the slot."""

    __slots__ = ("arguments", "divisor", "factor", "slot", "symbol", "type")

    def __init__(
        self,
        symbol: str,
        arguments: tuple[int, ...],
        type_: type[ctypes.c_uint | ctypes.c_ulonglong],
        slot: int,
        factor: int = 1,
        divisor: int = 1,
    ) -> None:
        self.symbol = symbol
        self.arguments = arguments
        self.type = type_
        self.slot = slot
        self.factor = factor
        self.divisor = divisor


_U32 = ctypes.c_uint
_U64 = ctypes.c_ulonglong

_SCALARS = (
    _Scalar("nvmlDeviceGetTemperature", (0,), _U32, SLOT["temperature_core_celsius"]),
    _Scalar("nvmlDeviceGetPowerUsage", (), _U32, SLOT["power_watts"], 1, 1000),
    _Scalar("nvmlDeviceGetEnforcedPowerLimit", (), _U32, SLOT["power_limit_watts"], 1, 1000),
    _Scalar("nvmlDeviceGetTotalEnergyConsumption", (), _U64, SLOT["energy_joules_total"], 1, 1000),
    _Scalar("nvmlDeviceGetClockInfo", (1,), _U32, SLOT["clock_core_hertz"], 1_000_000),
    _Scalar("nvmlDeviceGetClockInfo", (2,), _U32, SLOT["clock_memory_hertz"], 1_000_000),
    _Scalar("nvmlDeviceGetPerformanceState", (), _U32, SLOT["performance_state"]),
    _Scalar("nvmlDeviceGetFanSpeed", (), _U32, SLOT["fan_speed_ratio"], 1, 100),
    _Scalar("nvmlDeviceGetCurrPcieLinkGeneration", (), _U32, SLOT["pcie_link_generation"]),
    _Scalar("nvmlDeviceGetCurrPcieLinkWidth", (), _U32, SLOT["pcie_link_width"]),
)
_STATIC_SCALARS = (
    _Scalar("nvmlDeviceGetTemperatureThreshold", (1,), _U32, SLOT["temperature_slowdown_celsius"]),
    _Scalar("nvmlDeviceGetMaxClockInfo", (1,), _U32, SLOT["clock_core_max_hertz"], 1_000_000),
    _Scalar("nvmlDeviceGetMaxClockInfo", (2,), _U32, SLOT["clock_memory_max_hertz"], 1_000_000),
    _Scalar("nvmlDeviceGetMaxPcieLinkGeneration", (), _U32, SLOT["pcie_link_generation_max"]),
    _Scalar("nvmlDeviceGetMaxPcieLinkWidth", (), _U32, SLOT["pcie_link_width_max"]),
)


class _FieldValue:
    """A field value: value * factor / divisor goes into the slot."""

    __slots__ = ("divisor", "factor", "field", "scope", "slot")

    def __init__(
        self, field: int, scope: int, slot: int, factor: int = 1, divisor: int = 1
    ) -> None:
        self.field = field
        self.scope = scope
        self.slot = slot
        self.factor = factor
        self.divisor = divisor


_FIELD_VALUES = (
    _FieldValue(3, 0, SLOT["ecc_corrected_errors_total"]),  # ECC_SBE_VOL_TOTAL
    _FieldValue(4, 0, SLOT["ecc_uncorrected_errors_total"]),  # ECC_DBE_VOL_TOTAL
    _FieldValue(29, 0, SLOT["pages_retired_corrected"]),  # RETIRED_SBE
    _FieldValue(30, 0, SLOT["pages_retired_uncorrected"]),  # RETIRED_DBE
    _FieldValue(31, 0, SLOT["pages_retired_pending"]),  # RETIRED_PENDING
    _FieldValue(38, 0, _link_error("crc_flit")),  # NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    _FieldValue(45, 0, _link_error("crc_data")),  # NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
    _FieldValue(52, 0, _link_error("replay")),  # NVLINK_REPLAY_ERROR_COUNT_TOTAL
    _FieldValue(59, 0, _link_error("recovery")),  # NVLINK_RECOVERY_ERROR_COUNT_TOTAL
    _FieldValue(74, 0, _throttle("sw_power_cap"), 1, 10**9),  # PERF_POLICY_POWER, ns
    _FieldValue(76, 0, _throttle("sync_boost"), 1, 10**9),  # PERF_POLICY_SYNC_BOOST
    _FieldValue(77, 0, _throttle("board_limit"), 1, 10**9),  # PERF_POLICY_BOARD_LIMIT
    _FieldValue(79, 0, _throttle("reliability"), 1, 10**9),  # PERF_POLICY_RELIABILITY
    _FieldValue(269, 0, _throttle("sw_thermal"), 1, 10**9),  # ..._SW_THERM_SLOWDOWN
    _FieldValue(270, 0, _throttle("hw_thermal"), 1, 10**9),  # ..._HW_THERM_SLOWDOWN
    _FieldValue(271, 0, _throttle("hw_power_brake"), 1, 10**9),  # ..._HW_POWER_BRAKE_SLOWDOWN
    _FieldValue(82, 0, SLOT["temperature_memory_celsius"]),  # MEMORY_TEMP
    _FieldValue(94, 0, SLOT["pcie_replays_total"]),  # PCIE_REPLAY_COUNTER
    _FieldValue(138, _ALL_LINKS, SLOT["link_transmit_bytes_total"], 1024),  # ..._DATA_TX, KiB
    _FieldValue(139, _ALL_LINKS, SLOT["link_receive_bytes_total"], 1024),  # ..._DATA_RX, KiB
    _FieldValue(142, 0, SLOT["rows_remapped_corrected"]),  # REMAPPED_COR
    _FieldValue(143, 0, SLOT["rows_remapped_uncorrected"]),  # REMAPPED_UNC
    _FieldValue(144, 0, SLOT["row_remap_pending"]),  # REMAPPED_PENDING
    _FieldValue(145, 0, SLOT["row_remap_failed"]),  # REMAPPED_FAILURE
    _FieldValue(230, 0, SLOT["recovery_action"]),  # GET_GPU_RECOVERY_ACTION
)
_SLOWDOWN_TLIMIT_FIELD = 194  # TEMPERATURE_SLOWDOWN_TLIMIT, a margin, usually -2

_THROTTLE_BITS = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
}


def open_nvidia() -> NvidiaSession:
    """Open the driver.

    Raises:
        DriverAbsentError: There is no library, or no driver under it.
        DriverGoneError: There is one and it refuses.
    """
    import pynvml  # noqa: PLC0415 - heavy, and only this process needs it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        code = error.value
        if code in _ABSENT:
            raise DriverAbsentError(_ABSENT[code]) from error
        raise DriverGoneError(_GONE.get(code, f"nvmlInit failed: {error}")) from error
    return NvidiaSession(pynvml.nvmlLib)


class NvidiaSession:
    """The open driver; see `Session`.

    Args:
        library: The initialised library.
    """

    parallel = 64

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._stopping = threading.Event()
        self._driver = _read_text(library.nvmlSystemGetDriverVersion)
        self._shown = self._count()
        self.devices: list[NvidiaDevice] = []
        self.unreadable: list[tuple[IdentityFields, str]] = []
        for index in range(self._shown):
            self._open_device(index)

    def is_current(self) -> bool:
        """Tell whether the driver still shows the same number of GPUs."""
        return self._count() == self._shown

    def watch(self, report: Callable[[str, int], None]) -> None:
        """Report every Xid of every GPU, until the driver is gone."""
        watched = list(self.devices)
        while watched and not self._stopping.is_set():
            events = ctypes.c_void_p()
            if self._library.nvmlEventSetCreate(ctypes.byref(events)) != _SUCCESS:
                return
            watched = [device for device in watched if device.register(events)]
            code = self._wait(events, watched, report) if watched else _NOT_SUPPORTED
            self._library.nvmlEventSetFree(events)
            if code in _GONE or code == _NOT_SUPPORTED:
                return
            self._stopping.wait(_PAUSE_AFTER_EVENT_ERROR_SECONDS)

    def stop_watching(self) -> None:
        """Have `watch` return within `_LONGEST_WAIT_MS`."""
        self._stopping.set()

    def close(self) -> None:
        """Shut the library down."""
        self._library.nvmlShutdown()

    def _wait(
        self,
        events: ctypes.c_void_p,
        watched: Sequence[NvidiaDevice],
        report: Callable[[str, int], None],
    ) -> int:
        from pynvml import c_nvmlEventData_t, nvmlEventTypeXidCriticalError  # noqa: PLC0415

        uuids = {device.handle.value: device.identity[2] for device in watched}
        data = c_nvmlEventData_t()
        while not self._stopping.is_set():
            code: int = self._library.nvmlEventSetWait_v2(
                events, ctypes.byref(data), _U32(_LONGEST_WAIT_MS)
            )
            if code == _SUCCESS and data.eventType == nvmlEventTypeXidCriticalError:
                handle = ctypes.cast(data.device, ctypes.c_void_p).value
                if handle in uuids:
                    report(uuids[handle], data.eventData)
            elif code not in (_SUCCESS, _TIMEOUT):
                return code
        return _NOT_SUPPORTED

    def _count(self) -> int:
        count = _U32()
        code = self._library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        if code != _SUCCESS:
            raise DriverGoneError(_GONE.get(code, f"nvmlDeviceGetCount failed with code {code}"))
        return count.value

    def _open_device(self, index: int) -> None:
        handle = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByIndex_v2(_U32(index), ctypes.byref(handle))
        uuid = _read_text(self._library.nvmlDeviceGetUUID, handle) if code == _SUCCESS else ""
        if not uuid:
            state = _DEVICE_STATES.get(code, "lost" if code == _SUCCESS else "unsupported")
            unknown = ("gpu", index, f"unknown-{index}", "", "", self._driver, None)
            self.unreadable.append((unknown, state))
            return
        identity = (
            "gpu",
            index,
            uuid,
            _read_text(self._library.nvmlDeviceGetName, handle),
            _read_bus_id(self._library, handle),
            self._driver,
            _read_text(self._library.nvmlDeviceGetVbiosVersion, handle) or None,
        )
        self.devices.append(NvidiaDevice(self._library, handle, identity))


class NvidiaDevice:
    """One GPU; see `Device`.

    Args:
        library: The initialised library.
        handle: The library's handle of the GPU.
        identity: Which GPU.
    """

    def __init__(
        self, library: ctypes.CDLL, handle: ctypes.c_void_p, identity: IdentityFields
    ) -> None:
        self.identity = identity
        self.handle = handle
        self._library = library
        self._bind()

    def register(self, events: ctypes.c_void_p) -> bool:
        """Have the device's Xids reported to an event set; tell whether it does."""
        from pynvml import nvmlEventTypeXidCriticalError  # noqa: PLC0415

        code: int = self._library.nvmlDeviceRegisterEvents(
            self.handle, _U64(nvmlEventTypeXidCriticalError), events
        )
        return code == _SUCCESS

    def read(self, since: int | None) -> DeviceRow:
        """Read everything; see `Device`."""
        if time.monotonic() >= self._bound_until:
            self._bind()
        row = self._static.copy()
        self._read_utilization(row)
        self._read_scalars(row)
        self._read_memory(row)
        self._read_fields(row)
        self._read_engines(row)
        self._read_headroom(row)
        self._read_throttle(row)
        self._read_links(row)
        processes = self._read_processes(row)
        busy = self._read_busy(since)
        row[SLOT["throttle_seconds_total"]] = tuple(row[_THROTTLE_SECONDS:_LINK_ERRORS])
        row[SLOT["link_errors_total"]] = tuple(row[_LINK_ERRORS:])
        return row[:_THROTTLE_SECONDS], busy, processes

    def _bind(self) -> None:
        """Make the calls ready, all of them; what proves not supported is left out until later."""
        self._bound_until = time.monotonic() + _RETRY_UNSUPPORTED_SECONDS
        self._unsupported: set[str] = set()
        self._static: Row = [*EMPTY_ROW, *(None for _ in range(_SLOTS - len(EMPTY_ROW)))]
        self._scalars = self._bind_scalars(_STATIC_SCALARS)
        self._read_scalars(self._static)
        self._scalars = self._bind_scalars(_SCALARS)
        self._bind_fields((_FieldValue(_SLOWDOWN_TLIMIT_FIELD, 0, _SLOTS),))
        probe: Row = [None] * (_SLOTS + 1)
        self._read_fields(probe)
        tlimit = probe[_SLOTS]
        self._slowdown_tlimit = tlimit if isinstance(tlimit, int) else 0
        self._bind_fields(_FIELD_VALUES)
        self._utilization = (_U32 * 2)()
        self._margin = (ctypes.c_int * 2)(0x01000008, 0)
        self._throttle = _U64()
        self._processes = ctypes.create_string_buffer(_PROCESS.size * 64)
        self._samples = (_U64 * (2 * self._sample_capacity()))()
        self._memory = ctypes.create_string_buffer(_MEMORY_V2.size)
        self._links_read_at = float("-inf")
        self._links_active: int | None = None

    def _bind_scalars(
        self, scalars: Sequence[_Scalar]
    ) -> list[
        tuple[
            Callable[..., int],
            tuple[object, ...],
            ctypes.c_uint | ctypes.c_ulonglong,
            int,
            int,
            int,
        ]
    ]:
        bound = []
        for scalar in scalars:
            function = getattr(self._library, scalar.symbol, None)
            if function is not None:
                out = scalar.type()
                arguments = (self.handle, *map(_U32, scalar.arguments), ctypes.byref(out))
                bound.append((function, arguments, out, scalar.slot, scalar.factor, scalar.divisor))
        return bound

    def _bind_fields(self, wanted: Sequence[_FieldValue]) -> None:
        self._wanted = tuple(wanted)
        # One entry to spare: some drivers write past the array in NVLink queries.
        self._fields = ctypes.create_string_buffer(_FIELD.size * (len(self._wanted) + 1))
        for at, field in enumerate(self._wanted):
            struct.pack_into("=II", self._fields, at * _FIELD.size, field.field, field.scope)

    def _read_scalars(self, row: Row) -> None:
        dropped = False
        for bound in self._scalars:
            function, arguments, out, slot, factor, divisor = bound
            code = function(*arguments)
            if code == _SUCCESS:
                value = out.value * factor
                row[slot] = value if divisor == 1 else value / divisor
            elif code == _NOT_SUPPORTED:
                dropped = True
            else:
                _check(code)
        if dropped:
            self._scalars = [bound for bound in self._scalars if row[bound[3]] is not None]

    def _read_fields(self, row: Row) -> None:
        if not self._wanted:
            return
        code = self._library.nvmlDeviceGetFieldValues(self.handle, len(self._wanted), self._fields)
        if code != _SUCCESS:
            _check(code)
            return
        entries = _FIELD.iter_unpack(memoryview(self._fields)[: len(self._wanted) * _FIELD.size])
        supported = []
        for field, entry in zip(self._wanted, entries, strict=True):
            if entry[5] != _NOT_SUPPORTED:
                supported.append(field)
            if entry[5] == _SUCCESS:
                value = _decode(entry[4], entry[6]) * field.factor
                row[field.slot] = value if field.divisor == 1 else value / field.divisor
        if len(supported) < len(self._wanted):
            self._bind_fields(supported)

    def _read_utilization(self, row: Row) -> None:
        if self._call("nvmlDeviceGetUtilizationRates", self._utilization):
            row[SLOT["utilization_ratio"]] = self._utilization[0] / 100
            row[SLOT["memory_utilization_ratio"]] = self._utilization[1] / 100

    def _read_memory(self, row: Row) -> None:
        struct.pack_into("=I", self._memory, 0, 0x02000000 | _MEMORY_V2.size)
        if self._call("nvmlDeviceGetMemoryInfo_v2", self._memory):
            _, total, reserved, free, used = _MEMORY_V2.unpack(self._memory)
            row[SLOT["memory_reserved_bytes"]] = reserved
        elif self._call("nvmlDeviceGetMemoryInfo", self._memory):
            total, free, used = _MEMORY_V1.unpack_from(self._memory)
        else:
            return
        row[SLOT["memory_total_bytes"]] = total
        row[SLOT["memory_free_bytes"]] = free
        row[SLOT["memory_used_bytes"]] = used

    def _read_engines(self, row: Row) -> None:
        percent, period = _U32(), _U32()
        if self._call(
            "nvmlDeviceGetEncoderUtilization", ctypes.byref(percent), ctypes.byref(period)
        ):
            row[SLOT["encoder_utilization_ratio"]] = percent.value / 100
        if self._call(
            "nvmlDeviceGetDecoderUtilization", ctypes.byref(percent), ctypes.byref(period)
        ):
            row[SLOT["decoder_utilization_ratio"]] = percent.value / 100

    def _read_headroom(self, row: Row) -> None:
        slowdown = row[SLOT["temperature_slowdown_celsius"]]
        temperature = row[SLOT["temperature_core_celsius"]]
        self._margin[0] = 0x01000008
        if self._call("nvmlDeviceGetMarginTemperature", self._margin):
            headroom = self._margin[1] - self._slowdown_tlimit
        elif isinstance(slowdown, int) and isinstance(temperature, int):
            headroom = slowdown - temperature
        else:
            return
        row[SLOT["temperature_headroom_celsius"]] = headroom

    def _read_throttle(self, row: Row) -> None:
        out = ctypes.byref(self._throttle)
        if self._call("nvmlDeviceGetCurrentClocksEventReasons", out) or self._call(
            "nvmlDeviceGetCurrentClocksThrottleReasons", out
        ):
            bits = self._throttle.value
            row[SLOT["throttle_active"]] = tuple(
                int(bits & mask != 0) if (mask := _THROTTLE_BITS.get(reason)) else None
                for reason in THROTTLE_REASONS
            )

    def _read_links(self, row: Row) -> None:
        """Count the links that are up, which takes a call for each, at most every 5 s."""
        now = time.monotonic()
        if now - self._links_read_at > _LINK_STATES_SECONDS:
            self._links_read_at = now
            self._links_active = self._count_active_links()
        row[SLOT["links_active"]] = self._links_active

    def _count_active_links(self) -> int | None:
        active, state = None, _U32()
        for link in range(_MOST_LINKS):
            if not self._call("nvmlDeviceGetNvLinkState", _U32(link), ctypes.byref(state)):
                break
            active = (active or 0) + state.value
        return active

    def _read_processes(self, row: Row) -> list[Holder]:
        room = len(self._processes) // _PROCESS.size
        count = _U32(room)
        function = getattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if function is None:
            return []
        code = function(self.handle, ctypes.byref(count), self._processes)
        if code == _INSUFFICIENT_SIZE:  # the count now says how many there are
            self._processes = ctypes.create_string_buffer(_PROCESS.size * (count.value + 16))
            row[SLOT["processes"]] = count.value
            return []
        if code != _SUCCESS:
            _check(code)
            return []
        row[SLOT["processes"]] = count.value
        entries = _PROCESS.iter_unpack(memoryview(self._processes)[: count.value * _PROCESS.size])
        holders = [(pid, None if used == _NOT_AVAILABLE else used) for pid, used, _, _ in entries]
        return sorted(holders, key=lambda holder: -(holder[1] or 0))

    def _sample_capacity(self) -> int:
        kind, count = ctypes.c_int(), _U32()
        outs = ctypes.byref(kind), ctypes.byref(count)
        if self._call("nvmlDeviceGetSamples", ctypes.c_int(1), _U64(0), *outs, None):
            return max(count.value, 1)
        return 128

    def _read_busy(self, since: int | None) -> BusyTime | None:
        capacity = len(self._samples) // 2
        kind, count = ctypes.c_int(), _U32(capacity)
        function = getattr(self._library, "nvmlDeviceGetSamples", None)
        if function is None or "nvmlDeviceGetSamples" in self._unsupported:
            return None
        code = function(
            self.handle,
            ctypes.c_int(1),
            _U64(since or 0),
            ctypes.byref(kind),
            ctypes.byref(count),
            self._samples,
        )
        if code == _NOT_FOUND:  # an idle GPU has no samples
            return since or 0, 0.0, 0.0
        if code != _SUCCESS:
            _check(code)
            self._unsupported.add("nvmlDeviceGetSamples")
            return None
        return self._integrate(count.value, since, is_full=count.value >= capacity)

    def _integrate(self, count: int, since: int | None, *, is_full: bool) -> BusyTime:
        numbers = self._samples[: 2 * count]
        pairs = sorted(
            (stamp, value & 0xFFFFFFFF)
            for stamp, value in zip(numbers[::2], numbers[1::2], strict=True)
            if stamp > (since or 0)
        )
        stamps = [stamp for stamp, _ in pairs]
        percents = [min(percent, 100) for _, percent in pairs]
        return integrate_samples(stamps, percents, since=since, is_full=is_full)

    def _call(self, symbol: str, *arguments: object) -> bool:
        """Call a function for this device; False when card or driver do not know it."""
        if symbol in self._unsupported:
            return False
        function = getattr(self._library, symbol, None)
        code = _NOT_SUPPORTED if function is None else function(self.handle, *arguments)
        if code == _SUCCESS:
            return True
        _check(code)
        if code != _NOT_FOUND and symbol != "nvmlDeviceGetNvLinkState":
            self._unsupported.add(symbol)
        return False


def _check(code: int) -> None:
    """Raise what a code says about the device or the driver; other codes cost only their value."""
    if code in _DEVICE_STATES and code != 4:  # noqa: PLR2004 - "no permission" costs one value
        raise DeviceError(_DEVICE_STATES[code])
    if code in _GONE:
        raise DriverGoneError(_GONE[code])


def _decode(value_type: int, value: int) -> int | float:
    """Read the union of a field value: 0 double, 1 uint, 2 ulong, 3 ull, 4 sll, 5 int, 6 ushort."""
    packed = value.to_bytes(8, "little")
    if value_type == 0:
        return float(struct.unpack("<d", packed)[0])
    if value_type in (4, 5):
        return int.from_bytes(packed[: 8 if value_type == 4 else 4], "little", signed=True)  # noqa: PLR2004
    return value & {1: 0xFFFFFFFF, 6: 0xFFFF}.get(value_type, 0xFFFFFFFFFFFFFFFF)


def _read_text(function: Callable[..., int], *handle: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(96)
    if function(*handle, buffer, _U32(len(buffer))) != _SUCCESS:
        return ""
    return buffer.value.decode(errors="replace")


def _read_bus_id(library: ctypes.CDLL, handle: ctypes.c_void_p) -> str:
    from pynvml import nvmlPciInfo_t  # noqa: PLC0415

    info = nvmlPciInfo_t()
    if library.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(info)) != _SUCCESS:
        return ""
    return (
        bytes(info.busId).decode(errors="replace")
        if isinstance(info.busId, bytes)
        else str(info.busId)
    )
