"""The format in which a reader process sends a device's values to the exporter.

A row is a list of values in the order of `ROW_FIELDS`, which is the order of the fields in
`reading.Measurements`. A value that is not reported is None. This module and the readers do not
import `dataclasses`, which would use 1.3 MiB of memory in each reader process.
"""

from __future__ import annotations

# A larger number of devices is assumed to be a driver error.
MOST_DEVICES = 64

THROTTLE_REASONS = (
    "sw_power_cap",
    "sync_boost",
    "board_limit",
    "reliability",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "hw_slowdown",
)
LINK_ERRORS = ("crc_flit", "crc_data", "replay", "recovery", "crc")

ROW_FIELDS = (
    "utilization_ratio",
    "memory_utilization_ratio",
    "busy_seconds_total",
    "busy_unobserved_seconds_total",
    "memory_total_bytes",
    "memory_used_bytes",
    "memory_reserved_bytes",
    "memory_free_bytes",
    "temperature_core_celsius",
    "temperature_memory_celsius",
    "temperature_slowdown_celsius",
    "temperature_headroom_celsius",
    "power_watts",
    "power_limit_watts",
    "energy_joules_total",
    "clock_core_hertz",
    "clock_memory_hertz",
    "clock_core_max_hertz",
    "clock_memory_max_hertz",
    "throttle_active",
    "throttle_seconds_total",
    "ecc_corrected_errors_total",
    "ecc_uncorrected_errors_total",
    "row_remap_pending",
    "row_remap_failed",
    "rows_remapped_corrected",
    "rows_remapped_uncorrected",
    "pages_retired_corrected",
    "pages_retired_uncorrected",
    "pages_retired_pending",
    "recovery_action",
    "pcie_link_generation",
    "pcie_link_generation_max",
    "pcie_link_width",
    "pcie_link_width_max",
    "pcie_replays_total",
    "links_active",
    "links_expected",
    "link_receive_bytes_total",
    "link_transmit_bytes_total",
    "link_errors_total",
    "encoder_utilization_ratio",
    "decoder_utilization_ratio",
    "fan_speed_ratio",
    "performance_state",
    "processes",
)
SLOT = {name: slot for slot, name in enumerate(ROW_FIELDS)}
EMPTY_ROW: tuple[object, ...] = tuple(
    {
        "throttle_active": (None,) * len(THROTTLE_REASONS),
        "throttle_seconds_total": (None,) * len(THROTTLE_REASONS),
        "link_errors_total": (None,) * len(LINK_ERRORS),
    }.get(name)
    for name in ROW_FIELDS
)

Row = list[object]

# The fields of `reading.Identity`: kind, index, uuid, model, bus id, driver, firmware or None.
IdentityFields = tuple[str, int, str, str, str, str, "str | None"]

# The newest sample's timestamp in microseconds (0 if there is no sample); the busy time since the
# sample in the request, in seconds; and the time since then for which the buffer no longer contains
# samples, in seconds.
BusyTime = tuple[int, float, float]

# A process's PID, its device memory in bytes, and the share of time in which the process used the
# device, from 0 to 1; a value that the driver does not report is None.
Holder = tuple[int, "int | None", "float | None"]

# The result of one reading of a device: the row, the busy time from the sample buffer (None if the
# driver keeps no samples), and the processes by descending memory usage.
DeviceRow = tuple[Row, "BusyTime | None", "list[Holder]"]


class DriverAbsentError(Exception):
    """The driver or its library is not installed or not loaded, which is not a fault."""


class DriverGoneError(Exception):
    """The driver is present but refuses access, or was present and no longer responds."""


class DeviceError(Exception):
    """One device cannot be read.

    Attributes:
        state: The state of the device, one of `reading.State`.
    """

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.state = state
