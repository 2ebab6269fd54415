"""How the stack is: its programs, and what Prometheus says about targets, rules and alerts."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from trainvitals.stack.destinations import recall_destinations
from trainvitals.stack.leftovers import marked_processes
from trainvitals.stack.lineup import expected_programs
from trainvitals.stack.programs import Program, answers, recall_programs
from trainvitals.stack.prometheus import (
    AlertStatus,
    PrometheusStatus,
    RulesStatus,
    TargetStatus,
    ask_prometheus,
)
from trainvitals.stack.settings import Settings
from trainvitals.stack.supervision import ProcessState, ask_states

StackWay = Literal["compose", "native", "exporter alone"]

_SHOWN_ALERTS = 20
_LONGEST_INSTANCE = 18
_WRAPPED = 80 - 15


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    """One program.

    Attributes:
        name: `exporter`, `prometheus`, `alertmanager` or `grafana`.
        state: `running`, `stopped`, `unsupervised` (it runs, but its supervisor is gone), or
            another of supervisord's or Docker's words: starting, backoff, exited, fatal.
        pid: None while it does not run, and for a container.
        address: The URL to open in a browser.
        answers: Whether it can do its work now.
    """

    name: str
    state: str
    pid: int | None
    address: str
    answers: bool


@dataclass(frozen=True, slots=True)
class StackStatus:
    """The stack.

    Attributes:
        way: How it runs: `compose`, `native`, or `exporter alone` where there is no Prometheus to
            be had.
        state_dir: Where its data and logs are.
        programs: Its programs; also while they are stopped.
        targets: What Prometheus scrapes; empty while it does not answer.
        rules: What Prometheus evaluates; None while it does not answer.
        alerts: What fires or is about to, the most urgent first.
        alertmanagers: The Alertmanagers that Prometheus sends alerts to, as URLs.
        notifications: Where alerts go, as lines for a person; empty before the first start.
    """

    way: StackWay
    state_dir: Path
    programs: tuple[ProgramStatus, ...]
    targets: tuple[TargetStatus, ...] = ()
    rules: RulesStatus | None = None
    alerts: tuple[AlertStatus, ...] = ()
    alertmanagers: tuple[str, ...] = ()
    notifications: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether every program works, every target is scraped and alerts find their way.

        Alerts that fire are what the stack is for, and no fault of it.
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
    """Ask every program of the stack how it is; what runs is asked where it was started."""
    programs = recall_programs(settings.state_dir) or expected_programs(settings)
    states = {state.name: state for state in _find_states(settings.state_dir)}
    described = {each.name: _describe_program(each, states.get(each.name)) for each in programs}
    asked = next((each for each in programs if each.name == "prometheus"), None)
    is_there = asked is not None and described[asked.name].answers
    told = ask_prometheus(asked.port, asked.host) if asked and is_there else PrometheusStatus()
    return StackStatus(
        way="native" if asked else "exporter alone",
        state_dir=settings.state_dir,
        programs=tuple(described.values()),
        targets=told.targets,
        rules=told.rules,
        alerts=told.alerts,
        alertmanagers=told.alertmanagers,
        notifications=recall_destinations(settings.state_dir),
    )


def _find_states(state_dir: Path) -> tuple[ProcessState, ...]:
    states = ask_states(state_dir)
    if states is not None:
        return states
    oldest: dict[str, int] = {}
    for process, name in marked_processes(state_dir).items():
        oldest.setdefault(name, process.pid)
    return tuple(ProcessState(name, "unsupervised", pid) for name, pid in oldest.items())


def _describe_program(program: Program, state: ProcessState | None) -> ProgramStatus:
    runs = state is not None and state.pid is not None
    return ProgramStatus(
        name=program.name,
        state=state.state if state else "stopped",
        pid=state.pid if state else None,
        address=program.address,
        answers=runs and answers(program),
    )


def format_table(status: StackStatus, *, now: datetime | None = None) -> str:
    """Write the status for a person, in 80 columns.

    Args:
        status: The status.
        now: What ages are counted from; None takes the clock.
    """
    parts = [_format_programs(status.programs)]
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
        state = f"{each.state}, does not answer" if silent else each.state
        rows.append((each.name, state, str(each.pid or "-"), each.address))
    return _align(rows)


def _format_targets(targets: Sequence[TargetStatus]) -> list[str]:
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
            lines.append(f"{'alertmanager':15}Prometheus sends alerts to none")
        shown = [alert for alert in status.alerts if _is_shown(alert)]
        firing = sum(alert.state == "firing" for alert in shown)
        lines.append(f"{'alerts':15}{firing} firing, {len(shown) - firing} pending")
    told = [part for line in status.notifications for part in textwrap.wrap(line, _WRAPPED)]
    heads = ("alerts go to", *[""] * len(told))
    return lines + [f"{head:15}{line}" for head, line in zip(heads, told, strict=False)]


def _is_shown(alert: AlertStatus) -> bool:
    # The dead man's switch always fires.
    return alert.severity != "none"


def _format_alerts(alerts: Sequence[AlertStatus], now: datetime) -> list[str]:
    rows = [
        (each.name, each.severity, _shorten(each.instance), each.state, _age(each.since, now))
        for each in alerts[:_SHOWN_ALERTS]
    ]
    lines = _align([("ALERT", "SEVERITY", "INSTANCE", "STATE", "FOR"), *rows])
    more = len(alerts) - len(rows)
    return [*lines, f"and {more} more"] if more else lines


def _shorten(instance: str) -> str:
    if len(instance) <= _LONGEST_INSTANCE:
        return instance or "-"
    return f"{instance[: _LONGEST_INSTANCE - 1]}…"


def _age(since: str, now: datetime) -> str:
    try:
        # Python 3.10 reads neither nanoseconds nor the Z.
        began = datetime.strptime(since[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return "-"
    minutes = max(int((now - began).total_seconds()) // 60, 0)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes}m"
    return f"{minutes // 60}h" if minutes < 48 * 60 else f"{minutes // 1440}d"


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def format_json(status: StackStatus) -> str:
    """Write the status for a program: the fields of `StackStatus`, and `fine`."""
    return json.dumps({"fine": status.fine, **asdict(status)}, default=str, indent=2)
