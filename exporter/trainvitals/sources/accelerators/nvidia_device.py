"""One NVIDIA GPU, read through NVML.

The calls are bound once to their arguments and result buffers, because reading a result through
the binding's structures costs more than the call; what the driver offers as field values comes in
one call. Every return code is looked at: what the card does not report is None and not asked for
again for five minutes.
"""

from __future__ import annotations

import ctypes
import struct
import time

from trainvitals.sources.accelerators.nvml import (
    FIELD_VALUES,
    INSUFFICIENT_SIZE,
    LASTING,
    LINK_ERRORS_FROM,
    NOT_FOUND,
    NOT_SUPPORTED,
    SCALARS,
    SLOTS,
    SLOWDOWN_TLIMIT_FIELD,
    STATIC_SCALARS,
    SUCCESS,
    THROTTLE_BITS,
    THROTTLE_SECONDS,
    U32,
    U64,
    FieldValue,
    Scalar,
    check,
    decode_field,
)
from trainvitals.sources.accelerators.row import EMPTY_ROW, SLOT, THROTTLE_REASONS
from trainvitals.sources.accelerators.samples import integrate_samples

TYPE_CHECKING = False
if TYPE_CHECKING:  # each megabyte is paid for by every reader process
    from collections.abc import Callable, Sequence

    from trainvitals.sources.accelerators.row import (
        BusyTime,
        DeviceRow,
        Holder,
        IdentityFields,
        Row,
    )

_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
_RETRY_UNSUPPORTED_SECONDS = 300.0
_LINK_STATES_SECONDS = 5.0
_MOST_LINKS = 36
_MOST_HOLDERS = 256
_CLOCK_WENT_BACK_US = 1_000_000

_FIELD = struct.Struct("=IIqqIIQ")  # id, scope, time, latency, value type, return code, value
_PROCESS = struct.Struct("=I4xQII")  # pid, bytes, GPU instance, compute instance
_MEMORY_V2 = struct.Struct("=I4xQQQQ")  # version, total, reserved, free, used
_MEMORY_V1 = struct.Struct("=QQQ")  # total, free, used


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
        self._bound_until = float("-inf")

    def register(self, events: ctypes.c_void_p) -> int:
        """Have the device's Xids reported to an event set, and give the driver's code."""
        from pynvml import nvmlEventTypeXidCriticalError  # noqa: PLC0415

        code: int = self._library.nvmlDeviceRegisterEvents(
            self.handle, U64(nvmlEventTypeXidCriticalError), events
        )
        return code

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
        row[SLOT["throttle_seconds_total"]] = tuple(row[THROTTLE_SECONDS:LINK_ERRORS_FROM])
        row[SLOT["link_errors_total"]] = tuple(row[LINK_ERRORS_FROM:])
        return row[:THROTTLE_SECONDS], busy, processes

    def _bind(self) -> None:
        """Make the calls ready, all of them; what proves not supported is left out until later."""
        self._unsupported: set[str] = set()
        self._static: Row = [*EMPTY_ROW, *(None for _ in range(SLOTS - len(EMPTY_ROW)))]
        self._scalars = self._bind_scalars(STATIC_SCALARS)
        self._read_scalars(self._static)
        self._scalars = self._bind_scalars(SCALARS)
        self._bind_fields((FieldValue(SLOWDOWN_TLIMIT_FIELD, 0, SLOTS),))
        probe: Row = [None] * (SLOTS + 1)
        self._read_fields(probe)
        tlimit = probe[SLOTS]
        self._slowdown_tlimit = tlimit if isinstance(tlimit, int) else 0
        self._bind_fields(FIELD_VALUES)
        self._utilization = (U32 * 2)()
        self._margin = (ctypes.c_int * 2)(0x01000008, 0)
        self._throttle = U64()
        self._processes = ctypes.create_string_buffer(_PROCESS.size * 64)
        self._samples = (U64 * (2 * self._sample_capacity()))()
        self._memory = ctypes.create_string_buffer(_MEMORY_V2.size)
        self._links_read_at = float("-inf")
        self._links_active: int | None = None
        self._bound_until = time.monotonic() + _RETRY_UNSUPPORTED_SECONDS  # only when all went well

    def _bind_scalars(
        self, scalars: Sequence[Scalar]
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
                arguments = (self.handle, *map(U32, scalar.arguments), ctypes.byref(out))
                bound.append((function, arguments, out, scalar.slot, scalar.factor, scalar.divisor))
        return bound

    def _bind_fields(self, wanted: Sequence[FieldValue]) -> None:
        self._wanted = tuple(wanted)
        # One entry to spare: some drivers write past the array in NVLink queries.
        self._fields = ctypes.create_string_buffer(_FIELD.size * (len(self._wanted) + 1))
        for at, field in enumerate(self._wanted):
            struct.pack_into("=II", self._fields, at * _FIELD.size, field.field, field.scope)

    def _read_scalars(self, row: Row) -> None:
        unsupported = set()
        for bound in self._scalars:
            function, arguments, out, slot, factor, divisor = bound
            code = function(*arguments)
            if code == SUCCESS:
                value = out.value * factor
                row[slot] = value if divisor == 1 else value / divisor
            elif code == NOT_SUPPORTED:
                unsupported.add(slot)
            else:
                check(code)
        if unsupported:
            self._scalars = [bound for bound in self._scalars if bound[3] not in unsupported]

    def _read_fields(self, row: Row) -> None:
        if not self._wanted:
            return
        code = self._library.nvmlDeviceGetFieldValues(self.handle, len(self._wanted), self._fields)
        if code != SUCCESS:
            check(code)
            return
        entries = _FIELD.iter_unpack(memoryview(self._fields)[: len(self._wanted) * _FIELD.size])
        supported = []
        for field, entry in zip(self._wanted, entries, strict=True):
            if entry[5] != NOT_SUPPORTED:
                supported.append(field)
            if entry[5] == SUCCESS:
                value = decode_field(entry[4], entry[6]) * field.factor
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
        percent, period = U32(), U32()
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
                int(bits & mask != 0) if (mask := THROTTLE_BITS.get(reason)) else None
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
        active, state = None, U32()
        for link in range(_MOST_LINKS):
            if not self._call("nvmlDeviceGetNvLinkState", U32(link), ctypes.byref(state)):
                break
            active = (active or 0) + state.value
        return active

    def _read_processes(self, row: Row) -> list[Holder]:
        function = getattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if function is None:
            return []
        count = U32(len(self._processes) // _PROCESS.size)
        code = function(self.handle, ctypes.byref(count), self._processes)
        if code == INSUFFICIENT_SIZE:  # the count now says how many there are
            count = U32(count.value + 16)
            self._processes = ctypes.create_string_buffer(_PROCESS.size * count.value)
            code = function(self.handle, ctypes.byref(count), self._processes)
        if code != SUCCESS:
            check(code)
            return []
        row[SLOT["processes"]] = count.value
        entries = _PROCESS.iter_unpack(memoryview(self._processes)[: count.value * _PROCESS.size])
        holders = [(pid, None if used == _NOT_AVAILABLE else used) for pid, used, _, _ in entries]
        return sorted(holders, key=lambda holder: -(holder[1] or 0))[:_MOST_HOLDERS]

    def _sample_capacity(self) -> int:
        kind, count = ctypes.c_int(), U32()
        outs = ctypes.byref(kind), ctypes.byref(count)
        if self._call("nvmlDeviceGetSamples", ctypes.c_int(1), U64(0), *outs, None):
            return max(count.value, 1)
        return 128

    def _read_busy(self, since: int | None) -> BusyTime | None:
        if "nvmlDeviceGetSamples" in self._unsupported:
            return None
        code, count = self._fetch_samples(since or 0)
        if code == NOT_FOUND:  # an idle GPU has no samples
            return self._find_newest(since) if since else 0, 0.0, 0.0
        if code != SUCCESS:
            self._give_up("nvmlDeviceGetSamples", code)
            return None
        return self._integrate(count, since, is_full=count >= len(self._samples) // 2)

    def _fetch_samples(self, since: int) -> tuple[int, int]:
        """Fill the buffer with the samples newer than that; give the driver's code and a count."""
        function = getattr(self._library, "nvmlDeviceGetSamples", None)
        if function is None:
            return NOT_SUPPORTED, 0
        kind, count = ctypes.c_int(), U32(len(self._samples) // 2)
        outs = ctypes.byref(kind), ctypes.byref(count), self._samples
        code: int = function(self.handle, ctypes.c_int(1), U64(since), *outs)
        return code, count.value

    def _find_newest(self, since: int) -> int:
        """Find where to go on when nothing is newer: earlier, if the clock was set back."""
        code, count = self._fetch_samples(0)
        newest = max(self._samples[: 2 * count : 2], default=0) if code == SUCCESS else 0
        return newest if 0 < newest < since - _CLOCK_WENT_BACK_US else since

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
        code = NOT_SUPPORTED if function is None else function(self.handle, *arguments)
        if code == SUCCESS:
            return True
        self._give_up(symbol, code)
        return False

    def _give_up(self, symbol: str, code: int) -> None:
        """Leave a call out from now on when its code says that it will not do better soon."""
        check(code)
        if code in LASTING and symbol != "nvmlDeviceGetNvLinkState":  # some links may be there
            self._unsupported.add(symbol)
