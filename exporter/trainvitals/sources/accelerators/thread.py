"""A vendor's reader on a thread of the exporter.

It costs no interpreter of its own. It cannot be killed: one that hangs is left alone, and a driver
that was replaced under it stays refused until another reader, in a process, takes over.
"""

from __future__ import annotations

import socket
import threading
from importlib import import_module

from trainvitals.sources.accelerators.child import run_reader
from trainvitals.sources.accelerators.reader import Opener, Reader


class ReaderThread(Reader):
    """A reader on a thread; starting it does not wait for it.

    When it is told to end it closes the driver, within the 15 s that waiting for errors may take.

    Args:
        opener: What the thread runs.
    """

    def __init__(self, opener: Opener) -> None:
        connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(connection)
        self._thread = threading.Thread(
            target=_run, args=(opener, other), name=f"reader-{opener.name}", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Have it close the driver and end."""
        self._connection.shutdown(socket.SHUT_RDWR)
        super().end()

    def reap(self) -> bool:
        """Tell whether it has ended."""
        return not self._thread.is_alive()


def _run(opener: Opener, connection: socket.socket) -> None:
    with connection:
        session = run_reader(getattr(import_module(opener.module), opener.name), connection)
    if session is not None:
        session.close()
