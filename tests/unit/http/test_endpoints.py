"""Tests for the responses of each HTTP endpoint, without the server."""

import gzip
import json
import math
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from trainvitals import __version__
from trainvitals.errors import SourceError
from trainvitals.http.endpoints import Endpoints, choose_deadline
from trainvitals.http.messages import GUARDS, Request
from trainvitals.metrics import runner
from trainvitals.metrics.families import Block, Family
from trainvitals.metrics.machine import Machine, MachineOptions
from trainvitals.metrics.runner import Runner
from trainvitals.sources.alerts import FiringAlerts
from trainvitals.sources.prometheus import ActiveAlert

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True)
class Part:
    """A reading with values of types that JSON lacks."""

    ratio: float
    name: bytes
    path: Path
    pairs: tuple[tuple[int, float], ...]
    by_code: dict
    tags: frozenset
    nothing: None = None


class Probe:
    """A collector whose reading is a value, a function to call, or an exception to raise."""

    def __init__(self, name, reading=1.0, samples=1):
        self.name = name
        self.reading = reading
        self.samples = samples
        self.deadlines = []

    def read(self, deadline):
        """Return or raise the reading, and record the remaining time."""
        self.deadlines.append(deadline - time.monotonic())
        if isinstance(self.reading, Exception):
            raise self.reading
        return self.reading() if callable(self.reading) else self.reading

    def express(self, _):
        """Return a gauge with the configured number of samples."""
        labels = tuple(("", (("n", str(n)),)) for n in range(self.samples))
        family = Family(f"probe_{self.name}", "gauge", "A probe. Source: test.", labels)
        return (Block((self.name, labels), lambda: (family,), range(self.samples)),)

    def complaint(self, _):
        """Return None, as there is no complaint."""

    def omitted(self, _):
        """Return 0, as no sample is omitted."""
        return 0

    def close(self):
        """Do nothing, as nothing is open."""


class Site:
    """The endpoints of a few collectors."""

    def __init__(self, *probes):
        self.runner = Runner(probes)
        self.endpoints = Endpoints(SimpleNamespace(runner=self.runner, expected={}))

    def get(self, path, *query, **headers):
        """Send a request and return its response."""
        box = SimpleQueue()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.endpoints.answer(Request("GET", path, query, headers), box.put)
        response = box.get(timeout=60)
        assert box.empty()
        return response

    def names(self, *query):
        """Return the collectors that a scrape with this query reads."""
        response = self.get("/metrics", *query)
        lines = response.body.decode().splitlines()
        assert response.status == 200
        return [line.split('"')[1] for line in lines if line.startswith(SUCCESS)]


SUCCESS = "trainvitals_collector_success{"


@pytest.fixture
def site():
    """Yield the endpoints of three collectors."""
    site = Site(Probe("cpu"), Probe("disk", samples=100), Probe("memory"))
    yield site
    site.runner.close()


def open_site(*probes):
    """Return the endpoints of these collectors, without closing the runner."""
    return Site(*probes)


def header(response, name):
    """Return the value of a response's header."""
    return dict(response.headers).get(name)


# /metrics.


def test_metrics_are_text_by_default(site):
    """Without an Accept header, `/metrics` returns the text format without compression."""
    response = site.get("/metrics")
    assert response.status == 200
    assert header(response, "Content-Type") == TEXT
    assert header(response, "Content-Encoding") is None
    assert header(response, "Vary") == "Accept, Accept-Encoding"
    assert b'\nprobe_disk{n="99"} 99.0\n' in response.body
    assert b"# EOF" not in response.body


def test_metrics_are_openmetrics_for_who_asks(site):
    """If the Accept header prefers OpenMetrics, `/metrics` returns a valid OpenMetrics page."""
    response = site.get("/metrics", accept="application/openmetrics-text;version=1.0.0,*/*;q=0.1")
    assert header(response, "Content-Type") == OPENMETRICS
    families = list(text_string_to_metric_families(response.body.decode()))
    assert len(families[1].samples) == 100


def test_metrics_are_compressed_for_who_accepts_it(site):
    """`/metrics` is compressed with gzip only if the Accept-Encoding header allows gzip."""
    plain = site.get("/metrics")
    packed = site.get("/metrics", accept_encoding="gzip")
    assert header(packed, "Content-Encoding") == "gzip"
    assert header(packed, "Content-Type") == TEXT
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 4
    assert header(site.get("/metrics", accept_encoding="gzip;q=0"), "Content-Encoding") is None


def test_one_page_serves_all_who_ask_at_the_same_moment(site, monkeypatch):
    """Requests at the same time share one formatted and compressed page for each format."""
    monkeypatch.setattr(runner, "REUSE_SECONDS", 60.0)  # long enough for a busy machine
    asked = [site.get("/metrics", accept_encoding="gzip").body for _ in range(3)]
    assert asked[0] is asked[1] is asked[2]
    openmetrics = {"accept": "application/openmetrics-text", "accept_encoding": "gzip"}
    other = [site.get("/metrics", **openmetrics).body for _ in range(2)]
    assert other[0] is other[1] is not asked[0]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ((), ["cpu", "disk", "memory"]),
        ((("collect[]", "disk"),), ["disk"]),
        ((("collect[]", "memory"), ("collect[]", "cpu"), ("collect[]", "cpu")), ["cpu", "memory"]),
        ((("exclude[]", "disk"),), ["cpu", "memory"]),
        ((("exclude[]", "cpu"), ("exclude[]", "disk"), ("exclude[]", "memory")), []),
        ((("other", "x"),), ["cpu", "disk", "memory"]),
    ],
)
def test_collectors_are_chosen(site, query, names):
    """`collect[]` selects collectors and `exclude[]` omits them, in the order of the page."""
    assert site.names(*query) == names


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (
            (("collect[]", "cpu"), ("exclude[]", "disk")),
            "collect[] and exclude[] cannot be used together: choose one",
        ),
        ((("collect[]", "gpu"),), "no collector 'gpu'; there are cpu, disk, memory"),
        ((("exclude[]", ""),), "no collector ''; there are cpu, disk, memory"),
        ((("collect[]", "a\nb"),), r"no collector 'a\nb'; there are cpu, disk, memory"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(site, query, words):
    """An invalid selection of collectors returns 400 and a line with the reason."""
    response = site.get("/metrics", *query)
    assert response.status == 400
    assert response.body.decode() == words + "\n"


def test_the_deadline_follows_the_header():
    """The deadline of a collector follows the timeout header of Prometheus, less 0.5 s."""
    probe = Probe("cpu")
    site = open_site(probe)
    site.get("/metrics", x_prometheus_scrape_timeout_seconds="40")
    time.sleep(0.21)
    site.get("/metrics")
    assert 20.0 < probe.deadlines[0] <= 39.5
    assert probe.deadlines[1] <= 5.0
    site.runner.close()


def test_a_scrape_ends_in_time_when_a_collector_hangs():
    """If a collector hangs, the page is sent at the deadline without its metrics."""
    heal = threading.Event()
    site = open_site(Probe("hung", heal.wait), Probe("cpu"))
    started_at = time.monotonic()
    response = site.get("/metrics", x_prometheus_scrape_timeout_seconds="1.0")
    assert 0.8 < time.monotonic() - started_at < 30
    assert b'trainvitals_collector_success{collector="hung"} 0.0\n' in response.body
    assert b"\nprobe_cpu" in response.body
    heal.set()
    site.runner.close()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 5.0),
        ("", 5.0),
        ("10", 9.5),
        ("10.000000", 9.5),
        ("1", 0.9),
        ("0.05", 0.1),
        ("3600", 55.0),
        ("0", 5.0),
        ("-1", 5.0),
        ("nan", 5.0),
        ("inf", 5.0),
        ("1e999", 5.0),
        ("ten", 5.0),
        ("10s", 5.0),
    ],
)
def test_deadlines(text, seconds):
    """The deadline is the timeout less a tenth, at most 0.5 s; an invalid timeout means 5 s."""
    assert choose_deadline(text) == pytest.approx(seconds)


@given(st.one_of(st.text(), st.floats().map(str), st.integers().map(str)))
def test_any_header_gives_a_deadline(text):
    """Any header results in a deadline between 0.1 s and 55 s."""
    assert 0.1 <= choose_deadline(text) <= 55.0


# Other endpoints.


def test_readings_are_json_whatever_was_read():
    """NaN and infinity are null in JSON; bytes, paths, sets and tuples are text and lists."""
    part = Part(
        ratio=math.nan,
        name=b"sda\xff",
        path=Path("/data"),
        pairs=((1, math.inf), (2, 0.5)),
        by_code={(1, 2): -math.inf, 79: b"x"},
        tags=frozenset({"a"}),
    )
    site = open_site(Probe("odd", part), Probe("weak", SourceError("cannot read it")))
    response = site.get("/api/v1/readings")

    def refuse(token):
        raise AssertionError(token)

    assert response.status == 200
    assert header(response, "Content-Type") == "application/json"
    document = json.loads(response.body, parse_constant=refuse)
    assert document["version"] == __version__
    assert document["collectors"]["odd"]["reading"] == {
        "ratio": None,
        "name": "sda�",
        "path": "/data",
        "pairs": [[1, None], [2, 0.5]],
        "by_code": {"(1, 2)": None, "79": "x"},
        "tags": ["a"],
        "nothing": None,
    }
    weak = document["collectors"]["weak"]
    assert weak["success"] is False
    assert weak["reason"] == "cannot read it"
    assert weak["reading"] is None
    assert weak["last_success_timestamp_seconds"] is None
    site.runner.close()


def test_a_page_that_cannot_be_written_is_an_error_at_once(site, monkeypatch, caplog):
    """If writing a page fails, the client gets a 500 and the traceback is logged once."""
    with monkeypatch.context() as patch:
        patch.setattr("trainvitals.http.endpoints.describe_readings", lambda _: {"set": {1}})
        responses = [site.get("/api/v1/readings") for _ in range(2)]
    assert [response.status for response in responses] == [500, 500]
    assert responses[0].body == b"a bug keeps this page from being written; see the log\n"
    assert site.get("/api/v1/readings").status == 200
    assert [record.exc_info[0] for record in caplog.records] == [TypeError]


def test_a_living_exporter_is_healthy_whatever_hangs():
    """`/-/healthy` returns 200 without reading a collector."""
    probe = Probe("cpu")
    site = open_site(probe)
    response = site.get("/-/healthy")
    assert (response.status, response.body) == (200, b"trainvitals is healthy\n")
    assert probe.deadlines == []
    site.runner.close()


def test_the_live_page_answers_while_a_collector_hangs():
    """If a collector hangs, the live page shows the other data and names this collector."""
    released = threading.Event()
    site = open_site(Probe("cpu"), Probe("disk", reading=released.wait))
    try:
        page = site.get("/")
        assert page.status == 200
        assert "collector disk: did not answer in time" in page.body.decode()
        assert "collector cpu" not in page.body.decode()
    finally:
        released.set()
        site.runner.close()


def test_a_scrape_is_remembered_for_those_who_look_later(tmp_path):
    """A scrape of `/metrics` adds a point to the history of `/api/v1/overview`."""
    machine = Machine(MachineOptions(disabled=("accelerator", "container")))
    moments = iter([1_700_049_600.0, 1_700_049_610.0, 1_700_049_620.0])
    try:
        endpoints = Endpoints(machine, clock=lambda: next(moments, 1_700_049_630.0))
        box = SimpleQueue()
        endpoints.answer(Request("GET", "/metrics", (), {}), box.put)
        assert box.get(timeout=60).status == 200
        time.sleep(0.25)  # a finished reading is reused for 0.2 s
        endpoints.answer(Request("GET", "/api/v1/overview", (), {}), box.put)
        document = json.loads(box.get(timeout=60).body)
    finally:
        machine.close()
    known = [point for point in document["host"]["memory_trace"] if point is not None]
    assert len(known) >= 2


def test_the_live_page_links_to_every_path(site):
    """The live page is HTML with the version, and all paths in its footer return 200."""
    response = site.get("/")
    page = response.body.decode()
    assert response.status == 200
    assert header(response, "Content-Type") == "text/html; charset=utf-8"
    assert page.startswith("<!doctype html>")
    assert f"trainvitals {__version__}" in page
    footer = page.partition("<footer>")[2]
    links = [f"/{part.split(chr(34))[0]}" for part in footer.split('href="')[1:]]
    assert links == [
        "/metrics",
        "/api/v1/overview",
        "/api/v1/readings",
        "/health",
        "/ready",
        "/-/healthy",
        "/runbooks/",
    ]
    assert [site.get(link).status for link in (*links, "/live", "/live.css", "/live.js")] == [
        200
    ] * 10


@pytest.mark.parametrize("path", ["/metric", "/metrics/", "//", "/favicon.ico", "/../etc/passwd"])
def test_other_paths_are_not_found(site, path):
    """An unknown path returns 404 and one line with the existing paths."""
    response = site.get(path)
    assert response.status == 404
    assert dict(response.headers).items() >= dict(GUARDS).items()
    assert response.body.decode() == (
        "no such path; there are /, /live, /live.css, /live.js, /metrics, /health, /ready, "
        "/-/healthy, /api/v1/overview, /api/v1/readings, /runbooks/\n"
    )


def test_health_shows_alerts_and_does_not_wait_for_them():
    """Alerts are unknown until Prometheus responds; a firing alert makes the status degraded."""
    may_answer = threading.Event()
    labels = {"alertname": "TrainingLossDiverging", "severity": "critical", "run": "llama"}
    firing = ActiveAlert(labels, {"summary": "Training loss diverges"}, "firing", "")
    alerts = FiringAlerts(lambda: [firing] if may_answer.wait(30) else [], "ada")
    machine = Machine(MachineOptions(disabled=("accelerator", "training", "container")))
    endpoints = Endpoints(machine, alerts=alerts)

    def ask():
        box = SimpleQueue()
        endpoints.answer(Request("GET", "/health", (), {}), box.put)
        response = box.get(timeout=20)
        assert response.status == 200
        return json.loads(response.body)

    try:
        checks = ask()["checks"]
        assert checks["unknowns"] == [
            {"subject_kind": "alert", "why": "not known yet: Prometheus has not answered"}
        ]
        assert "TrainingLossDiverging" not in [each["alert"] for each in checks["troubles"]]
        may_answer.set()
        alerts.latest(20.0)
        document = ask()
    finally:
        may_answer.set()
        machine.close()
    assert document["status"] == "degraded"
    assert document["checks"]["unknowns"] == []
    assert "TrainingLossDiverging" in [each["alert"] for each in document["checks"]["troubles"]]


def test_health_and_readiness_of_a_real_machine():
    """A real machine without accelerators is ready, and `/health` has the documented checks."""
    machine = Machine(MachineOptions(disabled=("accelerator", "training")))
    try:
        endpoints = Endpoints(machine)
        answers = {}
        for path in ("/health", "/ready", "/api/v1/readings"):
            box = SimpleQueue()
            endpoints.answer(Request("GET", path, (), {}), box.put)
            response = box.get(timeout=60)
            answers[path] = json.loads(response.body)
            assert header(response, "Content-Type") == "application/json"
        assert answers["/ready"] == {
            "ready": True,
            "checks": {
                "collectors": True,
                "accelerators": True,
                "model_loaded": None,
                "data_available": None,
                "hpu_initialized": None,
            },
        }
        assert list(answers["/health"]) == ["status", "timestamp", "checks"]
        assert {"hpu_available", "hpu_count", "memory_usage", "disk_space"} <= set(
            answers["/health"]["checks"]
        )
        assert answers["/api/v1/readings"]["collectors"]["memory"]["reading"]["total_bytes"] > 0
    finally:
        machine.close()
