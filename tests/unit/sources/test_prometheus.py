"""Tests for the Prometheus client, with valid, refused, malformed and missing responses."""

import base64
import json
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import ConfigurationError
from trainvitals.sources.prometheus import (
    ActiveAlert,
    Prometheus,
    PrometheusError,
    QueryError,
    Rule,
    RuleGroup,
    Target,
    find_prometheus,
)

EMPTY = b'{"data":{"result":[]}}'


class Stub(BaseHTTPRequestHandler):
    """A request handler that sends the response that a test has set, and records the requests."""

    def do_GET(self):
        """Record the request and send the response."""
        self.server.seen.append((self.path, dict(self.headers)))
        self._answer()

    def do_POST(self):
        """Record the request with its body and send the response."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.seen.append((f"{self.path}?{body}", dict(self.headers)))
        self._answer()

    def _answer(self):
        code, headers, body = self.server.answer
        self.send_response(code)
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        for piece in body if isinstance(body, list) else [body]:
            self.wfile.write(piece)
            time.sleep(0.05 if isinstance(body, list) else 0)

    def log_message(self, *_):
        """Log nothing."""


@pytest.fixture
def stub():
    """Return a server whose response (`answer`) the test sets."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    server.handle_error = lambda *_: None  # A client that closes the connection early is no error.
    server.seen = []
    server.answer = (200, {}, EMPTY)
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def answer(stub, body, code=200, **headers):
    """Return a client of the server, which sends the given response."""
    stub.answer = (code, headers, body)
    return find_prometheus(stub.url)


def write(**data):
    """Return a successful response of the API."""
    return json.dumps({"status": "success", "data": data}).encode()


def test_a_vector_is_read(stub):
    """An instant query returns the labels and values of the response, including infinite values."""
    body = b'{"data":{"result":[{"metric":{"a":"b"},"value":[7,"+Inf"]}]}}'
    (series,) = answer(stub, body).query("up", 7)
    assert series.labels == {"a": "b"}
    assert series.points == ((7.0, float("inf")),)
    assert stub.seen[0][0] == "/api/v1/query?query=up&time=7.000"


def test_a_matrix_is_read(stub):
    """A range query sends the start, end and step, and returns all points, the oldest first."""
    body = b'{"data":{"result":[{"metric":{},"values":[[60,"1"],[120,"2.5"]]}]}}'
    (series,) = answer(stub, body).query_range("up > 0", 60, 120, 60)
    assert series.points == ((60.0, 1.0), (120.0, 2.5))
    assert series.last == 2.5
    assert stub.seen[0][0] == (
        "/api/v1/query_range?query=up+%3E+0&start=60.000&end=120.000&step=60"
    )


def test_the_state_of_prometheus_is_read(stub):
    """Targets, rules, alerts and Alertmanagers are read from responses of Prometheus 2.42."""
    stub.answer = (200, {}, write(
        activeTargets=[{"scrapePool": "trainvitals", "scrapeUrl": "http://a:9200/metrics",
                        "health": "down", "lastError": "connection refused"}],
        groups=[{"name": "host", "rules": [
            {"name": "a:b", "health": "ok", "type": "recording"},
            {"name": "HostOOMKill", "health": "err", "lastError": "many",
             "annotations": {"summary": "Killed"}}]},
            {"name": "meta", "rules": []}],
        alerts=[{"labels": {"alertname": "A"}, "annotations": {"summary": "So"},
                 "state": "firing", "activeAt": "2023-11-15T12:00:00.1Z"}],
        activeAlertmanagers=[{"url": "http://a:9093/api/v2/alerts"}],
    ))  # fmt: skip
    prometheus = find_prometheus(stub.url)
    assert prometheus.list_targets() == (
        Target("trainvitals", "http://a:9200/metrics", "down", "connection refused"),
    )
    assert prometheus.list_rules() == (
        RuleGroup(
            "host",
            (Rule("a:b", "ok", None, ""), Rule("HostOOMKill", "err", "many", "Killed")),
        ),
        RuleGroup("meta", ()),
    )
    assert prometheus.list_alerts() == (
        ActiveAlert({"alertname": "A"}, {"summary": "So"}, "firing", "2023-11-15T12:00:00.1Z"),
    )
    assert prometheus.list_alertmanagers() == ("http://a:9093/api/v2/alerts",)


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (200, b"<html>", "is no Prometheus: its answer is not that of the API"),
        (200, b"[]", "is no Prometheus: its answer is not that of the API"),
        (200, b"[" * 100_000, "is no Prometheus"),
        (404, b"404 page not found", r"is no Prometheus \(HTTP 404 Not Found\)"),
        (502, b"bad gateway", r"is no Prometheus \(HTTP 502 Bad Gateway\)"),
        (401, b"", r"other credentials \(HTTP 401\).* TRAINVITALS_PROMETHEUS_LOGIN_FILE"),
        (403, b"", r"other credentials \(HTTP 403\)"),
    ],
)
def test_what_is_no_prometheus_is_said_to_be_none(stub, code, body, words):
    """The error describes the response, and the message for credentials names the remedy."""
    with pytest.raises(PrometheusError, match=words):
        answer(stub, body, code).query("up")


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b'{"result":5}',
        b'{"result":[{"metric":[],"value":[0,"1"]}]}',
        b'{"result":[{"metric":{},"value":[0,"one"]}]}',
        b'{"result":[{}]}',
    ],
)
def test_an_answer_of_another_form_is_refused(stub, data):
    """A response that is not the result of a query raises a `QueryError`."""
    with pytest.raises(QueryError, match="its answer is not that of a query"):
        answer(stub, b'{"data":' + data + b"}").query("up")


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(
            ("labels", "annotations", "state", "activeAt", "alertname", "name", "rules",
             "alerts", "groups", "activeTargets", "activeAlertmanagers")), inner),
    )
)  # fmt: skip
def test_no_answer_raises_anything_but_an_error_of_prometheus(value):
    """A response with arbitrary values raises no exception other than `PrometheusError`."""

    class Canned(Prometheus):
        def _fetch(self, _path, _body):
            return json.dumps({"data": {"alerts": value, "groups": value, "activeTargets": value,
                                        "activeAlertmanagers": value}}).encode()  # fmt: skip

    canned = Canned("http://a")
    for ask in (
        canned.list_alerts,
        canned.list_rules,
        canned.list_targets,
        canned.list_alertmanagers,
    ):
        with suppress(PrometheusError):
            assert isinstance(ask(), tuple)


def test_a_complaint_of_prometheus_is_passed_on(stub):
    """An error message of Prometheus becomes one line of 300 characters without escape codes."""
    with pytest.raises(QueryError) as raised:
        answer(stub, b'{"error":"too\\nmany\\u001b[31m ' + b"x" * 1000 + b'"}', 422).query("up")
    assert str(raised.value).startswith("too many xxx")
    assert len(str(raised.value)) == 300


def test_an_answer_without_end_is_not_read_to_the_end(stub):
    """A response that is larger than the limit raises a `QueryError`."""
    stub.answer = (200, {}, b"x" * 3_000_001)
    with pytest.raises(QueryError, match=r"the answer is larger than 2\.9 MiB"):
        find_prometheus(stub.url, most_bytes=3_000_000).query("up")


def test_an_answer_that_trickles_in_is_not_waited_for(stub):
    """The timeout applies to the whole response, not to each of its parts."""
    stub.answer = (200, {}, [b" "] * 100)
    begin = time.monotonic()
    with pytest.raises(PrometheusError, match=r"no answer from http://127.* within 200ms"):
        find_prometheus(stub.url, timeout_seconds=0.2).query("up")
    assert time.monotonic() - begin < 10


def test_a_login_goes_nowhere_else(stub, tmp_path):
    """A redirect is not followed, so the password is sent only to the configured address."""
    login = tmp_path / "login"
    login.write_text("ada:secret\n", encoding="utf-8")
    stub.answer = (302, {"Location": f"{stub.url}/elsewhere"}, b"")
    with pytest.raises(PrometheusError, match="redirects"):
        find_prometheus(stub.url, login_file=login).query("up", 0)
    ((path, headers),) = stub.seen
    assert path == "/api/v1/query?query=up&time=0.000"
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"ada:secret").decode()


def test_credentials_of_the_address_are_sent_and_never_shown(stub):
    """Credentials in the address are sent as a header and are never shown."""
    stub.answer = (401, {}, b"")
    host = stub.url.removeprefix("http://")
    prometheus = find_prometheus(f"http://ada:p%40ss@{host}/prometheus/")
    with pytest.raises(PrometheusError) as raised:
        prometheus.list_alerts()
    ((path, headers),) = stub.seen
    assert path == "/prometheus/api/v1/alerts"
    assert headers["Authorization"] == "Basic YWRhOnBAc3M="
    assert prometheus.url == f"http://{host}/prometheus"
    assert not {"ada", "p@ss", "p%40ss", "YWRhOnBAc3M="} & set(
        f"{raised.value} {prometheus!r}".replace("'", " ").split()
    )
    assert "p%40ss" not in f"{raised.value} {prometheus!r}"


@pytest.mark.parametrize(
    ("variable", "words", "header"),
    [
        ("TRAINVITALS_PROMETHEUS_TOKEN_FILE", "s3cret", "Bearer s3cret"),
        ("TRAINVITALS_PROMETHEUS_LOGIN_FILE", "ada:secret", "Basic YWRhOnNlY3JldA=="),
    ],
)
def test_credentials_come_from_a_file_that_the_environment_names(
    stub, tmp_path, variable, words, header
):
    """Credentials are read from a file, and credentials in the address take precedence."""
    path = tmp_path / "secret"
    path.write_text(f"{words}\n", encoding="utf-8")
    find_prometheus(stub.url, environ={variable: str(path)}).query("up")
    assert stub.seen[0][1]["Authorization"] == header
    with_login = stub.url.replace("http://", "http://ada:p%40ss@")
    find_prometheus(with_login, environ={variable: str(path)}).query("up")
    assert stub.seen[1][1]["Authorization"] == "Basic YWRhOnBAc3M="


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:9090", "ftp://host", "http://", "http://host:port", "http://x:99999", "http://[::1",
     "http://ada:secret@host/?a=b", "http://ada:secret@host/#a", "http://host/\x1b[31m"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url):
    """The error names the flag and an example, but not the address, which may have a password."""
    with pytest.raises(
        ConfigurationError,
        match=r"^--web\.prometheus is not the address of a Prometheus; write one such as http://localhost:9090$",
    ):
        find_prometheus(url, flag="--web.prometheus")


def test_a_file_without_a_login_is_refused(tmp_path):
    """Each invalid credentials file is refused with a message that describes the problem."""
    empty, none = tmp_path / "empty", tmp_path / "none"
    empty.write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="it must hold one line of text"):
        find_prometheus("http://a", token_file=empty)
    with pytest.raises(ConfigurationError, match=r"--login-file=.*cannot be read"):
        find_prometheus("http://a", login_file=none)
    empty.write_text("ada", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="write USER:PASSWORD into it"):
        find_prometheus("http://a", login_file=empty)
    with pytest.raises(ConfigurationError, match="give one of them"):
        find_prometheus("http://a", token_file=empty, login_file=empty)


def test_no_answer_names_the_address_and_the_reason():
    """A refused connection and a timeout are reported with the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(PrometheusError, match=f"{url}: Connection refused") as raised:
            find_prometheus(url).query("up")
        assert raised.value.problem == "unreachable"
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(PrometheusError, match=r"within 200ms$") as raised:
            find_prometheus(url, timeout_seconds=0.2).query("up")
        assert raised.value.problem == "timeout"


def test_a_proxy_is_used_only_where_it_is_wanted_and_never_for_this_machine(stub, monkeypatch):
    """A proxy is used only if it is requested, and never for addresses of this machine."""
    monkeypatch.setenv("http_proxy", stub.url)
    monkeypatch.delenv("no_proxy", raising=False)
    assert find_prometheus("http://prometheus.invalid:9", uses_proxy=True).query("up") == ()
    with pytest.raises(PrometheusError, match="no Prometheus answers"):
        find_prometheus("http://prometheus.invalid:9").query("up")
    with pytest.raises(PrometheusError, match="refused"):
        find_prometheus("http://127.0.0.1:9", uses_proxy=True).query("up")
    assert len(stub.seen) == 1
