"""The HTTP server: one thread, one loop, input and output alone.

Whatever takes time (a collection, compression, a password check) happens on other threads; they
hand in their replies, and one wake-up fetches all that have come. The loop waits for sockets and
for the nearest deadline and for nothing else, so a server without clients never wakes.

No client can harm another: nothing blocks, a head has a few seconds as a whole and not for each
read, and when every place is taken the connection that has been idle the longest gives way.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Sequence
from functools import partial
from selectors import EVENT_READ
from typing import TYPE_CHECKING, NamedTuple

from trainvitals.admission import Admission
from trainvitals.connection import Connection, Phase, PlainTransport, Transport
from trainvitals.http1 import (
    KeptHeads,
    RefusalError,
    RequestReader,
    ResponseWriter,
    plain_response,
    sends_body,
)
from trainvitals.listen import Address, bound_address, open_listeners
from trainvitals.loop import Loop

if TYPE_CHECKING:
    from trainvitals.web.messages import Answer, Response
    from trainvitals.webconfig import WebConfigFile

_LOG = logging.getLogger(__name__)
_LATE = plain_response(503, "no answer came in time; try again")
_OUT_OF_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Limits(NamedTuple):  # a dataclass of this size takes the start a millisecond longer
    """How much a client may take.

    Attributes:
        head_seconds: From its first byte (or the connection) to the end of a request's head.
        idle_seconds: Between two requests.
        answer_seconds: Until a request is answered; then its client is told 503.
        write_seconds: Without progress in sending an answer.
        linger_seconds: For a refused client to stop sending.
        linger_bytes: How much of what it still sends is read.
        grace_seconds: After `stop`, for the requests in flight.
        accept_pause_seconds: Without a free file descriptor, until the next try.
        head_bytes: The longest head.
        target_bytes: The longest path and query.
        connections: How many there may be.
        backlog: How many may wait to be accepted.
        accepts_per_turn: How many are accepted before the others are looked at again.
    """

    head_seconds: float = 5.0
    idle_seconds: float = 60.0
    answer_seconds: float = 60.0
    write_seconds: float = 10.0
    linger_seconds: float = 2.0
    linger_bytes: int = 4 << 20
    grace_seconds: float = 5.0
    accept_pause_seconds: float = 1.0
    head_bytes: int = 16 << 10
    target_bytes: int = 8 << 10
    connections: int = 256
    backlog: int = 1024
    accepts_per_turn: int = 64


class Server:
    """Serves HTTP on some addresses.

    Args:
        addresses: Where to listen.
        answer: Answers the requests.
        web_config: TLS, basic authentication and response headers; None for none of them.
        limits: How much a client may take.

    Attributes:
        bound: The addresses really listened on, with the ports that the system chose; empty
            before `bind`.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        answer: Answer,
        *,
        web_config: WebConfigFile | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._addresses = tuple(addresses)
        self._web_config = web_config
        self._limits = limits or Limits()
        self._loop = Loop()
        self._admission = Admission(answer, web_config, self._loop.call_soon)
        self._kept_heads = KeptHeads()
        self._writer = ResponseWriter()
        self._listeners: tuple[socket.socket, ...] = ()
        self._listening = False
        # In the order of their last request, so the first has been idle the longest.
        self._connections: dict[Connection, None] = {}
        self._stopping = False
        self._draining = False
        self.bound: tuple[Address, ...] = ()

    def bind(self) -> None:
        """Listen; clients can connect from now on, and are answered once `run` is called.

        Raises:
            ConfigurationError: One of the addresses cannot be listened on.
        """
        self._listeners = open_listeners(self._addresses, backlog=self._limits.backlog)
        self.bound = tuple(map(bound_address, self._listeners))
        for listener in self._listeners:
            # Accepted sockets inherit it.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listen()

    def run(self) -> None:
        """Serve until `stop`, then answer what is in flight and return.

        Raises:
            ConfigurationError: `bind` was not called before and fails.
        """
        try:
            if not self._listeners:
                self.bind()
            while not (self._draining and not self._connections):
                self._loop.turn()
                if self._stopping and not self._draining:
                    self._drain()
        finally:
            self.close()

    def stop(self) -> None:
        """Have `run` return soon; from any thread or signal handler, any number of times."""
        self._stopping = True
        self._loop.wake()

    def close(self) -> None:
        """Let go of every socket; for a server that is bound and not run."""
        self._close_all("the server ends")
        for listener in self._listeners:
            listener.close()
        self._loop.close()

    def _drain(self) -> None:
        self._draining = True
        self._stop_listening()
        for listener in self._listeners:
            listener.close()
        self._loop.deadlines.clear(self._listen)
        give_up = partial(self._close_all, "its answer did not come before the end")
        self._loop.deadlines.set(self._drain, self._limits.grace_seconds, give_up)
        for connection in list(self._connections):
            if not connection.busy:
                self._close(connection, "the server ends")

    def _close_all(self, reason: str) -> None:
        for connection in list(self._connections):
            self._close(connection, reason)

    # Accepting.

    def _listen(self) -> None:
        self._listening = True
        for listener in self._listeners:
            self._loop.watch(listener.fileno(), 0, EVENT_READ, partial(self._accept, listener))

    def _stop_listening(self) -> None:
        if self._listening:
            self._listening = False
            for listener in self._listeners:
                self._loop.watch(listener.fileno(), EVENT_READ, 0, self._listen)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(self._limits.accepts_per_turn):
            if not self._accept_one(listener):
                return

    def _accept_one(self, listener: socket.socket) -> bool:
        try:
            client, peer = listener.accept()
            self._welcome(client, peer)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _OUT_OF_ROOM:
                self._make_room(error)
                return False
            _LOG.debug("did not accept a connection: %s", error)  # it ended before its turn
        return True

    def _make_room(self, error: OSError) -> None:
        idle = self._longest_idle()
        if idle is not None and not idle.busy:
            self._close(idle, "the process has no file descriptor left")
            return
        _LOG.warning(
            "cannot accept connections: %s; trying again in %g s; raise LimitNOFILE",
            error.strerror,
            self._limits.accept_pause_seconds,
        )
        self._stop_listening()
        self._loop.deadlines.set(self._listen, self._limits.accept_pause_seconds, self._listen)

    def _longest_idle(self) -> Connection | None:
        first = next(iter(self._connections), None)
        return next((each for each in self._connections if not each.busy), first)

    def _welcome(self, client: socket.socket, peer: tuple[str, int]) -> None:
        client.settimeout(0)
        if len(self._connections) >= self._limits.connections and (idle := self._longest_idle()):
            self._close(idle, "another client needs its place")
        connection = Connection(
            self._start_transport(client),
            descriptor=client.fileno(),
            peer=str(Address(*peer[:2])),
            reader=RequestReader(
                self._kept_heads,
                head_bytes=self._limits.head_bytes,
                target_bytes=self._limits.target_bytes,
            ),
        )
        self._connections[connection] = None
        self._allow(connection, self._limits.head_seconds)
        self._watch(connection, EVENT_READ)

    def _start_transport(self, client: socket.socket) -> Transport:
        if self._web_config is None:
            return PlainTransport(client)
        self._web_config.refresh()
        context, tls = self._web_config.context, self._web_config.config.tls
        if context is None or tls is None:
            return PlainTransport(client)
        from trainvitals.tls import TLSTransport  # noqa: PLC0415 - it imports ssl

        return TLSTransport(client, context, tls.client_allowed_sans)

    # One connection.

    def _allow(self, connection: Connection, seconds: float) -> None:
        late = partial(self._close, connection, "it took too long")
        self._loop.deadlines.set(connection, seconds, late)

    def _watch(self, connection: Connection, events: int) -> None:
        if events != connection.watched:
            before, connection.watched = connection.watched, events
            serve = partial(self._serve, connection)
            self._loop.watch(connection.descriptor, before, events, serve)

    def _serve(self, connection: Connection) -> None:
        try:
            if connection.phase is Phase.WRITING:
                self._write(connection)
            elif connection.phase is not Phase.CLOSED:  # another's event in this turn closed it
                self._read(connection)
        except OSError as error:
            self._close(connection, str(error))

    def _read(self, connection: Connection) -> None:
        data = connection.receive()
        if data is None:
            self._watch(connection, connection.transport.blocked_on)
        elif connection.phase is Phase.READING:
            if not data:
                self._close(connection, "the client closed it")
                return
            if not connection.reader.amid_head and connection.head is not None:
                self._allow(connection, self._limits.head_seconds)
            connection.reader.feed(data)
            self._take_up(connection)
        elif connection.phase is Phase.ANSWERING:
            self._read_ahead(connection, data)
        else:
            connection.drained_bytes += len(data)
            if not data or connection.drained_bytes > self._limits.linger_bytes:
                self._close(connection, "it was refused")

    def _read_ahead(self, connection: Connection, data: bytes) -> None:
        connection.reader.feed(data)
        if not data:
            connection.ended = True  # it may well wait for its answers
        if not data or connection.reader.unread_bytes >= self._limits.head_bytes:
            self._watch(connection, 0)

    def _take_up(self, connection: Connection) -> None:
        try:
            head = connection.reader.next_head()
        except RefusalError as refusal:
            _LOG.debug("refused %s: %s", connection.peer, refusal)
            connection.head = None
            connection.closing = connection.lingering = True
            self._send(connection, refusal.response)
            return
        if head is None and connection.ended:
            self._close(connection, "the client closed it")
            return
        if head is None:
            self._watch(connection, EVENT_READ)
            return
        connection.begin(head)
        self._watch(connection, EVENT_READ)
        late = partial(self._respond, connection, connection.ticket, _LATE)
        self._loop.deadlines.set(connection, self._limits.answer_seconds, late)
        reply = partial(self._reply, connection, connection.ticket)
        self._admission.admit(head.request, reply)

    def _reply(self, connection: Connection, ticket: int, response: Response) -> None:
        self._loop.call_soon(partial(self._respond, connection, ticket, response))

    def _respond(self, connection: Connection, ticket: int, response: Response) -> None:
        if connection.phase is Phase.ANSWERING and connection.ticket == ticket:
            try:
                self._send(connection, response)
            except OSError as error:
                self._close(connection, str(error))

    def _send(self, connection: Connection, response: Response) -> None:
        connection.closing = connection.closing or self._stopping
        request = connection.head.request if connection.head else None
        more = self._web_config.config.headers if self._web_config else ()
        try:
            head = self._writer.write_head(response, more=more, close=connection.closing)
        except ValueError as error:
            _LOG.error("cannot send an answer: %s", error)
            response = plain_response(500, "the answer could not be sent")
            head = self._writer.write_head(response, close=connection.closing)
        connection.send(head, response.body if sends_body(request, response) else b"")
        self._allow(connection, self._limits.write_seconds)
        self._write(connection)

    def _write(self, connection: Connection) -> None:
        progress = connection.flush()
        if not connection.unsent:
            self._finish(connection)
            return
        if progress:
            self._allow(connection, self._limits.write_seconds)
        self._watch(connection, connection.transport.blocked_on)

    def _finish(self, connection: Connection) -> None:
        if connection.closing:
            if connection.lingering or connection.reader.unread_bytes:
                self._linger(connection)
            else:
                self._close(connection, "it was answered")
            return
        connection.phase = Phase.READING
        self._connections[connection] = self._connections.pop(connection)
        amid = connection.reader.unread_bytes > 0
        self._allow(connection, self._limits.head_seconds if amid else self._limits.idle_seconds)
        self._take_up(connection)

    def _linger(self, connection: Connection) -> None:
        connection.phase = Phase.LINGERING
        self._allow(connection, self._limits.linger_seconds)
        connection.transport.finish()
        self._watch(connection, EVENT_READ)

    def _close(self, connection: Connection, reason: str) -> None:
        if connection.phase is Phase.CLOSED:
            return
        _LOG.debug("closed %s: %s", connection.peer, reason)
        connection.phase = Phase.CLOSED
        connection.unsent = []
        self._watch(connection, 0)
        del self._connections[connection]
        self._loop.deadlines.clear(connection)
        connection.transport.close()
