"""The kernel_log collector: the OOM kills and GPU errors in the kernel log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from trainvitals.metrics.collectors.collector import Collector
from trainvitals.metrics.families import Block, Family, label_samples
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel_log import KernelTally, KernelTallyReading

_KILLS_HELP = (
    "Processes that the kernel killed for want of memory since the exporter started, by what ran "
    "out: memcg is the limit of a control group, host the machine. Source: /dev/kmsg."
)
_ERRORS_HELP = (
    "Errors of NVIDIA GPUs since the exporter started, by Xid code, which the kernel tells also of "
    "GPUs that NVML no longer answers for. Source: /dev/kmsg NVRM: Xid."
)
_LAST_HELP = (
    "When a GPU last had an Xid error, also from before the exporter started. "
    "Source: /dev/kmsg NVRM: Xid."
)


class KernelLogCollector(Collector[KernelTallyReading]):
    """The kernel_log collector: counts of OOM kills and Xids (NVIDIA GPU errors) in the kernel log.

    If the exporter is not permitted to read the kernel log, there are no series. This is not an
    error.

    Args:
        roots: The root directories of the file systems to read.
        clock: A function that returns the current time in Unix seconds.
        monotonic: A function that returns the time of a monotonic clock, in seconds. The clock does
            not advance while the machine is suspended.
    """

    name = "kernel_log"

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tally = KernelTally(roots.rootfs / "dev/kmsg", clock=clock, monotonic=monotonic)

    def read(self, deadline: float) -> KernelTallyReading:  # noqa: ARG002 - no call here can hang
        """Read the kernel log records that were written since the last call."""
        return self._tally.read()

    def express(self, reading: KernelTallyReading) -> tuple[Block, ...]:
        """Return the metric families of a kernel log reading; empty if the log cannot be read."""
        if reading.oom_kills is None:
            return ()
        constraints = tuple(reading.oom_kills)
        blocks = [
            Block(
                (self.name, constraints),
                partial(_describe_kills, constraints),
                list(reading.oom_kills.values()),
            )
        ]
        if reading.xids:
            kinds = tuple((xid.bus_id, str(xid.code)) for xid in reading.xids)
            values = [float(xid.errors) for xid in reading.xids]
            values += [xid.last for xid in reading.xids]
            blocks.append(Block((self.name, kinds), partial(_describe_xids, kinds), values))
        return tuple(blocks)

    def omitted(self, reading: KernelTallyReading) -> int:
        """Return the number of kinds of errors omitted because of the limit on kinds."""
        return reading.omitted

    def close(self) -> None:
        """Close the kernel log."""
        self._tally.close()


def _describe_kills(constraints: Sequence[str]) -> tuple[Family, ...]:
    samples = label_samples("constraint", constraints)
    return (Family("host_kernel_oom_kills_total", "counter", _KILLS_HELP, samples),)


def _describe_xids(kinds: tuple[tuple[str, str], ...]) -> tuple[Family, ...]:
    samples = tuple(("", (("bus_id", bus_id), ("xid", code))) for bus_id, code in kinds)
    return (
        Family("host_xid_errors_total", "counter", _ERRORS_HELP, samples),
        Family("host_xid_last_timestamp_seconds", "gauge", _LAST_HELP, samples),
    )
