"""A stand-in for Grafana that reports the variables and arguments with which it was started."""

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Page(BaseHTTPRequestHandler):
    """A request handler that sends the variables and arguments for every path."""

    def do_GET(self):
        """Send the variables and arguments with status 200."""
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
