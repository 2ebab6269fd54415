"""The webhook that receives a drill's notifications."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from trainvitals.stack.programs import HOST

_MOST_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Delivery:
    """One alert in a notification that the webhook received.

    Attributes:
        at: The time at which the notification arrived, in seconds of `time.monotonic`.
        receiver: The receiver's name in Alertmanager's configuration.
        status: The status of the alert, `firing` or `resolved`.
        alert: The name of the alert.
        description: The description of the alert.
    """

    at: float
    receiver: str
    status: str
    alert: str
    description: str


class Receiver:
    """A webhook receiver that stores the delivered notifications.

    Args:
        url: The receiver's URL, without a trailing slash.
        deliveries: The list to which the deliveries are appended.
    """

    def __init__(self, url: str, deliveries: Sequence[Delivery]) -> None:
        self.url = url
        self._deliveries = deliveries

    def find(self, alert: str, status: str) -> tuple[Delivery, ...]:
        """Return the deliveries of an alert with the given status, the oldest first."""
        return tuple(
            each for each in self._deliveries if (each.alert, each.status) == (alert, status)
        )


@contextmanager
def listen(receivers: Sequence[str]) -> Iterator[Receiver]:
    """Listen on a free port of 127.0.0.1, and yield the webhook receiver.

    Args:
        receivers: The receivers' names; a receiver's notifications are posted to `/<index>`.
    """
    deliveries: list[Delivery] = []
    with ThreadingHTTPServer((HOST, 0), _handler(receivers, deliveries)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Receiver(f"http://{HOST}:{server.server_address[1]}", deliveries)
        finally:
            server.shutdown()
            thread.join()


def _handler(receivers: Sequence[str], deliveries: list[Delivery]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                length = min(int(self.headers.get("Content-Length", 0)), _MOST_BYTES)
                message = json.loads(self.rfile.read(length))
                at, receiver = time.monotonic(), receivers[int(self.path.strip("/"))]
                for alert in message["alerts"]:
                    name = alert["labels"].get("alertname", "")
                    words = alert["annotations"].get("description", "")
                    deliveries.append(Delivery(at, receiver, alert["status"], name, words))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                self.send_error(400)  # The request is from another user of this machine.
                return
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing, because the drill reports the deliveries."""

    return Handler
