"""Asking a Prometheus that answers, refuses, is none, or is not there."""

import base64
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from zoneinfo import ZoneInfo

import pytest

from tests.report.past_day import at, write_day
from tests.report.stage import Past, run_prometheus
from trainvitals.errors import ConfigurationError, StackError
from trainvitals.report import (
    Filters,
    Wishes,
    choose_period,
    find_prometheus,
    format_text,
    make_report,
)
from trainvitals.report.promapi import RefusedError

DAY = choose_period("daily", now=time.time(), zone=ZoneInfo("UTC"), day="2026-03-10")


class Stub(BaseHTTPRequestHandler):
    """Answers as a test wants, and keeps what it was asked."""

    def do_POST(self):
        """Answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers)))
        code, headers, body = self.server.answer
        self.send_response(code)
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def stub():
    """Give a server whose `answer` is set by the test."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    server.seen = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def answer(stub, body, code=200, **headers):
    """Ask a stub that answers so."""
    stub.answer = (code, headers, body)
    return find_prometheus(stub.url).ask("up", 0)


def test_a_vector_is_read(stub):
    """Labels and values are those of the answer, NaN and infinity included."""
    body = b'{"data":{"result":[{"metric":{"a":"b"},"value":[7,"+Inf"]}]}}'
    (series,) = answer(stub, body)
    assert series.labels == {"a": "b"}
    assert series.points == ((7.0, float("inf")),)


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (200, b"<html>", "is no Prometheus: its answer is not that of an API"),
        (200, b"[]", "is no Prometheus: its answer is not that of an API"),
        (200, b"[" * 100_000, "is no Prometheus"),
        (404, b"404 page not found", r"is no Prometheus \(HTTP 404 Not Found\)"),
        (502, b"bad gateway", r"is no Prometheus \(HTTP 502 Bad Gateway\)"),
        (401, b"", r"lets nobody in without a login \(401\): give --login-file or --token-file"),
        (403, b"", r"lets nobody in without a login \(403\)"),
    ],
)
def test_what_is_no_prometheus_is_said_to_be_none(stub, code, body, words):
    """The message says what answered, and what to do."""
    with pytest.raises(StackError, match=words):
        answer(stub, body, code)


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
    """It is a gap of the report, not a traceback."""
    with pytest.raises(RefusedError, match="a form of its own"):
        answer(stub, b'{"data":' + data + b"}")


def test_a_complaint_of_prometheus_is_passed_on(stub):
    """In one line, and not without end."""
    with pytest.raises(RefusedError) as raised:
        answer(stub, b'{"error":"too\\nmany ' + b"x" * 1000 + b'"}', 422)
    assert str(raised.value).startswith("too many xxx")
    assert len(str(raised.value)) == 300


def test_a_login_goes_nowhere_else(stub, tmp_path):
    """A redirect is refused, so that the password stays where it belongs."""
    login = tmp_path / "login"
    login.write_text("ada:secret\n", encoding="utf-8")
    stub.answer = (302, {"Location": f"{stub.url}/elsewhere"}, b"")
    with pytest.raises(StackError, match="sends elsewhere"):
        find_prometheus(stub.url, login_file=login).ask("up", 0)
    ((path, headers),) = stub.seen
    assert path == "/api/v1/query"
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"ada:secret").decode()


def test_a_token_is_sent_and_never_shown(stub, tmp_path):
    """It stands in the request, and not in what is printed of the object."""
    token = tmp_path / "token"
    token.write_text("s3cret", encoding="utf-8")
    prometheus = find_prometheus(f"{stub.url}/", token_file=token)
    stub.answer = (200, {}, b'{"data":{"result":[]}}')
    assert prometheus.ask("up", 0) == ()
    assert stub.seen[0][1]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr(prometheus)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:9090", "--prometheus is no URL: write it as http://127.0.0.1:9090"),
        ("ftp://host", "is no URL"),
        ("http://", "is no URL"),
        ("http://host:port", "is no URL"),
        ("http://ada:secret@host", "leave out user, password"),
        ("http://host/?a=b", "leave out user, password and what follows"),
    ],
)
def test_an_address_that_is_none_is_refused(url, words):
    """Without repeating it, as it may hold a password."""
    with pytest.raises(ConfigurationError, match=words) as raised:
        find_prometheus(url)
    assert "secret" not in str(raised.value)


def test_a_file_without_a_login_is_refused(tmp_path):
    """Each file says what is wrong with it."""
    empty, none = tmp_path / "empty", tmp_path / "none"
    empty.write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="it must hold one line of text"):
        find_prometheus("http://a", token_file=empty)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        find_prometheus("http://a", login_file=none)
    empty.write_text("ada", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="write USER:PASSWORD into it"):
        find_prometheus("http://a", login_file=empty)


def test_nobody_there_is_said_with_what_to_do():
    """A port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(
        StackError, match=r"no Prometheus answers .* start it with `trainvitals up`"
    ):
        find_prometheus(url).ask("up", 0)


def test_one_that_hangs_is_not_waited_for():
    """It takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(StackError, match=r"gave no answer within 0\.2 s: choose machines"):
            find_prometheus(url, timeout_seconds=0.2).ask("up", 0)


def test_an_empty_prometheus_is_said_to_be_empty(prometheus, tmp_path):
    """The message has the time that was asked for, and why it may be."""
    with run_prometheus(prometheus, tmp_path) as url:
        words = (
            "has nothing from 2026-03-10 00:00 to 2026-03-11 00:00: it did not run, it scrapes no"
        )
        with pytest.raises(StackError, match=words):
            make_report(find_prometheus(url), DAY, now=time.time())


def test_a_machine_that_is_not_there_is_named(day):
    """As is a run."""
    with pytest.raises(StackError, match="has nothing of node-7 from"):
        make_report(day, DAY, Wishes(Filters(instances=("node-7",))), now=time.time())
    with pytest.raises(StackError, match="no run nix was seen in that time"):
        make_report(day, DAY, Wishes(Filters(runs=("nix",))), now=time.time())


def test_metrics_that_are_missing_are_unknown_with_the_reason(promtool, prometheus, tmp_path):
    """A machine of which only the memory is told has no run, no accelerator and no disk: not 0."""
    past = Past(60)
    past.tell("memory_total_bytes", 2**36, at(0), at(24))
    with past.open(promtool, prometheus, tmp_path) as kept:
        text = format_text(make_report(kept, DAY, now=time.time()))
    for words in (
        "- Active Experiments: unknown: no exporter looks for runs (collector training)",
        "- Best IoU Today: unknown: no exporter looks for runs",
        "- GPU Memory: unknown: no accelerator was seen",
        "- System Memory: unknown: no machine tells its memory at the end",
        "- Temperature: unknown: no accelerator tells its temperature",
        "Wasted Accelerator-Hours:\n- unknown: no accelerator was seen",
    ):
        assert words in text
    assert "- no alert fired" in text


def test_a_prometheus_that_refuses_is_a_gap_and_not_the_end(promtool, prometheus, tmp_path):
    """Where it may load few samples only, the rest is told and what is not stands at the end."""
    with write_day().open(promtool, prometheus, tmp_path, "--query.max-samples=8000") as kept:
        report = make_report(kept, DAY, now=time.time())
    assert report.gaps
    assert report.accelerators.uses == ()  # a part of the sums would add up to nothing
    assert report.accelerators.energy_joules == pytest.approx(23.4 * 3.6e6)
    assert len(report.runs.attempts) == 3
    text = format_text(report)
    assert "Wasted Accelerator-Hours:\n- unknown: their time could not be told apart, or" in text
    assert "What Is Not Known:" in text
    assert "Prometheus refused the question: query processing would load too many samples" in text


def test_names_that_look_like_patterns_are_names(promtool, prometheus, tmp_path):
    """A run and a machine whose names hold what PromQL would read are asked for as they are."""
    name = 'a.b|c"} or vector(1) # \\'
    past = Past(60, instance=name)
    past.tell("training_run_info", 1, at(1), at(2), run=name, source="client")
    past.tell("training_run_info", 1, at(1), at(2), run="aXb", source="client")
    past.tell("training_process_start_time_seconds", at(1), at(1), at(2), run=name, rank="0")
    past.tell("training_process_start_time_seconds", at(1), at(1), at(2), run="aXb", rank="0")
    with past.open(promtool, prometheus, tmp_path) as kept:
        report = make_report(
            kept, DAY, Wishes(Filters(instances=(name,), runs=(name,))), now=time.time()
        )
    assert [each.run for each in report.runs.attempts] == [name]
    assert report.gaps == ()
