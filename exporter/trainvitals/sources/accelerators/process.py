"""A vendor's reader in a process of its own.

It can hang, crash and leak without harm, be killed, and starts with a fresh load of the vendor's
library. It costs an interpreter: about 9 MiB.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping

from trainvitals.sources.accelerators.child import LARGEST_MESSAGE_BYTES
from trainvitals.sources.accelerators.reader import (
    UNEXPECTED_END,
    Answer,
    Opener,
    Reader,
    XidEvent,
)
from trainvitals.sources.accelerators.reading import Identity

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
        super().__init__()
        self._opened = False
        self._answer: tuple[int, Answer] | None = None
        self._xids: list[XidEvent] = []
        self._number = 0
        self._awaited = 0
        self._ended = False
        self._connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._pid = _spawn(opener, other.fileno(), os.environ if environ is None else environ)

    @property
    def pid(self) -> int | None:
        """The child."""
        return self._pid

    @property
    def opened(self) -> bool:
        """Whether it has opened the driver."""
        return self._opened

    @property
    def gone(self) -> str | None:
        """Why the driver no longer answers, or that the child died; None when all is well."""
        if self._gone is None and self._ended and self._absent is None:
            return UNEXPECTED_END
        return self._gone

    @property
    def is_busy(self) -> bool:
        """Whether it still owes an answer to an earlier request."""
        return self._awaited > 0

    def wait_until_opened(self, until: float) -> None:
        """Wait until it has opened the driver, failed to, or the moment (monotonic) has come."""
        while not (self._opened or self._ended or self._absent or self._gone):
            if not self._listen_once(until):
                return

    def ask(self, patience: float, since: Mapping[str, int | None]) -> None:
        """Send a request to read every device; see `child`."""
        self._number += 1
        self._awaited = self._number
        with contextlib.suppress(OSError):  # it ended; `take_answer` finds out, after what it said
            self._connection.sendall(marshal.dumps(("read", self._number, patience, dict(since))))

    def take_answer(self, until: float) -> Answer | None:
        """Wait for the answer to the latest request; None when it does not come by then."""
        while not self._ended and self._gone is None:
            if self._answer is not None and self._answer[0] == self._number:
                answer, self._answer = self._answer[1], None
                return answer
            if not self._listen_once(until):
                return None
        return None

    def take_xids(self) -> list[XidEvent]:
        """Take the errors reported since the last time, also those of a child that died."""
        while not self._ended and self._listen_once(0.0):
            pass
        xids, self._xids = self._xids, []
        return xids

    def hang_up(self) -> None:
        """Have a wait for it that is under way end soon; the child ends too."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Kill it. One that the kernel holds in a driver call dies when that call returns."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._ended = True
        self._connection.close()

    def reap(self) -> bool:
        """Tell whether it is dead, and if so have the kernel forget it."""
        try:
            pid, _ = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            return True
        return pid != 0

    def _listen_once(self, until: float) -> bool:
        """Take up one message; False when none comes until the moment (monotonic)."""
        wait = until - time.monotonic()
        self._connection.settimeout(max(wait, 0.0))  # 0 does not block
        try:
            packet = self._receive()
        except (TimeoutError, BlockingIOError):
            return False
        except OSError:
            packet = b""
        finally:
            if self._connection.fileno() >= 0:
                self._connection.settimeout(None)
        if not packet:
            self._ended = True
            return False
        self._take_up(marshal.loads(packet))  # noqa: S302 - from our own child
        return True

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(LARGEST_MESSAGE_BYTES)
        except ConnectionResetError:  # it died with our request unread; what it said is still there
            return self._connection.recv(LARGEST_MESSAGE_BYTES)

    def _take_up(self, message: tuple[object, ...]) -> None:
        match message:
            case ("opened", list(identities), list(unreadable)):
                self._opened = True
                self._identities = [Identity(*identity) for identity in identities]
                self._unreadable = [(Identity(*identity), state) for identity, state in unreadable]
            case ("absent", str(reason)):
                self._absent = reason
            case ("gone", str(reason)):
                self._gone = reason
            case ("read", int(number), list(rows), list(states), bool(is_current), list(troubles)):
                if number == self._awaited:
                    self._awaited = 0
                self._answer = (number, Answer(rows, states, is_current, troubles))
            case ("xid", str(uuid), int(code), float(at)):
                self._xids.append(XidEvent(uuid, code, at))


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
