"""Runs a command as a child process, and ends in the same way as the command.

The command inherits the standard streams, the terminal, the process group and the session, so that
colours, prompts, progress bars, Ctrl-C and Ctrl-Z work as if the command ran alone. A signal that
the kernel sends to the whole process group reaches the command directly; the other signals in
`_FORWARDED` are forwarded.

The signals are blocked before the command starts and are then received one after another, so that
no signal is lost and the origin of each signal is known. The command starts with the signal mask
that this process had before.

This process adopts the orphans below the command, so that the kernel reports their exits to this
process. This process does not wait for orphans: it ends when the command has ended, and the next
subreaper or PID 1 adopts the processes that continue.
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
# Python ignores these signals itself, and an ignored signal is inherited.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)
_SI_KERNEL = 0x80
_PR_SET_CHILD_SUBREAPER = 36


class Observer(Protocol):
    """A protocol for objects that follow the command; every method must return quickly."""

    def begin(self, pid: int) -> None:
        """Begin to follow the command with this PID, which has just been started."""
        ...

    def note_exit(self, pid: int, start_ticks: int, exit_: Exit) -> None:
        """Note that the command or an orphan below the command has ended."""
        ...

    def resize(self) -> None:
        """Adapt to the terminal's new size."""
        ...


def make_environment(
    environ: Mapping[str, str], *, name: str | None = None, run_dir: Path | None = None
) -> dict[str, str]:
    """Return an environment for the command in which every Python process reports its training.

    With `TRAINVITALS_AUTOLOG=0` in the given environment, PYTHONPATH is not changed.

    Args:
        environ: The environment of this process.
        name: The name of the run; None to derive the name from the command.
        run_dir: The run directory; None leaves the directory unchanged.
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
        streams: The file descriptors that replace standard streams of the command, by the number
            of the replaced stream.

    Returns:
        The command's exit code, or the negated signal number if a signal ended the command.

    Raises:
        ConfigurationError: The program cannot be started.
    """
    # An ignored signal stays ignored, such as SIGHUP below nohup and SIGINT in the background.
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
    """Start the command and return its PID; the command also inherits all other descriptors.

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
    """Forward signals and reap children until the command ends; return as `run_command` does."""
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
    """Reap every child that has ended; return the command's exit code, or None while it runs."""
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
    """Make this process the subreaper of orphans below the command, if the system supports it."""
    import ctypes  # noqa: PLC0415 - few commands need it

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_alike(code: int) -> int:
    """End this process by the signal that ended the command, or return the command's exit code.

    If the signal does not end this process, as in the case of PID 1 in a container, 128 plus the
    signal number is returned, as a shell does.

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
