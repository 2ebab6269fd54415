"""The accelerator collector: every GPU and HPU under one schema, whoever made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from trainvitals.families import Block, Family, Labels
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
    Kind,
)
from trainvitals.sources.accelerators.row import LINK_ERRORS, THROTTLE_REASONS
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.accelerators.xids import explain_xid


@dataclass(frozen=True, slots=True)
class _Metric:
    """A family and where its values are; with `label`, one sample for each of its values."""

    name: str
    type: Literal["counter", "gauge"]
    help: str
    fields: tuple[str, ...]
    label: str | None = None
    values: tuple[str, ...] = ()


def _gauge(name: str, field: str, help_: str) -> _Metric:
    return _Metric(name, "gauge", help_, (field,))


def _counter(name: str, field: str, help_: str) -> _Metric:
    return _Metric(name, "counter", help_, (field,))


_METRICS: tuple[_Metric, ...] = (
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
    _Metric(
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
    _Metric(
        "accelerator_clock_hertz",
        "gauge",
        "Clock of cores and memory. Source: nvmlDeviceGetClockInfo.",
        ("clock_core_hertz", "clock_memory_hertz"),
        "clock",
        ("core", "memory"),
    ),
    _Metric(
        "accelerator_clock_max_hertz",
        "gauge",
        "Highest clock of cores and memory. Source: nvmlDeviceGetMaxClockInfo.",
        ("clock_core_max_hertz", "clock_memory_max_hertz"),
        "clock",
        ("core", "memory"),
    ),
    _Metric(
        "accelerator_throttle_active",
        "gauge",
        "Whether it is slowed down now, by reason. Source: nvmlDeviceGetCurrentClocksEventReasons.",
        ("throttle_active",),
        "reason",
        THROTTLE_REASONS,
    ),
    _Metric(
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
    _Metric(
        "accelerator_remapped_rows",
        "gauge",
        "Memory rows replaced, by cause. Source: NVML_FI_DEV_REMAPPED_COR, NVML_FI_DEV_REMAPPED_UNC.",
        ("rows_remapped_corrected", "rows_remapped_uncorrected"),
        "cause",
        ("corrected", "uncorrected"),
    ),
    _Metric(
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
    _Metric(
        "accelerator_link_bytes_total",
        "counter",
        "Payload over all NVLinks. Source: NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*.",
        ("link_receive_bytes_total", "link_transmit_bytes_total"),
        "direction",
        ("receive", "transmit"),
    ),
    _Metric(
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

_COLUMNS = attrgetter(*(field for metric in _METRICS for field in metric.fields))

_SEED_METRICS = (
    (
        "utilization_percent",
        "utilization_ratio",
        "Utilization in percent of the driver's last sample period",
    ),
    ("memory_used_bytes", "memory_used_bytes", "Device memory that programs hold"),
    ("memory_total_bytes", "memory_total_bytes", "Device memory"),
    ("temperature_celsius", "temperature_core_celsius", "Temperature of the chip"),
    ("power_watts", "power_watts", "Power draw"),
)
_SEED_COLUMNS = attrgetter(*(field for _, field, _ in _SEED_METRICS))
_SEED_SOURCES: dict[Kind, str] = {"gpu": "NVML", "hpu": "HLML or hl-smi"}


class AcceleratorCollector:
    """Turns the readings of all accelerators into families.

    Args:
        source: Reads them.
    """

    name = "accelerator"

    def __init__(self, source: AcceleratorSource) -> None:
        self._source = source
        self._kinds = source.kinds

    def read(self, deadline: float) -> AcceleratorsReading:
        """Read every device by the deadline (monotonic)."""
        return self._source.read(deadline)

    def express(self, reading: AcceleratorsReading) -> tuple[Block, ...]:
        """Name what was read; a device that could not be read has its state alone."""
        blocks = [_express_devices(self._kinds, reading)]
        if reading.devices:
            blocks.append(_express_states(reading.devices))
            if any(device.xids for device in reading.devices):
                blocks.append(_express_xids(reading.devices))
        whole = [device for device in reading.devices if device.measurements is not None]
        if whole:
            blocks += [_express_measurements(whole), _express_processes(whole)]
        for kind in self._kinds:
            alike = [device for device in whole if device.identity.kind == kind]
            if alike:
                blocks.append(_express_seed(kind, alike))
        return tuple(block for block in blocks if block.values)

    def complaint(self, reading: AcceleratorsReading) -> str | None:
        """Say which driver or device does not answer."""
        return reading.complaint

    def omitted(self, reading: AcceleratorsReading) -> int:
        """Count the processes that the bound left out."""
        return reading.omitted_processes

    def close(self) -> None:
        """End the processes that hold the drivers open."""
        self._source.close()


def _labels(identity: Identity) -> Labels:
    return (
        ("kind", identity.kind),
        ("device", str(identity.index)),
        ("uuid", identity.uuid),
    )


def _express_devices(kinds: tuple[Kind, ...], reading: AcceleratorsReading) -> Block:
    up = [device.identity.kind for device in reading.devices if device.state == "ok"]
    expected = dict(reading.expected)

    def describe() -> tuple[Family, ...]:
        families = [
            Family(
                "accelerator_devices",
                "gauge",
                "Devices that answer. Source: nvmlDeviceGetCount.",
                tuple(("", (("kind", kind),)) for kind in kinds),
            ),
            Family(
                "accelerator_devices_expected",
                "gauge",
                "How many devices there should be. Source: --accelerators.expected.",
                tuple(("", (("kind", kind),)) for kind in expected),
            ),
        ]
        return tuple(families if expected else families[:1])

    values = [up.count(kind) for kind in kinds] + list(expected.values())
    return Block(("accelerator", "devices", kinds, tuple(expected)), describe, values)


def _express_states(devices: Sequence[AcceleratorReading]) -> Block:
    seen = [device for device in devices if device.last_seen_timestamp_seconds is not None]
    shape = (
        "accelerator",
        "states",
        tuple((device.identity, device.state) for device in devices),
        tuple(device.identity for device in seen),
    )
    values: list[float] = [1] * len(devices)
    values += [int(device.state == "ok") for device in devices]
    values += [1] * len(devices)
    values += [device.last_seen_timestamp_seconds or 0 for device in seen]
    return Block(shape, lambda: _describe_states(shape[2], shape[3]), values)


def _describe_states(
    states: tuple[tuple[Identity, str], ...], seen: tuple[Identity, ...]
) -> tuple[Family, ...]:
    def describe_identity(identity: Identity) -> Labels:
        return (
            *_labels(identity),
            ("model", identity.model),
            ("driver", identity.driver),
            ("bus_id", identity.bus_id),
            ("firmware", identity.firmware or ""),
        )

    families = (
        Family(
            "accelerator_info",
            "info",
            "What the device is. Source: nvmlDeviceGetName.",
            tuple(("", describe_identity(identity)) for identity, _ in states),
        ),
        Family(
            "accelerator_up",
            "gauge",
            "Whether the device answers. Source: accelerator reader.",
            tuple(("", _labels(identity)) for identity, _ in states),
        ),
        Family(
            "accelerator_state",
            "gauge",
            "1 for the state the device is in. Source: accelerator reader.",
            tuple(("", (*_labels(identity), ("state", state))) for identity, state in states),
        ),
        Family(
            "accelerator_last_seen_timestamp_seconds",
            "gauge",
            "When the device last answered. Source: accelerator reader.",
            tuple(("", _labels(identity)) for identity in seen),
        ),
    )
    return families if seen else families[:-1]


def _express_measurements(devices: Sequence[AcceleratorReading]) -> Block:
    rows = [_flatten(_COLUMNS(device.measurements)) for device in devices]
    absent = tuple([tuple([value is None for value in row]) for row in rows])
    identities = tuple([device.identity for device in devices])
    values = [value for column in zip(*rows, strict=True) for value in column if value is not None]
    shape = ("accelerator", "measurements", identities, absent)
    return Block(shape, lambda: _describe_measurements(identities, absent), values)


def _flatten(columns: tuple[object, ...]) -> list[float | None]:
    flat: list[float | None] = []
    for value in columns:
        if type(value) is tuple:
            flat += value
        else:
            flat.append(value)  # type: ignore[arg-type]  # a column is a number, None or a tuple of such
    return flat


def _describe_measurements(
    identities: tuple[Identity, ...], absent: tuple[tuple[bool, ...], ...]
) -> tuple[Family, ...]:
    families = []
    at = 0
    for metric in _METRICS:
        samples: list[tuple[str, Labels]] = []
        for value in metric.values or ("",):
            extra = ((metric.label, value),) if metric.label else ()
            samples += [
                ("", (*_labels(identity), *extra))
                for identity, missing in zip(identities, absent, strict=True)
                if not missing[at]
            ]
            at += 1
        if samples:
            families.append(Family(metric.name, metric.type, metric.help, tuple(samples)))
    return tuple(families)


def _express_processes(devices: Sequence[AcceleratorReading]) -> Block:
    holders = [(device.identity, process) for device in devices for process in device.processes]
    samples = tuple((identity, process.pid) for identity, process in holders)

    def describe() -> tuple[Family, ...]:
        help_ = "Memory that a process holds. Source: nvmlDeviceGetComputeRunningProcesses_v3."
        return (
            Family(
                "accelerator_process_memory_used_bytes",
                "gauge",
                help_,
                tuple(("", (*_labels(who), ("pid", str(pid)))) for who, pid in samples),
            ),
        )

    values = [process.used_bytes for _, process in holders]
    return Block(("accelerator", "processes", samples), describe, values)


def _express_seed(kind: Kind, devices: Sequence[AcceleratorReading]) -> Block:
    rows: list[tuple[float | None, ...]] = [
        _SEED_COLUMNS(device.measurements) for device in devices
    ]
    rows = [(None if row[0] is None else round(row[0] * 100, 3), *row[1:]) for row in rows]
    absent = tuple([tuple([value is None for value in row]) for row in rows])
    identities = tuple([device.identity for device in devices])
    values = [value for column in zip(*rows, strict=True) for value in column if value is not None]
    shape = ("accelerator", kind, identities, absent)
    return Block(shape, lambda: _describe_seed(kind, identities, absent), values)


def _describe_seed(
    kind: Kind, identities: tuple[Identity, ...], absent: tuple[tuple[bool, ...], ...]
) -> tuple[Family, ...]:
    families = []
    for at, (stem, _, words) in enumerate(_SEED_METRICS):
        samples = tuple(
            ("", _labels(identity)[1:])
            for identity, missing in zip(identities, absent, strict=True)
            if not missing[at]
        )
        if samples:
            help_ = f"{words}. Source: {_SEED_SOURCES[kind]}."
            families.append(Family(f"{kind}_{stem}", "gauge", help_, samples))
    return tuple(families)


def _express_xids(devices: Sequence[AcceleratorReading]) -> Block:
    seen = [(device.identity, count) for device in devices for count in device.xids]
    samples = tuple((identity, count.xid) for identity, count in seen)
    values: list[float] = [count.count for _, count in seen]
    values += [count.last_timestamp_seconds for _, count in seen]
    return Block(("accelerator", "xids", samples), lambda: _describe_xids(samples), values)


def _describe_xids(samples: tuple[tuple[Identity, int], ...]) -> tuple[Family, ...]:
    def describe_code(code: int) -> Labels:
        xid = explain_xid(code)
        return (("xid", _name_xid(code)), ("class", xid.severity), ("action", xid.action))

    return (
        Family(
            "accelerator_xid_errors_total",
            "counter",
            "Errors reported, by Xid code. Source: nvmlEventSetWait.",
            tuple(("", (*_labels(who), ("xid", _name_xid(code)))) for who, code in samples),
        ),
        Family(
            "accelerator_xid_last_timestamp_seconds",
            "gauge",
            "When an Xid code was last reported. Source: nvmlEventSetWait.",
            tuple(("", (*_labels(who), *describe_code(code))) for who, code in samples),
        ),
    )


def _name_xid(code: int) -> str:
    return str(code) if code >= 0 else "other"
