"""A server in the place of Grafana: it tells the variables that it was started with."""

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Page(BaseHTTPRequestHandler):
    """Answers every request with the variables."""

    def do_GET(self):
        """Answer like Grafana's page of health."""
        self.send_response(200)
        self.end_headers()
        told = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("GF_") or name.endswith(("_URL", "S_PATH"))
        }
        self.wfile.write(json.dumps({"arguments": sys.argv[1:], **told}).encode())


address = (os.environ["GF_SERVER_HTTP_ADDR"], int(os.environ["GF_SERVER_HTTP_PORT"]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
ThreadingHTTPServer(address, Page).serve_forever()
