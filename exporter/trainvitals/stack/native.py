"""The stack as native processes: everything up, or nothing left behind."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.stack import debian
from trainvitals.stack.destinations import recall_destinations
from trainvitals.stack.installation import install_package
from trainvitals.stack.leftovers import end_processes, marked_processes, wait_until_gone
from trainvitals.stack.lineup import Supply, plan_programs
from trainvitals.stack.ports import refuse_taken_ports
from trainvitals.stack.programs import (
    Program,
    forget_programs,
    recall_programs,
    remember_programs,
)
from trainvitals.stack.readiness import wait_until_all_work
from trainvitals.stack.reloading import reload_programs
from trainvitals.stack.settings import Settings
from trainvitals.stack.shipped import find_shipped
from trainvitals.stack.supervision import (
    PIDFILE,
    SOCKET,
    STARTED,
    ask_states,
    request_shutdown,
    start_supervisor,
)
from trainvitals.stack.writing import hold_lock, refuse_full_disk

Report = Callable[[str], None]

_SHUTDOWN_SECONDS = 20.0
_ALERTS = "alerts go to"


def bring_up(
    settings: Settings,
    *,
    report: Report,
    find: Callable[[str], Path] | None = None,
    shipped: Callable[[str], Path] = find_shipped,
    patience_seconds: float = 60.0,
) -> None:
    """Start what does not run yet and wait until all of it works.

    A stack that runs with these settings goes on running and reads its configuration again; one
    that runs with others, or not whole, is replaced. When it cannot be brought up, or is
    interrupted, nothing is left running.

    Args:
        settings: Ports and directories.
        report: Told in one line at a time what happens and where things are.
        find: Gives the path of a program by its name; None looks here, then in Debian's packages.
        shipped: Gives the path of a shipped file or directory by its name.
        patience_seconds: How long the programs may take until they work.

    Raises:
        ConfigurationError: A variable says something that cannot be done.
        StackError: A port is taken, or a program does not start or does not work.
    """
    supply = Supply(find or _look(report), shipped, report)
    with hold_lock(settings.state_dir):
        refuse_full_disk(settings.state_dir)
        programs = plan_programs(settings, supply)
        if _runs(settings.state_dir, programs):
            report("already running")
            reload_programs(settings.state_dir, programs)
            wait_until_all_work(settings.state_dir, programs, report, patience_seconds)
        else:
            _replace(settings, programs, report, patience_seconds)
    if len(programs) > 1:
        for number, line in enumerate(recall_destinations(settings.state_dir)):
            report(f"{'' if number else _ALERTS:{len(_ALERTS)}} {line}")
    way = "natively" if len(programs) > 1 else "the exporter with its live page alone"
    report(f"the stack runs {way}; data and logs are in {settings.state_dir}")


def _look(report: Report) -> Callable[[str], Path]:
    install = install_package if os.geteuid() == 0 else None
    return functools.partial(debian.find_program, report=report, install=install)


def take_down(settings: Settings, *, report: Report) -> None:
    """Stop every process of the stack, also those whose supervisor is gone; data and logs stay.

    Raises:
        StackError: A process cannot be ended.
    """
    with hold_lock(settings.state_dir):
        stopped = _stop(settings.state_dir)
        report(f"stopped {', '.join(stopped)}" if stopped else "nothing is running")


def _runs(state_dir: Path, programs: tuple[Program, ...]) -> bool:
    states = ask_states(state_dir) or ()
    running = {state.name for state in states if state.state in STARTED}
    return recall_programs(state_dir) == programs and running == {each.name for each in programs}


def _replace(
    settings: Settings, programs: tuple[Program, ...], report: Report, patience_seconds: float
) -> None:
    state_dir = settings.state_dir
    if stopped := _stop(state_dir):
        report(f"stopped {', '.join(stopped)}: the stack was not whole or its settings changed")
    refuse_taken_ports(programs, settings.bind_address)
    with ExitStack() as undo:
        undo.callback(_undo, state_dir, report)
        remember_programs(state_dir, programs)
        start_supervisor(state_dir, programs)
        wait_until_all_work(state_dir, programs, report, patience_seconds)
        undo.pop_all()


def _undo(state_dir: Path, report: Report) -> None:
    _stop(state_dir)
    report("nothing is left running")


def _stop(state_dir: Path) -> tuple[str, ...]:
    """Stop what runs and name the programs that did."""
    processes = marked_processes(state_dir)
    if request_shutdown(state_dir):
        wait_until_gone(list(processes), _SHUTDOWN_SECONDS)
    # Once more: a program may have been started again meanwhile.
    left = end_processes(list({**processes, **marked_processes(state_dir)}))
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise StackError(f"cannot end process {pids}: end it as the user who started it")
    forget_programs(state_dir)
    for name in (SOCKET, PIDFILE):
        (state_dir / name).unlink(missing_ok=True)
    return tuple(sorted(set(processes.values()) - {"supervisord"}))
