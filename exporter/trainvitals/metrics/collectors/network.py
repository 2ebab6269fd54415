"""The network collector: the transfers of each interface since boot, and whether it is up."""

from __future__ import annotations

from operator import attrgetter

from trainvitals.metrics.collectors.collector import SourceCollector
from trainvitals.metrics.collectors.tables import Metric, by, gauge, list_fields, table_block
from trainvitals.metrics.families import Block, Family, label_samples
from trainvitals.sources.files import Roots
from trainvitals.sources.host.network import NetworkReading, NetworkSource

_DIRECTIONS = ("receive", "transmit")
_BY_DIRECTION = by("direction", _DIRECTIONS)
_METRICS = (
    Metric(
        "host_network_bytes_total",
        "counter",
        "Bytes received and sent. Source: /proc/net/dev bytes.",
        ("receive_bytes", "transmit_bytes"),
        _BY_DIRECTION,
    ),
    Metric(
        "host_network_packets_total",
        "counter",
        "Packets received and sent. Source: /proc/net/dev packets.",
        ("receive_packets", "transmit_packets"),
        _BY_DIRECTION,
    ),
    Metric(
        "host_network_errors_total",
        "counter",
        "Packets damaged or not sent. Source: /proc/net/dev errs.",
        ("receive_errors", "transmit_errors"),
        _BY_DIRECTION,
    ),
    Metric(
        "host_network_dropped_total",
        "counter",
        "Packets thrown away. Source: /proc/net/dev drop.",
        ("receive_dropped", "transmit_dropped"),
        _BY_DIRECTION,
    ),
    gauge(
        "host_network_up",
        "up",
        "Whether it can carry packets. Source: /sys/class/net operstate, carrier.",
    ),
    gauge(
        "host_network_speed_bytes",
        "speed_bytes",
        "Bytes a second at most, read once a minute. Source: /sys/class/net speed.",
    ),
)
_pick = attrgetter(*list_fields(_METRICS))
_UP = list_fields(_METRICS).index("up")


class NetworkCollector(SourceCollector[NetworkReading]):
    """The network collector: the transfers of each interface since boot, and whether it is up.

    Args:
        roots: The root directories of the file systems to read.
        limit: The maximum number of interfaces with separate series.
    """

    name = "network"

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        limit: int = 32,
    ) -> None:
        super().__init__(NetworkSource(roots=roots, limit=limit))

    def express(self, reading: NetworkReading) -> tuple[Block, ...]:
        """Return the metric families of a network reading."""
        total = Block(
            (self.name, "total"), _describe_total, [reading.receive_bytes, reading.transmit_bytes]
        )
        subjects = tuple([(("device", face.device),) for face in reading.interfaces])
        rows = [list(_pick(face)) for face in reading.interfaces]
        for row in rows:
            row[_UP] = None if row[_UP] is None else int(row[_UP])
        table = table_block((self.name, "interfaces"), _METRICS, subjects, rows)
        return (total, table) if table.values else (total,)

    def omitted(self, reading: NetworkReading) -> int:
        """Return the number of interfaces omitted because of a limit or a parse error."""
        return reading.dropped


def _describe_total() -> tuple[Family, ...]:
    return (
        Family(
            "network_io_bytes",
            "gauge",
            "Received and sent by all physical interfaces. Source: /proc/net/dev bytes.",
            label_samples("direction", _DIRECTIONS),
        ),
    )
