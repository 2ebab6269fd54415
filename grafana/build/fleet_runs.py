"""The runs of all machines: their number, their phases, and runs with problems.

A run on several machines has a table row for each machine, and one band in the timeline of phases.
The states of runs that died or are gone are those of the run dashboard, but filtered only by
machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from grafana.build.layout import Row, link_to, write_address
from grafana.build.limits import limit
from grafana.build.palette import (
    ENDED,
    OK,
    RATIO,
    SAMPLES_PER_SECOND,
    SECONDS,
    SINCE,
    STALLED,
    WARNING,
    WHOLE,
)
from grafana.build.panels import About, Panel, state_timeline
from grafana.build.parts import HOST, RUN
from grafana.build.queries import keep_worst, over_time
from grafana.build.run_selection import cut_out
from grafana.build.run_verdict import STATES, recall_state, tell_state
from grafana.build.tables import Column, Key, table

# The time for which a run is shown after its last sample, which is the time for which the exporter
# keeps ended runs.
_MEMORY: Final = "15m"
_MOST_RUNS: Final = 100
_MOST_BANDS: Final = 12

_RANK = "on (job, instance, run, rank)"
_PROGRESS = f"last_over_time(training_last_progress_timestamp_seconds{{@host}}[{_MEMORY}])"
_NO_RUN = (
    "0 * count(training_client_incompatible_files{@host})"  # absent if no exporter reads run files
)


def tell_busy() -> str:
    """Return a query for each accelerator's utilisation at the finest available resolution.

    The query uses the counter of busy time or, if the driver provides no counter, the latest
    sample.
    """
    return (
        "(rate(accelerator_busy_seconds_total{@host}[$__rate_interval])"
        " or accelerator_utilization_ratio{@host})"
    )


def list_held_devices() -> str:
    """Return a query for the living ranks, once for each `uuid` of a held accelerator."""
    ranks = cut_out("training_rank_info{@host%s}")
    return f"(({ranks}) and {_RANK} training_process_up{{@host}} == 1)"


def count_open() -> str:
    """Return a query for the number of runs, excluding runs that ended successfully."""
    states = recall_state(_MEMORY, "run", "@host")
    return f"count({states} != {ENDED.number}) or {_NO_RUN}"


def count_troubled() -> str:
    """Return a query for the number of runs that died, are gone or are stalled."""
    states = recall_state(_MEMORY, "run", "@host")
    return f"count({states} >= {STALLED.number}) or {_NO_RUN}"


def write_runs() -> Row:
    """Return the collapsed row on runs."""
    return Row("Runs", (_list_runs(),), is_collapsed=True)


def draw_phases() -> Panel:
    """Return the timeline of each run's phases."""
    drawn = state_timeline(
        "Phase of each run",
        About(
            f"What each run does, by its worst rank; the {_MOST_BANDS} that were in the worst.",
            "training, with short validations and checkpoints.",
            "click a run that stalled, died or is gone.",
        ),
        over_time(keep_worst(_MOST_BANDS, tell_state("run", "@host")), "{{run}}"),
        states=STATES,
        empty="No run in this time range: see docs/training.md for how one reports itself",
        width=8,
        height=8,
        link=link_to(RUN, "Open the run", run="${__field.labels.run}"),
    )
    return replace(drawn, extra={"interval": "1m"})


def _list_runs() -> Panel:
    run, host = "${__data.fields.Run}", "${__data.fields.Host}"
    return table(
        "Runs",
        About(
            f"Each run on each machine, at most {_MOST_RUNS}, the worst first; what ended or vanished"
            " stays for a quarter of an hour with its last values, not seen where its machine is silent.",
            "training, with little data wait and progress seconds ago.",
            "click the run for the reason, the host for its machine.",
        ),
        keys=(
            Key("run", "Run", write_address(RUN, instance=host, run=run), "Open the run", 220),
            Key("instance", "Host", write_address(HOST, instance=host), "Open the host", 200),
        ),
        columns=(
            Column(
                "State",
                f"topk({_MOST_RUNS}, {recall_state(_MEMORY, 'instance, run', '@host')})",
                look="color-text",
                states=STATES,
            ),
            *(replace(column, expr=_cap(column.expr)) for column in _list_columns()),
        ),
        sort_by="State",
        empty="No run",
        height=10,
    )


def _list_columns() -> tuple[Column, ...]:
    step = f"last_over_time(training_global_step{{@host}}[{_MEMORY}])"
    loss = f"last_over_time(training_loss{{@host}}[{_MEMORY}])"
    pace, end = "training_samples_per_second{@host}", "training_eta_timestamp_seconds{@host}"
    busy = (
        f"{list_held_devices()} * on (job, instance, uuid) group_left ()"
        " max by (job, instance, uuid) (accelerator:busy:ratio5m{@host})"
    )
    wait = _by_run("max", "run:training_data_wait:ratio10m{@host}")
    waits = ((None, OK), (limit("data_loader_bottleneck:wait_ratio"), WARNING))
    return (
        Column("Last progress", _tell_age(), SECONDS, decimals=0),
        Column("Step", _by_run("max", step), WHOLE, decimals=0),
        Column("Samples/s", _by_run("sum", pace), SAMPLES_PER_SECOND),
        Column("Loss", _by_run("avg", loss), "none", decimals=4),
        Column("Busy", _by_run("avg", busy), RATIO, look="gauge", decimals=0),
        Column("Data wait", wait, RATIO, steps=waits, look="color-text", decimals=0),
        Column("Ends", f"1000 * {_by_run('max', end)}", SINCE),
    )


def _by_run(operation: str, expr: str) -> str:
    return f"{operation} by (instance, run) ({expr})"


def _cap(expr: str) -> str:
    """Return a query limited to the runs with the oldest progress, or no reported progress."""
    age, others = f"time() - {_by_run('max', _PROGRESS)}", "training_run_info{@host}"
    return f"({expr}) and on (instance, run) topk({_MOST_RUNS}, {age} or {_by_run('max', others)})"


def _tell_age() -> str:
    """Return a query for the age of the slowest living rank's progress, else of any progress."""
    living = f"{_PROGRESS} and {_RANK} training_process_up{{@host}} == 1"
    return f"time() - ({_by_run('min', living)} or {_by_run('max', _PROGRESS)})"
