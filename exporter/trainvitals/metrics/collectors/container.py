"""The container collector: the states, resource usage and exits of containers.

A metric that cAdvisor also provides has the same name and meaning. A value that is None has no
series. A container has at most `MOST_SERIES` series. Metrics are ordered by importance: the series
of the last metrics are left out first.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from trainvitals.metrics.collectors.collector import SourceCollector
from trainvitals.metrics.collectors.tables import counter, gauge, list_fields, table_block
from trainvitals.metrics.families import Block, Family, Labels, MetricType
from trainvitals.sources.containers.reading import ContainerReading, ContainersReading

MOST_SERIES = 25

# The fields are those of `ContainerReading`, and of its fields `last_death` and `usage`.
OF_CONTAINER = (
    gauge(
        "container_start_time_seconds",
        "started",
        "When it was last started, in seconds since 1970. Source: event start, State.StartedAt.",
    ),
    counter(
        "container_restarts_total",
        "restarts",
        "How often it was started again. Source: event start, RestartCount.",
    ),
)
OF_DEATH = (
    gauge(
        "container_last_exit_code",
        "exit_code",
        "How it last ended, 128 and more for a signal. Source: event die, State.ExitCode.",
    ),
    gauge(
        "container_last_death_timestamp_seconds",
        "time",
        "When it last ended, in seconds since 1970. Source: event die, State.FinishedAt.",
    ),
)
OF_USAGE = (
    gauge(
        "container_memory_working_set_bytes",
        "memory_working_set_bytes",
        "Memory charged to it without inactive file cache. Source: memory.current, memory.stat.",
    ),
    gauge(
        "container_memory_unreclaimable_bytes",
        "memory_unreclaimable_bytes",
        "Memory that the kernel cannot drop before it kills. Source: memory.stat.",
    ),
    gauge(
        "container_memory_max_usage_bytes",
        "memory_peak_bytes",
        "The most memory that was ever charged to it. Source: memory.peak.",
    ),
    gauge(
        "container_spec_memory_limit_bytes",
        "memory_limit_bytes",
        "How much memory it may have, 0 for no limit. Source: memory.max.",
    ),
    counter(
        "container_pressure_memory_stalled_seconds_total",
        "memory_stalled_seconds",
        "How long all of its tasks waited for memory. Source: memory.pressure full.",
    ),
    counter(
        "container_cpu_usage_seconds_total",
        "cpu_seconds",
        "CPU time that it used. Source: cpu.stat usage_usec.",
    ),
    counter(
        "container_cpu_cfs_throttled_seconds_total",
        "cpu_throttled_seconds",
        "How long its CPU limit held it back. Source: cpu.stat throttled_usec.",
    ),
    gauge(
        "container_threads",
        "processes",
        "Processes and threads in it. Source: pids.current.",
    ),
    counter(
        "container_network_receive_bytes_total",
        "received_bytes",
        "What came in over a network of its own. Source: /proc/PID/net/dev.",
    ),
    counter(
        "container_network_transmit_bytes_total",
        "transmitted_bytes",
        "What went out over a network of its own. Source: /proc/PID/net/dev.",
    ),
    counter(
        "container_fs_reads_bytes_total",
        "read_bytes",
        "What it read from block devices. Source: io.stat rbytes.",
    ),
    counter(
        "container_fs_writes_bytes_total",
        "written_bytes",
        "What it wrote to block devices. Source: io.stat wbytes.",
    ),
)
METRICS = (*OF_CONTAINER, *OF_DEATH, *OF_USAGE)


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

_pick_own = attrgetter(*list_fields(OF_CONTAINER))
_pick_death = attrgetter(*list_fields(OF_DEATH))
_pick_usage = attrgetter(*list_fields(OF_USAGE))
_NO_DEATH = (None,) * len(OF_DEATH)
_NO_USAGE = (None,) * len(OF_USAGE)


class ContainerCollector(SourceCollector[ContainersReading]):
    """The container collector, which turns container readings into metric families.

    Args:
        source: The source that watches the containers.
    """

    name = "container"

    def express(self, reading: ContainersReading) -> tuple[Block, ...]:
        """Return the metric families of a container reading.

        The result is empty if the machine has neither a container engine nor control groups of
        containers.
        """
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
        """Return why engine events cannot be followed or container exits cannot be recorded.

        The result is None if events can be followed and exits can be recorded.
        """
        return reading.complaint

    def omitted(self, reading: ContainersReading) -> int:
        """Return the number of containers omitted because of the limit on containers."""
        return reading.omitted


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
    """Return a container's samples with additional labels, in the order of the metric families."""
    name = ("name", container.name)
    death = container.last_death
    last = "" if death is None else death.reason
    # The latest reason is always included, so that its increase is visible even if other reasons
    # are more frequent.
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
    death, usage = container.last_death, container.usage
    return [
        *_pick_own(container),
        *(_NO_DEATH if death is None else _pick_death(death)),
        *(_NO_USAGE if usage is None else _pick_usage(usage)),
    ]


def _cut(row: list[float | None], room: int) -> list[float | None]:
    """Set the last values of a row to None if there are more values than remaining series."""
    for column, value in enumerate(row):
        room -= value is not None
        if room < 0:
            row[column] = None
    return row


def _express_table(
    containers: Sequence[ContainerReading], rows: Sequence[Sequence[float | None]]
) -> Block:
    subjects = tuple([(("name", container.name),) for container in containers])
    return table_block(("container", "table"), METRICS, subjects, rows)
