"""The accelerator collector: the GPUs and HPUs of all vendors, with the same metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from trainvitals.metrics.collectors.accelerator_processes import (
    express_idleness,
    express_processes,
    label_device,
)
from trainvitals.metrics.collectors.accelerator_table import METRICS
from trainvitals.metrics.collectors.collector import Collector
from trainvitals.metrics.collectors.tables import Metric, list_fields, table_block
from trainvitals.metrics.families import Block, Family, Labels
from trainvitals.sources.accelerators.holders import Places
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
    Kind,
)
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.accelerators.xids import explain_xid

_pick = attrgetter(*list_fields(METRICS))

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
_SEED_SOURCES: dict[Kind, str] = {"gpu": "NVML", "hpu": "HLML or hl-smi"}
_SEED_TABLES = {
    kind: tuple(
        Metric(f"{kind}_{stem}", "gauge", f"{words}. Source: {source}.", (field,))
        for stem, field, words in _SEED_METRICS
    )
    for kind, source in _SEED_SOURCES.items()
}
_pick_seed = attrgetter(*(field for _, field, _ in _SEED_METRICS))


class AcceleratorCollector(Collector[AcceleratorsReading]):
    """The accelerator collector, which turns accelerator readings into metric families.

    Args:
        source: The reader of the machine's accelerators.
        examine: A function that adds two kinds of information to a reading: the owners of the
            processes that hold accelerators, and the reasons why accelerators are idle.
        find_places: A function that returns the container and the run of each process.
    """

    name = "accelerator"

    def __init__(
        self,
        source: AcceleratorSource,
        *,
        examine: Callable[[AcceleratorsReading], AcceleratorsReading] = lambda reading: reading,
        find_places: Callable[[], Places] = lambda: Places(None, None),
    ) -> None:
        self._source = source
        self._examine = examine
        self._find_places = find_places
        self._kinds = source.kinds

    def read(self, deadline: float) -> AcceleratorsReading:
        """Read all accelerators before the deadline, and examine the processes that hold them."""
        return self._examine(self._source.read(deadline))

    def express(self, reading: AcceleratorsReading) -> tuple[Block, ...]:
        """Return the metric families of an accelerator reading.

        An accelerator that could not be read has only the metrics about its identity, its state
        and its Xids.
        """
        blocks = [_express_devices(self._kinds, reading)]
        if reading.memory_limit_bytes is not None:
            blocks.append(_express_memory_limit(reading.memory_limit_bytes))
        if reading.temperature_limit_celsius is not None:
            blocks.append(_express_temperature_limit(reading.temperature_limit_celsius))
        if reading.devices:
            blocks.append(_express_states(reading.devices))
            if any(device.xids for device in reading.devices):
                blocks.append(_express_xids(reading.devices))
        whole = [device for device in reading.devices if device.measurements is not None]
        if whole:
            blocks += [
                _express_measurements(whole),
                *express_processes(whole, self._find_places()),
                express_idleness(whole),
            ]
        for kind in self._kinds:
            alike = [device for device in whole if device.identity.kind == kind]
            if alike:
                blocks.append(_express_seed(kind, alike))
        return tuple(block for block in blocks if block.values)

    def complaint(self, reading: AcceleratorsReading) -> str | None:
        """Return the drivers or devices that do not respond; None if all of them respond."""
        return reading.complaint

    def omitted(self, reading: AcceleratorsReading) -> int:
        """Return the number of processes omitted because of the limit on processes."""
        return reading.omitted_processes

    def close(self) -> None:
        """Terminate the child processes that use the accelerator drivers."""
        self._source.close()


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


def _express_memory_limit(limit: int) -> Block:
    def describe() -> tuple[Family, ...]:
        help_ = "How much memory of each device may be used. Source: --accelerators.memory-limit."
        return (Family("accelerator_memory_limit_bytes", "gauge", help_),)

    return Block(("accelerator", "memory limit"), describe, [limit])


def _express_temperature_limit(limit: float) -> Block:
    def describe() -> tuple[Family, ...]:
        help_ = "How hot each device may become. Source: --accelerators.temperature-limit."
        return (Family("accelerator_temperature_limit_celsius", "gauge", help_),)

    return Block(("accelerator", "temperature limit"), describe, [limit])


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
            *label_device(identity),
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
            tuple(("", label_device(identity)) for identity, _ in states),
        ),
        Family(
            "accelerator_state",
            "gauge",
            "1 for the state the device is in. Source: accelerator reader.",
            tuple(("", (*label_device(identity), ("state", state))) for identity, state in states),
        ),
        Family(
            "accelerator_last_seen_timestamp_seconds",
            "gauge",
            "When the device last answered. Source: accelerator reader.",
            tuple(("", label_device(identity)) for identity in seen),
        ),
    )
    return families if seen else families[:-1]


def _express_measurements(devices: Sequence[AcceleratorReading]) -> Block:
    rows = [_flatten(_pick(device.measurements)) for device in devices]
    subjects = tuple([label_device(device.identity) for device in devices])
    return table_block(("accelerator", "measurements"), METRICS, subjects, rows)


def _flatten(columns: tuple[object, ...]) -> list[float | None]:
    flat: list[float | None] = []
    for value in columns:
        if type(value) is tuple:
            flat += value
        else:
            flat.append(value)  # type: ignore[arg-type]  # a number, None or a tuple
    return flat


def _express_seed(kind: Kind, devices: Sequence[AcceleratorReading]) -> Block:
    rows: list[tuple[float | None, ...]] = [_pick_seed(device.measurements) for device in devices]
    rows = [(None if row[0] is None else round(row[0] * 100, 3), *row[1:]) for row in rows]
    subjects = tuple([label_device(device.identity)[1:] for device in devices])
    return table_block(("accelerator", kind), _SEED_TABLES[kind], subjects, rows)


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
            "Errors reported, by Xid code. Source: nvmlEventSetWait, /dev/kmsg.",
            tuple(("", (*label_device(who), ("xid", _name_xid(code)))) for who, code in samples),
        ),
        Family(
            "accelerator_xid_last_timestamp_seconds",
            "gauge",
            "When an Xid code was last reported. Source: nvmlEventSetWait, /dev/kmsg.",
            tuple(("", (*label_device(who), *describe_code(code))) for who, code in samples),
        ),
    )


def _name_xid(code: int) -> str:
    return str(code) if code >= 0 else "other"
