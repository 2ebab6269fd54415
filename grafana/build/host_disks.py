"""The row of the host dashboard on disks."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row
from grafana.build.palette import BYTES_PER_SECOND, RATIO, REQUESTS_PER_SECOND, SECONDS
from grafana.build.panels import About, Panel, timeseries
from grafana.build.queries import over_time

_NO_DISK: Final = "No disk here reports it, as in most containers"


def write_disks() -> Row:
    """Return the collapsed row on disks."""
    panels = (_draw_throughput(), _draw_busy(), _draw_latency(), _draw_requests())
    return Row("Disks", panels, is_collapsed=True)


def _draw_throughput() -> Panel:
    return timeseries(
        "Read and written",
        About(
            "What is read from and written to each disk, the busiest ones; disks made of others, as "
            "dm-0, are shown beside them.",
            "reads of a data set are even, checkpoints are short bursts of writing.",
            "compare it with what the disk can do: fio, or its data sheet.",
        ),
        over_time(
            "topk(8, rate(host_disk_read_bytes_total{@host}[$__rate_interval]))", "{{device}} read"
        ),
        over_time(
            "topk(8, rate(host_disk_written_bytes_total{@host}[$__rate_interval]))",
            "{{device}} written",
        ),
        unit=BYTES_PER_SECOND,
        least=0,
        empty=_NO_DISK,
        width=12,
    )


def _draw_busy() -> Panel:
    return timeseries(
        "Busy",
        About(
            "Share of the time for which each disk had requests in flight, the ten busiest.",
            "any: an SSD that is busy all the time may still take more.",
            "a hard disk near 100 % is full of work: read from a faster one, or pack the dataset.",
        ),
        over_time(
            "topk(10, rate(host_disk_io_seconds_total{@host}[$__rate_interval]))", "{{device}}"
        ),
        unit=RATIO,
        least=0,
        most=1,
        empty=_NO_DISK,
        width=12,
    )


def _draw_latency() -> Panel:
    return timeseries(
        "Time of a request",
        About(
            "How long a read or a write takes in the mean, waiting in the queue included, the slowest "
            "disks.",
            "below 1 ms on NVMe, some 10 ms on hard disks.",
            "a disk that is slower than its twins may be about to fail: smartctl -a.",
        ),
        *(
            over_time(
                f"topk(8, rate(host_disk_{verb}_seconds_total{{@host}}[$__rate_interval])"
                f" / (rate(host_disk_{verb}s_completed_total{{@host}}[$__rate_interval]) > 0))",
                f"{{{{device}}}} {verb}",
            )
            for verb in ("read", "write")
        ),
        unit=SECONDS,
        least=0,
        empty=_NO_DISK,
        width=12,
    )


def _draw_requests() -> Panel:
    return timeseries(
        "Requests",
        About(
            "Reads and writes that each disk does in a second, the busiest ones.",
            "few and large for packed datasets.",
            "very many small reads are single files: pack them.",
        ),
        *(
            over_time(
                f"topk(8, rate(host_disk_{verb}s_completed_total{{@host}}[$__rate_interval]))",
                f"{{{{device}}}} {verb}",
            )
            for verb in ("read", "write")
        ),
        unit=REQUESTS_PER_SECOND,
        least=0,
        empty=_NO_DISK,
        width=12,
    )
