"""Runs a command beside this process, and ends as the command ended.

The command inherits the standard streams, the terminal, the process group and the session, so that
colours, prompts, progress bars, Ctrl-C and Ctrl-Z work as without this process. Signals that the
kernel sends to the whole process group reach the command directly; signals that are sent to this
process alone are forwarded.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainvitals.errors import ConfigurationError

STARTUP = Path(__file__).with_name("startup")
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_LOOK_SECONDS = 0.5


def make_environment(
    environ: Mapping[str, str], *, name: str | None = None, run_dir: Path | None = None
) -> dict[str, str]:
    """Return the environment of the command, in which every Python process reports by itself.

    `TRAINVITALS_AUTOLOG=0` in the given environment leaves Python's module path unchanged.

    Args:
        environ: The environment of this process.
        name: The name of the run; None to derive the name from the command.
        run_dir: The directory of the run files; None for the default directory.
    """
    changed = dict(environ)
    if name is not None:
        changed["TRAINVITALS_RUN"] = name
    if run_dir is not None:
        changed["TRAINVITALS_RUN_DIR"] = str(run_dir)
    if environ.get("TRAINVITALS_AUTOLOG") == "0":
        return changed
    # An empty part of the path would add the working directory.
    parts = [str(STARTUP), *environ.get("PYTHONPATH", "").split(os.pathsep)]
    changed["PYTHONPATH"] = os.pathsep.join(part for part in parts if part)
    changed["TRAINVITALS_AUTOLOG"] = "1"
    return changed


def run_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    look: Callable[[int], None] | None = None,
) -> int:
    """Run a command until it ends.

    Args:
        command: The program and its arguments.
        environ: The environment of the command.
        look: A function that is called at the start and about twice a second with the PID of the
            command.

    Returns:
        The exit code of the command; the negative number of the signal that ended the command.

    Raises:
        ConfigurationError: The program cannot be started.
    """
    handlers = {number: signal.signal(number, _do_nothing) for number in _OF_TERMINAL}
    try:
        try:
            process = subprocess.Popen(command, env=environ)
        except OSError as error:
            raise ConfigurationError(f"cannot start {command[0]}: {error.strerror}") from error

        def forward(number: int, _frame: object) -> None:
            process.send_signal(number)

        handlers |= {
            number: signal.signal(number, forward)
            for number in _FORWARDED
            if signal.getsignal(number) is not signal.SIG_IGN  # as SIGHUP below nohup
        }
        code: int | None = None
        while code is None:
            if look is not None:
                look(process.pid)
            code = _wait(process)
        return code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code of a process; None if the process still runs after a moment."""
    try:
        return process.wait(_LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def end_alike(code: int) -> int:
    """End this process by the signal that ended the command; return the exit code otherwise.

    If this process ignores the signal, as PID 1 of a container does, the result is 128 plus the
    number of the signal, as in a shell.
    """
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core dump of the command is enough
    if -code not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


def _do_nothing(_number: int, _frame: object) -> None:
    """Handle a signal that the command has received as well.

    The signal is not ignored, because a command inherits ignored signals and would be deaf to it.
    """
