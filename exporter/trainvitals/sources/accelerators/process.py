"""A vendor's reader in a process of its own.

It can hang, crash and leak without harm, be killed, and starts with a fresh load of the vendor's
library. It costs an interpreter: about 9 MiB.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping

from trainvitals.sources.accelerators.reader import Opener, Reader

_CHILD = (
    "import sys;sys.path[:]={path!r};"
    "from trainvitals.sources.accelerators.child import main;"
    "from {module} import {opener};main({opener},3)"
)
_CHILD_DESCRIPTOR = 3


class ReaderProcess(Reader):
    """A reader in a child process; starting it does not wait for it.

    Args:
        opener: What the child runs.
        environ: The child's environment; our own when None.
    """

    def __init__(self, opener: Opener, *, environ: Mapping[str, str] | None = None) -> None:
        connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(connection)
        with other:
            self._pid = _spawn(opener, other.fileno(), os.environ if environ is None else environ)

    @property
    def pid(self) -> int | None:
        """The child."""
        return self._pid

    def end(self) -> None:
        """Kill it. One that the kernel holds in a driver call dies when that call returns."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        super().end()

    def reap(self) -> bool:
        """Tell whether it is dead, and if so have the kernel forget it."""
        try:
            pid, _ = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            return True
        return pid != 0


def _spawn(opener: Opener, descriptor: int, environ: Mapping[str, str]) -> int:
    """Start a lean interpreter: no site, no user settings, the same import path as here."""
    code = _CHILD.format(path=sys.path, module=opener.module, opener=opener.name)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),  # vendors' libraries print
        (os.POSIX_SPAWN_DUP2, descriptor, _CHILD_DESCRIPTOR),
    ]
    command = [sys.executable, "-I", "-S", "-c", code]
    return os.posix_spawn(sys.executable, command, dict(environ), file_actions=actions)
