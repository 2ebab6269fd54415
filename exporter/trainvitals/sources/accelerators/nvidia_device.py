"""One NVIDIA GPU, read with NVML.

Each call is bound once to its arguments and result buffer, because reading a result through the
binding's structures takes longer than the call. All field values are read in one call. Every return
code is checked. If the card does not support a value, the value is None and is not read again for
five minutes.
"""

from __future__ import annotations

import ctypes
import struct
import time

from trainvitals.sources.accelerators.nvidia_links import Links
from trainvitals.sources.accelerators.nvidia_processes import ProcessList, ProcessUsage
from trainvitals.sources.accelerators.nvidia_samples import SampleBuffer
from trainvitals.sources.accelerators.nvml import (
    FIELD_VALUES,
    LASTING,
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
    Library,
    Scalar,
    check,
)
from trainvitals.sources.accelerators.nvml_fields import FieldRequest
from trainvitals.sources.accelerators.row import EMPTY_ROW, SLOT, THROTTLE_REASONS

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from collections.abc import Callable, Sequence

    from trainvitals.sources.accelerators.row import (
        DeviceRow,
        Holder,
        IdentityFields,
        Row,
    )

    BoundScalar = tuple[
        Callable[..., int],
        tuple[object, ...],
        ctypes.c_uint | ctypes.c_ulonglong,
        tuple[int, int, int, int, int],
    ]

_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
_RETRY_UNSUPPORTED_SECONDS = 300.0
_RETRY_FAILED_SECONDS = 15.0
_FULL_PERCENT = 100

_MEMORY_V2 = struct.Struct("=I4xQQQQ")  # version, total, reserved, free, used
_MEMORY_V1 = struct.Struct("=QQQ")  # total, free, used


class NvidiaDevice:
    """An NVIDIA GPU that is read with NVML; see `Device`.

    Args:
        library: The initialized NVML library.
        handle: NVML's handle for the GPU.
        identity: The identity of the GPU.
    """

    def __init__(self, library: Library, handle: ctypes.c_void_p, identity: IdentityFields) -> None:
        self.identity = identity
        self.handle = handle
        self._library = library
        self._links = Links(library, handle)
        self._bound_until = float("-inf")

    def read(self, since: int | None) -> DeviceRow:
        """Read all of the GPU's values; see `Device.read`."""
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
        busy = self._samples.read(since)
        row[SLOT["throttle_seconds_total"]] = tuple(row[THROTTLE_SECONDS:])
        return row[:THROTTLE_SECONDS], busy, processes

    def _bind(self) -> None:
        """Prepare all NVML calls; unsupported calls are omitted until the next preparation."""
        self._unsupported: set[str] = set()
        self._static: Row = [*EMPTY_ROW, *(None for _ in range(SLOTS - len(EMPTY_ROW)))]
        self._scalars = self._bind_scalars(STATIC_SCALARS)
        is_whole = self._read_scalars(self._static)
        margin = FieldRequest(self._library, self.handle, ((SLOWDOWN_TLIMIT_FIELD, 0),))
        ((code, tlimit),) = margin.ask()
        is_whole &= code == SUCCESS or code in LASTING
        self._slowdown_tlimit = tlimit if isinstance(tlimit, int) else 0
        self._scalars = self._bind_scalars(SCALARS)
        self._bind_fields(FIELD_VALUES)
        self._utilization = (U32 * 2)()
        self._margin = (ctypes.c_int * 2)(0x01000008, 0)
        self._throttle = U64()
        self._processes = ProcessList(self._library, self.handle)
        self._usage = ProcessUsage(self._library, self.handle)
        self._samples = SampleBuffer(self._library, self.handle)
        self._memory = ctypes.create_string_buffer(_MEMORY_V2.size)
        self._links.bind()
        seconds = _RETRY_UNSUPPORTED_SECONDS if is_whole else _RETRY_FAILED_SECONDS
        self._bound_until = time.monotonic() + seconds  # not reached after an error

    def _bind_scalars(self, scalars: Sequence[Scalar]) -> list[BoundScalar]:
        bound = []
        for scalar in scalars:
            function = getattr(self._library, scalar.symbol)
            out = scalar.type()
            arguments = (self.handle, *map(U32, scalar.arguments), ctypes.byref(out))
            bound.append((function, arguments, out, scalar.meaning))
        return bound

    def _bind_fields(self, wanted: Sequence[FieldValue]) -> None:
        self._wanted = tuple(wanted)
        pairs = [(field.field, field.scope) for field in self._wanted]
        self._fields = FieldRequest(self._library, self.handle, pairs)

    def _read_scalars(self, row: Row) -> bool:
        """Read the numeric values into a row; return False if any call failed temporarily."""
        unsupported = set()
        is_whole = True
        for function, arguments, out, (slot, factor, divisor, least, most) in self._scalars:
            code = function(*arguments)
            if code == SUCCESS:
                value = out.value
                if least <= value <= most:
                    value *= factor
                    row[slot] = value if divisor == 1 else value / divisor
            elif code in LASTING:
                unsupported.add(slot)
            else:
                check(code)
                is_whole = False
        if unsupported:
            self._scalars = [bound for bound in self._scalars if bound[3][0] not in unsupported]
        return is_whole

    def _read_fields(self, row: Row) -> None:
        supported = []
        for field, (code, value) in zip(self._wanted, self._fields.ask(), strict=True):
            if code not in LASTING:
                supported.append(field)
            if value is not None:
                number = value * field.factor
                row[field.slot] = number if field.divisor == 1 else number / field.divisor
        if len(supported) < len(self._wanted):
            self._bind_fields(supported)

    def _read_utilization(self, row: Row) -> None:
        if self._call("nvmlDeviceGetUtilizationRates", self._utilization):
            row[SLOT["utilization_ratio"]] = _to_ratio(self._utilization[0])
            row[SLOT["memory_utilization_ratio"]] = _to_ratio(self._utilization[1])

    def _read_memory(self, row: Row) -> None:
        struct.pack_into("=I", self._memory, 0, 0x02000000 | _MEMORY_V2.size)
        reserved = None
        if self._call("nvmlDeviceGetMemoryInfo_v2", self._memory):
            _, total, reserved, free, used = _MEMORY_V2.unpack(self._memory)
        elif "nvmlDeviceGetMemoryInfo_v2" not in self._unsupported:
            return  # version 1 counts the driver's reserved memory as used
        elif self._call("nvmlDeviceGetMemoryInfo", self._memory):
            total, free, used = _MEMORY_V1.unpack_from(self._memory)
        else:
            return
        if total == _NOT_AVAILABLE:
            return
        row[SLOT["memory_total_bytes"]] = total
        # The driver may report a negative difference as a huge number.
        row[SLOT["memory_free_bytes"]] = free if free <= total else None
        row[SLOT["memory_used_bytes"]] = used if used <= total else None
        if reserved is not None and reserved <= total:
            row[SLOT["memory_reserved_bytes"]] = reserved

    def _read_engines(self, row: Row) -> None:
        percent, period = U32(), U32()
        for symbol, name in (
            ("nvmlDeviceGetEncoderUtilization", "encoder_utilization_ratio"),
            ("nvmlDeviceGetDecoderUtilization", "decoder_utilization_ratio"),
        ):
            if self._call(symbol, ctypes.byref(percent), ctypes.byref(period)):
                row[SLOT[name]] = _to_ratio(percent.value)

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
        row[SLOT["links_active"]], row[SLOT["link_errors_total"]] = self._links.read()

    def _read_processes(self, row: Row) -> list[Holder]:
        found = self._processes.read()
        if found is None:
            return []
        row[SLOT["processes"]], holders = found
        used = self._usage.read() if holders else None
        return [
            (pid, memory, None if used is None else used.get(pid, 0.0)) for pid, memory in holders
        ]

    def _call(self, symbol: str, *arguments: object) -> bool:
        """Call an NVML function for this GPU; return False if the call fails or is unsupported."""
        if symbol in self._unsupported:
            return False
        code = getattr(self._library, symbol)(self.handle, *arguments)
        if code == SUCCESS:
            return True
        self._give_up(symbol, code)
        return False

    def _give_up(self, symbol: str, code: int) -> None:
        """Stop calling an NVML function if its return code indicates a permanent failure."""
        check(code)
        if code in LASTING:
            self._unsupported.add(symbol)


def _to_ratio(percent: int) -> float | None:
    """Convert a percentage to a ratio; return None if the percentage is above 100."""
    return percent / 100 if percent <= _FULL_PERCENT else None
