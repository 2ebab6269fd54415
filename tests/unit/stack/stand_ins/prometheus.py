"""A stand-in for a Prometheus server that cannot scrape its target."""

import json
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TARGET = {
    "scrapePool": "trainvitals",
    "scrapeUrl": "http://127.0.0.1:9200/metrics",
    "health": "down",
    "lastError": "connection refused",
}


class Page(BaseHTTPRequestHandler):
    """A request handler that sends a list of one target for every path."""

    def do_GET(self):
        """Send the list of targets."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": {"activeTargets": [TARGET]}}).encode())


listen = next(each for each in sys.argv if each.startswith("--web.listen-address="))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
ThreadingHTTPServer(("127.0.0.1", int(listen.rpartition(":")[2])), Page).serve_forever()
