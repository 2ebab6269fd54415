"""Chooses whether the stack runs in Docker Compose or as native processes.

The choice is saved in the state directory, so that later commands need no flag.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from trainvitals.errors import StackError
from trainvitals.stack import native
from trainvitals.stack.compose import (
    bring_up_compose,
    describe_compose,
    follow_compose_logs,
    take_down_compose,
)
from trainvitals.stack.engine import (
    Unavailable,
    explain_missing_runtime,
    find_accelerators,
    find_engine,
    find_overrides,
)
from trainvitals.stack.programs import load_programs
from trainvitals.stack.settings import Settings
from trainvitals.stack.status import StackStatus
from trainvitals.stack.status import describe as describe_native
from trainvitals.stack.writing import make_private, require_readable, write_private

Report = Callable[[str], None]
RunningWay = Literal["compose", "native"]

_FILE = "way"


def choose_way(
    settings: Settings,
    *,
    report: Report,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> RunningWay:
    """Return how to run the stack: in the requested way, or in the way chosen for `auto`.

    For `auto`, the result is Compose if a Docker engine responds and Docker can grant containers
    access to the machine's accelerators. Otherwise, the result is native processes.

    Args:
        settings: The settings, which contain the requested way.
        report: Called with the reason why Compose is not used.
        environ: The environment in which `docker` runs.
        root: The root directory of the file system that is searched for drivers.

    Raises:
        StackError: Compose was requested and is not available.
    """
    if settings.way == "native":
        return "native"
    engine = find_engine({**environ, **settings.variables})
    if isinstance(engine, Unavailable):
        if settings.way == "compose":
            raise StackError(f"cannot use Docker Compose: {engine.reason}; or use --way native")
        if engine.is_news:
            report(f"not using Docker Compose: {engine.reason}")
        return "native"
    cards = find_accelerators(root)
    missing = explain_missing_runtime(cards, find_overrides(engine, cards, environ))
    if missing and settings.way == "auto":
        report(f"not using Docker Compose: {missing}")
        return "native"
    return "compose"


def bring_up(settings: Settings, *, report: Report) -> None:
    """Start the stack in the chosen way, and wait until the stack is ready.

    If the stack already runs in the other way, it is stopped first.

    Args:
        settings: The stack's ports, directories, variables and requested way.
        report: Called with each line of progress.

    Raises:
        ConfigurationError: A variable is invalid.
        StackError: The stack cannot be started; all started programs have been stopped.
    """
    way = choose_way(settings, report=report)
    if load_programs(settings.state_dir) and load_way(settings.state_dir) != way:
        report("the stack runs with another --way, and is stopped first")
        take_down(settings, report=report)
    make_private(settings.state_dir)
    write_private(settings.state_dir / _FILE, way + "\n")
    if way == "compose":
        bring_up_compose(settings, report=report)
    else:
        native.bring_up(settings, report=report)


def take_down(settings: Settings, *, report: Report) -> None:
    """Stop all programs that `bring_up` started; data is kept.

    Raises:
        StackError: A program cannot be stopped.
    """
    if load_way(settings.state_dir) == "compose":
        take_down_compose(settings, report=report)
    else:
        native.take_down(settings, report=report)


def describe(settings: Settings) -> StackStatus:
    """Return the status of the stack, in Compose or as native processes.

    Raises:
        StackError: The state directory belongs to another user.
    """
    require_readable(settings.state_dir)
    if load_way(settings.state_dir) == "compose":
        return describe_compose(settings)
    return describe_native(settings)


def follow_logs(settings: Settings, *, lines: int = 40) -> None:
    """Print the last lines of every program's log, and follow the logs until an interrupt.

    Raises:
        StackError: The logs do not exist or cannot be shown.
    """
    require_readable(settings.state_dir)
    if load_way(settings.state_dir) == "compose":
        follow_compose_logs(settings, lines=lines)
    else:
        native.follow_logs(settings, lines=lines)


def load_way(state_dir: Path) -> RunningWay:
    """Return how the stack was last started: `compose` or `native`; `native` if never started."""
    try:
        word = (state_dir / _FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return "native"
    return "compose" if word == "compose" else "native"
