"""The home dashboard: problems of machines, accelerators and runs, and the monitoring's health.

For 64 machines with 8 devices each, no panel may draw more than 200 series: graphs show the ten
most relevant series or a distribution, and tables have a row for each machine or run.
"""

from __future__ import annotations

from typing import Final

from grafana.build.accelerators_panels import LOOKED
from grafana.build.fields import Steps
from grafana.build.fleet_hosts import BUSY, DEVICES, TARGETS, draw_hosts, write_hosts
from grafana.build.fleet_pipeline import write_pipeline
from grafana.build.fleet_runs import count_open, count_troubled, draw_phases, write_runs
from grafana.build.fleet_trends import draw_busy, draw_least_busy, write_energy
from grafana.build.layout import Annotation, Board, Row, write_address
from grafana.build.limits import limit
from grafana.build.palette import (
    CELSIUS,
    CRITICAL,
    DEVICE_STATES,
    OK,
    RATIO,
    SINCE,
    WARNING,
    State,
)
from grafana.build.panels import About, Panel, stat
from grafana.build.parts import (
    ACCELERATORS,
    FLEET,
    HOST,
    HOSTS,
    JOB,
    OOM_KILLS,
    list_alerts,
)
from grafana.build.queries import encode, now, over_time, tell_of
from grafana.build.tables import Column, Key, table

# If a machine is selected, alerts without a machine, such as failing rules, are still shown.
_ALERTS = 'job=~"$job|",instance=~"$instance|"'

# Urgent alerts, and alerts about the monitoring itself, which no other dashboard covers.
_URGENT: Final = f'ALERTS{{{_ALERTS}, alertstate="firing", severity="critical"}}'
_OF_MONITORING: Final = (
    f'ALERTS{{{_ALERTS}, alertstate="firing", severity="warning", component="meta",'
    ' alertname!~"Exporter.+"}'
)

_ANNOTATIONS: Final = (
    Annotation(
        "Alerts",
        f"count by (alertname, severity) ({_URGENT} or {_OF_MONITORING})",
        CRITICAL,
        "{{alertname}}",
        "{{severity}}; the table above shows where",
    ),
    Annotation(
        "Deaths",
        "1000 * max by (run, reason)"
        ' (training_process_end_timestamp_seconds{@host, reason!="finished"})',
        CRITICAL,
        "{{run}} died: {{reason}}",
        "",
        is_moment=True,
    ),
    OOM_KILLS,
)

_LOST = 'accelerator_up{@host} == 0 unless ignoring (state) accelerator_state{@host, state="unsupported"}'
_SLOWED = 'reason=~"hw_thermal|sw_thermal|hw_power_brake"'


_WORKS = State(0, "works", OK)
_HALF_BLIND = State(1, "partly blind", WARNING)
_BROKEN = State(2, "broken", CRITICAL)
_SILENT = State(3, "no rules run", CRITICAL)
# The accelerator states that indicate a problem.
_WRONG: Final = {
    name: state for name, state in DEVICE_STATES.items() if name not in ("ok", "unsupported")
}

_ANY: Steps = ((None, OK), (1, CRITICAL))


def build() -> Board:
    """Return the dashboard."""
    return Board(
        uid=FLEET,
        title="Vitals / Fleet",
        question="Which machine, accelerator or run is in trouble?",
        variables=(JOB, HOSTS),
        annotations=_ANNOTATIONS,
        rows=(
            _write_now(),
            write_runs(),
            write_hosts(),
            _write_accelerators(),
            write_energy(),
            write_pipeline(),
        ),
        refresh="1m",
    )


# --------------------------------------------------------------------------------------------- now


def _write_now() -> Row:
    return Row(
        "Now",
        (
            _judge_monitoring(),
            stat(
                "Hosts down",
                About(
                    "Machines whose exporter does not answer, of all that Prometheus scrapes.",
                    "0.",
                    "the table of hosts names them: try ping and ssh, then `trainvitals status`.",
                ),
                now(tell_of(f"sum({TARGETS} == bool 0)", f"count({TARGETS})"), "of {{all}}"),
                steps=_ANY,
                text_mode="value_and_name",
                empty="none scraped",
            ),
            stat(
                "Devices lost",
                About(
                    "Accelerators that do not answer or were never seen, of all that there should be.",
                    "0.",
                    "see them under Worst accelerators; the kernel log has the reason.",
                ),
                now(_count_lost_devices(), "of {{all}}"),
                steps=_ANY,
                text_mode="value_and_name",
                empty="unknown",
            ),
            stat(
                "Troubled runs",
                About(
                    "Runs that are stalled, and those that died or vanished and were not started again,"
                    " of all that have not ended; what SIGTERM ended does not count.",
                    "0.",
                    "open the run from the table of runs; `trainvitals postmortem RUN` explains a dead one.",
                ),
                now(tell_of(f"({count_troubled()})", f"({count_open()})"), "of {{all}}"),
                steps=_ANY,
                text_mode="value_and_name",
                empty="unknown",
            ),
            stat(
                "Devices busy",
                About(
                    "Share of the last 5 minutes in which accelerators computed, mean of all.",
                    "above 80 % where all are in use.",
                    "Least busy hosts shows where the time is lost.",
                ),
                over_time(f"sum({BUSY}) / (sum({DEVICES}) > 0)", "busy"),
                unit=RATIO,
                decimals=0,
                empty="none",
            ),
            stat(
                "OOM kills, 24 h",
                About(
                    "Processes that kernels killed for want of memory in the last 24 hours.",
                    "0.",
                    "the Containers & OOM board distinguishes a container's own limit from the host's.",
                ),
                now("sum(round(increase(host_oom_kills_total{@host}[24h])))"),
                steps=((None, OK), (1, WARNING)),
                empty="unknown",
            ),
            list_alerts(_ALERTS),
            draw_hosts(),
            draw_phases(),
            draw_busy(),
        ),
    )


def _judge_monitoring() -> Panel:
    meta = 'ALERTS{alertstate="firing", component="meta"'
    return stat(
        "Monitoring",
        About(
            "Whether this board can be trusted: alerts about the monitoring itself.",
            "works; partly blind means that a machine or a collector does not report.",
            "the alerts below name the fault, and the row Pipeline shows it.",
            alerts=("Watchdog",),
        ),
        now(
            f'{_BROKEN.number} * max({meta}, severity="critical", alertname!="ExporterDown"}}'
            f' or {meta}, alertname="ExporterDown", job=~"prometheus|alertmanager"}})'
            f' or {_HALF_BLIND.number} * max({meta}, severity!="none"}})'
            f' or {_WORKS.number} * max(ALERTS{{alertname="Watchdog", alertstate="firing"}})'
            f" or {_SILENT.number}"
            ' * max(absent(ALERTS{alertname="Watchdog", alertstate="firing"}))'
        ),
        states=(_WORKS, _HALF_BLIND, _BROKEN, _SILENT),
        empty="unknown",
    )


def _count_lost_devices() -> str:
    """Return a query for the number of devices that do not respond or were never detected."""
    expected, answer = "accelerator_devices_expected{@host}", "accelerator_devices{@host}"
    by = "job, instance, kind"
    lost = f"""(
        sum(
          sum by ({by}) ({expected} > {answer}) - sum by ({by}) ({answer})
          or count by ({by}) ({_LOST})
        )
        or {LOOKED}
    )"""
    known = f"max by ({by}) ({expected}) or count by ({by}) (accelerator_up{{@host}})"
    whole = f"(sum({known}) or {LOOKED})"
    return tell_of(lost, whole)


# ------------------------------------------------------------------------------------ accelerators


def _write_accelerators() -> Row:
    return Row("Accelerators", (_list_worst_devices(), draw_least_busy()), is_collapsed=True)


def _list_worst_devices() -> Panel:
    by = "instance, kind, device"
    devices = {
        "instance": "${__data.fields.Host}",
        "kind": "${__data.fields.Kind}",
        "device": "${__data.fields.Device}",
    }
    slowed = f"""
        max by ({by}) (
          rate(accelerator_throttle_seconds_total{{@host, {_SLOWED}}}[$__rate_interval])
          or accelerator_throttle_active{{@host, {_SLOWED}}}
        )
    """
    xid = f'max by ({by}) (accelerator_xid_last_timestamp_seconds{{@host, class!="app"}})'
    return table(
        "Worst accelerators",
        About(
            "Accelerators that do not answer, and the hottest, the most slowed down and the last with"
            " an Xid in the time range; a blank cell means not among the worst.",
            "no state, and several degrees to slowdown.",
            "click the device; one hot card is its cooler, all hot cards are the room.",
        ),
        keys=(
            Key(
                "instance",
                "Host",
                write_address(HOST, instance="${__data.fields.Host}"),
                "Open the host",
            ),
            Key("kind", "Kind"),
            Key("device", "Device", write_address(ACCELERATORS, **devices), "Open the device"),
        ),
        columns=(
            Column(
                "State",
                f"topk(20, {encode('accelerator_state{@host', 'state', _WRONG, by)})",
                look="color-text",
                states=tuple(_WRONG.values()),
            ),
            Column(
                "To slowdown",
                f"bottomk(8, min by ({by}) (accelerator:temperature_headroom:celsius{{@host}}))",
                CELSIUS,
                steps=(
                    (None, CRITICAL),
                    (limit("gpu_high_temperature:headroom_celsius"), WARNING),
                    (limit("accelerator_temperature_near_limit:headroom_celsius"), OK),
                ),
                look="color-text",
                decimals=0,
            ),
            Column(
                "Slowed down",
                f"topk(8, {slowed} > 0)",
                RATIO,
                steps=((None, OK), (limit("accelerator_thermal_throttling:ratio"), WARNING)),
                look="color-text",
                decimals=0,
            ),
            Column("Last Xid", f"topk(8, 1000 * ({xid} > time() - $__range_s))", SINCE),
        ),
        sort_by="State",
        empty="No accelerator is known",
        width=14,
        height=11,
    )
