"""The NVML functions that the reader calls, and the meaning of NVML's return codes.

The tables list the NVML calls of a scrape. Each entry contains the function or field value for a
slot of a row, and the unit conversion. The header nvml.h defines the numbers and their meanings.
"""

from __future__ import annotations

import ctypes

from trainvitals.sources.accelerators.row import (
    EMPTY_ROW,
    SLOT,
    THROTTLE_REASONS,
    DeviceError,
    DriverGoneError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from collections.abc import Callable

U32 = ctypes.c_uint
U64 = ctypes.c_ulonglong

SUCCESS = 0
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
TIMEOUT = 10
FUNCTION_NOT_FOUND = 13
VERSION_MISMATCH = 25
# Invalid argument, not supported, no permission, no such function, wrong version, deprecated.
LASTING = frozenset({2, NOT_SUPPORTED, 4, FUNCTION_NOT_FOUND, VERSION_MISMATCH, 26})

GONE = {
    1: "the driver was unloaded or restarted (NVML_ERROR_UNINITIALIZED)",
    9: "the driver is not loaded (NVML_ERROR_DRIVER_NOT_LOADED)",
    18: "driver and library versions differ (NVML_ERROR_LIB_RM_VERSION_MISMATCH)",
}
DEVICE_STATES = {15: "lost", 28: "lost", 16: "resetting", 4: "unsupported"}

ALL_LINKS = 0xFFFFFFFF

# Additional result slots after those of the row, for the members of `throttle_seconds_total`.
THROTTLE_SECONDS = len(EMPTY_ROW)
SLOTS = THROTTLE_SECONDS + len(THROTTLE_REASONS)


def _throttle(reason: str) -> int:
    return THROTTLE_SECONDS + THROTTLE_REASONS.index(reason)


class Library:
    """The NVML library; a function that the library lacks returns `FUNCTION_NOT_FOUND`.

    Args:
        library: The loaded NVML library.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Callable[..., int]:
        function: Callable[..., int] = getattr(self._library, name, _report_missing)
        setattr(self, name, function)
        return function


def _report_missing(*_: object) -> int:
    return FUNCTION_NOT_FOUND


class Scalar:
    """An NVML call that returns one number; the row's slot is set to value * factor / divisor.

    A value below `least` or above `most` is discarded. By default, this includes the value with all
    bits set, which means "not available".

    Attributes:
        meaning: The row's slot, the factor, the divisor, and the minimum and maximum value.
    """

    __slots__ = ("arguments", "meaning", "symbol", "type")

    def __init__(
        self,
        symbol: str,
        arguments: tuple[int, ...],
        type_: type[ctypes.c_uint | ctypes.c_ulonglong],
        slot: int,
        factor: int = 1,
        divisor: int = 1,
        *,
        least: int = 0,
        most: int | None = None,
    ) -> None:
        self.symbol = symbol
        self.arguments = arguments
        self.type = type_
        largest = (1 << 8 * ctypes.sizeof(type_)) - 2
        self.meaning = slot, factor, divisor, least, largest if most is None else most


_HOTTEST = 255  # °C; the number is unsigned, so temperatures below 0 appear larger
_SLOWEST_STATE = 15  # 32 is "unknown"

SCALARS = (
    Scalar("nvmlDeviceGetTemperature", (0,), U32, SLOT["temperature_core_celsius"], most=_HOTTEST),
    Scalar("nvmlDeviceGetPowerUsage", (), U32, SLOT["power_watts"], 1, 1000),
    Scalar("nvmlDeviceGetEnforcedPowerLimit", (), U32, SLOT["power_limit_watts"], 1, 1000),
    Scalar("nvmlDeviceGetTotalEnergyConsumption", (), U64, SLOT["energy_joules_total"], 1, 1000),
    Scalar("nvmlDeviceGetClockInfo", (1,), U32, SLOT["clock_core_hertz"], 1_000_000),
    Scalar("nvmlDeviceGetClockInfo", (2,), U32, SLOT["clock_memory_hertz"], 1_000_000),
    Scalar(
        "nvmlDeviceGetPerformanceState", (), U32, SLOT["performance_state"], most=_SLOWEST_STATE
    ),
    Scalar("nvmlDeviceGetFanSpeed", (), U32, SLOT["fan_speed_ratio"], 1, 100),
    Scalar("nvmlDeviceGetCurrPcieLinkGeneration", (), U32, SLOT["pcie_link_generation"]),
    Scalar("nvmlDeviceGetCurrPcieLinkWidth", (), U32, SLOT["pcie_link_width"]),
)
STATIC_SCALARS = (
    Scalar(
        "nvmlDeviceGetTemperatureThreshold",
        (1,),
        U32,
        SLOT["temperature_slowdown_celsius"],
        least=1,  # no chip slows down at 0 °C
        most=_HOTTEST,
    ),
    Scalar("nvmlDeviceGetMaxClockInfo", (1,), U32, SLOT["clock_core_max_hertz"], 1_000_000),
    Scalar("nvmlDeviceGetMaxClockInfo", (2,), U32, SLOT["clock_memory_max_hertz"], 1_000_000),
    Scalar("nvmlDeviceGetMaxPcieLinkGeneration", (), U32, SLOT["pcie_link_generation_max"]),
    Scalar("nvmlDeviceGetMaxPcieLinkWidth", (), U32, SLOT["pcie_link_width_max"]),
)


class FieldValue:
    """An NVML field value; the row's slot is set to value * factor / divisor."""

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
    FieldValue(74, 0, _throttle("sw_power_cap"), 1, 10**9),  # PERF_POLICY_POWER, ns
    FieldValue(76, 0, _throttle("sync_boost"), 1, 10**9),  # PERF_POLICY_SYNC_BOOST
    FieldValue(77, 0, _throttle("board_limit"), 1, 10**9),  # PERF_POLICY_BOARD_LIMIT
    FieldValue(79, 0, _throttle("reliability"), 1, 10**9),  # PERF_POLICY_RELIABILITY
    FieldValue(269, 0, _throttle("sw_thermal"), 1, 10**9),  # ..._SW_THERM_SLOWDOWN
    FieldValue(270, 0, _throttle("hw_thermal"), 1, 10**9),  # ..._HW_THERM_SLOWDOWN
    FieldValue(271, 0, _throttle("hw_power_brake"), 1, 10**9),  # ..._HW_POWER_BRAKE_SLOWDOWN
    FieldValue(82, 0, SLOT["temperature_memory_celsius"]),  # MEMORY_TEMP
    FieldValue(94, 0, SLOT["pcie_replays_total"]),  # PCIE_REPLAY_COUNTER
    FieldValue(138, ALL_LINKS, SLOT["link_transmit_bytes_total"], 1024),  # ..._DATA_TX, KiB
    FieldValue(139, ALL_LINKS, SLOT["link_receive_bytes_total"], 1024),  # ..._DATA_RX, KiB
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
    """Raise an error if a return code concerns the whole device or the driver.

    A return code that concerns a single value raises no error.

    Raises:
        DeviceError: The device cannot be read.
        DriverGoneError: The driver was unloaded, restarted or replaced.
    """
    if code in DEVICE_STATES and code != 4:  # noqa: PLR2004 - "no permission" concerns one value
        raise DeviceError(DEVICE_STATES[code])
    if code in GONE:
        raise DriverGoneError(GONE[code])
