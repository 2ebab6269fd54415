"""Determines and formats the stack's status: programs, targets, rules and alerts."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from trainvitals.foreign_text import clean_text, name_rest
from trainvitals.sources.prometheus import Target
from trainvitals.sources.timestamps import parse_time
from trainvitals.stack.configuration import load_destinations
from trainvitals.stack.plan import expected_programs
from trainvitals.stack.programs import Program, is_ready, load_programs
from trainvitals.stack.prometheus import (
    AlertStatus,
    PrometheusStatus,
    RulesStatus,
    read_status,
)
from trainvitals.stack.settings import Settings
from trainvitals.stack.supervision import ProcessState, ask_states, find_processes
from trainvitals.units import count_noun, format_duration

StackWay = Literal["compose", "native", "exporter alone"]

_SHOWN_ALERTS = 20
_LONGEST_INSTANCE = 18
_WRAPPED = 80 - 15


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    """The status of one program of the stack.

    Attributes:
        name: The program's name: `exporter`, `prometheus`, `alertmanager` or `grafana`.
        state: `running`, `stopped`, `unsupervised` (running without the supervisor), or another
            state that supervisord or Docker reports, such as starting, backoff, exited or fatal.
        pid: The process ID; None for a stopped program and for a container.
        address: The URL at which a browser can open the program.
        answers: Whether the program is ready.
    """

    name: str
    state: str
    pid: int | None
    address: str
    answers: bool


@dataclass(frozen=True, slots=True)
class StackStatus:
    """The status of the monitoring stack.

    Attributes:
        way: The way in which the stack runs: `compose`, `native`, or `exporter alone` if Prometheus
            is not available.
        state_dir: The state directory, with data and logs.
        programs: The stack's programs, running or stopped.
        targets: Prometheus' targets; empty if Prometheus does not respond.
        rules: Prometheus' rules; None if Prometheus does not respond.
        alerts: The firing and pending alerts, the most urgent first.
        alertmanagers: The URLs of the Alertmanagers to which Prometheus sends alerts.
        notifications: The alert destinations, one line each; empty before the first start.
        files_not_understood: The number of run logs and tables in which no line was understood.
        globs_unmatched: The number of flags for run logs and event files that match no file.
    """

    way: StackWay
    state_dir: Path
    programs: tuple[ProgramStatus, ...]
    targets: tuple[Target, ...] = ()
    rules: RulesStatus | None = None
    alerts: tuple[AlertStatus, ...] = ()
    alertmanagers: tuple[str, ...] = ()
    notifications: tuple[str, ...] = ()
    files_not_understood: int = 0
    globs_unmatched: int = 0

    @property
    def fine(self) -> bool:
        """Whether all programs are ready, all targets are scraped, and all rules are healthy.

        If the stack has an Alertmanager, Prometheus must also send alerts to it. Firing alerts are
        ignored, because they do not indicate a fault of the stack.
        """
        return (
            all(program.state == "running" and program.answers for program in self.programs)
            and all(target.health == "up" for target in self.targets)
            and (self._prometheus_works() or self.way == "exporter alone")
        )

    def _prometheus_works(self) -> bool:
        has_alertmanager = any(program.name == "alertmanager" for program in self.programs)
        return (
            bool(self.targets)
            and self.rules is not None
            and not self.rules.unhealthy
            and (bool(self.alertmanagers) or not has_alertmanager)
        )


def describe(settings: Settings) -> StackStatus:
    """Return the status of the native stack, using the addresses from the last start."""
    programs = load_programs(settings.state_dir) or expected_programs(settings)
    states = {state.name: state for state in _find_states(settings.state_dir)}
    described = {each.name: _describe_program(each, states.get(each.name)) for each in programs}
    asked = next((each for each in programs if each.name == "prometheus"), None)
    is_there = asked is not None and described[asked.name].answers
    prometheus = read_status(asked.port, asked.host) if asked and is_there else PrometheusStatus()
    return StackStatus(
        way="native" if asked else "exporter alone",
        state_dir=settings.state_dir,
        programs=tuple(described.values()),
        targets=prometheus.targets,
        rules=prometheus.rules,
        alerts=prometheus.alerts,
        alertmanagers=prometheus.alertmanagers,
        notifications=load_destinations(settings.state_dir),
        files_not_understood=prometheus.files_not_understood,
        globs_unmatched=prometheus.globs_unmatched,
    )


def _find_states(state_dir: Path) -> tuple[ProcessState, ...]:
    states = ask_states(state_dir)
    if states is not None:
        return states
    oldest: dict[str, int] = {}
    for process, name in find_processes(state_dir).items():
        oldest.setdefault(name, process.pid)
    return tuple(ProcessState(name, "unsupervised", pid) for name, pid in oldest.items())


def _describe_program(program: Program, state: ProcessState | None) -> ProgramStatus:
    runs = state is not None and state.pid is not None
    return ProgramStatus(
        name=program.name,
        state=state.state if state else "stopped",
        pid=state.pid if state else None,
        address=program.address,
        answers=runs and is_ready(program),
    )


def format_table(status: StackStatus, *, now: datetime | None = None) -> str:
    """Return the stack's status as text with at most 80 columns.

    Args:
        status: The status of the stack.
        now: The time relative to which ages are calculated; None for the current time.
    """
    parts = [_format_programs(status.programs)]
    if all(program.state == "stopped" for program in status.programs):
        parts.append(["nothing is running: start the stack with `trainvitals up`"])
    if status.targets:
        parts.append(_format_targets(status.targets))
    parts.append(_format_summary(status))
    if shown := [alert for alert in status.alerts if _is_shown(alert)]:
        parts.append(_format_alerts(shown, now or datetime.now(timezone.utc)))
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _format_programs(programs: Sequence[ProgramStatus]) -> list[str]:
    rows = [("PROGRAM", "STATE", "PID", "ADDRESS")]
    for each in programs:
        silent = each.state in {"running", "starting", "unsupervised"} and not each.answers
        state = f"{each.state}, not ready" if silent else each.state
        rows.append((each.name, state, str(each.pid or "-"), each.address))
    return _align(rows)


def _format_targets(targets: Sequence[Target]) -> list[str]:
    rows = [(each.job, each.health, each.url) for each in targets]
    complaints = [f"{each.url}: {each.last_error}" for each in targets if each.last_error]
    return [*_align([("TARGET", "HEALTH", "URL"), *rows]), *complaints]


def _format_summary(status: StackStatus) -> list[str]:
    lines = []
    if status.rules is not None:
        unhealthy = status.rules.unhealthy
        health = f"{len(unhealthy)} not healthy" if unhealthy else "all healthy"
        rules = f"{status.rules.rules} in {status.rules.groups} groups, {health}"
        lines.append(f"{'rules':15}{rules}")
        lines += [
            f"{'':15}{each.name}: {each.error or 'not evaluated yet'}"
            for each in unhealthy[:_SHOWN_ALERTS]
        ]
        if not status.alertmanagers:
            lines.append(f"{'alertmanager':15}Prometheus sends alerts to no Alertmanager")
        shown = [alert for alert in status.alerts if _is_shown(alert)]
        firing = sum(alert.state == "firing" for alert in shown)
        lines.append(f"{'alerts':15}{firing} firing, {len(shown) - firing} pending")
    lines += _format_unread(status)
    wrapped = [part for line in status.notifications for part in textwrap.wrap(line, _WRAPPED)]
    heads = ("alerts go to", *[""] * len(wrapped))
    return lines + [f"{head:15}{line}" for head, line in zip(heads, wrapped, strict=False)]


def _format_unread(status: StackStatus) -> list[str]:
    """Return the lines about run logs that are not understood and flags that match no file."""
    unread = {
        "not understood": (status.files_not_understood, "file"),
        "without a file": (status.globs_unmatched, "flag"),
    }
    words = [
        f"{count_noun(count, noun)} {what}; see `trainvitals top`"
        for what, (count, noun) in unread.items()
        if count
    ]
    return [f"{head:15}{line}" for head, line in zip(("runs", ""), words, strict=False)]


def _is_shown(alert: AlertStatus) -> bool:
    # The dead man's switch is an alert that always fires.
    return alert.severity != "none"


def _format_alerts(alerts: Sequence[AlertStatus], now: datetime) -> list[str]:
    rows = [
        (
            each.name,
            each.severity,
            clean_text(each.instance, most=_LONGEST_INSTANCE) or "-",
            each.state,
            _age(each.since, now),
        )
        for each in alerts[:_SHOWN_ALERTS]
    ]
    lines = _align([("ALERT", "SEVERITY", "INSTANCE", "STATE", "FOR"), *rows])
    rest = name_rest(len(alerts) - len(rows))
    return [*lines, rest] if rest else lines


def _age(since: str, now: datetime) -> str:
    began = parse_time(since)
    if began is None:
        return "-"
    return format_duration(max(now.timestamp() - began, 0.0))


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def format_json(status: StackStatus) -> str:
    """Return the stack's status as JSON: the fields of `StackStatus`, and `fine`."""
    return json.dumps({"fine": status.fine, **asdict(status)}, default=str, indent=2)
