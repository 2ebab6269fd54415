"""The home board: which machine, accelerator or run is in trouble, and can the monitoring be trusted.

With 64 machines of 8 devices no panel may draw more than 200 series: graphs show the ten that
matter most or how all are spread, tables have a row for each machine or run.
"""

from __future__ import annotations

from typing import Final

from grafana.build.fleet_pipeline import write_pipeline
from grafana.build.fleet_runs import count_live, count_troubled, write_runs
from grafana.build.fleet_trends import write_energy, write_trends
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
    WATTS,
    State,
)
from grafana.build.panels import (
    About,
    Column,
    Key,
    Panel,
    Steps,
    stat,
    table,
)
from grafana.build.parts import (
    ACCELERATORS,
    FLEET,
    HOST,
    HOSTS,
    JOB,
    OOM_KILLS,
    list_alerts,
)
from grafana.build.queries import encode, now, over_time

# Whoever chooses a machine still sees what fires for none, such as rules that fail.
_ALERTS = 'job=~"$job|",instance=~"$instance|"'

# What cannot wait, and what is wrong with the monitoring itself, which no other board is about.
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
        "{{severity}}; the table above says where",
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

_TARGETS = 'up{@host, job!~"prometheus|alertmanager"}'
_LOST = 'accelerator_up{@host} == 0 unless ignoring (state) accelerator_state{@host, state="unsupported"}'
_SLOWED = 'reason=~"hw_thermal|sw_thermal|hw_power_brake"'

# How busy the accelerators of each machine are together, and how many there are.
_BUSY = "instance:accelerators_busy:sum{@host}"
_DEVICES = 'instance:accelerators_busy:bucket{@host, le="+Inf"}'

_WORKS = State(0, "works", OK)
_HALF_BLIND = State(1, "partly blind", WARNING)
_BROKEN = State(2, "broken", CRITICAL)
_SILENT = State(3, "no rules run", CRITICAL)
_UP, _DOWN = State(0, "up", OK), State(1, "down", CRITICAL)
# Of accelerators, those states in which something is wrong.
_WRONG: Final = {
    name: state for name, state in DEVICE_STATES.items() if name not in ("ok", "unsupported")
}

_ANY: Steps = ((None, OK), (1, CRITICAL))


def build() -> Board:
    """Build the board."""
    return Board(
        uid=FLEET,
        title="Vitals / Fleet",
        question="Which machine, accelerator or run is in trouble?",
        variables=(JOB, HOSTS),
        annotations=_ANNOTATIONS,
        rows=(
            _write_now(),
            _write_attention(),
            write_runs(),
            _write_hosts(),
            write_trends(),
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
                now(_tell_of(f"sum({_TARGETS} == bool 0)", f"count({_TARGETS})"), "of {{all}}"),
                steps=_ANY,
                text_mode="value_and_name",
                empty="No machine is scraped",
            ),
            stat(
                "Accelerators lost",
                About(
                    "Accelerators that do not answer or were never seen, of all that there should be.",
                    "0.",
                    "see them under Worst accelerators; the kernel log says why.",
                ),
                now(_count_lost_devices(), "of {{all}}"),
                steps=_ANY,
                text_mode="value_and_name",
                empty="No accelerator",
            ),
            stat(
                "Runs",
                About(
                    "Training runs that live, however many machines each has.",
                    "what you started.",
                    "what ended or vanished stays in the table of runs for a quarter of an hour.",
                ),
                now(count_live()),
                empty="No exporter looks for runs",
            ),
            stat(
                "Runs in trouble",
                About(
                    "Runs that stand still, and those that died or vanished and were not started again;"
                    " what SIGTERM ended does not count.",
                    "0.",
                    "open the run from the table of runs; `trainvitals postmortem RUN` tells of a dead one.",
                ),
                now(count_troubled()),
                steps=_ANY,
                empty="No exporter looks for runs",
            ),
            stat(
                "Accelerators busy",
                About(
                    "Share of the last 5 minutes in which accelerators computed, mean of all.",
                    "above 80 % where all are in use.",
                    "Least busy hosts shows where the time is lost.",
                ),
                over_time(f"sum({_BUSY}) / (sum({_DEVICES}) > 0)", "busy"),
                unit=RATIO,
                decimals=0,
                has_graph=True,
                empty="No accelerator",
            ),
            stat(
                "Power",
                About(
                    "What all accelerators draw.",
                    "follows their use.",
                    "high power without throughput is a run that spins; see Energy.",
                ),
                over_time("sum(accelerator_power_watts{@host})", "power"),
                unit=WATTS,
                decimals=1,
                has_graph=True,
                empty="No accelerator tells its power",
            ),
            stat(
                "OOM kills, 24 h",
                About(
                    "Processes that kernels killed for want of memory in the last 24 hours.",
                    "0.",
                    "the Containers & OOM board tells a container's own limit from the host's.",
                ),
                now("sum(round(increase(host_oom_kills_total{@host}[24h])))"),
                steps=((None, OK), (1, WARNING)),
                empty="No kernel counts them",
            ),
        ),
    )


def _judge_monitoring() -> Panel:
    meta = 'ALERTS{alertstate="firing", component="meta"'
    return stat(
        "Monitoring",
        About(
            "Whether what this board says can be trusted: alerts about the monitoring itself.",
            "works; partly blind means that a machine or a collector is not heard.",
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
        empty="Prometheus does not answer",
    )


def _tell_of(part: str, whole: str) -> str:
    """Write a query for a count whose label `all` tells what it is part of."""
    return f'{part} * on () group_left (all) count_values("all", {whole})'


def _count_lost_devices() -> str:
    """Write a query for those that do not answer and, where a number is expected, were never seen."""
    expected, answer = "accelerator_devices_expected{@host}", "accelerator_devices{@host}"
    by = "job, instance, kind"
    lost = f"""(
        sum(
          sum by ({by}) ({expected} > {answer}) - sum by ({by}) ({answer})
          or count by ({by}) ({_LOST})
        )
        or 0 * count(accelerator_up{{@host}})
    )"""
    whole = f"sum(max by ({by}) ({expected}) or count by ({by}) (accelerator_up{{@host}}))"
    return _tell_of(lost, whole)


# --------------------------------------------------------------------------------------- attention


def _write_attention() -> Row:
    return Row("Attention", (list_alerts(_ALERTS, width=14, height=8), _list_worst_devices()))


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
                look="color-background",
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
        empty="No accelerator",
        width=10,
        height=8,
    )


# ------------------------------------------------------------------------------------------- hosts


def _write_hosts() -> Row:
    return Row("Hosts", (_list_hosts(),))


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
                f"max by (instance) ({_TARGETS} == bool 0)",
                look="color-background",
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
                f"sum by (instance) ({_BUSY}) / (sum by (instance) ({_DEVICES}) > 0)",
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
    """Make a column of shares that turns orange where an alert begins."""
    steps = ((None, OK), (most, WARNING))
    return Column(title, expr, RATIO, steps=steps, look="gauge", decimals=0)
