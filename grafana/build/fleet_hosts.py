"""The machines of the fleet: scarce resources and the most severe alert of each machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from grafana.build.layout import Row, link_to, write_address
from grafana.build.limits import limit
from grafana.build.palette import CRITICAL, OK, RATIO, WARNING, WATTS, State
from grafana.build.panels import About, Panel, state_timeline
from grafana.build.parts import HOST
from grafana.build.queries import keep_worst, over_time
from grafana.build.tables import Column, Key, table

TARGETS: Final = 'up{@host, job!~"prometheus|alertmanager"}'
# The total utilisation and the number of the accelerators of each machine.
BUSY: Final = "instance:accelerators_busy:sum{@host}"
DEVICES: Final = 'instance:accelerators_busy:bucket{@host, le="+Inf"}'

_UP, _DOWN = State(0, "up", OK), State(1, "down", CRITICAL)
_NO_ALERT, _WARNS = State(0, "no alert", OK), State(1, "warning", WARNING)
_CRITICAL, _HOST_DOWN = State(2, "critical", CRITICAL), State(3, "down", CRITICAL)
_MOST_BANDS: Final = 12


def draw_hosts() -> Panel:
    """Return the timeline of the most severe alert on each machine."""
    alerts = 'ALERTS{@host, job!~"prometheus|alertmanager", alertstate="firing", severity="%s"}'
    by_severity = (f"{state.number} * {alerts % state.text}" for state in (_WARNS, _CRITICAL))
    down = f"{_HOST_DOWN.number} * ({TARGETS} == bool 0)"
    drawn = state_timeline(
        "Hosts by their worst alert",
        About(
            f"The worst that fires on each machine; the {_MOST_BANDS} that were in the worst.",
            "no alert.",
            "click the machine that changed first; the table above names the alerts of now.",
        ),
        over_time(
            keep_worst(_MOST_BANDS, f"max by (instance) ({' or '.join((down, *by_severity))})"),
            "{{instance}}",
        ),
        states=(_HOST_DOWN, _CRITICAL, _WARNS, _NO_ALERT),
        empty="No machine is scraped: name them in `prometheus/targets`",
        width=8,
        height=8,
        link=link_to(HOST, "Open the host", instance="${__field.labels.instance}"),
    )
    return replace(drawn, extra={"interval": "1m"})


def write_hosts() -> Row:
    """Return the collapsed row on machines."""
    return Row("Hosts", (_list_hosts(),), is_collapsed=True)


def _list_hosts() -> Panel:
    cores = "sum by (instance) (rate(host_cpu_seconds_total{@host%s}[$__rate_interval]))"
    idle = cores % ', mode=~"idle|iowait"'
    stalled = 'host_pressure_stalled_seconds_total{@host, level="full", resource=~"io|memory"}'
    disk = "instance:disk_avail:bytes{@host} / (instance:disk_size:bytes{@host} > 0)"
    return table(
        "Hosts",
        About(
            "Each machine now: its fullest disk and fullest accelerator, the mean of its cores and"
            " accelerators, and the share of the time in which everything waited for memory or disks.",
            "up, and nothing coloured.",
            "click the machine.",
        ),
        keys=(
            Key(
                "instance",
                "Host",
                write_address(HOST, instance="${__data.fields.Host}"),
                "Open the host",
            ),
        ),
        columns=(
            Column(
                "State",
                f"max by (instance) ({TARGETS} == bool 0)",
                look="color-text",
                states=(_UP, _DOWN),
            ),
            Column(
                "Alerts",
                'count by (instance) (ALERTS{@host, alertstate="firing", alertname!="Watchdog"})',
            ),
            Column("CPU", f"1 - {idle} / ({cores % ''} > 0)", RATIO, look="gauge", decimals=0),
            _gauge(
                "Memory",
                "max by (instance) (instance:memory_used:ratio{@host})",
                limit("host_high_memory_usage:used_ratio"),
            ),
            _gauge(
                "Fullest disk",
                f"1 - min by (instance) ({disk})",
                1 - limit("host_disk_space_low:avail_ratio"),
            ),
            _gauge(
                "Stalled",
                f"max by (instance) (rate({stalled}[$__rate_interval]))",
                limit("host_memory_pressure:stalled_ratio"),
            ),
            Column(
                "Accel. busy",
                f"sum by (instance) ({BUSY}) / (sum by (instance) ({DEVICES}) > 0)",
                RATIO,
                look="gauge",
                decimals=0,
            ),
            _gauge(
                "Accel. memory",
                "max by (instance) (accelerator:memory_needed:ratio{@host})",
                limit("high_memory_usage:ratio"),
            ),
            Column("Power", "sum by (instance) (accelerator_power_watts{@host})", WATTS),
        ),
        sort_by="State",
        empty="No machine is scraped",
        height=10,
    )


def _gauge(title: str, expr: str, most: float) -> Column:
    """Return a gauge column of ratios that turns orange at the threshold of an alert."""
    steps = ((None, OK), (most, WARNING))
    return Column(title, expr, RATIO, steps=steps, look="gauge", decimals=0)
