"""The child process in which a vendor's reader runs, and its messages to the exporter.

The parent and the child share a SOCK_SEQPACKET socket pair. Each message is one packet, which
contains a tuple encoded by `marshal`. This encoding is possible because both processes run the same
interpreter.

From the parent:
    ("read", number, patience_seconds, {uuid: since})   read every device

From the child:
    ("opened", [identity, ...], [(identity, state), ...])
        the driver is open; an identity is a tuple of the fields of `Identity`
    ("absent", reason)   the driver is not installed or not loaded; the child exits
    ("gone", reason)     the driver refused to open or no longer responds; the child exits
    ("read", number, [(uuid, row, busy, processes), ...], [(uuid, state), ...], is_current,
     [trouble, ...])
        the answer: a UUID and a `row.DeviceRow` for each device that was read; the devices that
        could not be read; whether the driver still lists the devices that it listed when it was
        opened; and a description of each unexpected error
    ("xid", uuid, code, unix_seconds)   an error, sent as soon as the driver reports it

The child exits when the parent's end of the pair closes.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import socket
import sys
import threading
import time

from trainvitals.sources.accelerators.device_pool import DevicePool
from trainvitals.sources.accelerators.row import DriverAbsentError, DriverGoneError

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from collections.abc import Callable
    from typing import Any

    from trainvitals.sources.accelerators.vendor import Session

LARGEST_MESSAGE_BYTES = 1 << 20
# The threads that read devices compete for the interpreter's lock. By default, a computing thread
# holds the lock for 5 ms.
_SWITCH_INTERVAL_SECONDS = 0.0001


def main(opener: Callable[[], Session], descriptor: int) -> None:
    """Run the child process: open the driver, and answer requests until the parent exits.

    Args:
        opener: The function that opens the vendor's driver.
        descriptor: The file descriptor of the child's end of the socket pair.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    threading.Thread(target=_end_with_parent, args=(descriptor,), daemon=True).start()
    run_reader(opener, socket.socket(fileno=descriptor))
    os._exit(0)  # a call that hangs must not prevent the process from exiting


def run_reader(opener: Callable[[], Session], connection: socket.socket) -> None:
    """Open the driver, and answer requests until the connection closes or the driver is gone."""
    line = _Line(connection)
    try:
        session = opener()
    except DriverAbsentError as error:
        line.send(("absent", str(error)))
        return
    except DriverGoneError as error:
        line.send(("gone", str(error)))
        return
    identities = [device.identity for device in session.devices]
    line.send(("opened", identities, list(session.unreadable)))
    watcher = threading.Thread(target=session.watch, args=(line.report_xid,), daemon=True)
    watcher.start()
    pool = DevicePool(session)
    try:
        while request := line.receive():
            _, number, patience, since = request
            line.send(("read", number, *pool.read(patience, since)))
    except DriverGoneError as error:
        line.send(("gone", str(error)))


def _end_with_parent(descriptor: int) -> None:
    """End the process when the parent has exited, even if a driver call blocks the main thread."""
    poll = select.poll()
    poll.register(descriptor, 0)  # POLLHUP is always reported
    poll.poll()
    os._exit(0)


class _Line:
    """The child's end of the socket pair, through which two threads send messages."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, message: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):  # the parent has exited; `receive` reports it
            self._connection.sendall(marshal.dumps(message))

    def report_xid(self, uuid: str, code: int) -> None:
        self.send(("xid", uuid, code, time.time()))

    def receive(self) -> tuple[str, int, float, dict[str, int | None]] | None:
        try:
            packet = self._connection.recv(LARGEST_MESSAGE_BYTES)
        except OSError:
            return None
        if not packet:
            return None
        message: tuple[str, int, float, dict[str, int | None]] = marshal.loads(packet)  # noqa: S302 - from our parent
        return message
