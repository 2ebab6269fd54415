"""The network collector: what the network interfaces did since boot, and whether they are up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from trainvitals.families import Block, Family, Labels, label_samples
from trainvitals.sources.files import Roots
from trainvitals.sources.network import EXCLUDED, NetworkReading, NetworkSource

_DIRECTIONS = ("receive", "transmit")


class NetworkCollector:
    """Tells what the network interfaces did since boot, and whether they are up.

    Args:
        roots: Where `/proc` and `/sys` are.
        clock: Seconds that never go back.
        excluded: Regular expression of the interfaces to leave out; matched at the start.
        limit: The most interfaces to tell apart.
    """

    name = "network"

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.monotonic,
        excluded: str = EXCLUDED,
        limit: int = 32,
    ) -> None:
        self._source = NetworkSource(roots=roots, clock=clock, excluded=excluded, limit=limit)

    def read(self, deadline: float) -> NetworkReading:  # noqa: ARG002 - nothing here can hang
        """Read the interfaces.

        Raises:
            SourceError: They could not be read.
        """
        return self._source.read()

    def express(self, reading: NetworkReading) -> tuple[Block, ...]:
        """Name what was read."""
        faces = reading.interfaces
        devices = tuple([face.device for face in faces])
        up = tuple([face.device for face in faces if face.up is not None])
        speed = tuple([face.device for face in faces if face.speed_bytes is not None])
        values: list[float] = [reading.receive_bytes, reading.transmit_bytes]
        values += [face.receive_bytes for face in faces]
        values += [face.transmit_bytes for face in faces]
        values += [face.receive_packets for face in faces]
        values += [face.transmit_packets for face in faces]
        values += [face.receive_errors for face in faces]
        values += [face.transmit_errors for face in faces]
        values += [face.receive_dropped for face in faces]
        values += [face.transmit_dropped for face in faces]
        values += [int(face.up) for face in faces if face.up is not None]
        values += [face.speed_bytes for face in faces if face.speed_bytes is not None]
        shape = (devices, up, speed)
        return (Block((self.name, *shape), partial(_describe, *shape), values),)

    def complaint(self, reading: NetworkReading) -> str | None:  # noqa: ARG002 - whole or an error
        """Give None: a reading is whole."""
        return None

    def omitted(self, reading: NetworkReading) -> int:
        """Count the interfaces that the bound left out."""
        return reading.dropped

    def close(self) -> None:
        """Close the files."""
        self._source.close()


def _describe(
    devices: tuple[str, ...], up: tuple[str, ...], speed: tuple[str, ...]
) -> tuple[Family, ...]:
    both = _both_directions(devices)
    families = (
        Family(
            "network_io_bytes",
            "gauge",
            "Received and sent by all physical interfaces. Source: /proc/net/dev bytes.",
            label_samples("direction", _DIRECTIONS),
        ),
        Family(
            "host_network_bytes_total",
            "counter",
            "Bytes received and sent. Source: /proc/net/dev bytes.",
            both,
        ),
        Family(
            "host_network_packets_total",
            "counter",
            "Packets received and sent. Source: /proc/net/dev packets.",
            both,
        ),
        Family(
            "host_network_errors_total",
            "counter",
            "Packets damaged or not sent. Source: /proc/net/dev errs.",
            both,
        ),
        Family(
            "host_network_dropped_total",
            "counter",
            "Packets thrown away. Source: /proc/net/dev drop.",
            both,
        ),
        Family(
            "host_network_up",
            "gauge",
            "Whether it can carry packets. Source: /sys/class/net operstate, carrier.",
            label_samples("device", up),
        ),
        Family(
            "host_network_speed_bytes",
            "gauge",
            "Bytes a second at most, read once a minute. Source: /sys/class/net speed.",
            label_samples("device", speed),
        ),
    )
    return tuple(family for family in families if family.samples)


def _both_directions(devices: Sequence[str]) -> tuple[tuple[str, Labels], ...]:
    return tuple(
        ("", (("device", device), ("direction", direction)))
        for direction in _DIRECTIONS
        for device in devices
    )
