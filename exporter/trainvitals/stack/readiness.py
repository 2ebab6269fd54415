"""Waiting until the stack works."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from trainvitals.errors import StackError
from trainvitals.stack.logs import last_lines
from trainvitals.stack.programs import Program, answers, fetch
from trainvitals.stack.status import list_targets
from trainvitals.stack.supervision import STARTED, ask_states

Report = Callable[[str], None]

_STEP_SECONDS = 0.1
_LOG_LINES = 10


def wait_until_all_work(
    state_dir: Path, programs: tuple[Program, ...], report: Report, patience_seconds: float
) -> None:
    """Wait until every program answers and Prometheus scrapes the exporter.

    Args:
        state_dir: Where the stack runs.
        programs: What was started.
        report: Told each address as it answers, and the last log lines of what does not.
        patience_seconds: How long all of it may take together.

    Raises:
        StackError: A program ended, does not answer in time, or is not scraped in time.
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
        if program.name == "prometheus":
            _wait_for_targets(state_dir, program, report, deadline)


def _wait_for_targets(
    state_dir: Path, prometheus: Program, report: Report, deadline: float
) -> None:
    while True:
        targets = list_targets(prometheus.port)
        if targets and all(target.health == "up" for target in targets):
            _wait_for_second_scrape(prometheus, deadline)
            report(f"prometheus scrapes {', '.join(target.url for target in targets)}")
            return
        if time.monotonic() > deadline:
            reasons = {target.last_error for target in targets if target.last_error}
            raise StackError(
                "prometheus cannot scrape the exporter: "
                f"{'; '.join(sorted(reasons)) or 'no scrape yet'}; read {state_dir / 'logs'}"
            )
        time.sleep(_STEP_SECONDS)


def _wait_for_second_scrape(prometheus: Program, deadline: float) -> None:
    """Wait until rates and means are there too, which need two scrapes."""
    query = quote("count_over_time(up[5m]) > 1")
    while time.monotonic() <= deadline:
        page = fetch(prometheus.port, f"/api/v1/query?query={query}")
        if page is not None and b'"result":[]' not in page:
            return
        time.sleep(_STEP_SECONDS)


def _works(state_dir: Path, program: Program, report: Report) -> bool:
    states = {state.name: state.state for state in ask_states(state_dir) or ()}
    if states.get(program.name) in STARTED:
        return states[program.name] == "running" and answers(program)
    _quote_log(state_dir, program, report)
    raise StackError(f"{program.name} does not stay up: read {program.log(state_dir)}")


def _quote_log(state_dir: Path, program: Program, report: Report) -> None:
    for line in last_lines(program.log(state_dir), _LOG_LINES):
        report(f"{program.name} | {line}")
