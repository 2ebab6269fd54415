"""The container collector: what runs in containers, what it uses, and what it died of."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.collectors.container_table import METRICS, MOST_SERIES
from trainvitals.families import Block, Family, Labels, MetricType
from trainvitals.sources.containers.reading import ContainerReading, ContainersReading
from trainvitals.sources.containers.source import ContainerSource

_MOST_REASONS = 4
_MOST_ACCELERATORS = 8

_LABELLED: tuple[tuple[str, MetricType, str], ...] = (
    ("container_info", "info", "What it is. Source: event create, Config."),
    (
        "container_state",
        "gauge",
        "1 for the state that it is in. Source: State.Status.",
    ),
    (
        "container_health",
        "gauge",
        "1 for what its health check says. Source: State.Health.Status.",
    ),
    (
        "container_deaths_total",
        "counter",
        "How often it ended, by what it died of. Source: docs/diagnosis.md.",
    ),
    (
        "container_last_death_info",
        "info",
        "What it last died of. Source: docs/diagnosis.md.",
    ),
    (
        "container_oom_kills_total",
        "counter",
        "Processes of it that the kernel killed for memory, by who told. Source: event oom, memory.events, /dev/kmsg.",
    ),
    (
        "container_accelerator_info",
        "info",
        "Which accelerators its processes hold. Source: nvmlDeviceGetComputeRunningProcesses_v3, /proc/PID/cgroup.",
    ),
)
_Sample = tuple[Labels, float]


class ContainerCollector:
    """Turns what is known of containers into families.

    Args:
        source: Knows it.
    """

    name = "container"

    def __init__(self, source: ContainerSource) -> None:
        self._source = source

    def read(self, deadline: float) -> ContainersReading:  # noqa: ARG002 - nothing here can hang
        """Take what the source knows right now."""
        return self._source.read()

    def express(self, reading: ContainersReading) -> tuple[Block, ...]:
        """Name what is known; nothing where there are no containers."""
        if not reading.is_there:
            return ()
        blocks = [_express_watch(reading)]
        if reading.containers:
            labelled = [_list_labelled(container) for container in reading.containers]
            rows = [
                _cut(_list_values(container), MOST_SERIES - sum(map(len, samples)))
                for container, samples in zip(reading.containers, labelled, strict=True)
            ]
            blocks += [_express_labelled(labelled), _express_table(reading.containers, rows)]
        return tuple(block for block in blocks if block.values)

    def complaint(self, reading: ContainersReading) -> str | None:
        """Say why the engine cannot be followed, or deaths cannot be written down."""
        return reading.complaint

    def omitted(self, reading: ContainersReading) -> int:
        """Count the containers that the bound left out."""
        return reading.omitted

    def close(self) -> None:
        """Stop watching."""
        self._source.close()


def _express_watch(reading: ContainersReading) -> Block:
    known: list[tuple[str, MetricType, str, float | None]] = [
        (
            "trainvitals_containers_privilege_step",
            "gauge",
            "Whom it may ask: 0 control groups, 1 the engine too, 2 the kernel log too. Source: container watch.",
            reading.step,
        ),
        (
            "trainvitals_containers_events_connected",
            "gauge",
            "Whether the engine's events are followed. Source: container watch.",
            None if reading.is_connected is None else int(reading.is_connected),
        ),
        (
            "trainvitals_containers_events_gaps_total",
            "counter",
            "How often the engine's events were cut off. Source: container watch.",
            None if reading.is_connected is None else reading.gaps,
        ),
        (
            "trainvitals_containers_sampled_timestamp_seconds",
            "gauge",
            "When control groups were last read, in seconds since 1970. Source: container watch.",
            reading.sampled,
        ),
    ]
    there = [each for each in known if each[3] is not None]
    shape = ("container", "watch", tuple(name for name, *_ in there))
    values = [value for *_, value in there if value is not None]
    return Block(
        shape, lambda: tuple(Family(name, type_, help_) for name, type_, help_, _ in there), values
    )


def _express_labelled(rows: Sequence[Sequence[Sequence[_Sample]]]) -> Block:
    columns = [[sample for cell in column for sample in cell] for column in zip(*rows, strict=True)]
    labels = tuple(tuple(labels for labels, _ in column) for column in columns)
    values = [value for column in columns for _, value in column]
    return Block(("container", "labelled", labels), lambda: _describe_labelled(labels), values)


def _describe_labelled(labels: Sequence[Sequence[Labels]]) -> tuple[Family, ...]:
    families = (
        Family(name, type_, help_, tuple(("", each) for each in column))
        for (name, type_, help_), column in zip(_LABELLED, labels, strict=True)
    )
    return tuple(family for family in families if family.samples)


def _list_labelled(container: ContainerReading) -> tuple[list[_Sample], ...]:
    """Give the samples of a container in the order of the families."""
    name = ("name", container.name)
    death = container.last_death
    last = "" if death is None else death.reason
    # The newest among them: a reason that others outnumber must not rise unseen.
    deaths = sorted(
        container.deaths.items(), key=lambda item: (item[0] == last, item[1]), reverse=True
    )
    return (
        [(_describe(container), 1)],
        [((name, ("state", container.status)), 1)] if container.status is not None else [],
        [((name, ("status", container.health)), 1)] if container.health is not None else [],
        [((name, ("reason", reason)), count) for reason, count in sorted(deaths[:_MOST_REASONS])],
        []
        if death is None
        else [
            (
                (
                    name,
                    ("reason", death.reason),
                    ("signal", death.signal),
                    ("confidence", death.confidence),
                ),
                1,
            )
        ],
        [((name, ("source", source)), count) for source, count in container.oom_kills.items()],
        [
            (
                (
                    name,
                    ("compose_service", container.compose_service),
                    ("kind", identity.kind),
                    ("device", str(identity.index)),
                    ("uuid", identity.uuid),
                ),
                1,
            )
            for identity in container.accelerators[:_MOST_ACCELERATORS]
        ],
    )


def _describe(container: ContainerReading) -> Labels:
    return (
        ("name", container.name),
        ("image", container.image),
        ("compose_project", container.compose_project),
        ("compose_service", container.compose_service),
    )


def _list_values(container: ContainerReading) -> list[float | None]:
    return [metric.value(container) for metric in METRICS]


def _cut(row: list[float | None], room: int) -> list[float | None]:
    """Leave out the last values where there is no room for all."""
    for column, value in enumerate(row):
        room -= value is not None
        if room < 0:
            row[column] = None
    return row


def _express_table(
    containers: Sequence[ContainerReading], rows: Sequence[Sequence[float | None]]
) -> Block:
    names = tuple([container.name for container in containers])
    masks = tuple([bytes([value is not None for value in row]) for row in rows])
    columns = zip(*rows, strict=True)
    values = [value for column in columns for value in column if value is not None]
    return Block(
        ("container", "table", names, masks), lambda: _describe_table(names, masks), values
    )


def _describe_table(names: Sequence[str], masks: Sequence[bytes]) -> tuple[Family, ...]:
    families = (
        Family(
            metric.name,
            metric.type,
            metric.help,
            tuple(
                ("", (("name", name),))
                for name, mask in zip(names, masks, strict=True)
                if mask[column]
            ),
        )
        for column, metric in enumerate(METRICS)
    )
    return tuple(family for family in families if family.samples)
