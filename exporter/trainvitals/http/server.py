"""The HTTP server, a single thread that reads requests and writes responses in a loop.

Other threads do the work that takes time (collection, compression, password checks) and queue their
replies. One wake-up of the loop processes all queued replies. The loop waits only for sockets and
the nearest deadline, so a server without clients never wakes up.

Clients cannot affect each other. No operation blocks, and the head of a request must be complete
within a few seconds. If all connections are in use, the server closes the connection with the
longest time since its last progress.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from selectors import EVENT_READ
from typing import TYPE_CHECKING, NamedTuple

from trainvitals.http.acceptance import Acceptance, Accepted
from trainvitals.http.connection import Connection, Phase, PlainTransport, Transport
from trainvitals.http.host_names import HostNames, refuse_host
from trainvitals.http.http1 import (
    KeptHeads,
    RefusalError,
    RequestReader,
    ResponseWriter,
    sends_body,
)
from trainvitals.http.loop import Loop
from trainvitals.http.messages import plain_response
from trainvitals.http.places import Places

if TYPE_CHECKING:
    from trainvitals.http.authentication import Authentication
    from trainvitals.http.listen import Address
    from trainvitals.http.messages import Answer, Reply, Request, Response
    from trainvitals.http.web_config import WebConfigFile

_LOG = logging.getLogger(__name__)
_LATE = plain_response(503, "no answer came in time; try again")


class Limits(NamedTuple):  # a dataclass of this size would delay the start by a millisecond
    """The limits that the HTTP server enforces.

    Attributes:
        head_seconds: The time within which the head of a request must arrive, in seconds. The time
            begins with the first byte of the request or with the connection.
        idle_seconds: The time after which a connection without a request is closed, in seconds.
        answer_seconds: The time within which a response must be available, in seconds. After this
            time, the client receives status code 503.
        write_seconds: The maximum time without progress while a response is sent, in seconds.
        stall_seconds: The maximum time without progress while a response is sent, in seconds, if
            another client needs the connection's place.
        linger_seconds: The time within which a refused client must stop sending, in seconds.
        linger_bytes: The maximum number of bytes that are read from a refused client.
        grace_seconds: The time after `stop` within which the requests in flight are completed, in
            seconds.
        accept_pause_seconds: The time in seconds for which no connection is accepted after the
            process has run out of file descriptors.
        head_bytes: The maximum size of a request's head, in bytes.
        target_bytes: The maximum size of a request's path and query, in bytes.
        unsent_bytes: The maximum total size of unread responses, in bytes.
        connections: The maximum number of connections.
        backlog: The maximum number of connections that wait to be accepted.
        accepts_per_turn: The maximum number of connections that are accepted before other
            connections are served.
    """

    head_seconds: float = 5.0
    idle_seconds: float = 60.0
    answer_seconds: float = 60.0
    write_seconds: float = 10.0
    stall_seconds: float = 0.5
    linger_seconds: float = 2.0
    linger_bytes: int = 4 << 20
    grace_seconds: float = 5.0
    accept_pause_seconds: float = 1.0
    head_bytes: int = 16 << 10
    target_bytes: int = 8 << 10
    unsent_bytes: int = 64 << 20
    connections: int = 256
    backlog: int = 1024
    accepts_per_turn: int = 64


class Server:
    """A single-threaded HTTP server.

    Args:
        addresses: The addresses on which the server listens.
        answer: A function that is called with each request and a function that sends the response.
        web_config: The web configuration file with TLS, basic authentication and response headers;
            None if the server has no such file.
        names: The names by which clients may address the server; None if any name is allowed.
        limits: The limits that the server enforces; None for the default limits.

    Attributes:
        bound: The addresses on which the server listens, with the ports that the system chose; an
            empty tuple before `bind`.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        answer: Answer,
        *,
        web_config: WebConfigFile | None = None,
        names: HostNames | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._addresses = tuple(addresses)
        self._web_config = web_config
        self._names = names
        self._limits = limits or Limits()
        self._loop = Loop()
        self._answer = answer
        self._authentication = None if web_config is None else self._authenticate(web_config)
        self._kept_heads = KeptHeads()
        self._writer = ResponseWriter()
        self._connections = Places(
            self._limits.connections,
            stall_seconds=self._limits.stall_seconds,
            unsent_bytes=self._limits.unsent_bytes,
        )
        self._acceptance = Acceptance(
            self._loop,
            self._welcome,
            has_room=self._has_room,
            give_up=partial(self._close_leaver, "the process has no file descriptor left"),
            pause_seconds=self._limits.accept_pause_seconds,
            most_per_turn=self._limits.accepts_per_turn,
        )
        self._stopping = False
        self._draining = False
        self.bound: tuple[Address, ...] = ()

    def _authenticate(self, web_config: WebConfigFile) -> Authentication:
        from trainvitals.http.authentication import Authentication  # noqa: PLC0415 - it imports hashlib

        set_deadline = partial(self._loop.deadlines.set, Authentication)
        return Authentication(web_config, self._loop.call_soon, set_deadline)

    def bind(self) -> None:
        """Open the listening sockets, so that clients can connect; `run` answers their requests.

        Raises:
            ConfigurationError: The server cannot listen on one of the addresses.
        """
        self.bound = self._acceptance.open(self._addresses, backlog=self._limits.backlog)

    def run(self) -> None:
        """Serve requests until `stop` is called, complete the requests in flight, and return.

        Raises:
            ConfigurationError: `bind` was not called before, and the server cannot listen on one of
                the addresses.
        """
        try:
            if not self._acceptance.is_open:
                self.bind()
            while not (self._draining and not self._connections):
                self._loop.turn()
                if self._stopping and not self._draining:
                    self._drain()
        finally:
            self.close()

    def stop(self) -> None:
        """Make `run` return soon; any thread or signal handler may call this method repeatedly."""
        self._stopping = True
        self._loop.wake()

    def call_soon(self, action: Callable[[], None]) -> None:
        """Schedule a call in the thread that executes `run`.

        This method may be called from any thread or signal handler.
        """
        self._loop.call_soon(action)
        self._loop.wake()  # A signal handler also runs in that thread.

    def close(self) -> None:
        """Close all sockets of a server on which `bind`, but not `run`, was called."""
        self._close_all("the server ends")
        self._acceptance.close()
        self._loop.close()

    def _drain(self) -> None:
        self._draining = True
        self._acceptance.close()
        give_up = partial(self._close_all, "its answer did not come before the end")
        self._loop.deadlines.set(self._drain, self._limits.grace_seconds, give_up)
        for connection in list(self._connections):
            if not connection.busy:
                self._close(connection, "the server ends")

    def _close_all(self, reason: str) -> None:
        for connection in list(self._connections):
            self._close(connection, reason)

    # Places for connections.

    def _has_room(self) -> bool:
        return not self._connections.is_full or self._connections.choose_leaver() is not None

    def _close_leaver(self, reason: str) -> bool:
        leaver = self._connections.choose_leaver()
        if leaver is not None:
            self._close(leaver, reason)
        return leaver is not None

    def _welcome(self, accepted: Accepted) -> None:
        if self._connections.is_full:
            self._close_leaver("another client needs its place")
        connection = Connection(
            self._start_transport(accepted.socket),
            descriptor=accepted.socket.fileno(),
            client=accepted.client,
            is_loopback=accepted.is_loopback,
            reader=RequestReader(
                self._kept_heads,
                head_bytes=self._limits.head_bytes,
                target_bytes=self._limits.target_bytes,
            ),
        )
        self._connections.add(connection)
        self._allow(connection, self._limits.head_seconds)
        self._watch(connection, EVENT_READ)
        # The request may have arrived already, and with it, the connection keeps its place.
        self._serve(connection)

    def _start_transport(self, client: socket.socket) -> Transport:
        if self._web_config is None:
            return PlainTransport(client)
        self._web_config.refresh()
        context, tls = self._web_config.context, self._web_config.config.tls
        if context is None or tls is None:
            return PlainTransport(client)
        from trainvitals.http.tls import TLSTransport  # noqa: PLC0415 - it imports ssl

        return TLSTransport(client, context, tls.client_allowed_sans)

    # A single connection.

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
            elif connection.phase is not Phase.CLOSED:  # another event closed the connection
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
            connection.ended = True  # the client may still wait for responses
        if not data or connection.reader.unread_bytes >= self._limits.head_bytes:
            self._watch(connection, 0)

    def _take_up(self, connection: Connection) -> None:
        try:
            head = connection.reader.next_head()
        except RefusalError as refusal:
            _LOG.debug("refused %s: %s", connection.client, refusal)
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
        host = head.request.headers.get("host")
        if self._names and not self._names.allows(host, is_loopback=connection.is_loopback):
            reply(refuse_host())
        elif self._authentication is None:
            self._answer(head.request, reply)
        else:
            connection.is_admitted = False
            decide = partial(self._admit, connection, head.request, reply)
            self._authentication.check(head.request, connection.client, decide)

    def _admit(
        self, connection: Connection, request: Request, reply: Reply, refusal: Response | None
    ) -> None:
        connection.is_admitted = True
        if refusal is None:
            self._answer(request, reply)
        else:
            reply(refusal)

    def _reply(self, connection: Connection, ticket: int, response: Response) -> None:
        self._loop.call_soon(partial(self._respond, connection, ticket, response))

    def _respond(self, connection: Connection, ticket: int, response: Response) -> None:
        if connection.phase is Phase.ANSWERING and connection.ticket == ticket:
            try:
                self._send(connection, response)
            except OSError as error:
                self._close(connection, str(error))

    def _send(self, connection: Connection, response: Response) -> None:
        connection.closing |= self._stopping or self._connections.is_crowding(connection)
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
            self._connections.note_progress(connection)
            self._allow(connection, self._limits.write_seconds)
        self._watch(connection, connection.transport.blocked_on)
        if stalled := self._connections.choose_stalled():
            self._close(stalled, "it does not read, and too much waits")

    def _finish(self, connection: Connection) -> None:
        if connection.closing:
            if connection.lingering or connection.reader.unread_bytes:
                self._linger(connection)
            else:
                self._close(connection, "it was answered")
            return
        connection.phase = Phase.READING
        self._connections.note_progress(connection)
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
        _LOG.debug("closed %s: %s", connection.client, reason)
        if self._authentication and not connection.is_admitted:
            self._authentication.forget(connection.client)
        connection.phase = Phase.CLOSED
        connection.unsent = []
        self._watch(connection, 0)
        self._connections.remove(connection)
        self._loop.deadlines.clear(connection)
        connection.transport.close()
