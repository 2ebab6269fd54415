"""A proxy in front of an engine's socket that records the requests."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

_BLOCK_BYTES = 65536


class RecordingProxy:
    """A proxy that forwards all bytes in both directions and keeps the first line of each request.

    The proxy supports only requests without a body, as readers send them. It would record a body as
    another request.

    Args:
        socket_path: The path of the proxy's own socket.
        engine_path: The path of the engine's socket.

    Attributes:
        lines: The first lines so far, such as `GET /events HTTP/1.1`.
    """

    def __init__(self, socket_path: Path, engine_path: str) -> None:
        self.lines: list[str] = []
        self._engine_path = engine_path
        self._connections: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(socket_path))
        self._listener.listen()
        self.address = f"unix://{socket_path}"
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> RecordingProxy:  # noqa: PYI034 - Self is not in Python 3.10
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        _shut(self._listener)
        for connection in self._connections:
            _shut(connection)
        for thread in self._threads:
            thread.join(10)
        for connection in (self._listener, *self._connections):
            connection.close()

    def _accept(self) -> None:
        # The loop ends when the listener is shut down.
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                engine = socket.socket(socket.AF_UNIX)
                self._connections += [client, engine]
                engine.connect(self._engine_path)
                for way in (
                    threading.Thread(target=self._pass_requests, args=(client, engine)),
                    threading.Thread(target=_pass, args=(engine, client)),
                ):
                    self._threads.append(way)
                    way.start()

    def _pass_requests(self, client: socket.socket, engine: socket.socket) -> None:
        waiting = b""
        with contextlib.suppress(OSError):
            while block := client.recv(_BLOCK_BYTES):
                *requests, waiting = (waiting + block).split(b"\r\n\r\n")
                self.lines += [request.split(b"\r\n")[0].decode() for request in requests]
                engine.sendall(block)
        if waiting:
            self.lines.append(waiting.split(b"\r\n")[0].decode())
        _shut(engine)


def _pass(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(_BLOCK_BYTES):
            target.sendall(block)
    _shut(target)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
