"""Starts and stops the stack as native processes: either all of the programs run, or none."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.shipped import find_shipped
from trainvitals.stack import debian
from trainvitals.stack.accounts import drop_root
from trainvitals.stack.configuration import report_destinations
from trainvitals.stack.installation import install_package
from trainvitals.stack.plan import Supply, plan_programs
from trainvitals.stack.programs import (
    Program,
    delete_programs,
    load_programs,
    require_free_ports,
    save_programs,
)
from trainvitals.stack.readiness import reload_programs, wait_until_all_work
from trainvitals.stack.settings import Settings
from trainvitals.stack.supervision import (
    PIDFILE,
    SOCKET,
    STARTED,
    ask_states,
    find_processes,
    request_shutdown,
    start_supervisor,
    terminate_processes,
    wait_until_gone,
)
from trainvitals.stack.writing import hold_lock, require_free_space

Report = Callable[[str], None]

_SHUTDOWN_SECONDS = 20.0
_ASKED = ("GRAFANA_FETCH",)


def bring_up(
    settings: Settings,
    *,
    report: Report,
    find: Callable[[str], Path] | None = None,
    shipped: Callable[[str], Path] = find_shipped,
    timeout_seconds: float = 60.0,
) -> None:
    """Start the stack's programs, and wait until all programs are ready.

    If the stack already runs with these settings, it reloads its configuration. If it runs with
    other settings, or if a program is missing, the stack is stopped and started again. If the start
    fails or is interrupted, all programs are stopped.

    Args:
        settings: The stack's ports and directories.
        report: Called with each line of progress.
        find: Returns the path of a program; None to use installed programs and downloaded packages.
        shipped: Returns the path of a shipped file or directory.
        timeout_seconds: The maximum time until the programs are ready, in seconds.

    Raises:
        ConfigurationError: A variable is invalid.
        StackError: A port is in use, or a program does not start or does not become ready.
    """
    supply = Supply(find or _find_or_install(settings, report), shipped, report)
    with hold_lock(settings.state_dir):
        require_free_space(settings.state_dir)
        remarks: list[str] = []
        planned = plan_programs(settings, supply)
        programs = drop_root(settings.state_dir, planned, remarks.append)
        if _runs(settings.state_dir, programs):
            report("already running")
            reload_programs(settings.state_dir, programs)
            wait_until_all_work(settings.state_dir, programs, report, timeout_seconds)
        else:
            for remark in remarks:
                report(remark)
            _replace(settings, programs, report, timeout_seconds)
    if len(programs) > 1:
        report_destinations(settings.state_dir, report)
    what = "the stack runs natively"
    if len(programs) == 1:
        what = "without Prometheus, only the exporter runs, with its live page"
    report(f"{what}; data and logs are in {settings.state_dir}")


def _find_or_install(settings: Settings, report: Report) -> Callable[[str], Path]:
    install = install_package if os.geteuid() == 0 else None
    # The other variables in `.env` may be secret, and apt does not need these variables.
    asked = {name: settings.variables[name] for name in _ASKED if name in settings.variables}
    environ = {**os.environ, **asked}
    return functools.partial(debian.find_program, environ=environ, report=report, install=install)


def take_down(settings: Settings, *, report: Report) -> None:
    """Stop all supervised and unsupervised processes of the stack; data and logs are kept.

    Raises:
        StackError: A process cannot be stopped.
    """
    with hold_lock(settings.state_dir):
        stopped = _stop(settings.state_dir)
        report(f"stopped {', '.join(stopped)}" if stopped else "nothing is running")


def _runs(state_dir: Path, programs: tuple[Program, ...]) -> bool:
    states = ask_states(state_dir) or ()
    running = {state.name for state in states if state.state in STARTED}
    return load_programs(state_dir) == programs and running == {each.name for each in programs}


def _replace(
    settings: Settings, programs: tuple[Program, ...], report: Report, timeout_seconds: float
) -> None:
    state_dir = settings.state_dir
    if stopped := _stop(state_dir):
        report(f"stopped {', '.join(stopped)}, as a program was missing or the settings changed")
    require_free_ports(programs, settings.bind_address)
    with ExitStack() as undo:
        undo.callback(_undo, state_dir, report)
        save_programs(state_dir, programs)
        start_supervisor(state_dir, programs)
        wait_until_all_work(state_dir, programs, report, timeout_seconds)
        undo.pop_all()


def _undo(state_dir: Path, report: Report) -> None:
    _stop(state_dir)
    report("nothing is left running")


def _stop(state_dir: Path) -> tuple[str, ...]:
    """Stop the stack's running programs and return the names of these programs."""
    processes = find_processes(state_dir)
    if request_shutdown(state_dir):
        wait_until_gone(list(processes), _SHUTDOWN_SECONDS)
    # The processes are listed again, because the supervisor may have restarted a program meanwhile.
    left = terminate_processes(list({**processes, **find_processes(state_dir)}))
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise StackError(f"cannot end process {pids}: run this as the user who started the stack")
    delete_programs(state_dir)
    for name in (SOCKET, PIDFILE):
        (state_dir / name).unlink(missing_ok=True)
    return tuple(sorted(set(processes.values()) - {"supervisord"}))


def follow_logs(settings: Settings, *, lines: int = 40) -> None:
    """Print the last lines of every program's log, and follow the logs until an interrupt.

    Raises:
        StackError: The logs do not exist or cannot be shown.
    """
    directory = settings.state_dir / "logs"
    files = sorted(map(str, directory.glob("*.log")))
    if not files:
        raise StackError(f"there are no logs in {directory}: start the stack with `trainvitals up`")
    try:
        # With -F, tail reopens a rotated log.
        command = ("tail", "-n", str(lines), "-F", *files)
        subprocess.run(command, check=False)
    except OSError as error:
        raise StackError(f"cannot run tail: {error.strerror}; read {directory}") from error
