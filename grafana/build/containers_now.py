"""The first screen of the containers dashboard: problems, and containers near their limits.

On a machine without containers, counts are 0, and one line explains how to make containers visible.
If containers are visible but no engine is queried, values that only an engine provides are unknown.
"""

from __future__ import annotations

from typing import Final

from grafana.build.containers_deaths import (
    FROM_OUTSIDE,
    LOOKS,
    OWN_LIMIT,
    STATES,
    STEP,
    TROUBLE,
    WATCHED,
    count_deaths,
    draw_deaths,
    draw_states,
    tell_state,
    tell_state_with_image,
)
from grafana.build.containers_use import SHARE, draw_limits
from grafana.build.fields import Steps
from grafana.build.layout import RULE, Row, write_address
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES,
    CORES,
    CRITICAL,
    INFORMATION,
    OK,
    RATIO,
    WARNING,
    State,
)
from grafana.build.panels import About, Panel, stat
from grafana.build.parts import CONTAINERS, FIRES, find_worst_alert
from grafana.build.queries import now, tell_of
from grafana.build.tables import Column, Key, table

_NEAR: Final[Steps] = ((None, OK), (limit("container_memory_near_limit:ratio"), WARNING))
_SOURCES: Final = (
    State(-2, "no container", OK),
    State(-1, "cut off", CRITICAL),
    State(0, "cgroups alone", WARNING),
    State(1, "no kernel log", INFORMATION),
    State(2, "everything", OK),
)
_UNKNOWN: Final = "unknown"


def write_now() -> Row:
    """Return the row on exits, exhausted memory, and containers that may run out of memory next."""
    figures = (
        _count_running(),
        _count_troubled(),
        _count_restarts(),
        _count_kills(),
        _show_nearest(),
        _tell_sources(),
    )
    graphs = (draw_states(), draw_deaths(), draw_limits())
    return Row("Now", (*figures, _list_containers(), *graphs))


def _count_running() -> Panel:
    running = (
        '(count(container_state{@container, state="running"} == 1)'
        f" or count(container_threads{{@container}}) or {LOOKS})"
    )
    return stat(
        "Running",
        About(
            "Containers that run, by the engine or, where none is asked, by control group, of all that "
            "there are.",
            "those that you started.",
            "the table has the others, and Last deaths what each died of.",
        ),
        now(tell_of(running, f"(count(container_info{{@container}}) or {LOOKS})"), "of {{all}}"),
        text_mode="value_and_name",
        empty="not asked",
    )


def _count_troubled() -> Panel:
    return stat(
        "In trouble",
        About(
            "Containers that are restarting, are unhealthy or ended by a fault, and are still there.",
            "0.",
            "the table has them first; `trainvitals diagnose NAME` says why and what to do.",
        ),
        now(f"count({tell_state('job, instance, name')} >= {TROUBLE}) or {WATCHED}"),
        steps=((None, OK), (1, WARNING)),
        empty=_UNKNOWN,
    )


def _count_restarts() -> Panel:
    return stat(
        "Restarts, 1 h",
        About(
            "How often containers were started again in the last hour.",
            "0.",
            "Restarts within 15 min, in the row of deaths, names those that loop.",
        ),
        now(f"sum(round(increase(container_restarts_total{{@container}}[1h]))) or {WATCHED}"),
        steps=((None, OK), (1, WARNING)),
        empty=_UNKNOWN,
    )


def _count_kills() -> Panel:
    return stat(
        "OOM, 24 h",
        About(
            "Containers that died in the last 24 hours because memory ran out: at their own limit, and "
            "how many of them because the machine, or a group above them, had none left.",
            "0.",
            "at its own limit: raise it, or start with fewer data loader workers or a smaller batch; by "
            "the host: give every container a limit, and run fewer at once.",
        ),
        now(
            tell_of(
                f"({count_deaths(f'{OWN_LIMIT}|{FROM_OUTSIDE}')})",
                f"({count_deaths(FROM_OUTSIDE)})",
            ),
            "{{all}} by the host",
        ),
        steps=((None, OK), (1, CRITICAL)),
        text_mode="value_and_name",
        empty=_UNKNOWN,
    )


def _show_nearest() -> Panel:
    machine = (
        'label_replace(max(instance:memory_used:ratio{@host}), "name", "this machine", "", "")'
    )
    return stat(
        "Nearest limit",
        About(
            "The container with the largest working set by its memory limit, or the machine itself "
            "where its memory is fuller than that.",
            f"below {100 * limit('container_memory_near_limit:ratio'):.0f} %.",
            "raise the container's limit before the kernel kills it, with `docker update --memory`; on "
            "a machine that is full, end one, or give all a limit.",
        ),
        now(f"topk(1, max by (name) ({SHARE}) or {machine})", "{{name}}"),
        unit=RATIO,
        steps=_NEAR,
        decimals=0,
        text_mode="value_and_name",
        empty=_UNKNOWN,
    )


def _tell_sources() -> Panel:
    return stat(
        "Read from",
        About(
            "The sources that the exporter can read: control groups, the engine, the kernel log.",
            "everything, or that there is no container.",
            "docs/containers.md has how to get the others; cut off means that the engine's events are.",
        ),
        now(
            "max(trainvitals_containers_events_connected{@host} == 0) - 1"
            f" or max({STEP}) or {LOOKS} - 2"
        ),
        states=_SOURCES,
        empty="not asked",
    )


def _list_containers() -> Panel:
    narrow = {"instance": "${instance}", "container": "${__data.fields.Container}"}
    cpu = "rate(container_cpu_usage_seconds_total{@container}[$__rate_interval])"
    throttled = "rate(container_cpu_cfs_throttled_seconds_total{@container}[$__rate_interval])"
    restarts = "round(increase(container_restarts_total{@container}[24h]))"
    return table(
        "Containers",
        About(
            "Each container now, those first for which the worst alert fires, then those in the worst "
            "state: its working set and its share of the limit, and the cores that it uses and is "
            "denied.",
            "running, no alert, below its limit, not held back.",
            "click the alert for its runbook, the container to see it alone; without a limit it can "
            "take the whole machine's memory.",
        ),
        keys=(
            Key(
                "name",
                "Container",
                write_address(CONTAINERS, **narrow),
                "This container alone",
                200,
            ),
            Key("image", "Image"),
            Key("alertname", "Alert", RULE, "Open the rule and its runbook", width=205),
        ),
        columns=(
            Column(
                "Fires",
                find_worst_alert('@container, component="container"', "name"),
                states=FIRES,
                look="color-text",
                width=80,
            ),
            Column(
                "State",
                tell_state_with_image(),
                look="color-text",
                states=STATES,
                width=120,
            ),
            Column(
                "Of its limit",
                f"max by (name) ({SHARE})",
                RATIO,
                _NEAR,
                "gauge",
                decimals=0,
                width=105,
            ),
            Column(
                "Memory",
                "max by (name) (container_memory_working_set_bytes{@container})",
                BYTES,
                width=85,
            ),
            Column("CPU", f"max by (name) ({cpu})", CORES, decimals=2, width=95),
            Column("Held back", f"max by (name) ({throttled})", CORES, decimals=2, width=95),
            Column("Restarts, 24 h", f"max by (name) ({restarts})", width=115),
        ),
        sort_by=("Fires", "State"),
        empty="No container is seen here: docs/containers.md says how they are",
        height=8,
    )
