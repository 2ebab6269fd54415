"""Network transfers since boot, read from `/proc/net/dev` and `/sys/class/net`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import SourceError
from trainvitals.sources.files import KeptFile, Roots, not_understood, read_small

# The loopback interface, the host's ends of containers' virtual interfaces, and interfaces that
# kernel modules create when they are loaded.
EXCLUDED = r"lo$|veth|cali|cni|lxc|ifb\d|dummy\d|tunl\d|sit\d|gre\d|gretap\d|erspan\d|ip6tnl\d"

_HEAD_LINES = 2
# Reading a speed requires the kernel's lock for all interfaces. Therefore, a speed is read once per
# minute, and when a link comes up.
_SPEED_AGE_SECONDS = 60.0
_COLUMNS = 16
_LONGEST_NAME = 64
_MOST = 1 << 64
_MEGABITS = re.compile("[0-9]{1,9}")
# The ports of a network card's internal switch for virtual functions, subfunctions or other hosts.
_REPRESENTOR = re.compile(r"(?:c[0-9]+)?pf[0-9]+")
_BYTES_PER_MEGABIT = 125_000


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface's transfers since boot.

    Attributes:
        device: The interface's name, such as `eth0`.
        physical: Whether the interface is a port of a hardware device. A bond, a bridge and a VLAN
            are not ports. A network card's virtual function (SR-IOV) is not a port either, because
            the port that it uses is listed separately.
        receive_bytes: The number of bytes received.
        receive_packets: The number of packets received.
        receive_errors: The number of received packets that were damaged.
        receive_dropped: The number of received packets that were dropped because a buffer was full
            or no protocol accepted them.
        transmit_bytes: The number of bytes sent.
        transmit_packets: The number of packets sent.
        transmit_errors: The number of packets that could not be sent.
        transmit_dropped: The number of packets that were dropped before they were sent.
        up: Whether the interface can carry packets; None if `/sys` does not report the state.
        speed_bytes: The link speed in bytes per second; None if the interface is down or the driver
            does not report the speed.
    """

    device: str
    physical: bool
    receive_bytes: int
    receive_packets: int
    receive_errors: int
    receive_dropped: int
    transmit_bytes: int
    transmit_packets: int
    transmit_errors: int
    transmit_dropped: int
    up: bool | None
    speed_bytes: int | None


@dataclass(frozen=True, slots=True)
class NetworkReading:
    """A reading of the host's network interfaces.

    Attributes:
        interfaces: The network interfaces, physical interfaces first, at most `limit`.
        dropped: The number of interfaces omitted from `interfaces`, including interfaces with an
            invalid line. Interfaces that are excluded by name are not counted.
        receive_bytes: The number of bytes received since boot by all physical interfaces. If there
            is no physical interface, as in a container, all interfaces are counted.
        transmit_bytes: The number of bytes sent since boot by the same interfaces.
    """

    interfaces: tuple[Interface, ...]
    dropped: int
    receive_bytes: int
    transmit_bytes: int


class NetworkSource:
    """Reads the host's network transfers.

    Args:
        roots: The paths of `/proc` and `/sys`.
        clock: A function that returns a monotonic time in seconds.
        excluded: A regular expression that is matched at the start of interface names. Interfaces
            with a matching name are omitted.
        limit: The maximum number of interfaces to report individually.
    """

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.monotonic,
        excluded: str = EXCLUDED,
        limit: int = 32,
    ) -> None:
        # `/proc/net` shows the network of the reading process; process 1 uses the host's network.
        own = roots.procfs == Path("/proc")
        self._dev = KeptFile(roots.procfs / ("net/dev" if own else "1/net/dev"))
        self._class_net = roots.sysfs / "class/net"
        self._clock = clock
        self._excluded = re.compile(excluded)
        self._limit = limit
        self._names: tuple[bytes, ...] = ()
        self._links: list[_Link] = []

    def read(self) -> NetworkReading:
        """Read the network interfaces' current counters.

        Raises:
            SourceError: `/proc/net/dev` does not exist or cannot be read, or no line can be parsed.
        """
        data = self._dev.require()
        try:
            return self._parse(data)
        except ValueError as error:
            raise not_understood(self._dev.path) from error

    def close(self) -> None:
        """Close the source's open files in `/proc` and `/sys`."""
        self._dev.close()
        self._forget()

    def _parse(self, data: bytes) -> NetworkReading:
        rows: dict[bytes, bytes] = {}
        for line in data.split(b"\n")[_HEAD_LINES:]:
            name, colon, numbers = line.rpartition(b":")
            if colon:
                rows[name.strip()] = numbers
        names = tuple(rows)
        if names != self._names:
            self._meet(names)
        now = self._clock()
        traffic = {link.name: _parse_traffic(rows[link.name]) for link in self._links}
        known = [link for link in self._links if traffic[link.name]]
        if self._links and not known:
            raise ValueError(data)
        links = known[: self._limit]
        counted = [link for link in known if link.physical] or known
        return NetworkReading(
            interfaces=tuple([_interface(link, traffic[link.name], now) for link in links]),
            dropped=len(self._links) - len(links),
            receive_bytes=sum([traffic[link.name][0] for link in counted]),
            transmit_bytes=sum([traffic[link.name][8] for link in counted]),
        )

    def _meet(self, names: tuple[bytes, ...]) -> None:
        known = {link.name: link for link in self._links}
        wanted = [name for name in names if self._is_wanted(name.decode(errors="replace"))]
        links = [
            known.pop(name) if name in known else _Link(name, self._class_net) for name in wanted
        ]
        for gone in known.values():
            gone.close()
        links.sort(key=lambda link: not link.physical)
        self._links = links
        self._names = names

    def _is_wanted(self, device: str) -> bool:
        is_name = 0 < len(device) <= _LONGEST_NAME and "/" not in device
        return is_name and not self._excluded.match(device)

    def _forget(self) -> None:
        for link in self._links:
            link.close()
        self._links = []
        self._names = ()


class _Link:
    """The link state of one interface, whose files in `/sys` are slow to read."""

    def __init__(self, name: bytes, class_net: Path) -> None:
        self.name = name
        self.device = name.decode(errors="replace")
        folder = class_net / self.device
        self.physical = _is_port(folder)
        self._operstate = KeptFile(folder / "operstate", single=True)
        self._carrier = KeptFile(folder / "carrier", single=True)
        self._speed_path = folder / "speed"
        self._speed_bytes: int | None = None
        self._speed_until = float("-inf")

    def is_up(self) -> bool | None:
        try:
            state = self._operstate.read()
            if state is None:
                return None
            state = state.strip()
            # Some drivers always report `unknown`; the carrier then shows whether the link is up.
            if state in {b"unknown", b"dormant"}:
                state = b"up" if self._carrier.read() == b"1\n" else b"down"
        except SourceError:  # EINVAL: the interface is disabled
            return False
        return state == b"up"

    def speed_bytes(self, now: float) -> int | None:
        if now >= self._speed_until:
            self._speed_until = now + _SPEED_AGE_SECONDS
            # -1 means that the speed is unknown.
            known = _MEGABITS.fullmatch(read_small(self._speed_path) or "")
            self._speed_bytes = int(known[0]) * _BYTES_PER_MEGABIT if known else None
        return self._speed_bytes

    def forget_speed(self) -> None:
        self._speed_bytes = None
        self._speed_until = float("-inf")

    def close(self) -> None:
        self._operstate.close()
        self._carrier.close()


def _is_port(folder: Path) -> bool:
    """Return whether an interface is a separate port, given its directory in `/sys/class/net`."""
    if not (folder / "device").exists():
        return False
    # Virtual functions and subfunctions (which have a number) share the port of their network card.
    # In a virtual machine, a function may belong to a hypervisor's interface, which counts the
    # traffic of both.
    inner = ("device/physfn", "device/sfnum", "master/device")
    if any((folder / name).exists() for name in inner):
        return False
    return not _REPRESENTOR.match(read_small(folder / "phys_port_name") or "")


def _parse_traffic(numbers: bytes) -> list[int]:
    """Parse an interface's counters; return an empty list if the counters cannot be parsed."""
    try:
        columns = list(map(int, numbers.split()))
    except ValueError:
        return []
    is_sound = len(columns) >= _COLUMNS and min(columns) >= 0 and max(columns) <= _MOST
    return columns if is_sound else []


def _interface(link: _Link, traffic: list[int], now: float) -> Interface:
    up = link.is_up()
    if not up:
        link.forget_speed()
    return Interface(
        device=link.device,
        physical=link.physical,
        receive_bytes=traffic[0],
        receive_packets=traffic[1],
        receive_errors=traffic[2],
        receive_dropped=traffic[3],
        transmit_bytes=traffic[8],
        transmit_packets=traffic[9],
        transmit_errors=traffic[10],
        transmit_dropped=traffic[11],
        up=up,
        speed_bytes=link.speed_bytes(now) if up else None,
    )
