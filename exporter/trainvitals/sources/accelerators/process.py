"""A vendor's reader in a child process.

It can hang, crash and leak without harm, can be killed, and loads the vendor's library again. It
costs an interpreter: about 9 MiB.
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
        opener: The driver to open in the child.
        environ: The child's environment; that of this process when None.
    """

    def __init__(self, opener: Opener, *, environ: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._opened = False
        self._answer: tuple[int, Answer] | None = None
        self._xids: list[XidEvent] = []
        self._number = 0
        self._awaited = 0
        self._ended = False
        self._connection, other = make_pair()
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
        """Why the driver no longer answers, or that the child died; None if neither."""
        if self._gone is None and self._ended and self._absent is None:
            return UNEXPECTED_END
        return self._gone

    @property
    def is_busy(self) -> bool:
        """Whether it still owes an answer to an earlier request."""
        return self._awaited > 0

    def wait_until_opened(self, until: float) -> None:
        """Wait until the driver is open, opening failed, or the deadline (monotonic) has passed."""
        while not (self._opened or self._ended or self._absent or self._gone):
            if not self._listen_once(until):
                return

    def ask(self, patience: float, since: Mapping[str, int | None]) -> None:
        """Send a request for a reading of every device; see `child`."""
        self._number += 1
        self._awaited = self._number
        with contextlib.suppress(OSError):  # it ended; `take_answer` reads its last messages first
            self._connection.sendall(marshal.dumps(("read", self._number, patience, dict(since))))

    def take_answer(self, until: float) -> Answer | None:
        """Wait for the answer to the latest request; None if it does not arrive in time."""
        while not self._ended and self._gone is None:
            if self._answer is not None and self._answer[0] == self._number:
                answer, self._answer = self._answer[1], None
                return answer
            if not self._listen_once(until):
                return None
        return None

    def take_xids(self) -> list[XidEvent]:
        """Return the errors reported since the last call, also those of a child that died."""
        while not self._ended and self._listen_once(0.0):
            pass
        xids, self._xids = self._xids, []
        return xids

    def hang_up(self) -> None:
        """Make a wait for it return soon; the child ends too."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Kill it. A child that the kernel holds in a driver call dies when that call returns."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._ended = True
        self._connection.close()

    def reap(self) -> bool:
        """Return whether it is dead, and wait for it as `waitpid` does if so."""
        try:
            pid, _ = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            return True
        return pid != 0

    def _listen_once(self, until: float) -> bool:
        """Receive one message; False if none arrives by the deadline (monotonic)."""
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
        except (
            ConnectionResetError
        ):  # it died with our request unread; its messages can still be read
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


def make_pair() -> tuple[socket.socket, socket.socket]:
    """Return the parent's and the child's end of a pair of sockets."""
    parent, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # The kernel refuses a packet that is larger than the sender's buffer, which by default is too
    # small for 64 devices of 256 holders. It grants twice net.core.wmem_max at most, see unix(7).
    child.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST_MESSAGE_BYTES)
    return parent, child


def _spawn(opener: Opener, descriptor: int, environ: Mapping[str, str]) -> int:
    """Start an interpreter without site and user settings, with the import path of this one."""
    code = _CHILD.format(path=sys.path, module=opener.module, opener=opener.name)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),  # vendors' libraries print
        (os.POSIX_SPAWN_DUP2, descriptor, _CHILD_DESCRIPTOR),
    ]
    command = [sys.executable, "-I", "-S", "-c", code]
    return os.posix_spawn(sys.executable, command, dict(environ), file_actions=actions)
