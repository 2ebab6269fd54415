"""The listening sockets of a server, which accept connections."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from selectors import EVENT_READ
from typing import NamedTuple

from trainvitals.http.connection import Client, find_network
from trainvitals.http.host_names import is_loopback_name
from trainvitals.http.listen import Address, bound_address, open_listeners
from trainvitals.http.loop import Loop
from trainvitals.units import format_duration

_LOG = logging.getLogger(__name__)
_OUT_OF_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# A place becomes free when a response ends, but no event reports this.
_FULL_PAUSE_SECONDS = 0.05


class Accepted(NamedTuple):
    """An accepted connection.

    Attributes:
        socket: The socket of the connection, in non-blocking mode.
        client: The client at the other end of the connection.
        is_loopback: Whether the connection was made to a loopback address.
    """

    socket: socket.socket
    client: Client
    is_loopback: bool


class Acceptance:
    """Accepts connections while the server has free places for them.

    Args:
        loop: The loop of the server.
        welcome: A function that is called with each accepted connection.
        has_room: A function that returns whether a place is free or can be freed.
        give_up: A function that is called when the process has no file descriptor left. The
            function closes a connection if one may be closed, and returns whether it closed a
            connection.
        pause_seconds: The time in seconds for which no connection is accepted after the process has
            run out of file descriptors.
        most_per_turn: The maximum number of connections that are accepted before other connections
            are served.
    """

    def __init__(
        self,
        loop: Loop,
        welcome: Callable[[Accepted], None],
        *,
        has_room: Callable[[], bool],
        give_up: Callable[[], bool],
        pause_seconds: float,
        most_per_turn: int,
    ) -> None:
        self._loop = loop
        self._welcome = welcome
        self._has_room = has_room
        self._give_up = give_up
        self._pause_seconds = pause_seconds
        self._most_per_turn = most_per_turn
        self._listeners: dict[socket.socket, bool] = {}
        self._is_listening = False

    @property
    def is_open(self) -> bool:
        """Whether listening sockets are open."""
        return bool(self._listeners)

    def open(self, addresses: Sequence[Address], *, backlog: int) -> tuple[Address, ...]:
        """Listen on addresses, and return the bound addresses with their actual ports.

        Raises:
            ConfigurationError: The server cannot listen on one of the addresses.
        """
        listeners = open_listeners(addresses, backlog=backlog)
        bound = tuple(map(bound_address, listeners))
        for listener, address in zip(listeners, bound, strict=True):
            # Accepted sockets inherit this option.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._listeners[listener] = is_loopback_name(address.host)
        self._listen()
        return bound

    def close(self) -> None:
        """Close the listening sockets, so that new connections are refused."""
        self._stop()
        self._loop.deadlines.clear(self._listen)
        for listener in self._listeners:
            listener.close()

    def _listen(self) -> None:
        self._is_listening = True
        for listener in self._listeners:
            self._loop.watch(listener.fileno(), 0, EVENT_READ, partial(self._accept, listener))

    def _stop(self) -> None:
        if self._is_listening:
            self._is_listening = False
            for listener in self._listeners:
                self._loop.watch(listener.fileno(), EVENT_READ, 0, self._listen)

    def _pause(self, seconds: float) -> None:
        self._stop()
        self._loop.deadlines.set(self._listen, seconds, self._listen)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(self._most_per_turn if self._is_listening else 0):
            if not self._has_room():
                self._pause(_FULL_PAUSE_SECONDS)
                return
            if not self._accept_one(listener):
                return

    def _accept_one(self, listener: socket.socket) -> bool:
        try:
            accepted, (host, port, *_) = listener.accept()
            accepted.settimeout(0)
            client = Client(host, port, find_network(host))
            # A listener on all addresses also accepts connections to loopback addresses.
            is_loopback = self._listeners[listener] or is_loopback_name(accepted.getsockname()[0])
            self._welcome(Accepted(accepted, client, is_loopback))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _OUT_OF_ROOM:
                self._run_out(error)
                return False
            _LOG.debug("did not accept a connection: %s", error)  # the client has disconnected
        return True

    def _run_out(self, error: OSError) -> None:
        if self._give_up():
            return
        _LOG.warning(
            "cannot accept connections: %s; trying again in %s; raise LimitNOFILE",
            error.strerror,
            format_duration(self._pause_seconds),
        )
        self._pause(self._pause_seconds)
