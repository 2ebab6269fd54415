"""The two ways in which the stack runs, and which of them this machine gets.

The way is remembered in the state directory, so that what follows a start needs no flag.
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
    Lack,
    find_cards,
    find_overrides,
    find_withheld,
    look_for_engine,
)
from trainvitals.stack.logs import follow_logs as follow_native_logs
from trainvitals.stack.programs import recall_programs
from trainvitals.stack.settings import Settings
from trainvitals.stack.status import StackStatus
from trainvitals.stack.status import describe as describe_native
from trainvitals.stack.writing import make_private, refuse_closed_directory, write_private

Report = Callable[[str], None]
RunningWay = Literal["compose", "native"]

_REMEMBERED = "way"


def choose_way(
    settings: Settings,
    *,
    report: Report,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> RunningWay:
    """Take the way that was asked for; else Compose where an engine answers, else processes.

    A machine whose accelerators Docker cannot hand to a container gets processes, which see them.

    Args:
        settings: `way` is what was asked for.
        report: Told in one line why it is not Compose.
        environ: What `docker` inherits.
        root: Where the drivers of accelerators are looked for.

    Raises:
        StackError: Compose was asked for and cannot be had.
    """
    if settings.way == "native":
        return "native"
    engine = look_for_engine({**environ, **settings.variables})
    if isinstance(engine, Lack):
        if settings.way == "compose":
            raise StackError(f"no Docker Compose: {engine.reason}; or take --way native")
        if engine.is_news:
            report(f"not in Docker Compose: {engine.reason}")
        return "native"
    cards = find_cards(root)
    withheld = find_withheld(cards, find_overrides(engine, cards, environ))
    if withheld and settings.way == "auto":
        report(f"not in Docker Compose: {withheld}")
        return "native"
    return "compose"


def bring_up(settings: Settings, *, report: Report) -> None:
    """Start what does not run yet, in the way that this machine gets, and wait until it works.

    A stack that runs in the other way is stopped before.

    Args:
        settings: Ports, directories, variables and the way.
        report: Told in one line at a time what happens and where things are.

    Raises:
        ConfigurationError: A variable says something that cannot be done.
        StackError: It cannot be brought up; nothing is left running then.
    """
    way = choose_way(settings, report=report)
    if recall_programs(settings.state_dir) and recall_way(settings.state_dir) != way:
        report("the stack runs in the other way: it is stopped first")
        take_down(settings, report=report)
    make_private(settings.state_dir)
    write_private(settings.state_dir / _REMEMBERED, way + "\n")
    if way == "compose":
        bring_up_compose(settings, report=report)
    else:
        native.bring_up(settings, report=report)


def take_down(settings: Settings, *, report: Report) -> None:
    """Stop everything that `bring_up` started; data stays.

    Raises:
        StackError: Something cannot be stopped.
    """
    if recall_way(settings.state_dir) == "compose":
        take_down_compose(settings, report=report)
    else:
        native.take_down(settings, report=report)


def describe(settings: Settings) -> StackStatus:
    """Ask every program of the stack how it is.

    Raises:
        StackError: The state directory is another user's, so that nothing can be told.
    """
    refuse_closed_directory(settings.state_dir)
    if recall_way(settings.state_dir) == "compose":
        return describe_compose(settings)
    return describe_native(settings)


def follow_logs(settings: Settings, *, lines: int = 40) -> None:
    """Show the end of every program's log and follow them until interrupted.

    Raises:
        StackError: There are no logs, or they cannot be shown.
    """
    refuse_closed_directory(settings.state_dir)
    if recall_way(settings.state_dir) == "compose":
        follow_compose_logs(settings, lines=lines)
    else:
        follow_native_logs(settings, lines=lines)


def recall_way(state_dir: Path) -> RunningWay:
    """Tell in which way the stack was started last; `native` before the first start."""
    try:
        word = (state_dir / _REMEMBERED).read_text(encoding="utf-8").strip()
    except OSError:
        return "native"
    return "compose" if word == "compose" else "native"
