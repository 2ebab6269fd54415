"""What NVML is asked, and what its return codes mean.

The calls of a scrape as tables: which function or field value goes into which slot of a row, and
in which unit. Numbers and meanings: nvml.h.
"""

from __future__ import annotations

import ctypes
import struct

from trainvitals.sources.accelerators.row import (
    EMPTY_ROW,
    LINK_ERRORS,
    SLOT,
    THROTTLE_REASONS,
    DeviceError,
    DriverGoneError,
)

U32 = ctypes.c_uint
U64 = ctypes.c_ulonglong

SUCCESS = 0
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
TIMEOUT = 10
# Not supported, no permission, no such function, wrong argument or version, deprecated.
LASTING = frozenset({2, NOT_SUPPORTED, 4, 13, 25, 26})

GONE = {
    1: "the driver was unloaded or restarted (NVML_ERROR_UNINITIALIZED)",
    9: "the driver is not loaded (NVML_ERROR_DRIVER_NOT_LOADED)",
    18: "driver and library versions differ (NVML_ERROR_LIB_RM_VERSION_MISMATCH)",
}
DEVICE_STATES = {15: "lost", 28: "lost", 16: "resetting", 4: "unsupported"}

_ALL_LINKS = 0xFFFFFFFF

# Result slots behind the row's own, for the members of its three tuples.
THROTTLE_SECONDS = len(EMPTY_ROW)
LINK_ERRORS_FROM = THROTTLE_SECONDS + len(THROTTLE_REASONS)
SLOTS = LINK_ERRORS_FROM + len(LINK_ERRORS)


def _throttle(reason: str) -> int:
    return THROTTLE_SECONDS + THROTTLE_REASONS.index(reason)


def _link_error(kind: str) -> int:
    return LINK_ERRORS_FROM + LINK_ERRORS.index(kind)


class Scalar:
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


SCALARS = (
    Scalar("nvmlDeviceGetTemperature", (0,), U32, SLOT["temperature_core_celsius"]),
    Scalar("nvmlDeviceGetPowerUsage", (), U32, SLOT["power_watts"], 1, 1000),
    Scalar("nvmlDeviceGetEnforcedPowerLimit", (), U32, SLOT["power_limit_watts"], 1, 1000),
    Scalar("nvmlDeviceGetTotalEnergyConsumption", (), U64, SLOT["energy_joules_total"], 1, 1000),
    Scalar("nvmlDeviceGetClockInfo", (1,), U32, SLOT["clock_core_hertz"], 1_000_000),
    Scalar("nvmlDeviceGetClockInfo", (2,), U32, SLOT["clock_memory_hertz"], 1_000_000),
    Scalar("nvmlDeviceGetPerformanceState", (), U32, SLOT["performance_state"]),
    Scalar("nvmlDeviceGetFanSpeed", (), U32, SLOT["fan_speed_ratio"], 1, 100),
    Scalar("nvmlDeviceGetCurrPcieLinkGeneration", (), U32, SLOT["pcie_link_generation"]),
    Scalar("nvmlDeviceGetCurrPcieLinkWidth", (), U32, SLOT["pcie_link_width"]),
)
STATIC_SCALARS = (
    Scalar("nvmlDeviceGetTemperatureThreshold", (1,), U32, SLOT["temperature_slowdown_celsius"]),
    Scalar("nvmlDeviceGetMaxClockInfo", (1,), U32, SLOT["clock_core_max_hertz"], 1_000_000),
    Scalar("nvmlDeviceGetMaxClockInfo", (2,), U32, SLOT["clock_memory_max_hertz"], 1_000_000),
    Scalar("nvmlDeviceGetMaxPcieLinkGeneration", (), U32, SLOT["pcie_link_generation_max"]),
    Scalar("nvmlDeviceGetMaxPcieLinkWidth", (), U32, SLOT["pcie_link_width_max"]),
)


class FieldValue:
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


FIELD_VALUES = (
    FieldValue(3, 0, SLOT["ecc_corrected_errors_total"]),  # ECC_SBE_VOL_TOTAL
    FieldValue(4, 0, SLOT["ecc_uncorrected_errors_total"]),  # ECC_DBE_VOL_TOTAL
    FieldValue(29, 0, SLOT["pages_retired_corrected"]),  # RETIRED_SBE
    FieldValue(30, 0, SLOT["pages_retired_uncorrected"]),  # RETIRED_DBE
    FieldValue(31, 0, SLOT["pages_retired_pending"]),  # RETIRED_PENDING
    FieldValue(38, 0, _link_error("crc_flit")),  # NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    FieldValue(45, 0, _link_error("crc_data")),  # NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
    FieldValue(52, 0, _link_error("replay")),  # NVLINK_REPLAY_ERROR_COUNT_TOTAL
    FieldValue(59, 0, _link_error("recovery")),  # NVLINK_RECOVERY_ERROR_COUNT_TOTAL
    FieldValue(74, 0, _throttle("sw_power_cap"), 1, 10**9),  # PERF_POLICY_POWER, ns
    FieldValue(76, 0, _throttle("sync_boost"), 1, 10**9),  # PERF_POLICY_SYNC_BOOST
    FieldValue(77, 0, _throttle("board_limit"), 1, 10**9),  # PERF_POLICY_BOARD_LIMIT
    FieldValue(79, 0, _throttle("reliability"), 1, 10**9),  # PERF_POLICY_RELIABILITY
    FieldValue(269, 0, _throttle("sw_thermal"), 1, 10**9),  # ..._SW_THERM_SLOWDOWN
    FieldValue(270, 0, _throttle("hw_thermal"), 1, 10**9),  # ..._HW_THERM_SLOWDOWN
    FieldValue(271, 0, _throttle("hw_power_brake"), 1, 10**9),  # ..._HW_POWER_BRAKE_SLOWDOWN
    FieldValue(82, 0, SLOT["temperature_memory_celsius"]),  # MEMORY_TEMP
    FieldValue(94, 0, SLOT["pcie_replays_total"]),  # PCIE_REPLAY_COUNTER
    FieldValue(138, _ALL_LINKS, SLOT["link_transmit_bytes_total"], 1024),  # ..._DATA_TX, KiB
    FieldValue(139, _ALL_LINKS, SLOT["link_receive_bytes_total"], 1024),  # ..._DATA_RX, KiB
    FieldValue(142, 0, SLOT["rows_remapped_corrected"]),  # REMAPPED_COR
    FieldValue(143, 0, SLOT["rows_remapped_uncorrected"]),  # REMAPPED_UNC
    FieldValue(144, 0, SLOT["row_remap_pending"]),  # REMAPPED_PENDING
    FieldValue(145, 0, SLOT["row_remap_failed"]),  # REMAPPED_FAILURE
    FieldValue(230, 0, SLOT["recovery_action"]),  # GET_GPU_RECOVERY_ACTION
)
SLOWDOWN_TLIMIT_FIELD = 194  # TEMPERATURE_SLOWDOWN_TLIMIT, a margin, usually -2

THROTTLE_BITS = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
}


def check(code: int) -> None:
    """Raise what a code says about the device or the driver; other codes cost only their value."""
    if code in DEVICE_STATES and code != 4:  # noqa: PLR2004 - "no permission" costs one value
        raise DeviceError(DEVICE_STATES[code])
    if code in GONE:
        raise DriverGoneError(GONE[code])


_UNSIGNED_MASKS = {1: 0xFFFFFFFF, 2: 0xFFFFFFFFFFFFFFFF, 3: 0xFFFFFFFFFFFFFFFF, 6: 0xFFFF}


def decode_field(value_type: int, value: int) -> int | float:
    """Read the union of a field value: 0 double, 1 uint, 2 ulong, 3 ull, 4 sll, 5 int, 6 ushort."""
    mask = _UNSIGNED_MASKS.get(value_type)
    if mask is not None:
        return value & mask
    packed = value.to_bytes(8, "little")
    if value_type == 0:
        return float(struct.unpack("<d", packed)[0])
    if value_type in (4, 5):
        return int.from_bytes(packed[: 8 if value_type == 4 else 4], "little", signed=True)  # noqa: PLR2004 - as listed
    return value
