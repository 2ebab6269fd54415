"""A stand-in for a container engine: a real HTTP server on a real Unix socket.

The server returns the answers that a test sets, streams the data that a test sends, and records
every request. A test can also make the server hang, like an engine that got SIGSTOP, or stop and
start it again.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Empty, SimpleQueue
from socketserver import ThreadingMixIn, UnixStreamServer
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

ID = "16fe8757374fb69ffa4e93b206907a357af5739932654be0c200f4361887f5ea"


@dataclass(frozen=True)
class Request:
    """One request: its method, its path and its decoded query."""

    method: str
    path: str
    query: dict[str, str]


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes


@dataclass(frozen=True)
class _End:
    is_clean: bool


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, path: Path, engine: EngineStandIn) -> None:
        self.engine = engine
        super().__init__(str(path), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error of a client that closed its connection; report all other errors."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_method(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        engine = self.server.engine
        engine.requests.append(Request(self.command, parts.path, query))
        engine.awake.wait()
        self.close_connection = True
        if self.command != "GET":
            self._answer(_Answer(405, b"{}"))
        elif (parts.path == "/events" and "until" not in query) or query.get("follow") == "1":
            self._stream(parts.path)
        else:
            missing = _Answer(404, b'{"message":"No such container: ' + b'nobody"}\n')
            self._answer(engine.answers.get(parts.path, missing))

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = handle_method  # noqa: N815

    def _answer(self, answer: _Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def _stream(self, path: str) -> None:
        engine = self.server.engine
        refusal = engine.refusals.get(path)
        if refusal:
            self._answer(refusal)
            return
        pieces: SimpleQueue[bytes | _End] = SimpleQueue()
        is_begun = path == "/events"  # the headers of a log are sent with its first line
        engine.streams.append((path, pieces))
        try:
            if is_begun:
                self._begin()
            while isinstance(piece := self._wait_for(pieces), bytes):
                engine.awake.wait()
                if not is_begun:
                    self._begin()
                is_begun = True
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if piece.is_clean:
                if not is_begun:
                    self._begin()
                self.wfile.write(b"0\r\n\r\n")
        finally:
            engine.streams.remove((path, pieces))

    def _wait_for(self, pieces: SimpleQueue[bytes | _End]) -> bytes | _End:
        """Wait for the next piece to send, or until the client has closed the connection."""
        while True:
            with suppress(Empty):
                return pieces.get(timeout=0.1)
            with suppress(BlockingIOError):
                if not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    return _End(is_clean=False)

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base
        """Log nothing."""


class EngineStandIn:
    """An engine under the control of a test, which listens during its `with` block.

    Attributes:
        path: The path of the engine's Unix socket.
        requests: The requests received so far, oldest first.
        answers: The answers by path; `put` adds an answer.
        refusals: The error answers to requests that follow a path; `refuse` adds an answer.
        streams: The open streams.
        awake: While this event is cleared, the engine accepts connections but answers none, like
            an engine that got SIGSTOP.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requests: list[Request] = []
        self.answers: dict[str, _Answer] = {}
        self.refusals: dict[str, _Answer] = {}
        self.streams: list[tuple[str, SimpleQueue[bytes | _End]]] = []
        self.awake = threading.Event()
        self.awake.set()
        self._server: _Server | None = None
        self.put("/_ping", b"OK")
        self.put("/version", {"Version": "26.1.5", "Components": [{"Name": "Engine"}]})
        self.put("/info", {"LoggingDriver": "json-file"})
        self.put("/containers/json", [])

    @property
    def address(self) -> str:
        """The address of the engine, in the form that a client expects."""
        return f"unix://{self.path}"

    @property
    def methods(self) -> set[str]:
        """The methods of all requests so far."""
        return {request.method for request in self.requests}

    def put(self, path: str, document: object, *, status: int = 200) -> None:
        """Set the answer to a path: bytes are sent unchanged, any other document as JSON."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.answers[path] = _Answer(status, body)

    def refuse(self, path: str, status: int, message: str) -> None:
        """Answer requests that follow a path with an error status and message."""
        self.refusals[path] = _Answer(status, json.dumps({"message": message}).encode())

    def start(self) -> None:
        """Start to listen, for the first time or again after `stop`."""
        self.path.unlink(missing_ok=True)
        self._server = _Server(self.path, self)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Cut off all streams and stop listening on the socket."""
        self.cut("")
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Answer no request while the block lasts."""
        self.awake.clear()
        try:
            yield
        finally:
            self.awake.set()

    def await_streams(self, path: str, count: int = 1) -> None:
        """Wait until exactly `count` streams of a path are open."""
        wait_until(
            lambda: sum(entry[0] == path for entry in tuple(self.streams)) == count,
            describe=lambda: f"{path}: {self.streams}",
        )

    def send(self, path: str, data: bytes) -> None:
        """Send a piece of data to all clients that follow a path."""
        for pieces in self._find(path):
            pieces.put(data)

    def send_event(
        self,
        action: str,
        container: str = ID,
        *,
        time_nano: int = 1_795_299_157_000_000_000,
        **attributes: str,
    ) -> None:
        """Send an event of a container in Docker's format."""
        self.send("/events", write_event(action, container, time_nano=time_nano, **attributes))

    def end(self, path: str) -> None:
        """End all streams of a path with a final chunk, as HTTP requires."""
        for pieces in self._find(path):
            pieces.put(_End(is_clean=True))

    def cut(self, path: str) -> None:
        """Cut off all streams of a path; an empty path means the streams of all paths."""
        for pieces in self._find(path):
            pieces.put(_End(is_clean=False))

    def _find(self, path: str) -> list[SimpleQueue[bytes | _End]]:
        return [pieces for name, pieces in tuple(self.streams) if path in {"", name}]

    def __enter__(self) -> Self:
        """Start to listen."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop listening and remove the socket."""
        self.awake.set()
        self.stop()
        self.path.unlink(missing_ok=True)


def write_event(
    action: str,
    container: str = ID,
    *,
    time_nano: int = 1_795_299_157_000_000_000,
    **attributes: str,
) -> bytes:
    """Return a container event in Docker's format."""
    actor = {"ID": container, "Attributes": {"image": "busybox", "name": "job", **attributes}}
    event = {
        "Type": "container",
        "Action": action,
        "Actor": actor,
        "time": time_nano // 1_000_000_000,
        "timeNano": time_nano,
    }
    return json.dumps(event).encode() + b"\n"


def write_frame(text: bytes, *, channel: int = 1) -> bytes:
    """Return a frame of a container's log: channel 1 is standard output, 2 is standard error."""
    return struct.pack(">BxxxI", channel, len(text)) + text
