"""A stand-in for the exporter that serves a page with one metric."""

import signal
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Page(BaseHTTPRequestHandler):
    """A request handler that sends the metric for every path."""

    def do_GET(self):
        """Send the metric in the text format of Prometheus."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"stand_in 1\n")


_FLAG = "--web.listen-address="
listen = next(word for word in sys.argv if word.startswith(_FLAG)).removeprefix(_FLAG)
host, _, port = listen.rpartition(":")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if ":" in host:
    ThreadingHTTPServer.address_family = socket.AF_INET6
ThreadingHTTPServer((host.strip("[]"), int(port)), Page).serve_forever()
