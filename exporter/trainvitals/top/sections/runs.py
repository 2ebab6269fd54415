"""The training runs: how far, how fast, how well, and who is behind."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from trainvitals.overview.picture import Laggard, Picture, Run
from trainvitals.top.bars import draw_gauge, draw_trace, find_bounds
from trainvitals.top.table import Column, Table
from trainvitals.top.words import (
    STYLES,
    UNKNOWN,
    count_things,
    make_harmless,
    write_ago,
    write_count,
    write_duration,
    write_percent,
    write_rate,
    write_value,
)

_MOST_LAGGARDS, _MOST_METRICS = 3, 6


def list_runs(picture: Picture) -> Table[Run]:
    """Make the section."""
    now = picture.time
    return Table(
        2,
        "run",
        (
            Column("RUN", lambda run, _: Text(make_harmless(run.name)), 16, 32, 99, key=_name),
            Column("STATE", _draw_state, 10, 0, 9, lambda run: run.state),
            Column("DONE", _draw_progress, 11, 17, 8, lambda run: run.progress_ratio),
            Column("ETA", _draw_eta, 6, 0, 7, lambda run: run.eta_seconds, "right"),
            Column("RATE", _draw_rate, 9, 10, 6, _rate, "right"),
            Column("LOSS", lambda run, _: Text(write_value(run.loss)), 7, 9, 5, _loss, "right"),
            Column("LOSS 15 MIN", _draw_curve, 12, 45, 4),
            Column("STEP", _draw_step, 13, 15, 3, lambda run: run.step, "right"),
            Column("VAL LOSS", _draw_validation, 9, 0, 3, _validation, "right"),
            Column("EPOCH", _draw_epoch, 7, 0, 2, lambda run: run.epoch, "right"),
            Column("STEP TIME", _draw_step_time, 9, 0, 1, lambda run: run.step_seconds, "right"),
            Column("RANKS", _draw_ranks, 8, 0, 2, lambda run: run.ranks_alive, "right"),
            Column("PHASE", lambda run, _: Text(make_harmless(run.phase or UNKNOWN)), 10, 0, 2),
            Column("LOSES TIME TO", _draw_bound, 13, 14, 2),
            Column("ON", _draw_devices, 9, 40, 1),
        ),
        picture.runs,
        notes=lambda run: _take_notes(run, now),
        has_trouble=is_in_trouble,
        empty="none here; docs/training.md tells how a run shows itself",
        most_wanted=2,
    )


def is_in_trouble(run: Run) -> bool:
    """Tell whether a person should look at it."""
    return run.tone in {"bad", "warning"} or bool(run.laggards)


def _name(run: Run) -> str:
    return run.name


def _rate(run: Run) -> float | None:
    return run.tokens_per_second if run.samples_per_second is None else run.samples_per_second


def _loss(run: Run) -> float | None:
    return run.loss


def _validation(run: Run) -> float | None:
    return run.validation_loss


def _draw_state(run: Run, _: int) -> Text:
    return Text(make_harmless(run.state), STYLES[run.tone])


def _draw_progress(run: Run, width: int) -> Text:
    words = write_percent(run.progress_ratio)
    style = STYLES[run.tone] if run.tone in {"bad", "warning"} else "green"
    return draw_gauge(run.progress_ratio, words, width, words_width=4, style=style)


def _draw_eta(run: Run, _: int) -> Text:
    return Text(write_duration(run.eta_seconds))


def _draw_rate(run: Run, _: int) -> Text:
    if run.samples_per_second is not None:
        return Text(f"{write_rate(run.samples_per_second)} S/s")
    if run.tokens_per_second is not None:
        return Text(f"{write_rate(run.tokens_per_second)} T/s")
    return Text(UNKNOWN)


def _draw_curve(run: Run, width: int) -> Text:
    low, high = find_bounds(run.loss_trace)
    return draw_trace(run.loss_trace, width, low=low, high=high)


def _draw_step(run: Run, _: int) -> Text:
    return Text(_write_place(run.step, run.steps))


def _draw_epoch(run: Run, _: int) -> Text:
    return Text(_write_place(run.epoch, run.epochs))


def _write_place(at: int | None, end: int | None) -> str:
    return write_count(at) if end is None else f"{write_count(at)}/{write_count(end)}"


def _draw_validation(run: Run, _: int) -> Text:
    return Text(write_value(run.validation_loss))


def _draw_step_time(run: Run, _: int) -> Text:
    if run.step_seconds is None:
        return Text(UNKNOWN)
    if run.step_seconds < 1:
        return Text(f"{1000 * run.step_seconds:.0f}ms")
    return Text(f"{run.step_seconds:.2f}s")


def _draw_ranks(run: Run, _: int) -> Text:
    alive = UNKNOWN if run.ranks_alive is None else str(run.ranks_alive)
    return Text(f"{alive}/{run.ranks}")


def _draw_bound(run: Run, _: int) -> Text:
    return Text(make_harmless(run.bound or UNKNOWN))


def _draw_devices(run: Run, _: int) -> Text:
    return Text(" ".join(map(make_harmless, run.devices)) or UNKNOWN)


def _say_where(one: Laggard) -> str:
    return f" in {make_harmless(one.phase)}" if one.phase else ""


def _take_notes(run: Run, now: float) -> Iterator[Text]:
    style = STYLES[run.tone] if run.tone in {"bad", "warning"} else "dim"
    if run.stalled_seconds is not None:
        where = f" in {make_harmless(run.phase)}" if run.phase else ""
        yield Text(f"nothing moves for {write_duration(run.stalled_seconds)}{where}", style)
    if run.ending:
        yield Text(f"{make_harmless(run.ending)}, {write_ago(run.ended, now)}", style)
    if run.laggards:
        behind = ", ".join(
            f"rank {make_harmless(one.rank)} ({write_percent(one.slowdown_ratio - 1)} slower{_say_where(one)})"
            for one in run.laggards[:_MOST_LAGGARDS]
        )
        more = len(run.laggards) - _MOST_LAGGARDS
        yield Text(f"behind: {behind}{f', +{more} more' if more > 0 else ''}", "yellow")
    if run.restarts:
        yield Text(f"started again {count_things(run.restarts, 'time')}", "yellow")
    if run.metrics:
        told = ", ".join(
            f"{make_harmless(f'{one.split} {one.name}'.strip())} {write_value(one.value)}"
            for one in run.metrics[:_MOST_METRICS]
        )
        more = len(run.metrics) - _MOST_METRICS
        yield Text(f"{told}{f', +{more} more' if more > 0 else ''}", "dim")
