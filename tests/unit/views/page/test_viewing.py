"""Who looks is answered: together, from one reading a second, whatever goes wrong."""

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
    """A viewing whose collectors answer when a test says so, and whose clock it moves."""

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
        """Ask, and give the list that the answer will be in."""
        answers = []
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.viewing.answer(what, Request("GET", "/live", (), named), answers.append)
        return answers

    def deliver(self, seen=NOTHING):
        """Have the collectors answer the oldest question."""
        self.asked.pop(0)[1](seen)


@pytest.fixture
def place():
    """One at which nobody has looked yet."""
    return Place()


def test_nobody_looks_and_nothing_is_asked(place):
    """Work is done when somebody wants it."""
    assert place.asked == []


def test_fifty_who_look_within_a_second_share_one_reading(place):
    """Those who come while it is made wait for it; those who come afterwards get it at once."""
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
    """A collector that hangs keeps nobody from the page."""
    place.look()
    assert place.asked[0][0] == DEADLINE_SECONDS == 2.0


def test_a_collector_that_hangs_is_named(place):
    """The page answers without it, and says which it is."""
    answers = place.look("page")
    place.deliver()
    assert answers[0].status == 200
    assert "collector accelerator: did not answer in time" in answers[0].body.decode()


def test_who_has_the_latest_is_told_so(place):
    """304 and no body, until there is a newer one."""
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
    """The same bytes in fewer."""
    plain, packed = place.look(), place.look(accept_encoding="gzip, br")
    place.deliver()
    assert dict(packed[0].headers)["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed[0].body) == plain[0].body


def test_the_three_ways_show_the_same_picture(place):
    """Page, fragment and document of one reading."""
    page, fragment, document = (place.look(what) for what in ("page", "fragment", "document"))
    place.deliver()
    assert fragment[0].body in page[0].body
    assert json.loads(document[0].body)["time"] == NOON + 1000
    assert dict(document[0].headers)["Content-Type"] == "application/json"


def test_every_answer_guards_the_browser(place):
    """Nothing but our own style, script and data; no frame, no form, no guessing of types."""
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
    """Who looks is told where to look, and the log does not fill up."""
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
    """The exporter is going down."""

    def refuse(_seconds, _deliver):
        raise RuntimeError("closed")

    place = Place()
    place.viewing._ask = refuse
    assert place.look()[0].status == 500
    assert place.look()[0].status == 500


def wait_for(answers):
    """Wait until there is an answer, and return it as text."""
    return wait_until(lambda: answers)[0].body.decode()


def test_the_first_picture_has_the_alerts():
    """A program that asks once, as cron does, is not answered that alerts are unknown."""
    hot = ActiveAlert({"alertname": "Hot", "severity": "critical"}, {}, "firing", "")

    def fetch():
        time.sleep(0.1)
        return [hot]

    place = Place(alerts=FiringAlerts(fetch, "ada"))
    answers = place.look("document")
    place.deliver()
    assert [each["name"] for each in json.loads(wait_for(answers))["alerts"]] == ["Hot"]


def test_a_prometheus_that_hangs_delays_the_first_picture_by_a_second_at_most():
    """Then the page says that alerts are not known yet; the runner's thread never waits."""
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
    """The loop and the runner meet in it, and everybody gets one answer."""
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
