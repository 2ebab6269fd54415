"""The terminal section for training runs."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from trainvitals.foreign_text import clean_text
from trainvitals.units import (
    UNKNOWN,
    count_noun,
    format_count,
    format_duration,
    format_percent,
    format_rate,
    format_value,
)
from trainvitals.views.machine.headline import list_run_remarks
from trainvitals.views.machine.picture import Picture, Run
from trainvitals.views.terminal.gauges import Gauge, History
from trainvitals.views.terminal.headline import STYLES
from trainvitals.views.terminal.table import Column, Rows

_MOST_METRICS = 6


def list_runs(picture: Picture) -> Rows[Run]:
    """Return the section that lists the training runs."""
    return Rows(
        2,
        (
            Column("RUN", lambda run: Text(clean_text(run.name)), 16, 32, 99, lambda run: run.name),
            Column("STATE", _draw_state, 10, 0, 9, lambda run: run.state),
            Column("DONE", _draw_progress, 11, 17, 8, lambda run: run.progress_ratio),
            Column("ETA", _draw_eta, 7, 0, 7, lambda run: run.eta_seconds, "right"),
            Column("RATE", _draw_rate, 9, 12, 6, _rate, "right"),
            Column("LOSS", _draw_loss, 7, 9, 5, lambda run: run.loss, "right"),
            Column("LOSS 15 MIN", _draw_curve, 12, 45, 4),
            Column("STEP", _draw_step, 13, 20, 3, lambda run: run.step, "right"),
            Column("VAL LOSS", _draw_validation, 9, 0, 3, lambda run: run.validation_loss, "right"),
            Column("EPOCH", _draw_epoch, 7, 0, 2, lambda run: run.epoch, "right"),
            Column("STEP TIME", _draw_step_time, 9, 0, 1, lambda run: run.step_seconds, "right"),
            Column("RANKS", _draw_ranks, 8, 0, 2, lambda run: run.ranks_alive, "right"),
            Column("PHASE", lambda run: Text(clean_text(run.phase or UNKNOWN)), 10, 0, 2),
            Column("LOSES TIME TO", _draw_bound, 13, 14, 2),
            Column("ON", _draw_devices, 9, 40, 1),
        ),
        picture.runs,
        notes=lambda run: _list_notes(run, picture),
        has_trouble=lambda run: bool(picture.find_troubles("run", run.name)),
        empty="none here; start one with trainvitals run -- COMMAND",
        most_wanted=2,
    )


def _rate(run: Run) -> float | None:
    return run.tokens_per_second if run.samples_per_second is None else run.samples_per_second


def _draw_state(run: Run) -> Text:
    return Text(clean_text(run.state), STYLES[run.tone])


def _draw_progress(run: Run) -> RenderableType:
    style = STYLES[run.tone] if run.tone in {"bad", "warning"} else "green"
    return Gauge(run.progress_ratio, format_percent(run.progress_ratio), 4, style)


def _draw_eta(run: Run) -> Text:
    return Text(format_duration(run.eta_seconds))


def _draw_rate(run: Run) -> Text:
    if run.samples_per_second is not None:
        return Text(f"{format_rate(run.samples_per_second)} S/s")
    if run.tokens_per_second is not None:
        return Text(f"{format_rate(run.tokens_per_second)} T/s")
    return Text(UNKNOWN)


def _draw_loss(run: Run) -> Text:
    return Text(format_value(run.loss))


def _draw_curve(run: Run) -> RenderableType:
    return History(run.loss_trace)


def _draw_step(run: Run) -> Text:
    return Text(_format_place(run.step, run.steps))


def _draw_epoch(run: Run) -> Text:
    return Text(_format_place(run.epoch, run.epochs))


def _format_place(at: int | None, end: int | None) -> str:
    return format_count(at) if end is None else f"{format_count(at)}/{format_count(end)}"


def _draw_validation(run: Run) -> Text:
    return Text(format_value(run.validation_loss))


def _draw_step_time(run: Run) -> Text:
    return Text(format_duration(run.step_seconds))


def _draw_ranks(run: Run) -> Text:
    alive = UNKNOWN if run.ranks_alive is None else str(run.ranks_alive)
    return Text(f"{alive}/{run.ranks}")


def _draw_bound(run: Run) -> Text:
    return Text(clean_text(run.bound or UNKNOWN))


def _draw_devices(run: Run) -> Text:
    return Text(" ".join(map(clean_text, run.devices)) or UNKNOWN)


def _list_notes(run: Run, picture: Picture) -> Iterator[Text]:
    for words, tone in list_run_remarks(picture, run):
        yield Text(clean_text(words), "dim" if tone == "good" else STYLES[tone])
    if run.restarts:
        yield Text(f"started again {count_noun(run.restarts, 'time')}", STYLES["warning"])
    if run.metrics:
        metrics = ", ".join(
            f"{clean_text(f'{one.split} {one.name}'.strip())} {format_value(one.value)}"
            for one in run.metrics[:_MOST_METRICS]
        )
        more = len(run.metrics) - _MOST_METRICS
        yield Text(f"{metrics}{f', +{more} more' if more > 0 else ''}", "dim")
