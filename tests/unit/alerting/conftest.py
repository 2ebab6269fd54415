"""Fixtures for the tests of alerting: a real Alertmanager, and a misbehaving web service."""

import os
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trainvitals.alerting.message import Message
from trainvitals.sources.external_program import read_version

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "alertmanager"


class Quiet(ThreadingHTTPServer):
    """A server that ignores the errors of clients which close their connection early."""

    daemon_threads = True

    def handle_error(self, request, client_address):
        """Print nothing."""


class Counter:
    """A server that answers each POST with the next of its answers, and repeats the last.

    An answer is a status, headers and a body; "hang" sends no answer until the test is over.
    """

    def __init__(self, *answers):
        self.answers = list(answers) or [(200, {}, b"ok")]
        self.requests = []
        self.is_over = threading.Event()
        counter = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = counter.answers[min(len(counter.requests), len(counter.answers) - 1)]
                counter.requests.append((self.path, dict(self.headers.items()), body))
                if answer == "hang":
                    counter.is_over.wait(60)
                    return
                status, headers, text = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST  # noqa: N815 - a client that follows a redirect sends a GET

            def log_message(self, *_):
                """Print nothing."""

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def url(self, path="/services/SECRETSECRET", scheme="http"):
        """Return the URL of the server, which contains a secret."""
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def close(self):
        """Stop the server."""
        self.is_over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def serve():
    """Yield a function that starts a server with these answers, over TLS if given a context."""
    counters = []

    def serve(*answers, context=None):
        counter = Counter(*answers)
        if context is not None:
            counter.server.socket = context.wrap_socket(counter.server.socket, server_side=True)
        counter.thread.start()
        counters.append(counter)
        return counter

    yield serve
    for counter in counters:
        counter.close()


@pytest.fixture
def message():
    """Return a message with malicious texts."""
    return Message(
        title="bert: GPU hot\r\nBcc: eve@example.org",
        text="GPU 0: 92 °C\n<!channel> & @everyone \x1b[31m \udc80",
        severity="warning",
        key="gpu",
        fields=(("run", "bert"), ("host", "gpu\n01")),
        time=1_700_000_000.0,
    )


@pytest.fixture(scope="session")
def alertmanager(alertmanager):
    """Return the path of a real Alertmanager, which TRAINVITALS_TEST_ALERTMANAGER can override."""
    return Path(os.environ.get("TRAINVITALS_TEST_ALERTMANAGER") or alertmanager)


@pytest.fixture(scope="session")
def amtool(alertmanager, amtool):
    """Return the path of the amtool that belongs to the Alertmanager under test."""
    beside = alertmanager.parent / "amtool"
    return beside if beside.exists() else amtool


@pytest.fixture(scope="session")
def version(alertmanager):
    """Return the version of the Alertmanager under test."""
    return read_version(alertmanager)


@pytest.fixture(scope="session")
def quick_routes(tmp_path_factory):
    """Return a copy of the shipped files with shorter waiting times.

    A `group_wait` of 10 or 30 s becomes 0.8 s, and a `group_interval` of 10 s or 5 minutes becomes
    4 s. The intervals of the dead man's switch become 0.5 and 0.75 s.
    """
    place = tmp_path_factory.mktemp("shipped") / "alertmanager"
    shutil.copytree(SHIPPED, place)
    file = place / "alertmanager.yml"
    text = file.read_text(encoding="utf-8")
    for pattern, short in (
        (r"group_wait: (10|30)s", "group_wait: 800ms"),
        (r"group_interval: (5m|10s)", "group_interval: 4s"),
        (r"group_interval: 30s", "group_interval: 500ms"),
        (r"repeat_interval: 45s", "repeat_interval: 750ms"),
    ):
        text, count = re.subn(pattern, short, text)
        assert count, pattern
    file.write_text(text, encoding="utf-8")
    return place
