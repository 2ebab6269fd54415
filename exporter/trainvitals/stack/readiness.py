"""Waiting until the stack works."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from trainvitals.errors import StackError
from trainvitals.stack.logs import last_lines
from trainvitals.stack.programs import Program, answers, fetch
from trainvitals.stack.prometheus import list_alertmanagers, list_targets, read_rules
from trainvitals.stack.supervision import STARTED, ask_states

Report = Callable[[str], None]

_STEP_SECONDS = 0.1
_RULES_STEP_SECONDS = 0.5
_LOG_LINES = 10
_LOG_READ_LINES, _LOG_ERRORS = 60, 3
_ERROR = re.compile(r"\blevel=error\b", re.IGNORECASE)


def wait_until_all_work(
    state_dir: Path, programs: tuple[Program, ...], report: Report, patience_seconds: float
) -> None:
    """Wait until every program answers, all are scraped, and rules and Alertmanager are at work.

    Args:
        state_dir: Where the stack runs.
        programs: What was started.
        report: Told each address as it answers, and the last log lines of what does not.
        patience_seconds: How long all of it may take together.

    Raises:
        StackError: A program ended, does not answer in time, or is not scraped in time; or a rule
            cannot be evaluated, or Prometheus does not find the Alertmanager.
    """
    deadline = time.monotonic() + patience_seconds
    for program in programs:
        while not _works(state_dir, program, report):
            if time.monotonic() > deadline:
                _quote_log(state_dir, program, report)
                raise StackError(
                    f"{program.name} does not answer at {program.address} after "
                    f"{patience_seconds:.0f} s: read {program.log(state_dir)}"
                )
            time.sleep(_STEP_SECONDS)
        report(f"{program.name} answers at {program.address}")
    named = {program.name: program for program in programs}
    if prometheus := named.get("prometheus"):
        wait_for_prometheus(
            prometheus,
            report,
            deadline,
            look=f"read {prometheus.log(state_dir)}",
            has_alertmanager="alertmanager" in named,
        )


def wait_for_prometheus(
    prometheus: Program, report: Report, deadline: float, *, look: str, has_alertmanager: bool
) -> None:
    """Wait until Prometheus scrapes everything, finds its Alertmanager and evaluates every rule.

    Args:
        prometheus: It answers already.
        report: Told what it does.
        deadline: Until when, on the monotonic clock.
        look: Where a person finds what it complains about.
        has_alertmanager: Whether there is one to find.

    Raises:
        StackError: A target cannot be scraped, the rules are not evaluated, or Prometheus does not
            find the Alertmanager.
    """
    _wait_for_targets(prometheus, report, deadline, look)
    if has_alertmanager:
        _wait_for_alertmanager(prometheus, deadline, look)
    _wait_for_rules(prometheus, report, deadline, look)


def _wait_for_targets(prometheus: Program, report: Report, deadline: float, look: str) -> None:
    while True:
        targets = list_targets(prometheus.port, prometheus.host)
        if targets and all(target.health == "up" for target in targets):
            _wait_for_second_scrape(prometheus, deadline)
            report(f"prometheus scrapes {', '.join(target.url for target in targets)}")
            return
        if time.monotonic() > deadline:
            reasons = {f"{each.job}: {each.last_error}" for each in targets if each.last_error}
            raise StackError(
                f"prometheus cannot scrape {'; '.join(sorted(reasons)) or 'anything yet'}; {look}"
            )
        time.sleep(_STEP_SECONDS)


def _wait_for_second_scrape(prometheus: Program, deadline: float) -> None:
    """Wait until rates and means are there too, which need two scrapes."""
    query = quote('count_over_time(up{job="trainvitals"}[5m]) > 1')
    while time.monotonic() <= deadline:
        page = fetch(prometheus.port, f"/api/v1/query?query={query}", host=prometheus.host)
        if page is not None and b'"result":[]' not in page:
            return
        time.sleep(_STEP_SECONDS)


def _wait_for_alertmanager(prometheus: Program, deadline: float, look: str) -> None:
    while not list_alertmanagers(prometheus.port, prometheus.host):
        if time.monotonic() > deadline:
            raise StackError(f"prometheus does not find the Alertmanager: {look}")
        time.sleep(_STEP_SECONDS)


def _wait_for_rules(prometheus: Program, report: Report, deadline: float, look: str) -> None:
    """Wait until every rule was evaluated once, which takes an evaluation interval at most."""
    while True:
        rules = read_rules(prometheus.port, prometheus.host)
        broken = [rule for rule in rules.unhealthy if rule.error] if rules else []
        if broken:
            # What one rule does not like in the data must not cost all the others.
            for rule in broken:
                report(f"prometheus cannot evaluate {rule.name}: {rule.error}; correct the rule")
            return
        if rules and not rules.unhealthy:
            report(f"prometheus has {rules.rules} rules in {rules.groups} groups, all healthy")
            return
        if time.monotonic() > deadline:
            raise StackError(f"prometheus has not evaluated its rules yet: {look}")
        time.sleep(_RULES_STEP_SECONDS)


def _works(state_dir: Path, program: Program, report: Report) -> bool:
    states = {state.name: state.state for state in ask_states(state_dir) or ()}
    if states.get(program.name) in STARTED:
        return states[program.name] == "running" and answers(program)
    _quote_log(state_dir, program, report)
    raise StackError(f"{program.name} does not stay up: read {program.log(state_dir)}")


def _quote_log(state_dir: Path, program: Program, report: Report) -> None:
    lines = last_lines(program.log(state_dir), _LOG_READ_LINES)
    # Prometheus tells of its orderly end at length after it has said what is wrong.
    earlier = [line for line in lines[:-_LOG_LINES] if _ERROR.search(line)]
    for line in (*earlier[-_LOG_ERRORS:], *lines[-_LOG_LINES:]):
        report(f"{program.name} | {line}")
