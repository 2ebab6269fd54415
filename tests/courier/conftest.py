"""What the tests of messages share: a destination that behaves as badly as a test wants."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.certificates import make_certificate
from trainvitals.courier import Message


class Quiet(ThreadingHTTPServer):
    """A server that does not mind who hangs up."""

    daemon_threads = True

    def handle_error(self, request, client_address):
        """Say nothing."""


class Counter:
    """Answers each POST with the next of its answers, and with the last of them for ever.

    An answer is a status, headers and a body; "hang" answers nothing until the test is over.
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

            do_GET = do_POST  # noqa: N815 - what follows a redirect asks like this

            def log_message(self, *_):
                """Keep quiet."""

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def url(self, path="/services/SECRETSECRET", scheme="http"):
        """Give its address, which is a secret."""
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def close(self):
        """End it."""
        self.is_over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def serve():
    """Give a function that starts a server with these answers, over TLS with a context."""
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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Give a folder with a certificate for 127.0.0.1 and its key."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def message():
    """Give a message whose words try to do harm."""
    return Message(
        title="bert: GPU hot\r\nBcc: eve@example.org",
        text="GPU 0: 92 °C\n<!channel> & @everyone \x1b[31m \udc80",
        severity="warning",
        key="gpu",
        fields=(("run", "bert"), ("host", "gpu\n01")),
        time=1_700_000_000.0,
    )
