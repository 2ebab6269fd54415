"""The row of the host dashboard on the clock."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import (
    OK,
    SECONDS,
    WARNING,
    State,
)
from grafana.build.panels import About, Panel, state_timeline, timeseries
from grafana.build.queries import over_time

_GONE: Final = "The host does not answer"


def write_clock() -> Row:
    """Return the row on the clock."""
    return Row("Clock", (_draw_skew(), _show_synchronized()), is_collapsed=True)


def _draw_skew() -> Panel:
    return timeseries(
        "Clock against Prometheus'",
        About(
            "How far this machine's clock and that of Prometheus are apart.",
            "below a second.",
            "check the time daemon here, and that of Prometheus' machine if several hosts are off: "
            "chronyc tracking, timedatectl.",
            alerts=("HostClockSkew",),
        ),
        over_time("abs(host_time_seconds{@host} - timestamp(host_time_seconds{@host}))", "apart"),
        unit=SECONDS,
        steps=((None, OK), (limit("host_clock_skew:offset_seconds"), WARNING)),
        least=0,
        empty=_GONE,
        width=12,
    )


def _show_synchronized() -> Panel:
    return state_timeline(
        "Clock kept right",
        About(
            "Whether a time daemon keeps the clock right.",
            "yes.",
            "start chrony or systemd-timesyncd.",
        ),
        over_time("host_clock_synchronized{@host}", "clock"),
        states=(State(1, "yes", OK), State(0, "no", WARNING)),
        empty="The exporter may not ask the kernel",
        width=12,
        height=8,
    )
