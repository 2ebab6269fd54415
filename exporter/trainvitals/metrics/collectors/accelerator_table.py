"""The accelerator metrics, each with the field of the reading that contains its value."""

from __future__ import annotations

from trainvitals.metrics.collectors.tables import Metric, by, counter, gauge
from trainvitals.sources.accelerators.row import LINK_ERRORS, THROTTLE_REASONS

METRICS: tuple[Metric, ...] = (
    gauge(
        "accelerator_utilization_ratio",
        "utilization_ratio",
        "Share of the last sample period in which something ran. Source: nvmlDeviceGetUtilizationRates.",
    ),
    gauge(
        "accelerator_memory_utilization_ratio",
        "memory_utilization_ratio",
        "Share of it in which memory was read or written. Source: nvmlDeviceGetUtilizationRates.",
    ),
    counter(
        "accelerator_busy_seconds_total",
        "busy_seconds_total",
        "Time in which something ran, from every sample. Source: nvmlDeviceGetSamples.",
    ),
    counter(
        "accelerator_busy_unobserved_seconds_total",
        "busy_unobserved_seconds_total",
        "Time whose samples were lost and estimated. Source: nvmlDeviceGetSamples.",
    ),
    gauge(
        "accelerator_memory_total_bytes",
        "memory_total_bytes",
        "Device memory. Source: nvmlDeviceGetMemoryInfo_v2.",
    ),
    gauge(
        "accelerator_memory_used_bytes",
        "memory_used_bytes",
        "Memory that programs hold. Source: nvmlDeviceGetMemoryInfo_v2.",
    ),
    gauge(
        "accelerator_memory_reserved_bytes",
        "memory_reserved_bytes",
        "Memory that the driver keeps. Source: nvmlDeviceGetMemoryInfo_v2.",
    ),
    gauge(
        "accelerator_memory_free_bytes",
        "memory_free_bytes",
        "Memory that is left. Source: nvmlDeviceGetMemoryInfo_v2.",
    ),
    Metric(
        "accelerator_temperature_celsius",
        "gauge",
        "Temperature by sensor. Source: nvmlDeviceGetTemperature, NVML_FI_DEV_MEMORY_TEMP.",
        ("temperature_core_celsius", "temperature_memory_celsius"),
        by("sensor", ("core", "memory")),
    ),
    gauge(
        "accelerator_temperature_slowdown_celsius",
        "temperature_slowdown_celsius",
        "Where the hardware slows down. Source: nvmlDeviceGetTemperatureThreshold.",
    ),
    gauge(
        "accelerator_temperature_headroom_celsius",
        "temperature_headroom_celsius",
        "How far it is to the slowdown. Source: nvmlDeviceGetMarginTemperature.",
    ),
    gauge(
        "accelerator_power_watts",
        "power_watts",
        "Power draw. Source: nvmlDeviceGetPowerUsage.",
    ),
    gauge(
        "accelerator_power_limit_watts",
        "power_limit_watts",
        "Power limit in force. Source: nvmlDeviceGetEnforcedPowerLimit.",
    ),
    counter(
        "accelerator_energy_joules_total",
        "energy_joules_total",
        "Energy used. Source: nvmlDeviceGetTotalEnergyConsumption.",
    ),
    Metric(
        "accelerator_clock_hertz",
        "gauge",
        "Clock of cores and memory. Source: nvmlDeviceGetClockInfo.",
        ("clock_core_hertz", "clock_memory_hertz"),
        by("clock", ("core", "memory")),
    ),
    Metric(
        "accelerator_clock_max_hertz",
        "gauge",
        "Highest clock of cores and memory. Source: nvmlDeviceGetMaxClockInfo.",
        ("clock_core_max_hertz", "clock_memory_max_hertz"),
        by("clock", ("core", "memory")),
    ),
    Metric(
        "accelerator_throttle_active",
        "gauge",
        "Whether it is slowed down now, by reason. Source: nvmlDeviceGetCurrentClocksEventReasons.",
        ("throttle_active",),
        by("reason", THROTTLE_REASONS),
    ),
    Metric(
        "accelerator_throttle_seconds_total",
        "counter",
        "Time it was slowed down, by reason. Source: NVML_FI_DEV_CLOCKS_EVENT_REASON_*.",
        ("throttle_seconds_total",),
        by("reason", THROTTLE_REASONS),
    ),
    counter(
        "accelerator_ecc_corrected_errors_total",
        "ecc_corrected_errors_total",
        "Corrected memory errors. Source: NVML_FI_DEV_ECC_SBE_VOL_TOTAL.",
    ),
    counter(
        "accelerator_ecc_uncorrected_errors_total",
        "ecc_uncorrected_errors_total",
        "Uncorrected memory errors. Source: NVML_FI_DEV_ECC_DBE_VOL_TOTAL.",
    ),
    gauge(
        "accelerator_row_remap_pending",
        "row_remap_pending",
        "Whether a memory repair waits for a reset. Source: NVML_FI_DEV_REMAPPED_PENDING.",
    ),
    gauge(
        "accelerator_row_remap_failed",
        "row_remap_failed",
        "Whether memory can no longer be repaired. Source: NVML_FI_DEV_REMAPPED_FAILURE.",
    ),
    Metric(
        "accelerator_remapped_rows",
        "gauge",
        "Memory rows replaced, by cause. Source: NVML_FI_DEV_REMAPPED_COR, NVML_FI_DEV_REMAPPED_UNC.",
        ("rows_remapped_corrected", "rows_remapped_uncorrected"),
        by("cause", ("corrected", "uncorrected")),
    ),
    Metric(
        "accelerator_retired_pages",
        "gauge",
        "Memory pages given up, by cause. Source: NVML_FI_DEV_RETIRED_SBE, NVML_FI_DEV_RETIRED_DBE.",
        ("pages_retired_corrected", "pages_retired_uncorrected"),
        by("cause", ("corrected", "uncorrected")),
    ),
    gauge(
        "accelerator_retired_pages_pending",
        "pages_retired_pending",
        "Whether a page waits for a reset to be given up. Source: NVML_FI_DEV_RETIRED_PENDING.",
    ),
    gauge(
        "accelerator_recovery_action",
        "recovery_action",
        "0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX. Source: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.",
    ),
    gauge(
        "accelerator_pcie_link_generation",
        "pcie_link_generation",
        "PCIe generation now. Source: nvmlDeviceGetCurrPcieLinkGeneration.",
    ),
    gauge(
        "accelerator_pcie_link_generation_max",
        "pcie_link_generation_max",
        "Highest PCIe generation. Source: nvmlDeviceGetMaxPcieLinkGeneration.",
    ),
    gauge(
        "accelerator_pcie_link_width",
        "pcie_link_width",
        "PCIe lanes now. Source: nvmlDeviceGetCurrPcieLinkWidth.",
    ),
    gauge(
        "accelerator_pcie_link_width_max",
        "pcie_link_width_max",
        "Most PCIe lanes. Source: nvmlDeviceGetMaxPcieLinkWidth.",
    ),
    counter(
        "accelerator_pcie_replays_total",
        "pcie_replays_total",
        "PCIe packets sent again. Source: NVML_FI_DEV_PCIE_REPLAY_COUNTER.",
    ),
    gauge(
        "accelerator_links_active",
        "links_active",
        "NVLinks that are up, read every 5 s at most. Source: nvmlDeviceGetNvLinkState.",
    ),
    gauge(
        "accelerator_links_expected",
        "links_expected",
        "Most NVLinks seen up. Source: nvmlDeviceGetNvLinkState.",
    ),
    Metric(
        "accelerator_link_bytes_total",
        "counter",
        "Payload over all NVLinks. Source: NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*.",
        ("link_receive_bytes_total", "link_transmit_bytes_total"),
        by("direction", ("receive", "transmit")),
    ),
    Metric(
        "accelerator_link_errors_total",
        "counter",
        "Errors of all NVLinks, by type; crc where a card does not tell flit from data. "
        "Source: NVML_FI_DEV_NVLINK_*_ERROR_COUNT_TOTAL, NVML_FI_DEV_NVLINK_ERROR_DL_*.",
        ("link_errors_total",),
        by("type", LINK_ERRORS),
    ),
    gauge(
        "accelerator_encoder_utilization_ratio",
        "encoder_utilization_ratio",
        "Use of the video encoder. Source: nvmlDeviceGetEncoderUtilization.",
    ),
    gauge(
        "accelerator_decoder_utilization_ratio",
        "decoder_utilization_ratio",
        "Use of the video decoder. Source: nvmlDeviceGetDecoderUtilization.",
    ),
    gauge(
        "accelerator_fan_speed_ratio",
        "fan_speed_ratio",
        "Fan speed, which may pass 1. Source: nvmlDeviceGetFanSpeed.",
    ),
    gauge(
        "accelerator_performance_state",
        "performance_state",
        "From 0, the fastest, to 15. Source: nvmlDeviceGetPerformanceState.",
    ),
    gauge(
        "accelerator_processes",
        "processes",
        "Processes that compute on it. Source: nvmlDeviceGetComputeRunningProcesses_v3.",
    ),
)
