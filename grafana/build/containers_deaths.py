"""Panels on the states of containers and the reasons of their exits.

The counter of an exit reason begins at 1 with the first such exit, which `increase` does not
detect; therefore counts are compared with their earlier values, and a count without an earlier
value counts in full. A removed container keeps its series for ten minutes; therefore queries look
back over the time range.
"""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Annotation, Row, write_address
from grafana.build.limits import limit
from grafana.build.palette import (
    COUNT,
    CRITICAL,
    INFORMATION,
    OK,
    SERIES,
    SINCE,
    UNKNOWN,
    WARNING,
    State,
)
from grafana.build.panels import About, Panel, colour_series, state_timeline, timeseries
from grafana.build.parts import CONTAINERS, list_alerts
from grafana.build.queries import encode, find_rise, keep_worst, over_time
from grafana.build.tables import Column, Key, table

# Reasons defined in docs/diagnosis.md.
OWN_LIMIT: Final = "oom-cgroup|oom-missed"
FROM_OUTSIDE: Final = "oom-host|oom-parent"
_NO_FAULT: Final = "finished|stop-graceful|kill-operator|interrupted"

_STATES: Final = {
    "running": State(1, "running", OK),
    "created": State(2, "created", INFORMATION),
    "paused": State(3, "paused", SERIES[4]),
    "exited": State(4, "exited", UNKNOWN),
    "restarting": State(5, "restarting", WARNING),
}
_UNKNOWN: Final = State(0, "unknown", UNKNOWN)
_UNHEALTHY: Final = State(6, "unhealthy", WARNING)
_DIED: Final = State(7, "died", CRITICAL)
_OOM_OWN: Final = State(8, "OOM, own limit", CRITICAL)
_OOM_HOST: Final = State(9, "OOM, host", CRITICAL)
TROUBLE: Final = _STATES["restarting"].number  # the least severe problem
_NONE_HERE: Final = State(-1, "none here", UNKNOWN)
STATES: Final = (_UNKNOWN, *_STATES.values(), _UNHEALTHY, _DIED, _OOM_OWN, _OOM_HOST)

# The place where memory ran out, by exit reason.
_RAN_OUT: Final = {
    OWN_LIMIT: State(1, "own limit", CRITICAL),
    "oom-host": State(2, "host", CRITICAL),
    "oom-parent": State(3, "group above it", CRITICAL),
    "oom-worker|oom-hidden-exit0|oom-worker-alive": State(4, "only a part died", WARNING),
}

_NAME: Final = "on (job, instance, name)"
STEP: Final = "trainvitals_containers_privilege_step{@host}"
_LOOKED: Final = 'trainvitals_collector_success{@host, collector="container"} == 1'
# 0 for a machine whose exporter looks for containers.
LOOKS: Final = f"0 * max({_LOOKED})"
# Likewise, but only if the exporter watches an engine or no containers are running. An exporter
# that detects containers without querying an engine does not learn of exits.
WATCHED: Final = f"0 * max({_LOOKED} unless on (job, instance) {STEP} == 0 or {STEP} > 0)"
_INFO: Final = "container_last_death_info{@container}"
_MOST_BANDS: Final = 12

DEATHS: Final = Annotation(
    "Container deaths",
    "1000 * max by (name, reason) (container_last_death_timestamp_seconds{@container}"
    f" * {_NAME} group_left (reason)"
    f' container_last_death_info{{@container, reason!~"{_NO_FAULT}"}})',
    CRITICAL,
    "{{name}} died: {{reason}}",
    "",
    is_moment=True,
)


def count_deaths(reasons: str) -> str:
    """Return a query for the number of exits in the last 24 hours.

    The result is 0 if an engine is watched or no container is running, and no exit occurred.
    """
    counts = f'container_deaths_total{{@container, reason=~"{reasons}"}}'
    newest = f"max_over_time({counts}[24h])"
    return f"sum({newest} - {counts} offset 24h >= 0 or {newest}) or {WATCHED}"


def tell_state(by: str) -> str:
    """Return a query for the number of a container's state."""
    exited = 'container_state{@container, state="exited"} == 1'

    def died_of(sign: str, reasons: str) -> str:
        return (
            f'{exited} and {_NAME} container_last_death_info{{@container, reason{sign}"{reasons}"}}'
        )

    failed = f"{died_of('!~', _NO_FAULT)} and {_NAME} container_last_exit_code{{@container}} != 0"
    unhealthy = (
        'container_health{@container, status="unhealthy"} == 1'
        f' and {_NAME} container_state{{@container, state="running"}} == 1'
    )
    conditions = (
        (_OOM_HOST, died_of("=~", FROM_OUTSIDE)),
        (_OOM_OWN, died_of("=~", OWN_LIMIT)),
        (_DIED, failed),
        (_UNHEALTHY, unhealthy),
    )
    chain = [f"{state.number} * group by ({by}) ({expr})" for state, expr in conditions]
    return " or ".join([*chain, encode("container_state{@container", "state", _STATES, by)])


def tell_state_with_image() -> str:
    """Return the query of `tell_state` with the image; the state is unknown without an engine."""
    what = "name, image"
    told = (
        f"max by ({what}) (({tell_state('job, instance, name')})"
        f" * {_NAME} group_left (image) container_info{{@container}})"
    )
    return f"{told} or {_UNKNOWN.number} * max by ({what}) (container_info{{@container}})"


def write_deaths() -> Row:
    """Return the collapsed row on alerts and exits."""
    alerts = list_alerts('@host, component=~"container|host"')
    panels = (alerts, _list_deaths(), _draw_kills(), _draw_restarts())
    return Row("Alerts and deaths", panels, is_collapsed=True)


def draw_states() -> Panel:
    """Return the timeline of each container's state."""
    unknown = f"{_UNKNOWN.number} * group by (name) (container_info{{@container}})"
    seen = keep_worst(_MOST_BANDS, f"{tell_state('name')} or {unknown}")
    none = f"{_NONE_HERE.number} + {LOOKS}"
    return state_timeline(
        "State of each container",
        About(
            f"What each container is; the {_MOST_BANDS} that were in the worst state, or that there is "
            "none; without an engine states are unknown.",
            "running, or exited when its work is done.",
            "`trainvitals diagnose NAME` shows why one died or is unhealthy.",
            alerts=("ContainerUnhealthy",),
        ),
        over_time(
            f'{seen} or on () label_replace({none}, "name", "containers", "", "")', "{{name}}"
        ),
        states=(*STATES, _NONE_HERE),
        empty="unknown",
        width=8,
        height=8,
    )


def draw_deaths() -> Panel:
    """Return the graph of containers' exit reasons and of the kernel's OOM kills on the machine."""
    deaths = find_rise("container_deaths_total{@container}", since=STEP)
    return timeseries(
        "Deaths by reason",
        About(
            "Containers that ended in each step of the graph, by what they died of, and processes that "
            "the kernel killed for memory, those outside of containers too.",
            "finished or stop-graceful, and no process killed.",
            "the same reason repeatedly is a loop: fix it before the next start; a killed process of "
            "a container that lives on may be a data loader worker for which its run waits.",
        ),
        over_time(f"sum by (reason) ({deaths}) > 0", "{{reason}}"),
        over_time(f"sum({find_rise('host_oom_kills_total{@host}')})", "processes killed"),
        least=0,
        is_bars=True,
        overrides=(
            colour_series(f"^({FROM_OUTSIDE})$", SERIES[5]),
            colour_series(f"^({OWN_LIMIT})$", CRITICAL),
            colour_series(f"^({_NO_FAULT})$", UNKNOWN),
            colour_series("^processes killed$", SERIES[1]),
        ),
        empty="unknown",
        height=8,
    )


def _list_deaths() -> Panel:
    keys = "name, reason, signal, confidence"

    def look_back(metric: str) -> str:
        told = f"{_INFO} * {_NAME} group_left () {metric}{{@container}}"
        return f"max by ({keys}) (last_over_time(({told})[$__range:1m]))"

    ran_out = (
        f"{state.number} * group by ({keys}) (last_over_time("
        f'container_last_death_info{{@container, reason=~"{reasons}"}}[$__range]))'
        for reasons, state in _RAN_OUT.items()
    )
    narrow = {"instance": "${instance}", "container": "${__data.fields.Container}"}
    return table(
        "Last deaths",
        About(
            "How each container last ended, those removed in the time range too; the reason is one of"
            " docs/diagnosis.md, and Memory shows whose ran out.",
            "finished or stop-graceful.",
            "`trainvitals diagnose NAME` has the evidence, the last lines of its log and what to do.",
            alerts=("ContainerDied", "ContainerOOMKilled"),
        ),
        keys=(
            Key("name", "Container", write_address(CONTAINERS, **narrow), "This container alone"),
            Key("reason", "Reason"),
            Key("signal", "Signal"),
            Key("confidence", "Sure"),
        ),
        columns=(
            Column(
                "Memory",
                " or ".join(ran_out),
                look="color-text",
                states=tuple(_RAN_OUT.values()),
            ),
            Column("Ended", f"1000 * {look_back('container_last_death_timestamp_seconds')}", SINCE),
            Column("Exit code", look_back("container_last_exit_code"), "none"),
        ),
        sort_by="Ended",
        empty="No container ended in this time range",
        height=8,
    )


def _draw_kills() -> Panel:
    kills = find_rise("container_oom_kills_total{@container}")
    of_machine = find_rise(
        'host_kernel_oom_kills_total{@host, constraint!="memcg"}',
        since="trainvitals_build_info{@host}",
    )
    return timeseries(
        "Processes killed for memory",
        About(
            "Processes of a container that the kernel killed for memory, by whichever of engine,"
            " control group and kernel log counted most, and those that it killed because the machine"
            " had none left; a container may live on without them.",
            "none.",
            "a killed data loader worker hangs its run: see who is missing with `docker top NAME`; the"
            " machine's: give every container a limit.",
        ),
        over_time(f"topk(10, max by (name) ({kills}) > 0)", "{{name}}"),
        over_time(f"sum({of_machine}) > 0", "for want of the machine's"),
        unit=COUNT,
        least=0,
        is_bars=True,
        overrides=(colour_series("^for want of", SERIES[5]),),
        empty="No process was killed for memory in this time range",
        width=12,
    )


def _draw_restarts() -> Panel:
    counts = "container_restarts_total{@container}"
    return timeseries(
        "Restarts within 15 min",
        About(
            "How often a container was started again within the 15 minutes before.",
            "0.",
            "stop one that loops, and fix the cause of its death first.",
            alerts=("ContainerRestartLoop",),
        ),
        over_time(f"topk(10, max by (name) (round(increase({counts}[15m]))) > 0)", "{{name}}"),
        steps=((None, OK), (limit("container_restart_loop:restarts"), WARNING)),
        least=0,
        empty="Nothing was restarted in this time range",
        width=12,
    )
