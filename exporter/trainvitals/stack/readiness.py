"""Waits until the stack is ready, or until a program has reloaded its configuration."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.sources.http_client import fetch_page
from trainvitals.stack.grafana import explain_version
from trainvitals.stack.programs import Program, is_ready, last_lines
from trainvitals.stack.prometheus import (
    has_result,
    list_alertmanagers,
    list_targets,
    read_rules,
)
from trainvitals.stack.supervision import STARTED, ask_states
from trainvitals.units import format_duration

Report = Callable[[str], None]

_STEP_SECONDS = 0.1
_RULES_STEP_SECONDS = 0.5
_LOG_LINES = 10
_LOG_READ_LINES, _LOG_ERRORS = 60, 3
_ERROR = re.compile(r"\blevel=error\b", re.IGNORECASE)
RELOADS = ("prometheus", "alertmanager")
_READING = re.compile(
    r"^(?:prometheus|alertmanager)_config_last_reload_"
    r"(successful|success_timestamp_seconds) (\S+)$",
    re.MULTILINE,
)


def wait_until_all_work(
    state_dir: Path, programs: tuple[Program, ...], report: Report, timeout_seconds: float
) -> None:
    """Wait until programs are ready, targets are scraped, and rules have been evaluated.

    Args:
        state_dir: The state directory.
        programs: The programs that were started.
        report: Called with the address of each program that is ready, and with the last log lines
            of a failed program.
        timeout_seconds: The timeout for all programs together, in seconds.

    Raises:
        StackError: A program exited, is not ready in time or is not scraped in time; the rules have
            not been evaluated in time; or Prometheus does not find the Alertmanager.
    """
    deadline = time.monotonic() + timeout_seconds
    for program in programs:
        while not _works(state_dir, program, report):
            if time.monotonic() > deadline:
                _quote_log(state_dir, program, report)
                raise StackError(
                    f"{program.name} is not ready at {program.address} after {format_duration(timeout_seconds)}: read "
                    f"{program.log(state_dir)}"
                )
            time.sleep(_STEP_SECONDS)
        announce(program, report)
    named = {program.name: program for program in programs}
    if prometheus := named.get("prometheus"):
        wait_for_prometheus(
            prometheus,
            report,
            deadline,
            hint=f"read {prometheus.log(state_dir)}",
            has_alertmanager="alertmanager" in named,
        )


def announce(program: Program, report: Report) -> None:
    """Report that a program is ready, and warn of a Grafana that is too old for the dashboards."""
    report(f"{program.name} is ready at {program.address}")
    if program.name == "grafana" and (complaint := explain_version(program)):
        report(complaint)


def wait_for_prometheus(
    prometheus: Program, report: Report, deadline: float, *, hint: str, has_alertmanager: bool
) -> None:
    """Wait until Prometheus scrapes all targets, finds Alertmanager and has evaluated every rule.

    Args:
        prometheus: The program entry of Prometheus, which is ready.
        report: Called with each line of progress.
        deadline: The time at which the wait ends, in seconds of the monotonic clock.
        hint: The location of the program's log, for error messages.
        has_alertmanager: Whether the stack has an Alertmanager.

    Raises:
        StackError: A target cannot be scraped, the rules are not evaluated, or Prometheus does not
            find the Alertmanager. A rule whose evaluation fails is only reported.
    """
    _wait_for_targets(prometheus, report, deadline, hint)
    if has_alertmanager:
        _wait_for_alertmanager(prometheus, deadline, hint)
    _wait_for_rules(prometheus, report, deadline, hint)


def _wait_for_targets(prometheus: Program, report: Report, deadline: float, hint: str) -> None:
    while True:
        targets = list_targets(prometheus.port, prometheus.host)
        if targets and all(target.health == "up" for target in targets):
            _wait_for_second_scrape(prometheus, deadline)
            report(f"prometheus scrapes {', '.join(target.url for target in targets)}")
            return
        if time.monotonic() > deadline:
            reasons = {f"{each.job}: {each.last_error}" for each in targets if each.last_error}
            raise StackError(
                f"prometheus cannot scrape {'; '.join(sorted(reasons)) or 'anything yet'}; {hint}"
            )
        time.sleep(_STEP_SECONDS)


def _wait_for_second_scrape(prometheus: Program, deadline: float) -> None:
    """Wait for a second scrape of the exporter, because rates and averages require two samples."""
    query = 'count_over_time(up{job="trainvitals"}[5m]) > 1'
    while time.monotonic() <= deadline:
        if has_result(query, prometheus.port, prometheus.host):
            return
        time.sleep(_STEP_SECONDS)


def _wait_for_alertmanager(prometheus: Program, deadline: float, hint: str) -> None:
    while not list_alertmanagers(prometheus.port, prometheus.host):
        if time.monotonic() > deadline:
            raise StackError(f"prometheus does not find its Alertmanager; {hint}")
        time.sleep(_STEP_SECONDS)


def _wait_for_rules(prometheus: Program, report: Report, deadline: float, hint: str) -> None:
    """Wait until every rule has been evaluated; this takes at most one evaluation interval."""
    while True:
        rules = read_rules(prometheus.port, prometheus.host)
        broken = [rule for rule in rules.unhealthy if rule.error] if rules else []
        if broken:
            # A rule that fails on the current data does not stop the stack.
            for rule in broken:
                report(f"prometheus cannot evaluate {rule.name}: {rule.error}; correct the rule")
            return
        if rules and not rules.unhealthy:
            report(f"prometheus has {rules.rules} rules in {rules.groups} groups, all healthy")
            return
        if time.monotonic() > deadline:
            raise StackError(f"prometheus has not evaluated its rules yet; {hint}")
        time.sleep(_RULES_STEP_SECONDS)


def _works(state_dir: Path, program: Program, report: Report) -> bool:
    states = {state.name: state.state for state in ask_states(state_dir) or ()}
    if states.get(program.name) in STARTED:
        return states[program.name] == "running" and is_ready(program)
    _quote_log(state_dir, program, report)
    raise StackError(f"{program.name} keeps exiting: read {program.log(state_dir)}")


def _quote_log(state_dir: Path, program: Program, report: Report) -> None:
    lines = last_lines(program.log(state_dir), _LOG_READ_LINES)
    # Prometheus logs many lines about its shutdown after the error.
    earlier = [line for line in lines[:-_LOG_LINES] if _ERROR.search(line)]
    for line in (*earlier[-_LOG_ERRORS:], *lines[-_LOG_LINES:]):
        report(f"{program.name} | {line}")


@dataclass(frozen=True, slots=True)
class _Reload:
    is_successful: bool
    succeeded_at: str


def reload_programs(state_dir: Path, programs: tuple[Program, ...]) -> None:
    """Reload the configuration of Prometheus and Alertmanager without a restart.

    Raises:
        StackError: A program rejects its new configuration and keeps the old one.
    """
    pids = {state.name: state.pid for state in ask_states(state_dir) or ()}
    for program in programs:
        pid = pids.get(program.name)
        if program.name in RELOADS and pid is not None:
            reload_program(
                program,
                # SIGHUP is used because Prometheus' /-/reload requires --web.enable-lifecycle. With
                # that flag, everyone who can reach the port can also stop Prometheus with /-/quit.
                partial(os.kill, pid, signal.SIGHUP),
                hint=f"read {program.log(state_dir)}",
            )


def reload_program(
    program: Program,
    send_sighup: Callable[[], None],
    *,
    hint: str,
    timeout_seconds: float = 15.0,
) -> None:
    """Reload a program's configuration and wait for the result.

    Args:
        program: The program entry of Prometheus or Alertmanager.
        send_sighup: Sends SIGHUP to the program.
        hint: The location of the program's log, for error messages.
        timeout_seconds: The maximum wait for the result, in seconds.

    Raises:
        StackError: The program rejects its new configuration and keeps the old one.
    """
    before = _read(program)
    deadline = time.monotonic() + timeout_seconds
    send_sighup()
    while time.monotonic() < deadline:
        now = _read(program)
        if now and before and now.succeeded_at != before.succeeded_at:
            return
        # If the previous reload also failed, a failure changes none of the metrics.
        if now and before and before.is_successful and not now.is_successful:
            break
        time.sleep(_STEP_SECONDS)
    now = _read(program)
    if now and not now.is_successful:
        raise StackError(f"{program.name} rejects its configuration and keeps the old one; {hint}")


def _read(program: Program) -> _Reload | None:
    """Return the last reload's result from a program's metrics; None if it is not available."""
    page = fetch_page(program.port, "/metrics", host=program.host)
    found = dict(_READING.findall(page.decode("utf-8", "replace"))) if page else {}
    if len(found) < len(RELOADS):
        return None
    return _Reload(found["successful"] == "1", found["success_timestamp_seconds"])
