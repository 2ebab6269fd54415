"""The identity of a training process, for the run file's header, and hooks in its interpreter.

The hooks report the exit of the interpreter, an uncaught exception and a fork.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from trainvitals import __version__
from trainvitals.runfile import Identity
from trainvitals.training.failure import find_error
from trainvitals.training.launch import Launch

_MOST_TEXT = 200


def identify(launch: Launch, *, framework: str | None, framework_version: str | None) -> Identity:
    """Return the identity of this process.

    Args:
        launch: The run name and rank of this process.
        framework: The name of the training framework; None to detect the loaded framework: PyTorch,
            JAX or TensorFlow.
        framework_version: The version of the training framework.
    """
    if framework is None:
        framework, framework_version = _find_framework()
    ticks, boot_id, namespace = read_self()
    static: Mapping[str, str | Sequence[str]] = {
        "framework": framework[:_MOST_TEXT],
        "framework_version": (framework_version or "")[:_MOST_TEXT],
        "client_version": __version__,
        "hostname": name_host()[:_MOST_TEXT],
        "script": Path(sys.argv[0] if sys.argv else "").name[:_MOST_TEXT],
        "clock": "host",
        "accelerator_uuids": _find_accelerators(),
    }
    return Identity(
        run=launch.run,
        rank=launch.rank,
        local_rank=launch.local_rank,
        node_rank=launch.node_rank,
        world_size=launch.world_size,
        attempt=launch.attempt,
        pid=os.getpid(),
        uid=os.getuid() if hasattr(os, "getuid") else 0,
        start_ticks=ticks,
        boot_id=boot_id,
        pid_namespace=namespace,
        created_time=time.time(),
        created_mono_ns=time.monotonic_ns(),
        static=static,
    )


def _find_framework() -> tuple[str, str]:
    for module in ("torch", "jax", "tensorflow"):
        if module in sys.modules:
            return module, str(getattr(sys.modules[module], "__version__", ""))
    return "python", sys.version.split()[0]


def _find_accelerators() -> list[str]:
    """Return the UUID of the current CUDA device; empty unless the program initialised CUDA."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return []
    uuid = getattr(cuda.get_device_properties(cuda.current_device()), "uuid", None)
    return [f"GPU-{uuid}"] if uuid else []


def name_host() -> str:
    """Return the host name of this machine."""
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def read_self(*, procfs: Path = Path("/proc")) -> tuple[int, bytes, int]:
    """Return the properties that identify this process on the machine.

    Returns:
        The start time in clock ticks since boot, the boot ID, and the inode of the PID namespace.
        All three are zero if `/proc` does not provide one of them.
    """
    try:
        stat = (procfs / "self/stat").read_bytes()
        ticks = int(stat[stat.rindex(b")") + 2 :].split()[19])
        boot = bytes.fromhex(
            (procfs / "sys/kernel/random/boot_id").read_text("utf-8").replace("-", "")
        )
        namespace = (procfs / "self/ns/pid").stat().st_ino
    except (OSError, ValueError, IndexError):
        return (0, bytes(16), 0)
    return (ticks, boot.ljust(16, b"\0")[:16], namespace)


def is_loader_worker() -> bool:
    """Return whether this process is a daemonic multiprocessing child, such as a loader worker.

    The result is also True while a spawned child imports the script's module, because the child is
    not yet marked as daemonic at that time.
    """
    processes = sys.modules.get("multiprocessing.process")
    if processes is None:
        return False
    process = processes.current_process()
    return bool(process.daemon or getattr(process, "_inheriting", False))


class Run(Protocol):
    """A run that can be notified when its process ends."""

    def end(self) -> None:
        """Record that the interpreter exits."""
        ...

    def fail(self, exception: BaseException | None = None) -> None:
        """Record that the interpreter exits because of an exception."""
        ...


class InterpreterHooks:
    """Hooks that notify a run of the interpreter's exit, an uncaught exception and a fork.

    A process that multiprocessing started handles its exceptions itself and may exit without
    calling the interpreter's exit functions. A multiprocessing finalizer therefore reports the exit
    of such a process.

    The hooks do not keep the run alive. The hooks of several runs are chained, and each run's hooks
    can be removed separately.

    Args:
        run: The run that the hooks notify.
        silence: A method of the run that is called in each forked child.
    """

    __slots__ = ("_error_before", "_finalizer", "_handled_before", "_previous", "_run", "_silence")

    def __init__(self, run: Run, silence: Callable[[], None]) -> None:
        self._run = weakref.ref(run)
        self._silence = weakref.WeakMethod(silence)
        self._error_before = _find_uncaught()
        self._handled_before = sys.exc_info()[1]  # a forked process inherits its parent's exception
        self._finalizer = _add_finalizer(self._report_exit)
        self._previous = sys.excepthook
        sys.excepthook = self
        atexit.register(self._report_end)
        if hasattr(os, "register_at_fork"):  # a fork hook cannot be unregistered
            os.register_at_fork(after_in_child=self._report_fork)

    def remove(self) -> None:
        """Remove the hooks from the interpreter."""
        atexit.unregister(self._report_end)
        if self._finalizer is not None:
            self._finalizer()
        if sys.excepthook is self:
            sys.excepthook = self._previous
            return
        hook = sys.excepthook
        while isinstance(hook, InterpreterHooks):
            if hook._previous is self:  # noqa: SLF001 - another instance
                hook._previous = self._previous  # noqa: SLF001
                return
            hook = hook._previous  # noqa: SLF001

    def __call__(
        self,
        kind: type[BaseException],
        exception: BaseException,
        trace: TracebackType | None,
    ) -> None:
        """Handle an uncaught exception; the instance is installed as `sys.excepthook`."""
        self._fail(exception)
        self._previous(kind, exception, trace)

    def _fail(self, exception: BaseException) -> None:
        run = self._run()
        if run is not None:
            run.fail(exception)

    def _end(self) -> None:
        run = self._run()
        if run is not None:
            run.end()

    def _report_end(self) -> None:
        error = _find_uncaught()
        if error is None or error is self._error_before:
            self._end()
        else:  # another hook replaced this one and did not call it
            self._fail(error)

    def _report_exit(self) -> None:
        """Report that a process of multiprocessing exits, or the exception that ends it."""
        handled = sys.exc_info()[1]
        error = None if handled is self._handled_before else find_error(handled)
        if error is None:
            self._end()
        else:
            self._fail(error)

    def _report_fork(self) -> None:
        silence = self._silence()
        if silence is not None:
            silence()


def _add_finalizer(report: Callable[[], None]) -> Callable[[], object] | None:
    """Register a function that multiprocessing calls when this process exits.

    Returns:
        A function that cancels the registration; None if multiprocessing did not start this
        process.
    """
    processes, util = map(sys.modules.get, ("multiprocessing.process", "multiprocessing.util"))
    if processes is None or util is None or processes.parent_process() is None:
        return None
    cancel: Callable[[], object] = util.Finalize(None, report, exitpriority=0).cancel
    return cancel


def _find_uncaught() -> BaseException | None:
    """Return the uncaught exception; None in an interactive session, which continues after it."""
    error: BaseException | None = getattr(sys, "last_value", None)
    return None if hasattr(sys, "ps1") else error
