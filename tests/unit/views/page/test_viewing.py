"""Answers of the exporter to viewers, who share one reading a second."""

from __future__ import annotations

import gzip
import json
import threading
import time
from types import SimpleNamespace

import pytest

from tests.support.waiting import wait_until
from trainvitals.http.messages import Request
from trainvitals.http.viewers import DEADLINE_SECONDS, KEPT_SECONDS, Viewing
from trainvitals.metrics.collector_metrics import Report
from trainvitals.sources.alerts import NOT_ASKED_YET, FiringAlerts
from trainvitals.sources.prometheus import ActiveAlert
from trainvitals.views.machine.observer import Observer

NOON = 1_700_049_600.0
NOTHING = SimpleNamespace(
    readings={},
    reports=(
        Report(
            collector="accelerator",
            success=False,
            answered=False,
            seconds=None,
            reason="did not answer in time",
            timeouts=1,
            omitted=0,
            last_success=None,
        ),
    ),
)


class Place:
    """A viewing whose collectors answer on the test's call, and whose clock the test moves."""

    def __init__(self, **more):
        self.now = 1000.0
        self.asked = []
        self.viewing = Viewing(
            self._ask,
            Observer("1.2.3", name_host=lambda: "ada"),
            clock=lambda: NOON + self.now,
            monotonic=lambda: self.now,
            **more,
        )

    def _ask(self, seconds, deliver):
        self.asked.append((seconds, deliver))

    def look(self, what="fragment", **headers):
        """Send a request and return the list that will contain the answer."""
        answers = []
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.viewing.answer(what, Request("GET", "/live", (), named), answers.append)
        return answers

    def deliver(self, seen=NOTHING):
        """Answer the oldest request for a reading."""
        self.asked.pop(0)[1](seen)


@pytest.fixture
def place():
    """A viewing without earlier requests."""
    return Place()


def test_nobody_looks_and_nothing_is_asked(place):
    """Without viewers, no reading is requested."""
    assert place.asked == []


def test_fifty_who_look_within_a_second_share_one_reading(place):
    """Fifty viewers within a second get the same answer from one reading."""
    waiting = [place.look() for _ in range(25)]
    assert len(place.asked) == 1
    place.deliver()
    late = []
    for number in range(25):
        place.now = 1000 + number * 0.99 * KEPT_SECONDS / 25
        late.append(place.look())
    assert place.asked == []
    bodies = {answers[0].body for answers in (*waiting, *late)}
    assert len(bodies) == 1
    assert all(len(answers) == 1 for answers in (*waiting, *late))
    place.now = 1000.01 + KEPT_SECONDS
    assert place.look() == []
    assert len(place.asked) == 1


def test_the_page_is_due_soon(place):
    """A reading for the page has a deadline of two seconds."""
    place.look()
    assert place.asked[0][0] == DEADLINE_SECONDS == 2.0


def test_a_collector_that_hangs_is_named(place):
    """The page is sent without a hanging collector's reading and names that collector."""
    answers = place.look("page")
    place.deliver()
    assert answers[0].status == 200
    assert "collector accelerator: did not answer in time" in answers[0].body.decode()


def test_who_has_the_latest_is_told_so(place):
    """A viewer with the newest picture gets status 304 and no body until there is a newer one."""
    first = place.look()
    place.deliver()
    tag = dict(first[0].headers)["ETag"]
    again = place.look(if_none_match=tag)
    assert (again[0].status, again[0].body) == (304, b"")
    place.now += 1
    newer = place.look(if_none_match=tag)
    place.deliver()
    assert newer[0].status == 200


def test_it_is_compressed_for_those_who_take_it(place):
    """The body is compressed if the viewer accepts gzip."""
    plain, packed = place.look(), place.look(accept_encoding="gzip, br")
    place.deliver()
    assert dict(packed[0].headers)["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed[0].body) == plain[0].body


def test_the_three_ways_show_the_same_picture(place):
    """The page, the fragment and the JSON document come from the same reading."""
    page, fragment, document = (place.look(what) for what in ("page", "fragment", "document"))
    place.deliver()
    assert fragment[0].body in page[0].body
    assert json.loads(document[0].body)["time"] == NOON + 1000
    assert dict(document[0].headers)["Content-Type"] == "application/json"


def test_every_answer_guards_the_browser(place):
    """Every answer has security headers that allow only the page's own style, script and data."""
    answers = place.look("page")
    place.deliver()
    headers = dict(answers[0].headers)
    assert headers["Content-Security-Policy"] == (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_a_bug_is_answered_and_logged_once(place, caplog):
    """A repeated internal error is answered with status 500 each time but logged once."""
    for _ in range(3):
        answers = place.look()
        place.deliver(SimpleNamespace(readings=None, reports=()))
        assert answers[0].status == 500
        assert b"see the log" in answers[0].body
    assert len(caplog.records) == 1
    place.look()
    place.deliver()
    assert place.look()[0].status == 200


def test_a_runner_that_has_ended_keeps_nobody_waiting():
    """During the shutdown of the exporter, viewers get status 500 at once."""

    def refuse(_seconds, _deliver):
        raise RuntimeError("closed")

    place = Place()
    place.viewing._ask = refuse
    assert place.look()[0].status == 500
    assert place.look()[0].status == 500


def wait_for(answers):
    """Wait for an answer and return its body as text."""
    return wait_until(lambda: answers)[0].body.decode()


def test_the_first_picture_has_the_alerts():
    """The first answer waits briefly for the alerts of Prometheus and contains them."""
    hot = ActiveAlert({"alertname": "Hot", "severity": "critical"}, {}, "firing", "")

    def fetch():
        time.sleep(0.1)
        return [hot]

    place = Place(alerts=FiringAlerts(fetch, "ada"))
    answers = place.look("document")
    place.deliver()
    assert [each["name"] for each in json.loads(wait_for(answers))["alerts"]] == ["Hot"]


def test_a_prometheus_that_hangs_does_not_block_the_first_picture():
    """If Prometheus hangs, the first page says that alerts are not known yet."""
    may_end = threading.Event()
    place = Place(alerts=FiringAlerts(lambda: may_end.wait(30) and [], "ada"))
    place.viewing._monotonic = time.monotonic
    answers = place.look()
    begin = time.monotonic()
    place.deliver()
    assert time.monotonic() - begin < 20
    assert NOT_ASKED_YET in wait_for(answers)
    may_end.set()


def test_many_threads_look_at_once(place):
    """Requests of 32 threads get one answer each."""
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(place.look("document"))) for _ in range(32)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    place.deliver()
    assert [len(each) for each in answers] == [1] * 32
