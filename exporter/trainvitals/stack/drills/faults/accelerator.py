"""Simulated faults of the machine's accelerators."""

from __future__ import annotations

from trainvitals.stack.drills.fault import Fault, after, constant, instant, rate, turn

_CARD = {"device": "0", "uuid": "GPU-drill"}
_GPU = {"kind": "gpu", **_CARD}
_HPU = {"kind": "hpu", "device": "0", "uuid": "HPU-drill"}
_HPU_CARD = {"device": "0", "uuid": "HPU-drill"}
_HELD = (
    constant("gpu_memory_used_bytes", 40e9, **_CARD),
    constant("gpu_memory_total_bytes", 80e9, **_CARD),
    constant("accelerator_processes", 1, **_GPU),
)
_HPU_HELD = (
    constant("hpu_memory_used_bytes", 48e9, **_HPU_CARD),
    constant("hpu_memory_total_bytes", 96e9, **_HPU_CARD),
)


def _xid(alert: str, story: str, code: str, severity: str, action: str) -> Fault:
    labels = {**_GPU, "xid": code, "class": severity, "action": action}
    up = constant("accelerator_up", 1, **_GPU)
    seen = instant("accelerator_xid_last_timestamp_seconds", 0, **labels)
    return Fault(alert, story, (up,), (up, seen))


def _throttle(alert: str, story: str, reason: str, ratio: float) -> Fault:
    name, labels = "accelerator_throttle_seconds_total", {**_GPU, "reason": reason}
    return Fault(alert, story, (rate(name, 0, **labels),), (rate(name, ratio, **labels),))


_HEADROOM = "accelerator_temperature_headroom_celsius"

FAULTS = (
    turn("HPUHighTemperature", "an HPU is 1 °C below its limit", _HEADROOM, 20, 1, **_HPU),
    turn("GPUHighTemperature", "a GPU is 1 °C below its limit", _HEADROOM, 20, 1, **_GPU),
    turn(
        "AcceleratorTemperatureNearLimit", "a GPU is 5 °C below its limit", _HEADROOM, 20, 5, **_GPU
    ),
    turn(
        "AcceleratorTemperatureOverLimit",
        "a GPU is at 84 °C where 80 °C are allowed",
        "accelerator_temperature_celsius",
        70,
        84,
        constant("accelerator_temperature_limit_celsius", 80),
        **_GPU,
        sensor="core",
    ),
    _throttle("AcceleratorThermalThrottling", "heat slows a GPU down", "hw_thermal", 0.5),
    _throttle("AcceleratorPowerBrake", "the power brake is pulled", "hw_power_brake", 0.5),
    after(
        660,
        turn(
            "HPULowUtilization",
            "an HPU that trains is busy 5 % of the time",
            "hpu_utilization_percent",
            95,
            5,
            *_HPU_HELD,
            **_HPU_CARD,
        ),
    ),
    after(
        660,
        turn(
            "GPULowUtilization",
            "a GPU that trains is busy 10 % of the time",
            "gpu_utilization_percent",
            95,
            10,
            *_HELD,
            **_CARD,
        ),
    ),
    after(
        660,
        turn(
            "AcceleratorHeldIdle",
            "a process holds a GPU and does nothing",
            "gpu_utilization_percent",
            95,
            0,
            *_HELD,
            **_CARD,
        ),
    ),
    turn(
        "HighMemoryUsage",
        "a GPU's memory is 97 % full",
        "gpu_memory_used_bytes",
        40e9,
        78e9,
        constant("gpu_memory_total_bytes", 80e9, **_CARD),
        **_CARD,
    ),
    turn(
        "AcceleratorMemoryOverLimit",
        "a GPU uses 9 GB where 8 GB are allowed",
        "accelerator_memory_used_bytes",
        5e9,
        9e9,
        constant("accelerator_memory_limit_bytes", 8e9),
        **_GPU,
    ),
    turn(
        "AcceleratorMissing",
        "7 of 8 GPUs are there",
        "accelerator_devices",
        8,
        7,
        constant("accelerator_devices_expected", 8, kind="gpu"),
        kind="gpu",
    ),
    Fault(
        "AcceleratorLost",
        "a GPU falls off the bus",
        (constant("accelerator_up", 1, **_GPU),),
        (
            constant("accelerator_up", 0, **_GPU),
            constant("accelerator_state", 1, **_GPU, state="lost"),
        ),
    ),
    _xid("AcceleratorXidCritical", "a GPU reports Xid 79", "79", "critical", "restart the machine"),
    _xid("AcceleratorXidWarning", "a GPU reports Xid 63", "63", "warning", "reset the GPU soon"),
    _xid("AcceleratorXidApplication", "a GPU reports Xid 31", "31", "app", "restart the program"),
    turn(
        "AcceleratorRecoveryActionNeeded",
        "the driver asks for a reset",
        "accelerator_recovery_action",
        0,
        1,
        **_GPU,
    ),
    turn(
        "AcceleratorUncorrectedEcc",
        "a memory error could not be corrected",
        "accelerator_ecc_uncorrected_errors_total",
        0,
        1,
        **_GPU,
    ),
    turn(
        "AcceleratorRowRemapFailed",
        "a faulty row of memory cannot be replaced",
        "accelerator_row_remap_failed",
        0,
        1,
        **_GPU,
    ),
    turn(
        "AcceleratorRowRemapPending",
        "a faulty row of memory waits for a reset",
        "accelerator_row_remap_pending",
        0,
        1,
        **_GPU,
    ),
    turn(
        "AcceleratorLinkDegraded",
        "2 of 18 NVLinks are down",
        "accelerator_links_active",
        18,
        16,
        constant("accelerator_links_expected", 18, **_GPU),
        **_GPU,
    ),
)
