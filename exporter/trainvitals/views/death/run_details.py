"""Formats the last record of a rank as rows of a label and a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import tzinfo

from trainvitals.foreign_text import clean_text, name_rest
from trainvitals.runfile import ABSENT, ALERTS, PHASE_NAMES, STATE
from trainvitals.sources.runs.past_runs import LONGEST_TEXT, Event, Run, Start
from trainvitals.units import (
    count_noun,
    format_bytes,
    format_clock,
    format_duration,
    format_percent,
    format_power,
    format_rate,
    format_temperature,
    format_value,
)

_MOST_METRICS, _MOST_DEVICES, _MOST_PHASES = 8, 8, 4
_LEAST_SHARE, _LEAST_AGE_SECONDS = 0.01, 1.0
_METRICS = STATE["metric_0"]
_DEVICE = re.compile(
    r"([a-z]{3}\d{1,3})_(utilization_ratio|memory_used_bytes|temperature_celsius|power_watts)"
)
_EVENTS = {
    "start": "started",
    "nonfinite": "NaN or infinite value",
    "data_error": "exception in the data loader",
    "oom": "out of memory",
    "finish": "finished",
    "fail": "failed",
    "switched_off": "the monitor disabled itself",
}
_NUMBERED = {
    "epoch": "epoch {} began",
    "validation": "validation {} ended",
    "checkpoint": "checkpoint at step {}",
    "resume": "resumed at step {}",
}

_MEASURED: Mapping[str, Callable[[float], str]] = {
    "utilization_ratio": lambda value: f"{format_percent(value)} busy",
    "memory_used_bytes": lambda value: f"{format_bytes(value)} used",
    "temperature_celsius": format_temperature,
    "power_watts": format_power,
}

_TROUBLES = (
    ("nonfinite_losses", "loss NaN or infinite", "losses NaN or infinite"),
    ("nonfinite_gradients", "gradient NaN or infinite", "gradients NaN or infinite"),
    ("nonfinite_evaluations", "evaluation NaN or infinite", "evaluations NaN or infinite"),
    ("loss_spikes", "loss spike", "loss spikes"),
    ("data_errors", "exception in the data loader", "exceptions in the data loader"),
    ("errors", "error of the monitor itself", "errors of the monitor itself"),
)

Row = tuple[str, str]


def list_details(run: Run, start: Start, near: float, zone: tzinfo | None = None) -> list[Row]:
    """Return rows that describe a start of a rank, without events; unknown values are left out.

    Args:
        run: The run to which the start belongs.
        start: The start of a rank that the rows describe.
        near: A time in Unix seconds; times on the same day are written without a date.
        zone: The time zone of the rows; None means the machine's time zone.
    """
    rows = [
        ("evidence", start.ending.evidence if start.ending is not None else ""),
        ("step", _join(_describe_step(start))),
        ("loss", _join(_describe_loss(start))),
        ("values", _join(_describe_metrics(start))),
        ("trouble", _join(_describe_trouble(start, near, zone))),
        ("speed", _join(_describe_speed(start))),
        ("time", _join(_describe_time(start))),
        ("memory", _join(_describe_memory(start))),
        ("machine", _describe_machine(start)),
        ("checkpoint", _describe_checkpoint(start, near, zone)),
        ("restarts", _describe_restarts(run)),
        ("process", _join(_describe_process(start, near, zone))),
    ]
    return [(label, text) for label, text in rows if text]


def list_events(start: Start, near: float, zone: tzinfo | None = None) -> list[Row]:
    """Return the times and descriptions of a start's last events, the oldest first."""
    return [
        (format_clock(event.time, near, zone), describe_event(event))
        for event in start.list_events()
    ]


def describe_event(event: Event) -> str:
    """Return a text that describes an event of a rank."""
    number = f"{event.value:.0f}" if abs(event.value) < 1e15 else "?"  # noqa: PLR2004 - whole numbers above
    if event.name in _NUMBERED:
        return _NUMBERED[event.name].format(number)
    if event.name == "loss_spike":
        return f"loss spike: {format_value(event.value)}"
    if event.name == "alert":
        known = event.value in range(len(ALERTS))
        return f"alert {ALERTS[int(event.value)] if known else number}"
    return _EVENTS.get(event.name, event.name)


def _join(parts: list[str]) -> str:
    return ", ".join(part for part in parts if part)


def _describe_step(start: Start) -> list[str]:
    step = start.count("global_step")
    if step is None:
        return []
    if not start.count("steps"):
        return ["none completed" + (f" after step {step}" if step else "")]
    total, epoch, epochs = (start.count(name) for name in ("total_steps", "epoch", "total_epochs"))
    ratio, age = start.progress.ratio, start.progress_age_seconds
    words = str(step)
    if total:
        words += f" of {total}"
    if ratio is not None:
        words += f" ({format_percent(ratio)})"
    when = "ago" if start.ending is None else "before the end"
    is_news = age is not None and age >= _LEAST_AGE_SECONDS and start.reason != "finished"
    return [
        words,
        "" if epoch is None else f"epoch {epoch}" + (f" of {epochs}" if epochs else ""),
        f"last progress {format_duration(age)} {when}" if is_news else "",
    ]


def _describe_loss(start: Start) -> list[str]:
    loss, mean, best = (start.value(name) for name in ("loss", "loss_ema", "best_evaluation"))
    named = [
        ("", loss),
        ("mean ", mean),
        ("accuracy ", start.value("accuracy")),
        ("validation ", start.value("validation_loss")),
        ("validation accuracy ", start.value("validation_accuracy")),
        ("learning rate ", start.value("learning_rate")),
        ("gradient norm ", start.value("gradient_norm")),
    ]
    parts = [f"{name}{format_value(value)}" for name, value in named if value is not None]
    since = start.count("evaluations_since_improvement")
    if best is not None:
        ago = f", {since} evaluations ago" if since else ""
        parts.append(f"best evaluation {format_value(best)}{ago}")
    return parts


def _describe_metrics(start: Start) -> list[str]:
    named = [
        (clean_text(name, most=LONGEST_TEXT), start.record.state[_METRICS + number])
        for number, (name, _) in enumerate(start.record.metrics)
    ]
    parts = [f"{name} {format_value(value)}" for name, value in named if name and value != ABSENT]
    return [*parts[:_MOST_METRICS], name_rest(len(parts) - _MOST_METRICS)]


def _describe_trouble(start: Start, near: float, zone: tzinfo | None) -> list[str]:
    parts = []
    for name, one, many in _TROUBLES:
        number = start.count(name)
        if number:
            parts.append(f"{number} {one if number == 1 else many}")
    last = start.seconds("last_nonfinite_time")
    if last is not None:
        parts.append(f"the last NaN or infinity at {format_clock(last, near, zone)}")
    bits = start.count("alerts") or 0
    parts += [f"alert {name}" for bit, name in enumerate(ALERTS) if bits >> bit & 1]
    return parts


def _describe_speed(start: Start) -> list[str]:
    last, slowest = start.seconds("step_seconds"), start.seconds("slowest_step_seconds")
    if last is None:
        return []
    lately = f" (slowest lately {format_duration(slowest)})" if slowest is not None else ""
    rates = (
        ("samples/s", start.rates.samples_per_second),
        ("tokens/s", start.rates.tokens_per_second),
    )
    return [
        f"{format_duration(last)} a step{lately}",
        *(f"{format_rate(rate)} {unit}" for unit, rate in rates if rate is not None),
    ]


def _describe_time(start: Start) -> list[str]:
    totals = {name: start.seconds(f"total_{name}") or 0.0 for name in PHASE_NAMES}
    whole = sum(totals.values())
    largest = sorted(totals.items(), key=lambda pair: -pair[1])[:_MOST_PHASES]
    return [
        f"{name} {format_percent(seconds / whole)}"
        for name, seconds in largest
        if whole and seconds / whole >= _LEAST_SHARE
    ]


def _describe_memory(start: Start) -> list[str]:
    parts = [
        f"{name} {format_bytes(size)}"
        for name in ("allocated", "reserved", "peak")
        if (size := start.count(f"memory_{name}_bytes"))
    ]
    retries, ooms = start.count("memory_alloc_retries"), start.count("memory_ooms")
    if retries:
        parts.append(f"{retries} retries of the allocator")
    if ooms:
        parts.append(f"out of memory {'once' if ooms == 1 else f'{ooms} times'}")
    return ["accelerator: " + parts[0], *parts[1:]] if parts else []


def _describe_machine(start: Start) -> str:
    if start.ending is None:
        return ""
    machine = start.ending.machine
    if not machine:
        return "unknown: no exporter observed the end"
    left, total = (machine.get(f"memory_{name}_bytes") for name in ("available", "total"))
    parts = []
    if left is not None:
        of = f" of {format_bytes(total)}" if total else ""
        parts.append(f"{format_bytes(left)}{of} of memory available")
    return "; ".join(parts + _describe_devices(machine))


def _describe_devices(machine: Mapping[str, float]) -> list[str]:
    devices: dict[str, dict[str, float]] = {}
    for name, value in machine.items():
        if match := _DEVICE.fullmatch(name):
            devices.setdefault(match[1], {})[match[2]] = value
    return [
        f"{device} "
        + ", ".join(write(known[name]) for name, write in _MEASURED.items() if name in known)
        for device, known in sorted(devices.items())[:_MOST_DEVICES]
    ]


def _describe_checkpoint(start: Start, near: float, zone: tzinfo | None) -> str:
    at, number = start.seconds("last_checkpoint_time"), start.count("checkpoints")
    first, last = start.count("first_global_step"), start.count("global_step")
    if at is None or not number:
        resumed = f"; it had resumed at step {first}" if first else ""
        return f"none reported{resumed}" if start.count("steps") else ""
    step = start.find_checkpoint()
    words = f"at {format_clock(at, near, zone)}" + ("" if step is None else f", step {step}")
    if start.ending is not None and start.ending.time >= at:
        words += f", {format_duration(start.ending.time - at)} before {_name_end(start)}"
    elif start.ending is None and near >= at:
        words += f", {format_duration(near - at)} ago"
    if start.reason != "finished" and step is not None and last is not None and last >= step:
        words += f"; resuming from it loses {count_noun(last - step, 'step')}"
    return words


def _name_end(start: Start) -> str:
    return "the end" if start.is_end_seen else "its last record"


def _describe_restarts(run: Run) -> str:
    losses = run.losses
    if not losses.restarts:
        return ""
    words = f"{losses.restarts}"
    if losses.steps:
        words += f"; {losses.steps:.0f} steps were lost"
        words += f", {format_duration(losses.seconds)} of training" if losses.seconds else ""
    return words


def _describe_process(start: Start, near: float, zone: tzinfo | None) -> list[str]:
    identity, static = start.identity, start.static
    pid, script = start.liveness.host_pid or identity.pid, static.get("script", "")
    began = format_clock(identity.created_time, near, zone)
    return [
        script if not script.startswith("-") else "",
        f"{static.get('framework', '')} {static.get('framework_version', '')}".strip(),
        f"pid {pid}" if pid else "",
        f"on {static['hostname']}" if static.get("hostname") else "",
        f"one of {identity.world_size} ranks" if identity.world_size > 1 else "",
        f"started {began}" if began != "?" else "",
    ]
