"""Rows of the board of hosts about its network."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import BYTES_PER_SECOND, OK, PER_SECOND, RATIO, UNKNOWN, WARNING, State
from grafana.build.panels import About, Panel, state_timeline, timeseries
from grafana.build.queries import over_time

_NO_LINK: Final = "No interface here tells"


def write_network() -> Row:
    """Give the row of the network."""
    return Row("Network", (_draw_traffic(), _draw_errors()))


def write_network_details() -> Row:
    """Give the closed row."""
    panels = (_draw_share(), _draw_dropped(), _draw_packets(), _show_links())
    return Row("More of the network", panels, is_collapsed=True)


def _draw_traffic() -> Panel:
    return timeseries(
        "Traffic",
        About(
            "What each interface receives and sends, the busiest ones.",
            "as much as the ranks exchange and the dataset needs, below the speed of the link.",
            "see below how near it is to the link's speed.",
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


def _draw_errors() -> Panel:
    errors = "rate(host_network_errors_total{@host}[$__rate_interval])"
    return timeseries(
        "Packets damaged",
        About(
            "Share of packets that were damaged or not sent, the ten worst interfaces.",
            "0 %; the alert also wants more than "
            f"{limit('host_network_errors:errors_per_second'):g} in a second.",
            "look at the cable, the transceiver and the switch port: ethtool -S, ip -s link show.",
            alerts=("HostNetworkErrors",),
        ),
        over_time(
            f"topk(10, {errors} / ({errors}"
            " + rate(host_network_packets_total{@host}[$__rate_interval]) > 0))",
            "{{device}} {{direction}}",
        ),
        unit=RATIO,
        steps=((None, OK), (limit("host_network_errors:errors_ratio"), WARNING)),
        least=0,
        empty="No packet in this range",
        width=12,
    )


def _draw_share() -> Panel:
    return timeseries(
        "Traffic of the link's speed",
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
        empty="No link here tells its speed",
    )


def _draw_dropped() -> Panel:
    return timeseries(
        "Packets dropped",
        About(
            "Packets that were thrown away in a second, the worst interfaces.",
            "0, or a few of protocols that nobody here speaks.",
            "a number that grows with the traffic is a ring buffer or a core that is too slow.",
        ),
        over_time(
            "topk(16, rate(host_network_dropped_total{@host}[$__rate_interval]))",
            "{{device}} {{direction}}",
        ),
        unit=PER_SECOND,
        least=0,
        empty=_NO_LINK,
    )


def _draw_packets() -> Panel:
    return timeseries(
        "Packets",
        About(
            "Packets that each interface receives and sends in a second, the busiest ones.",
            "follows the traffic.",
            "many packets and little traffic are small messages: use larger buckets.",
        ),
        over_time(
            "topk(16, rate(host_network_packets_total{@host}[$__rate_interval]))",
            "{{device}} {{direction}}",
        ),
        unit=PER_SECOND,
        least=0,
        empty=_NO_LINK,
    )


def _show_links() -> Panel:
    return state_timeline(
        "Interfaces",
        About(
            "Whether each interface can carry packets; those that cannot come first, 20 at most.",
            "the same all the time.",
            "one that goes up and down is a cable, a transceiver or a switch port.",
        ),
        over_time("bottomk(20, host_network_up{@host})", "{{device}}"),
        states=(State(1, "up", OK), State(0, "down", UNKNOWN)),
        empty=_NO_LINK,
    )
