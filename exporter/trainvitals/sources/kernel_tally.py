"""How often the kernel's log told of a kill for memory or of a failing GPU since we look."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.causes.evidence import XidError
from trainvitals.sources.kernel_log import KernelLog

# What the kernel calls a constraint, in the order of the page; a kill without one is the host's.
CONSTRAINTS: Mapping[str, str] = {
    "CONSTRAINT_MEMCG": "memcg",
    "CONSTRAINT_NONE": "host",
    "CONSTRAINT_CPUSET": "cpuset",
    "CONSTRAINT_MEMORY_POLICY": "memory_policy",
}
_DOMAIN_DIGITS = 8


@dataclass(frozen=True, slots=True)
class XidCount:
    """One kind of error of one GPU.

    Attributes:
        bus_id: The GPU's PCI address as NVML writes it, such as `00000000:3B:00.0`.
        code: The Xid.
        errors: How often it came since we look; 0 where only the ring had it before.
        last: When it last came, seconds since 1970.
    """

    bus_id: str
    code: int
    errors: int
    last: float


@dataclass(frozen=True, slots=True)
class KernelTallyReading:
    """What was counted.

    Attributes:
        oom_kills: How many processes were killed since we look, by constraint; None where the log
            cannot be read.
        xids: The errors of GPUs, by address and code.
        omitted: How many kinds of errors a bound left out.
    """

    oom_kills: Mapping[str, int] | None
    xids: tuple[XidCount, ...] = ()
    omitted: int = 0


class KernelTally:
    """Counts what the kernel's log tells.

    What happened before it was made is not counted; of errors of GPUs it is known when they were.

    Args:
        path: The device `/dev/kmsg`.
        most: How many kinds of errors to tell apart.
        clock: The time of day, in seconds since 1970.
        monotonic: Seconds since boot, without the time that the machine slept.
    """

    def __init__(
        self,
        path: Path = Path("/dev/kmsg"),
        *,
        most: int = 64,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = KernelLog(path, clock=clock, monotonic=monotonic)
        self._most = most
        self._since = clock()
        self._kills = dict.fromkeys(CONSTRAINTS.values(), 0)
        self._xids: dict[tuple[str, int], XidCount] = {}
        self._omitted: set[tuple[str, int]] = set()

    def read(self) -> KernelTallyReading:
        """Count what came since the last call."""
        if not self._log.is_readable:
            return KernelTallyReading(None)
        news = self._log.read()
        for kill in news.oom_kills:
            if kill.time >= self._since and kill.constraint in CONSTRAINTS:
                self._kills[CONSTRAINTS[kill.constraint]] += 1
        for xid in news.xids:
            self._count(xid)
        xids = tuple(self._xids[key] for key in sorted(self._xids))
        return KernelTallyReading(dict(self._kills), xids, len(self._omitted))

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _count(self, xid: XidError) -> None:
        key = name_as_nvml(xid.bus_id), xid.code
        known = self._xids.get(key)
        if known is None and len(self._xids) >= self._most:
            if len(self._omitted) < self._most:
                self._omitted.add(key)
            return
        errors = (known.errors if known else 0) + (xid.time >= self._since)
        self._xids[key] = XidCount(*key, errors, xid.time)


def name_as_nvml(bus_id: str) -> str:
    """Give a PCI address in NVML's way: eight digits of the domain, capitals, and the function."""
    domain, _, rest = bus_id.partition(":")
    rest = rest if "." in rest else f"{rest}.0"
    return f"{domain.rjust(_DOMAIN_DIGITS, '0')}:{rest}".upper()
