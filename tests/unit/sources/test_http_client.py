"""Tests for HTTP requests that have a deadline and a size limit and follow no redirect."""

import threading
import time
import urllib.error
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trainvitals.sources.http_client import TooLargeError, build_opener, fetch_page, read_bounded
from trainvitals.stack.programs import find_free_ports


@contextmanager
def serve(status=200, body=b"well", pause_seconds=0.0, **headers):
    """Serve one response, with a pause after each byte, and yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            for byte in body:
                self.wfile.write(bytes((byte,)))
                time.sleep(pause_seconds)

        def log_message(self, *_):
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # the client closes the connection early
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_page_is_fetched_where_the_status_is_200():
    """A page with another status, or on a port where nothing listens, is None."""
    with serve() as port:
        assert fetch_page(port, "/") == b"well"
    with serve(status=503) as port:
        assert fetch_page(port, "/") is None
    assert fetch_page(find_free_ports(1)[0], "/") is None


def test_no_redirect_is_followed():
    """A redirect is an error, so that a token is not sent to another server."""
    with serve() as other, serve(status=302, Location=f"http://127.0.0.1:{other}/") as port:
        with pytest.raises(urllib.error.HTTPError, match="302"):
            build_opener(uses_proxy=False).open(f"http://127.0.0.1:{port}/")
        assert fetch_page(port, "/") is None


def test_a_body_that_trickles_ends_at_the_deadline():
    """A response has a deadline, even if each byte arrives within the timeout of the socket."""
    with serve(body=b"slow" * 100, pause_seconds=0.05) as port:
        started = time.monotonic()
        assert fetch_page(port, "/", timeout_seconds=0.3) is None
        assert time.monotonic() - started < 15


def test_a_body_has_a_largest_size():
    """A body of exactly the largest allowed size is accepted, and a larger body is refused."""
    opener = build_opener(uses_proxy=False)
    with serve(body=b"12345") as port:
        for most_bytes in (5, 4):
            with opener.open(f"http://127.0.0.1:{port}/") as response:
                deadline = time.monotonic() + 60
                if most_bytes == 5:
                    assert read_bounded(response, deadline=deadline, most_bytes=5) == b"12345"
                else:
                    with pytest.raises(TooLargeError):
                        read_bounded(response, deadline=deadline, most_bytes=4)
