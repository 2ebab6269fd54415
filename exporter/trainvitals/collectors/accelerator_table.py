"""Which reading of an accelerator is served under which name, one line each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainvitals.sources.accelerators.row import LINK_ERRORS, THROTTLE_REASONS


@dataclass(frozen=True, slots=True)
class Metric:
    """A family, and where in `Measurements` its values are.

    Attributes:
        name: The family's name.
        type: Its type.
        help: Its HELP, with NVIDIA's source; docs/accelerators.md has the others'.
        fields: The fields of `Measurements`; one field may hold a tuple.
        label: A label beside those that name the device; None without one.
        values: That label's values, one for each field or member of the tuple.
    """

    name: str
    type: Literal["counter", "gauge"]
    help: str
    fields: tuple[str, ...]
    label: str | None = None
    values: tuple[str, ...] = ()


def _gauge(name: str, field: str, help_: str) -> Metric:
    return Metric(name, "gauge", help_, (field,))


def _counter(name: str, field: str, help_: str) -> Metric:
    return Metric(name, "counter", help_, (field,))


METRICS: tuple[Metric, ...] = (
    _gauge(
        "accelerator_utilization_ratio",
        "utilization_ratio",
        "Share of the last sample period in which something ran. Source: nvmlDeviceGetUtilizationRates.",
    ),
    _gauge(
        "accelerator_memory_utilization_ratio",
        "memory_utilization_ratio",
        "Share of it in which memory was read or written. Source: nvmlDeviceGetUtilizationRates.",
    ),
    _counter(
        "accelerator_busy_seconds_total",
        "busy_seconds_total",
        "Time in which something ran, from every sample. Source: nvmlDeviceGetSamples.",
    ),
    _counter(
        "accelerator_busy_unobserved_seconds_total",
        "busy_unobserved_seconds_total",
        "Time whose samples were lost and estimated. Source: nvmlDeviceGetSamples.",
    ),
    _gauge(
        "accelerator_memory_total_bytes",
        "memory_total_bytes",
        "Device memory. Source: nvmlDeviceGetMemoryInfo_v2.",
    ),
    _gauge(
        "accelerator_memory_used_bytes",
        "memory_used_bytes",
        "Memory that programs hold. Source: nvmlDeviceGetMemoryInfo_v2.",
    ),
    _gauge(
        "accelerator_memory_reserved_bytes",
        "memory_reserved_bytes",
        "Memory that the driver keeps. Source: nvmlDeviceGetMemoryInfo_v2.",
    ),
    _gauge(
        "accelerator_memory_free_bytes",
        "memory_free_bytes",
        "Memory that is left. Source: nvmlDeviceGetMemoryInfo_v2.",
    ),
    Metric(
        "accelerator_temperature_celsius",
        "gauge",
        "Temperature by sensor. Source: nvmlDeviceGetTemperature, NVML_FI_DEV_MEMORY_TEMP.",
        ("temperature_core_celsius", "temperature_memory_celsius"),
        "sensor",
        ("core", "memory"),
    ),
    _gauge(
        "accelerator_temperature_slowdown_celsius",
        "temperature_slowdown_celsius",
        "Where the hardware slows down. Source: nvmlDeviceGetTemperatureThreshold.",
    ),
    _gauge(
        "accelerator_temperature_headroom_celsius",
        "temperature_headroom_celsius",
        "How far it is to the slowdown. Source: nvmlDeviceGetMarginTemperature.",
    ),
    _gauge(
        "accelerator_power_watts",
        "power_watts",
        "Power draw. Source: nvmlDeviceGetPowerUsage.",
    ),
    _gauge(
        "accelerator_power_limit_watts",
        "power_limit_watts",
        "Power limit in force. Source: nvmlDeviceGetEnforcedPowerLimit.",
    ),
    _counter(
        "accelerator_energy_joules_total",
        "energy_joules_total",
        "Energy used. Source: nvmlDeviceGetTotalEnergyConsumption.",
    ),
    Metric(
        "accelerator_clock_hertz",
        "gauge",
        "Clock of cores and memory. Source: nvmlDeviceGetClockInfo.",
        ("clock_core_hertz", "clock_memory_hertz"),
        "clock",
        ("core", "memory"),
    ),
    Metric(
        "accelerator_clock_max_hertz",
        "gauge",
        "Highest clock of cores and memory. Source: nvmlDeviceGetMaxClockInfo.",
        ("clock_core_max_hertz", "clock_memory_max_hertz"),
        "clock",
        ("core", "memory"),
    ),
    Metric(
        "accelerator_throttle_active",
        "gauge",
        "Whether it is slowed down now, by reason. Source: nvmlDeviceGetCurrentClocksEventReasons.",
        ("throttle_active",),
        "reason",
        THROTTLE_REASONS,
    ),
    Metric(
        "accelerator_throttle_seconds_total",
        "counter",
        "Time it was slowed down, by reason. Source: NVML_FI_DEV_CLOCKS_EVENT_REASON_*.",
        ("throttle_seconds_total",),
        "reason",
        THROTTLE_REASONS,
    ),
    _counter(
        "accelerator_ecc_corrected_errors_total",
        "ecc_corrected_errors_total",
        "Corrected memory errors. Source: NVML_FI_DEV_ECC_SBE_VOL_TOTAL.",
    ),
    _counter(
        "accelerator_ecc_uncorrected_errors_total",
        "ecc_uncorrected_errors_total",
        "Uncorrected memory errors. Source: NVML_FI_DEV_ECC_DBE_VOL_TOTAL.",
    ),
    _gauge(
        "accelerator_row_remap_pending",
        "row_remap_pending",
        "Whether a memory repair waits for a reset. Source: NVML_FI_DEV_REMAPPED_PENDING.",
    ),
    _gauge(
        "accelerator_row_remap_failed",
        "row_remap_failed",
        "Whether memory can no longer be repaired. Source: NVML_FI_DEV_REMAPPED_FAILURE.",
    ),
    Metric(
        "accelerator_remapped_rows",
        "gauge",
        "Memory rows replaced, by cause. Source: NVML_FI_DEV_REMAPPED_COR, NVML_FI_DEV_REMAPPED_UNC.",
        ("rows_remapped_corrected", "rows_remapped_uncorrected"),
        "cause",
        ("corrected", "uncorrected"),
    ),
    Metric(
        "accelerator_retired_pages",
        "gauge",
        "Memory pages given up, by cause. Source: NVML_FI_DEV_RETIRED_SBE, NVML_FI_DEV_RETIRED_DBE.",
        ("pages_retired_corrected", "pages_retired_uncorrected"),
        "cause",
        ("corrected", "uncorrected"),
    ),
    _gauge(
        "accelerator_retired_pages_pending",
        "pages_retired_pending",
        "Whether a page waits for a reset to be given up. Source: NVML_FI_DEV_RETIRED_PENDING.",
    ),
    _gauge(
        "accelerator_recovery_action",
        "recovery_action",
        "0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX. Source: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.",
    ),
    _gauge(
        "accelerator_pcie_link_generation",
        "pcie_link_generation",
        "PCIe generation now. Source: nvmlDeviceGetCurrPcieLinkGeneration.",
    ),
    _gauge(
        "accelerator_pcie_link_generation_max",
        "pcie_link_generation_max",
        "Highest PCIe generation. Source: nvmlDeviceGetMaxPcieLinkGeneration.",
    ),
    _gauge(
        "accelerator_pcie_link_width",
        "pcie_link_width",
        "PCIe lanes now. Source: nvmlDeviceGetCurrPcieLinkWidth.",
    ),
    _gauge(
        "accelerator_pcie_link_width_max",
        "pcie_link_width_max",
        "Most PCIe lanes. Source: nvmlDeviceGetMaxPcieLinkWidth.",
    ),
    _counter(
        "accelerator_pcie_replays_total",
        "pcie_replays_total",
        "PCIe packets sent again. Source: NVML_FI_DEV_PCIE_REPLAY_COUNTER.",
    ),
    _gauge(
        "accelerator_links_active",
        "links_active",
        "NVLinks that are up, read every 5 s at most. Source: nvmlDeviceGetNvLinkState.",
    ),
    _gauge(
        "accelerator_links_expected",
        "links_expected",
        "Most NVLinks seen up. Source: nvmlDeviceGetNvLinkState.",
    ),
    Metric(
        "accelerator_link_bytes_total",
        "counter",
        "Payload over all NVLinks. Source: NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*.",
        ("link_receive_bytes_total", "link_transmit_bytes_total"),
        "direction",
        ("receive", "transmit"),
    ),
    Metric(
        "accelerator_link_errors_total",
        "counter",
        "Errors of all NVLinks, by type. Source: NVML_FI_DEV_NVLINK_*_ERROR_COUNT_TOTAL.",
        ("link_errors_total",),
        "type",
        LINK_ERRORS,
    ),
    _gauge(
        "accelerator_encoder_utilization_ratio",
        "encoder_utilization_ratio",
        "Use of the video encoder. Source: nvmlDeviceGetEncoderUtilization.",
    ),
    _gauge(
        "accelerator_decoder_utilization_ratio",
        "decoder_utilization_ratio",
        "Use of the video decoder. Source: nvmlDeviceGetDecoderUtilization.",
    ),
    _gauge(
        "accelerator_fan_speed_ratio",
        "fan_speed_ratio",
        "Fan speed, which may pass 1. Source: nvmlDeviceGetFanSpeed.",
    ),
    _gauge(
        "accelerator_performance_state",
        "performance_state",
        "From 0, the fastest, to 15. Source: nvmlDeviceGetPerformanceState.",
    ),
    _gauge(
        "accelerator_processes",
        "processes",
        "Processes that compute on it. Source: nvmlDeviceGetComputeRunningProcesses_v3.",
    ),
)
