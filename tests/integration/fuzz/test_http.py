"""Malformed HTTP requests to a real exporter."""

import socket
import time

import psutil

from tests.integration.fuzz.fuzzing import CANARY, TIMEOUT, fuzz
from tests.support.exporter_process import ExporterProcess
from tests.support.mutations import Mutations

pytestmark = TIMEOUT
PATHS = (
    *("/metrics", "/metrics?collect[]=cpu", "/metrics?exclude[]=disk&exclude[]=cpu", "/", "/live"),
    *("/api/v1/overview", "/api/v1/readings", "/health", "/ready", "/-/healthy", "/live.css"),
    *("/live.js", "/runbooks/", "/runbooks/HostOOMKill", "/runbooks/../../outside"),
)
HEADERS = (
    "Host: localhost",
    "Host: 127.0.0.1:9200\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1",
    "Host: localhost\r\nAccept-Encoding: gzip, br;q=0.5\r\nX-Prometheus-Scrape-Timeout-Seconds: 10",
    "Host: [::1]\r\nConnection: keep-alive\r\nAuthorization: Basic YW5uOnJpZ2h0\r\nCookie: a=b",
    'Host: localhost\r\nIf-None-Match: "x"\r\nRange: bytes=0-9\r\nExpect: 100-continue',
    "Host: localhost\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nhello",
    "Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0",
    "Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade",
)
CORPUS = [
    f"{method} {path} HTTP/{version}\r\n{head}\r\n\r\n".encode()
    for path in PATHS
    for method, version in (("GET", "1.1"), ("HEAD", "1.1"), ("GET", "1.0"), ("POST", "1.1"))
    for head in HEADERS
]
CORPUS.append(b"".join(CORPUS[::17]))
TEXTS = (
    *(
        b"\r\n\r\n",
        b"\n\n",
        b"\r\n ",
        b"GET ",
        b"OPTIONS ",
        b"TRACE ",
        b" HTTP/1.1",
        b" HTTP/9.9",
        b"%00",
    ),
    *(
        b"Host: evil.example",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
        b"chunked",
    ),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"?collect[]=",
        b"&collect[]=x" * 5000,
        b"X: y\r\n" * 5000,
    ),
    *(
        b"http://localhost/metrics",
        b"*",
        b"//",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\n",
    ),
)


def test_no_request_breaks_the_exporter(tmp_path):
    """Malformed requests are answered or cut off, and the scrape after them is complete."""
    (tmp_path / "outside").write_text(CANARY)
    with ExporterProcess(tmp_path, environ={"SECRET": CANARY}) as exporter:

        def send(data):
            return ask(exporter.port, data)

        for path in PATHS:  # memory allocated by a first request is not a leak
            send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        memory = psutil.Process(exporter.pid)
        fuzz("HTTP", Mutations(CORPUS, TEXTS), send, clock=time.monotonic, memory=memory)
        page = exporter.scrape()
        assert page.status == 200
        assert page.value("trainvitals_collector_success", collector="cpu") == 1
        assert "Traceback" not in exporter.log
        assert CANARY not in exporter.log


def ask(port, data):
    """Send bytes, close the sending side, and return the whole answer."""
    answer = bytearray()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while part := client.recv(1 << 16):
                answer += part
        except ConnectionError:
            pass  # the exporter may cut off a malformed request
    assert not answer or answer.startswith(b"HTTP/1.1 "), bytes(answer[:99])
    assert b"Traceback" not in answer
    return answer.decode("latin-1")
