"""A vendor's reader in a child process.

If the child process hangs, crashes or leaks memory, the exporter is not affected. The exporter can
kill the child process, and a new child process loads the vendor's library again. The child's
interpreter uses about 9 MiB of memory.
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
    """A reader in a child process; the constructor does not wait for the child process to start.

    Args:
        opener: The function that opens the driver in the child.
        environ: The child's environment variables; None if the child inherits this process's
            environment.
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
        """The PID of the child process."""
        return self._pid

    @property
    def opened(self) -> bool:
        """Whether the child has opened the driver."""
        return self._opened

    @property
    def gone(self) -> str | None:
        """The reason why the driver no longer responds or the child has ended.

        The reason is None if the driver has not failed and the child has not ended.
        """
        if self._gone is None and self._ended and self._absent is None:
            return UNEXPECTED_END
        return self._gone

    @property
    def is_busy(self) -> bool:
        """Whether the child has not answered the latest request yet."""
        return self._awaited > 0

    def wait_until_opened(self, until: float) -> None:
        """Wait until the driver is open, opening fails, or the monotonic deadline passes."""
        while not (self._opened or self._ended or self._absent or self._gone):
            if not self._listen_once(until):
                return

    def ask(self, patience: float, since: Mapping[str, int | None]) -> None:
        """Send a request for a reading of every device; see `child`."""
        self._number += 1
        self._awaited = self._number
        with contextlib.suppress(OSError):  # the child ended; `take_answer` reads the rest
            self._connection.sendall(marshal.dumps(("read", self._number, patience, dict(since))))

    def take_answer(self, until: float) -> Answer | None:
        """Wait for the answer to the latest request; return None if no answer arrives in time."""
        while not self._ended and self._gone is None:
            if self._answer is not None and self._answer[0] == self._number:
                answer, self._answer = self._answer[1], None
                return answer
            if not self._listen_once(until):
                return None
        return None

    def take_xids(self) -> list[XidEvent]:
        """Return the Xid errors that were reported since the last call.

        The child may already have ended.
        """
        while not self._ended and self._listen_once(0.0):
            pass
        xids, self._xids = self._xids, []
        return xids

    def hang_up(self) -> None:
        """Shut down the connection, so that a wait for the child returns and the child exits."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Kill the child; during a driver call, the child exits only when the call returns."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._ended = True
        self._connection.close()

    def reap(self) -> bool:
        """Return whether the child has exited, and reap an exited child."""
        try:
            pid, _ = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            return True
        return pid != 0

    def _listen_once(self, until: float) -> bool:
        """Receive one message; return False if no message arrives by the monotonic deadline."""
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
        ):  # the child exited before it read our request; its messages can still be read
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
    """Return a new socket pair: the parent's end and the child's end."""
    parent, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # The kernel refuses a packet that is larger than the sender's buffer. The default buffer is too
    # small for 64 devices with 256 processes each. The maximum is twice net.core.wmem_max; see
    # unix(7).
    child.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST_MESSAGE_BYTES)
    return parent, child


def _spawn(opener: Opener, descriptor: int, environ: Mapping[str, str]) -> int:
    """Start a child interpreter without site packages and user settings, and return its PID.

    The child has the same import path as this interpreter.
    """
    code = _CHILD.format(path=sys.path, module=opener.module, opener=opener.name)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),  # vendors' libraries print text
        (os.POSIX_SPAWN_DUP2, descriptor, _CHILD_DESCRIPTOR),
    ]
    command = [sys.executable, "-I", "-S", "-c", code]
    return os.posix_spawn(sys.executable, command, dict(environ), file_actions=actions)
