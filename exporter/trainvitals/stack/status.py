"""How the stack is: its programs, and what Prometheus says about its targets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypedDict, cast

from trainvitals.stack.leftovers import marked_processes
from trainvitals.stack.programs import (
    Program,
    answers,
    expected_programs,
    fetch,
    recall_programs,
)
from trainvitals.stack.settings import Settings
from trainvitals.stack.supervision import ProcessState, ask_states

Way = Literal["native", "exporter alone"]


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    """One program.

    Attributes:
        name: `exporter` or `prometheus`.
        state: `running`, `stopped`, `unsupervised` (it runs, but its supervisor is gone), or
            another of supervisord's words: starting, backoff, stopping, exited, fatal.
        pid: None while it does not run.
        address: The URL to open in a browser.
        answers: Whether it can do its work now.
    """

    name: str
    state: str
    pid: int | None
    address: str
    answers: bool


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target of Prometheus.

    Attributes:
        job: The scrape job.
        url: What is scraped.
        health: `up`, `down`, or `unknown` before the first scrape.
        last_error: Why the last scrape failed; None when it did not.
    """

    job: str
    url: str
    health: str
    last_error: str | None


@dataclass(frozen=True, slots=True)
class StackStatus:
    """The stack.

    Attributes:
        way: How it runs: `native`, or `exporter alone` where there is no Prometheus to be had.
        state_dir: Where its data and logs are.
        programs: Its programs; also while they are stopped.
        targets: What Prometheus scrapes; empty while it does not answer.
    """

    way: Way
    state_dir: Path
    programs: tuple[ProgramStatus, ...]
    targets: tuple[TargetStatus, ...]

    @property
    def fine(self) -> bool:
        """Whether every program runs and answers, and every target is scraped."""
        return (
            all(program.state == "running" and program.answers for program in self.programs)
            and all(target.health == "up" for target in self.targets)
            and (bool(self.targets) or self.way == "exporter alone")
        )


class _Target(TypedDict):
    scrapePool: str
    scrapeUrl: str
    health: str
    lastError: str


def describe(settings: Settings) -> StackStatus:
    """Ask every program of the stack how it is; what runs is asked where it was started."""
    programs = recall_programs(settings.state_dir) or expected_programs(settings)
    states = {state.name: state for state in _find_states(settings.state_dir)}
    described = tuple(_describe_program(program, states.get(program.name)) for program in programs)
    asked = next((each for each in programs if each.name == "prometheus"), None)
    return StackStatus(
        way="native" if asked else "exporter alone",
        state_dir=settings.state_dir,
        programs=described,
        targets=list_targets(asked.port) if asked and described[-1].answers else (),
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


def list_targets(port: int) -> tuple[TargetStatus, ...]:
    """Ask the Prometheus on a port of this machine about its targets; empty where none answers."""
    page = fetch(port, "/api/v1/targets?state=active")
    if page is None:
        return ()
    try:
        told = cast("dict[str, dict[str, list[_Target]]]", json.loads(page))
        return tuple(
            TargetStatus(
                job=each["scrapePool"],
                url=each["scrapeUrl"],
                health=each["health"],
                last_error=each["lastError"] or None,
            )
            for each in told["data"]["activeTargets"]
        )
    except (ValueError, KeyError, TypeError):
        return ()


def format_table(status: StackStatus) -> str:
    """Write the status for a person: a line per program and a line per target."""
    programs = [("PROGRAM", "STATE", "PID", "ADDRESS")]
    for each in status.programs:
        silent = each.pid is not None and not each.answers
        state = f"{each.state}, does not answer" if silent else each.state
        programs.append((each.name, state, str(each.pid or "-"), each.address))
    lines = _align(programs)
    if status.targets:
        targets = [(each.job, each.health, each.url) for each in status.targets]
        lines += ["", *_align([("TARGET", "HEALTH", "URL"), *targets])]
        lines += [f"{each.url}: {each.last_error}" for each in status.targets if each.last_error]
    return "\n".join(lines)


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def format_json(status: StackStatus) -> str:
    """Write the status for a program: the fields of `StackStatus`, and `fine`."""
    return json.dumps({"fine": status.fine, **asdict(status)}, default=str, indent=2)
