"""Tests for the status that is read from Prometheus, with valid and malformed responses."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trainvitals.sources.prometheus import Target
from trainvitals.stack.prometheus import (
    AlertStatus,
    PrometheusStatus,
    RulesStatus,
    UnhealthyRule,
    read_status,
)

# Shortened responses of Prometheus 2.42.
TARGETS = {
    "activeTargets": [
        {
            "scrapePool": "trainvitals",
            "scrapeUrl": "http://127.0.0.1:9200/metrics",
            "lastError": "connection refused",
            "health": "down",
        }
    ]
}
RULES = {
    "groups": [
        {
            "name": "host",
            "rules": [
                {"name": "a:b", "health": "ok", "type": "recording"},
                {"name": "HostOOMKill", "health": "err", "lastError": "many", "type": "alerting"},
                {"name": "HostDiskSpaceLow", "health": "unknown", "type": "alerting"},
            ],
        },
        {"name": "meta", "rules": []},
    ]
}


def alert(name, state, **labels):
    """Return an alert in the format of Prometheus' API."""
    labels = {"alertname": name, **labels}
    return {"labels": labels, "state": state, "activeAt": "2026-11-21T18:00:07.1Z"}


ALERTS = {
    "alerts": [
        alert("Watchdog", "firing", severity="none"),
        alert("Slow", "pending", severity="critical", instance="ada-1"),
        alert("Mine", "firing"),
        alert("Warm", "firing", severity="warning", instance="ada-1"),
        alert("Hot", "firing", severity="critical", instance="ada-2"),
        alert("Hot", "firing", severity="critical", instance="ada-1"),
    ]
}
ALERTMANAGERS = {"activeAlertmanagers": [{"url": "http://127.0.0.1:9093/api/v2/alerts"}]}
PAGES = {
    "/api/v1/targets?state=active": TARGETS,
    "/api/v1/rules": RULES,
    "/api/v1/alerts": ALERTS,
    "/api/v1/alertmanagers": ALERTMANAGERS,
}


@pytest.fixture
def serve():
    """Yield a function that serves responses by path and returns the port."""
    servers = []

    def start(answer):
        class Page(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(answer(self.path))

            def log_message(self, *_):
                """Log nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server.server_address[1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_answers_are_read(serve):
    """Targets, unhealthy rules and alerts are read, the most urgent alerts first."""
    port = serve(lambda path: json.dumps({"data": PAGES[path]}).encode())
    since = "2026-11-21T18:00:07.1Z"
    assert read_status(port) == PrometheusStatus(
        targets=(
            Target("trainvitals", "http://127.0.0.1:9200/metrics", "down", "connection refused"),
        ),
        rules=RulesStatus(
            2,
            3,
            (
                UnhealthyRule("host", "HostOOMKill", "many"),
                UnhealthyRule("host", "HostDiskSpaceLow", None),
            ),
        ),
        alerts=(
            AlertStatus("Hot", "firing", "critical", "ada-1", since),
            AlertStatus("Hot", "firing", "critical", "ada-2", since),
            AlertStatus("Warm", "firing", "warning", "ada-1", since),
            AlertStatus("Mine", "firing", "", "", since),
            AlertStatus("Watchdog", "firing", "none", "", since),
            AlertStatus("Slow", "pending", "critical", "ada-1", since),
        ),
        alertmanagers=("http://127.0.0.1:9093/api/v2/alerts",),
    )


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"data": null}',
        b'{"data": {}}',
        b'{"data": {"activeTargets": [1], "groups": [1], "alerts": [{}], "activeAlertmanagers": 1}}',
    ],
)
def test_strange_answers_are_none(serve, page):
    """If the responses are not those of Prometheus, the status is empty."""
    assert read_status(serve(lambda _: page)) == PrometheusStatus((), None, (), ())
