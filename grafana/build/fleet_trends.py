"""How all machines did over time: how busy accelerators were, how fast runs, and the energy."""

from __future__ import annotations

from dataclasses import replace

from grafana.build.layout import Row, link_to
from grafana.build.limits import limit
from grafana.build.palette import JOULES, OK, RATIO, SAMPLES_PER_SECOND, WARNING, WATTS
from grafana.build.panels import About, heatmap, timeseries
from grafana.build.parts import HOST, RUN
from grafana.build.queries import in_buckets, over_time


def write_trends() -> Row:
    """Make the row."""
    return Row(
        "Trends",
        (
            # A minute for each cell: a finer one says no more.
            replace(
                heatmap(
                    "Accelerators by how busy they are",
                    About(
                        "How many accelerators computed for which share of 5 minutes.",
                        "bright at the top where all are in use, at the bottom where none is.",
                        "a band in the middle waits for data or for each other: see Least busy hosts.",
                    ),
                    in_buckets("sum by (le) (instance:accelerators_busy:bucket{@host})"),
                    unit=RATIO,
                    empty="No accelerator",
                ),
                extra={"interval": "1m"},
            ),
            replace(
                timeseries(
                    "Least busy hosts",
                    About(
                        "How busy accelerators are on which somebody holds memory: the ten machines"
                        " with the lowest mean now.",
                        f"above {limit('gpu_low_utilization:utilization_percent'):.0f} %.",
                        "click the machine; then see whether its run waits for data.",
                    ),
                    over_time(_find_least_busy(), "{{instance}}"),
                    unit=RATIO,
                    steps=(
                        (None, WARNING),
                        (limit("gpu_low_utilization:utilization_percent") / 100, OK),
                    ),
                    least=0,
                    most=1,
                    empty="No accelerator is in use",
                    link=link_to(HOST, "Open the host", instance="${__field.labels.instance}"),
                ),
                extra={"interval": "1m"},
            ),
            timeseries(
                "Samples per second by run",
                About(
                    "Samples that all ranks of a run train on, from their count: the ten fastest.",
                    "level for each run, with gaps for validation and checkpoints.",
                    "a drop to a lower level is a slower machine or slower data: click the run.",
                ),
                over_time(
                    "topk(10, sum by (run) (rate(training_samples_total{@host}[$__rate_interval])))",
                    "{{run}}",
                ),
                unit=SAMPLES_PER_SECOND,
                least=0,
                empty="No run counts samples in this time range",
                link=link_to(RUN, "Open the run", run="${__field.labels.run}"),
            ),
        ),
    )


def _find_least_busy() -> str:
    """Write a query for the hosts that are least busy at the end of the time range."""
    mean = "avg by (instance) (instance:accelerators_held_busy:avg{@host}%s)"
    return f"{mean % ''} and on (instance) bottomk(10, {mean % ' @ end()'})"


def write_energy() -> Row:
    """Make the row, closed: a week of energy is much to ask."""
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
                empty="No accelerator tells its power",
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
