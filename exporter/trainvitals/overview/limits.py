"""The limits beyond which something is wrong: those of the alerts, in prometheus/rules/thresholds.yml.

Each is the alert's threshold by its name, in that file without `threshold:`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LIMITS: Mapping[str, float] = MappingProxyType(
    {
        "training_run_lost:unknown_window_seconds": 15,
        "training_run_lost:interrupt_exit_code": 130,
        "training_run_terminated:exit_code": 143,
        "data_loader_bottleneck:wait_ratio": 0.3,
        "accelerator_thermal_throttling:ratio": 0.10,
        "accelerator_power_brake:ratio": 0.02,
        "gpu_low_utilization:utilization_percent": 50,
        "hpu_low_utilization:utilization_percent": 20,
        "hpu_low_utilization:memory_ratio": 0.05,
        "high_memory_usage:ratio": 0.9,
        "accelerator_temperature_near_limit:headroom_celsius": 7,
        "accelerator_temperature_near_limit:assumed_slowdown_celsius": 87,
        "gpu_high_temperature:headroom_celsius": 2,
        "host_high_memory_usage:used_ratio": 0.9,
        "host_disk_space_low:avail_ratio": 0.1,
        "host_inodes_low:free_ratio": 0.05,
        "host_io_bottleneck:wait_ratio": 0.3,
        "container_memory_near_limit:ratio": 0.95,
        "container_died:window_seconds": 900,
        "container_oom_killed:window_seconds": 900,
    }
)
