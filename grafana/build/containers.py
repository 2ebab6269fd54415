"""The board of containers: what runs, what died of what, and which is next to run out of memory.

It shows one machine, which has at most 128 containers, so graphs show the ten that matter most.
Whether a container died at its own limit or because the machine had no memory left is told apart
by the reason of its death.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from grafana.build.containers_deaths import (
    DEATHS,
    FROM_OUTSIDE,
    OWN_LIMIT,
    STATES,
    count_deaths,
    tell_state_with_image,
    write_deaths,
)
from grafana.build.containers_use import write_accelerators, write_cpu, write_memory, write_traffic
from grafana.build.layout import Board, Row, Variable, write_address
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
from grafana.build.panels import About, Column, Key, Panel, Steps, stat, table
from grafana.build.parts import (
    CONTAINERS,
    JOB,
    ONE_HOST,
    OOM_KILLS,
    list_alerts,
    mark_alerts,
)
from grafana.build.queries import now

_CONTAINER: Final = Variable(
    "container",
    "Container",
    "label_values(container_info{@host}, name)",
    "Containers by name; some ended, and stay for ten minutes after they were removed",
    is_multiple=True,
)

_SHARE: Final = (
    "container_memory_working_set_bytes{@container}"
    " / (container_spec_memory_limit_bytes{@container} > 0)"
)
_NEAR: Final[Steps] = ((None, OK), (limit("container_memory_near_limit:ratio"), WARNING))
_STEP: Final = "trainvitals_containers_privilege_step{@host}"
_SOURCES: Final = (
    State(-1, "cut off", CRITICAL),
    State(0, "cgroups alone", WARNING),
    State(1, "no kernel log", INFORMATION),
    State(2, "everything", OK),
)


def build() -> Board:
    """Build the board."""
    return Board(
        uid=CONTAINERS,
        title="Vitals / Containers & OOM",
        question="What died, whose memory ran out, and which container is next?",
        variables=(JOB, ONE_HOST, _CONTAINER),
        annotations=(
            mark_alerts('@container, component="container"'),
            DEATHS,
            replace(OOM_KILLS, is_enabled=True),
        ),
        rows=(
            _write_now(),
            _write_attention(),
            write_deaths(),
            write_memory(),
            write_accelerators(),
            write_cpu(),
            write_traffic(),
        ),
    )


def _write_now() -> Row:
    return Row(
        "Now",
        (
            stat(
                "Running",
                About(
                    "Containers that run, by the engine or, where none is asked, by control group.",
                    "those that you started.",
                    "Last deaths says what became of the others.",
                ),
                now(
                    'count(container_state{@container, state="running"} == 1)'
                    f" or count(container_threads{{@container}}) or 0 * max({_STEP})"
                ),
                empty="No container engine",
            ),
            stat(
                "Unhealthy",
                About(
                    "Containers that run and fail their own health check.",
                    "0.",
                    "`docker inspect NAME` has what the check says; Docker does not restart them.",
                ),
                now(
                    'count(container_health{@container, status="unhealthy"} == 1'
                    " and on (job, instance, name)"
                    ' container_state{@container, state="running"} == 1)'
                    " or 0 * count(container_health{@container})"
                ),
                steps=((None, OK), (1, WARNING)),
                empty="No health check",
            ),
            stat(
                "Restarts, 1 h",
                About(
                    "How often containers were started again in the last hour.",
                    "0.",
                    "Restarts within 15 min names those that loop.",
                ),
                now("sum(round(increase(container_restarts_total{@container}[1h])))"),
                steps=((None, OK), (1, WARNING)),
                empty="No engine is asked",
            ),
            _count_kills(
                "OOM by limit, 24 h",
                OWN_LIMIT,
                "Containers that died because they reached their own memory limit.",
                "raise the limit, or start with fewer data loader workers or a smaller batch.",
            ),
            _count_kills(
                "OOM by host, 24 h",
                FROM_OUTSIDE,
                "Containers that died because the machine, or a group above them, had no memory left.",
                "another job may have taken it: give every container a limit, run fewer at once.",
            ),
            stat(
                "Nearest its limit",
                About(
                    "The container with the largest working set by its memory limit.",
                    f"below {100 * limit('container_memory_near_limit:ratio'):.0f} %.",
                    "raise its limit before the kernel kills it: `docker update --memory`.",
                ),
                now(f"topk(1, {_SHARE})", "{{name}}"),
                unit=RATIO,
                steps=_NEAR,
                decimals=0,
                text_mode="value_and_name",
                empty="None has a limit",
            ),
            stat(
                "Held back most",
                About(
                    "The container that its CPU limit holds back the most: cores that it wanted and"
                    " did not get.",
                    "near 0.",
                    "raise its `--cpus`, or start fewer workers.",
                ),
                now(
                    "topk(1, rate(container_cpu_cfs_throttled_seconds_total{@container}"
                    "[$__rate_interval]))",
                    "{{name}}",
                ),
                unit=CORES,
                decimals=2,
                text_mode="value_and_name",
                empty="Nothing runs",
            ),
            _tell_sources(),
        ),
    )


def _count_kills(title: str, reasons: str, shows: str, act: str) -> Panel:
    return stat(
        title,
        About(f"{shows[:-1]}, in the last 24 hours.", "0.", act),
        now(count_deaths(reasons)),
        steps=((None, OK), (1, CRITICAL)),
        empty="No engine is asked",
    )


def _tell_sources() -> Panel:
    return stat(
        "Told by",
        About(
            "Whom the exporter may ask: control groups, the engine, the kernel's log.",
            "everything.",
            "docs/containers.md says what opens the others; cut off means that the engine's events are.",
        ),
        now(f"max(trainvitals_containers_events_connected{{@host}} == 0) - 1 or max({_STEP})"),
        states=_SOURCES,
        empty="No container engine",
    )


def _write_attention() -> Row:
    alerts = list_alerts('@host, component=~"container|host"', height=5)
    return Row("Attention", (alerts, _list_containers()))


def _list_containers() -> Panel:
    narrow = {"instance": "${instance}", "container": "${__data.fields.Container}"}
    cpu = "rate(container_cpu_usage_seconds_total{@container}[$__rate_interval])"
    throttled = "rate(container_cpu_cfs_throttled_seconds_total{@container}[$__rate_interval])"
    restarts = "round(increase(container_restarts_total{@container}[24h]))"
    used = "container_memory_working_set_bytes{@container}"
    allowed = "container_spec_memory_limit_bytes{@container} > 0"
    return table(
        "Containers",
        About(
            "Each container now, the worst state first: its working set by its limit, and the cores"
            " that it uses and is denied.",
            "running, below its limit, not held back.",
            "click one to see it alone; without a limit it can take the whole machine's memory.",
        ),
        keys=(
            Key(
                "name",
                "Container",
                write_address(CONTAINERS, **narrow),
                "This container alone",
                220,
            ),
            Key("compose_service", "Service"),
            Key("image", "Image", width=260),
        ),
        columns=(
            Column("State", tell_state_with_image(), look="color-background", states=STATES),
            Column("Of its limit", f"max by (name) ({_SHARE})", RATIO, _NEAR, "gauge", decimals=0),
            Column("Memory", f"max by (name) ({used})", BYTES),
            Column("Limit", f"max by (name) ({allowed})", BYTES),
            Column("CPU", f"max by (name) ({cpu})", CORES, decimals=2),
            Column("Held back", f"max by (name) ({throttled})", CORES, decimals=2),
            Column("Restarts, 24 h", f"max by (name) ({restarts})"),
        ),
        sort_by="State",
        empty="No container",
        height=9,
    )
