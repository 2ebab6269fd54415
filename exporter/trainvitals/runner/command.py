"""Runs a command as a child process, and exits in the same way as the command.

The command inherits the standard streams, the terminal, the process group and the session, so that
colors, prompts, progress bars, Ctrl-C and Ctrl-Z work as if the command ran alone. A signal that
the kernel sends to the whole process group reaches the command directly. If another process sends
a signal in `_FORWARDED` to this process, the signal is forwarded to the command.

The signals are blocked before the command starts, and are then received one after another.
Therefore, no signal is lost, and the origin of each signal is known. The command starts with the
signal mask that this process had before.

This process adopts orphaned descendants of the command, so that the kernel reports their exits to
this process. This process does not wait for orphans: it exits when the command has ended. The next
subreaper or PID 1 then adopts the orphans that are still running.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from trainvitals.errors import ConfigurationError
from trainvitals.sources.runs.processes import Exit, read_process_state

STARTUP = Path(__file__).with_name("startup")
_FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)
# Python ignores these signals, and a child process inherits an ignored signal.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)
_SI_KERNEL = 0x80
_PR_SET_CHILD_SUBREAPER = 36


class Observer(Protocol):
    """A protocol for objects that follow the command; every method must return quickly."""

    def begin(self, pid: int) -> None:
        """Start to follow the command, which has just started with this PID."""
        ...

    def note_exit(self, pid: int, start_ticks: int, exit_: Exit) -> None:
        """Record that the command or an adopted orphan of the command has ended."""
        ...

    def resize(self) -> None:
        """Respond to a change in the terminal's size."""
        ...


def make_environment(
    environ: Mapping[str, str], *, name: str | None = None, run_dir: Path | None = None
) -> dict[str, str]:
    """Return the command's environment, which makes every Python process report its training.

    If the given environment contains `TRAINVITALS_AUTOLOG=0`, PYTHONPATH is not changed.

    Args:
        environ: The environment of this process.
        name: The name of the run; None to derive the name from the command.
        run_dir: The run directory; None to leave the run directory unchanged.
    """
    changed = dict(environ)
    if name is not None:
        changed["TRAINVITALS_RUN"] = name
    if run_dir is not None:
        changed["TRAINVITALS_RUN_DIR"] = str(run_dir)
    if environ.get("TRAINVITALS_AUTOLOG") == "0":
        return changed
    # An empty entry in PYTHONPATH means the working directory, so no empty entry is added.
    before = environ.get("PYTHONPATH")
    changed["PYTHONPATH"] = os.pathsep.join((str(STARTUP), before)) if before else str(STARTUP)
    changed["TRAINVITALS_AUTOLOG"] = "1"
    return changed


def run_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    observers: Iterable[Observer] = (),
    streams: Mapping[int, int] | None = None,
) -> int:
    """Run a command until it ends.

    This process must have no other children.

    Args:
        command: The program and its arguments.
        environ: The environment of the command.
        observers: The objects that follow the command.
        streams: The file descriptors that replace the command's standard streams, by the number of
            the standard stream.

    Returns:
        The command's exit code, or the negated signal number if a signal ended the command.

    Raises:
        ConfigurationError: The program cannot be started.
    """
    # Ignored signals stay ignored, such as SIGHUP under nohup and SIGINT in a background job.
    heeded = [each for each in _FORWARDED if signal.getsignal(each) is not signal.SIG_IGN]
    awaited = {signal.SIGCHLD, signal.SIGWINCH, *heeded}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, no exit is reported
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        _adopt_orphans()
        pid = _start(command, environ, mask, streams or {})
        for observer in observers:
            observer.begin(pid)
        return _attend(pid, awaited, tuple(observers))
    finally:
        while signal.sigtimedwait(awaited, 0) is not None:
            pass  # the signal came too late to be forwarded
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _start(
    command: Sequence[str],
    environ: Mapping[str, str],
    mask: Iterable[int],
    streams: Mapping[int, int],
) -> int:
    """Start the command and return its PID.

    In addition to `streams`, the command inherits all inheritable file descriptors.

    Raises:
        ConfigurationError: The program cannot be started.
    """
    try:
        return os.posix_spawnp(
            command[0],
            list(command),
            dict(environ),
            file_actions=[(os.POSIX_SPAWN_DUP2, new, old) for old, new in streams.items()],
            setsigmask=mask,
            setsigdef=_RESET,
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"cannot start {command[0]}: {why}") from error


def _attend(pid: int, awaited: Iterable[int], observers: tuple[Observer, ...]) -> int:
    """Forward signals and reap children until the command ends.

    Returns:
        The command's exit code, or the negated signal number if a signal ended the command.
    """
    while True:
        news = signal.sigwaitinfo(awaited)
        if news.si_signo == signal.SIGCHLD:
            code = _reap(pid, observers)
            if code is not None:
                return code
        elif news.si_signo == signal.SIGWINCH:
            for observer in observers:
                observer.resize()
        elif news.si_code != _SI_KERNEL:
            os.kill(pid, news.si_signo)


def _reap(pid: int, observers: tuple[Observer, ...]) -> int | None:
    """Reap every child that has ended.

    Returns:
        The command's exit code, or the negated signal number if a signal ended the command; None
        if the command is still running.
    """
    ended = os.WEXITED | os.WNOHANG
    while found := os.waitid(os.P_ALL, 0, ended | os.WNOWAIT):
        is_exit = found.si_code == os.CLD_EXITED
        code = found.si_status if is_exit else -found.si_status
        state = read_process_state(found.si_pid)
        exit_ = Exit(code, None) if is_exit else Exit(None, -code)
        for observer in observers:
            observer.note_exit(found.si_pid, state.start_ticks if state else 0, exit_)
        os.waitid(os.P_PID, found.si_pid, ended)
        if found.si_pid == pid:
            return code
    return None


def _adopt_orphans() -> None:
    """Make this process the subreaper of the command's orphans, if the system has subreapers."""
    import ctypes  # noqa: PLC0415 - few commands need it

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_alike(code: int) -> int:
    """Return the command's exit code, or end this process by the signal that ended the command.

    A signal may fail to end this process, for example if the process is PID 1 in a container. In
    this case, the function returns 128 plus the signal number, as a shell does.

    Args:
        code: The result of `run_command`.
    """
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core dump of the command is enough
    if -code not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(-code, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
    os.kill(os.getpid(), -code)
    return 128 - code
