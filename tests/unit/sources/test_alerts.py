"""Tests for the firing alerts of a Prometheus server that answers late or not at all."""

from __future__ import annotations

import threading

import pytest

from trainvitals.errors import ConfigurationError, SourceError
from trainvitals.sources.alerts import (
    NOT_ASKED_YET,
    Alert,
    FiringAlerts,
    follow_alerts,
    select_alerts,
)
from trainvitals.sources.prometheus import ActiveAlert, Prometheus


def alert(name, severity="warning", state="firing", summary="It is so", **labels):
    """Return an active alert."""
    labels = {"alertname": name, "severity": severity, **labels}
    return ActiveAlert(labels, {"summary": summary}, state, "2023-11-15T12:00:00.123456789Z")


def test_what_fires_is_read():
    """A firing alert is read with its name, severity, subject, summary and start time."""
    active = [alert("GPUHighTemperature", "critical", instance="ada", kind="gpu", device="3")]
    assert select_alerts(active, "ada") == (
        Alert("GPUHighTemperature", "critical", "gpu3", "It is so", 1_700_049_600.0),
    )


def test_this_machine_comes_first_then_the_worst():
    """Alerts are sorted by machine, this machine first, and then by severity.

    The subject of another machine's alert names the machine.
    """
    active = [
        alert("A", "info", instance="ada"),
        alert("B", "critical", instance="bob:9200", run="llama"),
        alert("C", "critical", instance="ada:9200"),
        alert("D", "warning"),
    ]
    found = [(each.name, each.subject) for each in select_alerts(active, "ada")]
    assert found == [("C", ""), ("D", ""), ("A", ""), ("B", "llama on bob:9200")]


def test_what_only_proves_that_the_way_is_open_is_left_out():
    """Alerts without a known severity, such as a watchdog, and pending alerts are left out."""
    assert select_alerts([alert("Watchdog", "none"), alert("P", state="pending")], "a") == ()


class Source:
    """A source of alerts that answers when a test permits it, and counts the queries."""

    def __init__(self):
        self.now = 1000.0
        self.asked = 0
        self.answer = [alert("A")]
        self.may_answer = threading.Event()
        self.alerts = FiringAlerts(self._fetch, "ada", monotonic=lambda: self.now)

    def _fetch(self):
        self.asked += 1
        assert self.may_answer.wait(30)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def settle(self):
        """Permit an answer, and wait until the query has ended."""
        self.may_answer.set()
        for thread in threading.enumerate():
            if thread.name == "alerts":
                thread.join(30)
        self.may_answer.clear()


def test_looking_never_waits():
    """The first call starts a query and returns at once, and a later call returns the answer."""
    source = Source()
    assert source.alerts.latest() == (None, NOT_ASKED_YET)
    assert source.alerts.latest() == (None, NOT_ASKED_YET)
    source.settle()
    alerts, trouble = source.alerts.latest()
    assert ([each.name for each in alerts], trouble) == (["A"], "")
    assert source.asked == 1


def test_it_is_asked_every_five_seconds_while_somebody_looks():
    """Fifty calls within five seconds start one query, and a later call starts another query."""
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
    """After half a minute without an answer, the alerts are unknown and the reason is returned."""
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


def test_a_look_that_may_wait_gets_the_first_answer():
    """A call that may wait returns the first answer, also after a long pause."""
    source = Source()
    threading.Timer(0.05, source.may_answer.set).start()
    alerts, trouble = source.alerts.latest(wait_seconds=30)
    assert ([each.name for each in alerts], trouble) == (["A"], "")
    source.now += 600
    source.answer = []
    assert source.alerts.latest(wait_seconds=30) == ((), "")


def test_a_look_waits_no_longer_than_it_may_and_not_again_after_a_failure():
    """A call waits for a limited time, and does not wait if the last query failed recently."""
    source = Source()
    assert source.alerts.latest(wait_seconds=0.05) == (None, NOT_ASKED_YET)
    source.answer = SourceError("it does not answer")
    source.settle()
    assert source.alerts.latest(wait_seconds=30) == (None, "it does not answer")
    source.now += 6
    assert source.alerts.latest(wait_seconds=30) == (None, "it does not answer")
    source.settle()


def test_credentials_are_read_for_each_query(tmp_path, monkeypatch):
    """A changed credentials file is used for the next query, and a missing file makes it fail."""
    path = tmp_path / "login"
    path.write_text("ann:one")
    monkeypatch.setenv("TRAINVITALS_PROMETHEUS_LOGIN_FILE", str(path))
    asked = []

    def fetch(prometheus):
        asked.append(prometheus)
        return []

    monkeypatch.setattr(Prometheus, "list_alerts", fetch)
    alerts = follow_alerts("http://127.0.0.1:1", "ada", flag="--web.prometheus")
    alerts._fetch()
    path.write_text("ann:two")
    alerts._fetch()
    assert asked[0] != asked[1]
    path.unlink()
    with pytest.raises(ConfigurationError, match="login"):
        alerts._fetch()
