"""The row of the host dashboard on the network."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES_PER_SECOND,
    OK,
    RATIO,
    UNKNOWN,
    WARNING,
    State,
)
from grafana.build.panels import About, Panel, state_timeline, timeseries
from grafana.build.queries import over_time

_NO_LINK: Final = "No interface here reports it"


def write_network() -> Row:
    """Return the collapsed row on the network."""
    panels = (_draw_traffic(), _draw_share(), _draw_lost(), _show_links())
    return Row("Network", panels, is_collapsed=True)


def _draw_traffic() -> Panel:
    return timeseries(
        "Traffic",
        About(
            "What each interface receives and sends, the busiest ones.",
            "as much as the ranks exchange and the dataset needs, below the speed of the link.",
            "see beside it how near it is to the link's speed.",
        ),
        over_time(
            "topk(16, rate(host_network_bytes_total{@host}[$__rate_interval]))",
            "{{device}} {{direction}}",
        ),
        unit=BYTES_PER_SECOND,
        least=0,
        empty=_NO_LINK,
        width=12,
    )


def _draw_lost() -> Panel:
    packets = "rate(host_network_packets_total{@host}[$__rate_interval])"
    errors = "rate(host_network_errors_total{@host}[$__rate_interval])"
    dropped = "rate(host_network_dropped_total{@host}[$__rate_interval])"
    return timeseries(
        "Packets damaged and dropped",
        About(
            "Share of packets that were damaged or not sent, and that were thrown away, the worst "
            "interfaces.",
            "0 %, or a few dropped of protocols that are not used here; the alert wants more than "
            f"{limit('host_network_errors:errors_per_second'):g} damaged in a second.",
            "damaged: look at the cable, the transceiver and the switch port with ethtool -S; dropped "
            "with the traffic: a ring buffer is too small or a core too slow.",
            alerts=("HostNetworkErrors",),
        ),
        over_time(
            f"topk(8, {errors} / ({errors} + {packets} > 0))", "{{device}} {{direction}} damaged"
        ),
        over_time(f"topk(8, {dropped} / ({packets} > 0))", "{{device}} {{direction}} dropped"),
        unit=RATIO,
        steps=((None, OK), (limit("host_network_errors:errors_ratio"), WARNING)),
        least=0,
        empty="No packet in this range",
        width=12,
    )


def _draw_share() -> Panel:
    return timeseries(
        "Traffic by the link's speed",
        About(
            "Share of its speed that each link carries, the busiest ones.",
            "well below 100 %.",
            "near 100 % ranks wait for each other: exchange less, or use a faster link.",
        ),
        over_time(
            """
            topk(16, rate(host_network_bytes_total{@host}[$__rate_interval])
              / on (job, instance, device) group_left () (host_network_speed_bytes{@host} > 0))
            """,
            "{{device}} {{direction}}",
        ),
        unit=RATIO,
        least=0,
        most=1,
        is_open=True,
        empty="No link here reports its speed, as in most virtual machines",
        width=12,
    )


def _show_links() -> Panel:
    return state_timeline(
        "Interfaces",
        About(
            "Whether each interface can carry packets; those that cannot come first, 12 at most.",
            "the same all the time.",
            "one that goes up and down is a cable, a transceiver or a switch port.",
        ),
        over_time("bottomk(12, host_network_up{@host})", "{{device}}"),
        states=(State(1, "up", OK), State(0, "down", UNKNOWN)),
        empty=_NO_LINK,
        width=12,
        height=8,
    )
