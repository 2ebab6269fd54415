"""The training runs on the live page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainvitals.overview.picture import Metric, Picture, Run, Tone
from trainvitals.web.live import quantities as write
from trainvitals.web.live.drawing import bar, sparkline
from trainvitals.web.live.markup import DOT, anchor, chip, figure, name, remark, section, text

MOST_METRICS = 6

_BOUNDS: dict[str, Tone] = {"compute-bound": "good", "not in steps": "busy", "loss is NaN": "bad"}
_PHASES = {"data_wait": "waiting for data", "h2d": "copying to the device"}
_MARGIN = 0.08


def write_runs(picture: Picture) -> str:
    """Write the section; it says so where nothing trains."""
    if not picture.runs:
        words = "no training run is known here"
        how = "instrument one with <code>trainvitals.TrainingMonitor</code>, or follow its logs"
        return section("runs", "Training", "", (f'<p class="empty">{words}; {how}.</p>',))
    living = sum(run.ended is None for run in picture.runs)
    body = "".join(_write_run(run, picture.time) for run in picture.runs)
    note = (
        f"{living} running"
        if living == len(picture.runs)
        else f"{living} of {len(picture.runs)} running"
    )
    return section("runs", "Training", note, (f'<div class="cards">{body}</div>',))


def anchor_run(run: Run) -> str:
    """Give the `id` of a run's card."""
    return anchor("run", run.name)


def _write_run(run: Run, now: float) -> str:
    bound = f" {chip(run.bound, _BOUNDS.get(run.bound, 'warning'))}" if run.bound else ""
    return (
        f'<article class="run {run.tone}" id="{anchor_run(run)}">'
        f"<header><h3>{name(run.name)}</h3> {chip(run.state, run.tone)}{bound}</header>"
        f"{''.join(_write_remarks(run, now))}{_write_progress(run)}"
        f'<div class="body"><dl>{"".join(_write_figures(run, now))}</dl>{_write_loss(run)}</div>'
        f"</article>"
    )


def _write_remarks(run: Run, now: float) -> Iterator[str]:
    if run.stalled_seconds is not None:
        phase = f" in phase {text(run.phase)}" if run.phase else ""
        yield remark(f"no progress for {write.duration(run.stalled_seconds)}{phase}", "warning")
    if run.ending:
        when = "" if run.ended is None else f", {write.ago(run.ended, now)}"
        yield remark(f"{text(run.ending)}{when}", run.tone)
    for laggard in run.laggards[:4]:
        phase = text(_PHASES.get(laggard.phase, laggard.phase)) or "its part of a step"
        yield remark(
            f"rank {name(laggard.rank)} is behind: {phase} takes {laggard.slowdown_ratio:.1f}"
            "\N{MULTIPLICATION SIGN} as long as on the fastest",
            "warning",
        )


def _write_progress(run: Run) -> str:
    words = []
    if run.step is not None:
        total = f" of {write.whole(run.steps)}" if run.steps else ""
        words.append(f"step {write.whole(run.step)}{total}")
    if run.epoch is not None:
        total = f" of {write.whole(run.epochs)}" if run.epochs else ""
        words.append(f"epoch {write.whole(run.epoch)}{total}")
    if run.eta_seconds is not None and run.tone in ("good", "busy", "unknown"):
        words.append(f"{write.duration(run.eta_seconds)} left")
    done = ""
    if run.progress_ratio is not None:
        drawn = bar(run.progress_ratio, f"{run.name} progress", tone=run.tone)
        done = f"{drawn}<strong>{write.percent(run.progress_ratio)}</strong> "
    if not done and not words:
        return ""
    return f'<p class="progress">{done}<span>{DOT.join(words)}</span></p>'


def _write_figures(run: Run, now: float) -> Iterator[str]:
    yield figure("samples/s", write.rate(run.samples_per_second))
    yield figure("tokens/s", write.rate(run.tokens_per_second))
    if run.step_seconds is not None:
        yield figure("step", write.duration(run.step_seconds))
    yield figure("ranks", _count_ranks(run))
    yield figure("on", text(_fold(run.devices)))
    if run.started is not None:
        until = now if run.ended is None else run.ended
        yield figure("running" if run.ended is None else "ran", write.duration(until - run.started))
    if run.restarts:
        yield figure("restarts", write.whole(run.restarts))
    if run.validation_loss is not None:
        yield figure("validation loss", write.number(run.validation_loss))
    for metric in run.metrics[:MOST_METRICS]:
        yield figure(_name_metric(metric), write.number(metric.value))
    if run.source != "client":
        yield figure("told by", "TensorBoard" if run.source == "tensorboard" else "its log")


def _fold(devices: Sequence[str]) -> str:
    """Name devices in short: `gpu0\N{EN DASH}3, gpu6` for five of them."""
    ranges: list[list[str]] = []
    for device in devices:
        kind = device.rstrip("0123456789")
        last = ranges[-1][-1] if ranges else ""
        is_next = last.startswith(kind) and last[len(kind) :].isdecimal()
        if is_next and device == f"{kind}{int(last[len(kind) :]) + 1}":
            ranges[-1].append(device)
        else:
            ranges.append([device])
    return ", ".join(map(_name_range, ranges))


def _name_range(devices: Sequence[str]) -> str:
    first, last = devices[0], devices[-1]
    if len(devices) <= 2:  # noqa: PLR2004 - a range of two is no shorter
        return ", ".join(devices)
    return f"{first}\N{EN DASH}{last[len(last.rstrip('0123456789')) :]}"


def _count_ranks(run: Run) -> str:
    if run.ranks_alive is None:
        return ""
    here = (
        str(run.ranks_alive)
        if run.ranks_alive == run.ranks
        else f"{run.ranks_alive} of {run.ranks}"
    )
    if run.world_size is not None and run.world_size > run.ranks:
        return f"{here}<small> here, {run.world_size} in all</small>"
    return here


def _name_metric(metric: Metric) -> str:
    split = f" <small>{text(metric.split)}</small>" if metric.split else ""
    return f"{name(metric.name)}{split}"


def _write_loss(run: Run) -> str:
    if run.loss is None and not any(point is not None for point in run.loss_trace):
        return ""
    known = [point for point in run.loss_trace if point is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    margin = _MARGIN * (high - low) or abs(high) * _MARGIN or 1.0
    drawn = sparkline(
        run.loss_trace, f"{run.name} loss", write.number, low=low - margin, high=high + margin
    )
    edges = f'<small class="edges"><span>{write.number(high)}</span><span>{write.number(low)}</span></small>'
    value = f'<span class="value">{write.number(run.loss)}</span>'
    return f'<figure class="loss"><figcaption>loss {value}</figcaption><div class="plot">{drawn}{edges if known else ""}</div></figure>'
