"""The end of the way: a webhook that keeps what Alertmanager delivers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Delivery:
    """One alert in one message.

    Attributes:
        at: When it came, as `time.monotonic` gives it.
        receiver: The receiver in Alertmanager's configuration.
        status: `firing` or `resolved`.
        alert: The alert's name.
        description: What the message says.
    """

    at: float
    receiver: str
    status: str
    alert: str
    description: str


class Webhook:
    """What has been delivered so far.

    Args:
        url: Where it listens, without a slash at the end.
        deliveries: Where what comes is added.
    """

    def __init__(self, url: str, deliveries: Sequence[Delivery]) -> None:
        self.url = url
        self._deliveries = deliveries

    def find(self, alert: str, status: str) -> tuple[Delivery, ...]:
        """Give what has come about an alert in a status, the oldest first."""
        return tuple(
            each for each in self._deliveries if (each.alert, each.status) == (alert, status)
        )


@contextmanager
def listen(receivers: Sequence[str]) -> Iterator[Webhook]:
    """Listen on a free port of 127.0.0.1.

    Args:
        receivers: The names of the receivers; a message for one comes to `/<its place>`.
    """
    deliveries: list[Delivery] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(receivers, deliveries)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Webhook(f"http://127.0.0.1:{server.server_address[1]}", deliveries)
        finally:
            server.shutdown()
            thread.join()


def _handler(receivers: Sequence[str], deliveries: list[Delivery]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            message = json.loads(self.rfile.read(length))
            at, receiver = time.monotonic(), receivers[int(self.path.strip("/"))]
            for alert in message["alerts"]:
                name = alert["labels"].get("alertname", "")
                words = alert["annotations"].get("description", "")
                deliveries.append(Delivery(at, receiver, alert["status"], name, words))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep quiet: the drill tells what came."""

    return Handler
