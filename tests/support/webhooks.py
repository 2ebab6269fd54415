"""A webhook receiver that stores all received messages."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Message:
    """One request.

    Attributes:
        path: The path with its query.
        headers: The headers, with names in lower case.
        body: The raw body.
        at: The time of receipt on the monotonic clock.
    """

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        """The body decoded as JSON; an empty body is an empty object."""
        return json.loads(self.body or b"{}")

    @property
    def status(self) -> str:
        """The status in a message of Alertmanager, `firing` or `resolved`."""
        return str(self.json["status"])

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The alerts in a message of Alertmanager's webhook."""
        return list(self.json["alerts"])

    @property
    def names(self) -> list[str]:
        """The sorted names of the alerts in the message."""
        return sorted(alert["labels"]["alertname"] for alert in self.alerts)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error of a sender that closed its connection; report all other errors."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class WebhookReceiver:
    """A small HTTP server that accepts every POST during its `with` block.

    The server listens on 127.0.0.1 by default; a container can reach it only on another address.

    Attributes:
        port: The port on which the server listens.
        messages: The messages received so far, oldest first.
        status: The status code of the responses, which a test may change.
        answer: The body of the responses.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        status: int = 200,
        answer: bytes = b'{"ok": true}',
    ) -> None:
        self.messages: list[Message] = []
        self.status, self.answer = status, answer
        self._came = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver._keep(Message(self.path, headers, body, time.monotonic()))
                self.send_response(receiver.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(receiver.answer)))
                self.end_headers()
                self.wfile.write(receiver.answer)

            def log_message(self, *_: object) -> None:
                """Log nothing, because `messages` has every request."""

        self._server = _Server((host, port), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def url(self, path: str = "/") -> str:
        """Return the URL of the receiver with this path."""
        return f"http://127.0.0.1:{self.port}{path}"

    def wait_for(self, predicate: Callable[[Message], object], seconds: float = 60.0) -> Message:
        """Wait for a message that satisfies the predicate, and return the first match.

        Raises:
            AssertionError: No such message came in time; the text lists the received messages.
        """
        deadline = time.monotonic() + seconds
        with self._came:
            while True:
                found = next(filter(predicate, self.messages), None)
                if found is not None:
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    came = "\n".join(f"{each.path} {each.body!r}" for each in self.messages)
                    raise AssertionError(f"no such message in {seconds} s; came: {came or 'none'}")
                self._came.wait(left)

    def _keep(self, message: Message) -> None:
        with self._came:
            self.messages.append(message)
            self._came.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
