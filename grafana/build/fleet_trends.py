"""Trends of all machines: accelerator utilisation, run throughput and energy."""

from __future__ import annotations

from dataclasses import replace

from grafana.build.layout import Row, link_to
from grafana.build.limits import limit
from grafana.build.palette import JOULES, OK, RATIO, WARNING, WATTS
from grafana.build.panels import About, Panel, heatmap, timeseries
from grafana.build.parts import HOST
from grafana.build.queries import in_buckets, over_time


def draw_busy() -> Panel:
    """Return the heatmap of the distribution of accelerators over utilisation."""
    drawn = heatmap(
        "Accelerators by how busy they are",
        About(
            "How many accelerators computed for which share of 5 minutes.",
            "bright at the top where all are in use, at the bottom where none is.",
            "a band in the middle waits for data or for each other: see Least busy hosts.",
        ),
        in_buckets("sum by (le) (instance:accelerators_busy:bucket{@host})"),
        unit=RATIO,
        empty="No accelerator is known: `trainvitals doctor` on its machine says why, if there should be one",
    )
    return replace(drawn, extra={"interval": "1m"})  # a shorter interval shows no further detail


def draw_least_busy() -> Panel:
    """Return the graph of the machines whose held accelerators have the lowest utilisation."""
    low = limit("gpu_low_utilization:utilization_percent")
    drawn = timeseries(
        "Least busy hosts",
        About(
            "How busy accelerators are whose memory is held: the ten machines with the lowest mean"
            " now.",
            f"above {low:.0f} %.",
            "click the machine; then see whether its run waits for data.",
        ),
        over_time(_find_least_busy(), "{{instance}}"),
        unit=RATIO,
        steps=((None, WARNING), (low / 100, OK)),
        least=0,
        most=1,
        empty="No accelerator is in use",
        width=10,
        height=11,
        link=link_to(HOST, "Open the host", instance="${__field.labels.instance}"),
    )
    return replace(drawn, extra={"interval": "1m"})


def _find_least_busy() -> str:
    """Return a query for the hosts with the lowest utilisation at the end of the time range."""
    mean = "avg by (instance) (instance:accelerators_held_busy:avg{@host}%s)"
    return f"{mean % ''} and on (instance) bottomk(10, {mean % ' @ end()'})"


def write_energy() -> Row:
    """Return the row on energy, which is collapsed because its query over a week is expensive."""
    return Row(
        "Energy",
        (
            timeseries(
                "Power by host",
                About(
                    "What the accelerators of a machine draw: the ten that draw the most.",
                    "follows their use.",
                    "a machine that draws much and trains nothing is worth a look: click it.",
                ),
                over_time(
                    "topk(10, sum by (instance) (accelerator_power_watts{@host}))", "{{instance}}"
                ),
                unit=WATTS,
                least=0,
                width=12,
                empty="No accelerator reports its power",
                link=link_to(HOST, "Open the host", instance="${__field.labels.instance}"),
            ),
            replace(
                timeseries(
                    "Energy per day",
                    About(
                        "What all accelerators used in each of the last seven days, by UTC.",
                        "follows what was trained.",
                        "compare it with the runs of that day.",
                    ),
                    over_time(
                        "sum by (kind) (increase(accelerator_energy_joules_total{@host}[1d]))",
                        "{{kind}}",
                    ),
                    unit=JOULES,
                    least=0,
                    is_bars=True,
                    width=12,
                    calcs=("lastNotNull", "mean", "sum"),
                    empty="No accelerator counts its energy, or no day (UTC) is over yet",
                ),
                extra={"interval": "1d", "timeFrom": "7d"},
            ),
        ),
        is_collapsed=True,
    )
