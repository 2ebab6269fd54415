"""What fires, by the word of a Prometheus that may answer anything, or not at all."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import ConfigurationError, SourceError
from trainvitals.overview.picture import Alert
from trainvitals.web.live.firing import FiringAlerts, read_alerts, read_prometheus_url


def write(*alerts):
    """Give what Prometheus answers."""
    return json.dumps({"status": "success", "data": {"alerts": alerts}}).encode()


def alert(name, severity="warning", state="firing", summary="It is so", **labels):
    """Give one alert."""
    return {
        "labels": {"alertname": name, "severity": severity, **labels},
        "annotations": {"summary": summary},
        "state": state,
        "activeAt": "2023-11-15T12:00:00.123456789Z",
    }


def test_what_fires_is_read():
    """Its name, how bad it is, what it is about, since when."""
    data = write(alert("GPUHighTemperature", "critical", instance="ada", kind="gpu", device="3"))
    assert read_alerts(data, "ada") == (
        Alert("GPUHighTemperature", "critical", "gpu3", "It is so", 1_700_049_600.0),
    )


def test_this_machine_comes_first_then_the_worst():
    """Alerts of other machines are told with their names, and last."""
    data = write(
        alert("A", "info", instance="ada"),
        alert("B", "critical", instance="bob:9200", run="llama"),
        alert("C", "critical", instance="ada:9200"),
        alert("D", "warning"),
    )
    told = [(each.name, each.subject) for each in read_alerts(data, "ada")]
    assert told == [("C", ""), ("D", ""), ("A", ""), ("B", "llama on bob:9200")]


def test_what_only_proves_that_the_way_is_open_is_left_out():
    """A watchdog always fires; what is pending does not yet."""
    assert read_alerts(write(alert("Watchdog", "none"), alert("P", state="pending")), "a") == ()


@pytest.mark.parametrize(
    "data", [b"", b"<html>", b"[]", b"{}", b'{"data": 7}', b'{"data": {"alerts": [7]}}',
             b'{"data": {"alerts": [{"state": "firing"}]}}', b"[" * 100_000]
)  # fmt: skip
def test_another_answer_is_refused(data):
    """It is no Prometheus, or it is broken."""
    with pytest.raises(SourceError, match="something else than alerts"):
        read_alerts(data, "ada")


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(
            ("labels", "annotations", "state", "activeAt", "alertname", "severity")), inner),
    )
)  # fmt: skip
def test_no_answer_raises_anything_else(value):
    """Whatever stands where an alert should."""
    try:
        assert isinstance(read_alerts(write(value), "ada"), tuple)
    except SourceError as error:
        assert error.args  # noqa: PT017 - either is right


@pytest.mark.parametrize(
    "url", ["localhost:9090", "ftp://x", "http://", "http://x:99999", "http://[::1", "http://x?y=1"]
)
def test_an_address_that_is_none_is_refused(url):
    """At the start, with an example of one that is."""
    with pytest.raises(ConfigurationError, match="give one as http://localhost:9090"):
        read_prometheus_url(url)


class Prometheus(HTTPServer):
    """Answers questions for alerts, and remembers how it was asked."""

    def __init__(self, body, status=200):
        self.asked = []
        self.body, self.status = body, status
        super().__init__(("127.0.0.1", 0), _Handler)
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        """Answer."""
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(self.server.status)
        self.send_header("Location", "http://127.0.0.1:9/")
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_):
        """Say nothing."""


def test_a_prometheus_is_asked_below_its_path_and_as_its_user():
    """As it stands behind a proxy."""
    with Prometheus(write(alert("A"))) as server:
        url = f"http://ada:p%40ss@127.0.0.1:{server.server_port}/prometheus/"
        assert read_alerts(read_prometheus_url(url)(), "x")[0].name == "A"
    assert server.asked == [("/prometheus/api/v1/alerts", "Basic YWRhOnBAc3M=")]


@pytest.mark.parametrize("status", [302, 401, 500])
def test_another_status_is_told_without_the_password(status):
    """No redirect is followed: the question goes where the flag says, and nowhere else."""
    with Prometheus(b"", status) as server:
        fetch = read_prometheus_url(f"http://ada:secret@127.0.0.1:{server.server_port}")
        with pytest.raises(SourceError) as caught:
            fetch()
    assert f"answers {status}" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_one_that_is_not_there_is_told():
    """With its address and the reason."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(SourceError, match=f"127.0.0.1:{port} does not answer: .*refused"):
            read_prometheus_url(f"http://127.0.0.1:{port}")()


class Source:
    """Answers when a test lets it, and counts the questions."""

    def __init__(self):
        self.now = 1000.0
        self.asked = 0
        self.answer = write(alert("A"))
        self.may_answer = threading.Event()
        self.alerts = FiringAlerts(self._fetch, "ada", monotonic=lambda: self.now)

    def _fetch(self):
        self.asked += 1
        assert self.may_answer.wait(30)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def settle(self):
        """Let it answer, and wait until it has."""
        self.may_answer.set()
        for thread in threading.enumerate():
            if thread.name == "alerts":
                thread.join(30)
        self.may_answer.clear()


def test_looking_never_waits():
    """The first look knows nothing, the next one has what was answered meanwhile."""
    source = Source()
    assert source.alerts.latest() == (None, "")
    assert source.alerts.latest() == (None, "")
    source.settle()
    alerts, trouble = source.alerts.latest()
    assert ([each.name for each in alerts], trouble) == (["A"], "")
    assert source.asked == 1


def test_it_is_asked_every_five_seconds_while_somebody_looks():
    """Fifty looks within them ask once."""
    source = Source()
    for _ in range(50):
        source.alerts.latest()
    source.settle()
    source.now += 4.9
    source.alerts.latest()
    assert source.asked == 1
    source.now += 0.2
    source.alerts.latest()
    source.settle()
    assert source.asked == 2


def test_what_fired_is_shown_for_half_a_minute_without_an_answer():
    """Then it is not known any more, and the reason is told."""
    source = Source()
    source.alerts.latest()
    source.settle()
    source.answer = SourceError("it does not answer")
    source.now += 10
    source.alerts.latest()
    source.settle()
    assert source.alerts.latest()[1] == ""
    source.now += 21
    assert source.alerts.latest() == (None, "it does not answer")
    source.settle()
