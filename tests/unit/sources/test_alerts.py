"""The alerts that fire, of a Prometheus that answers late, or not at all."""

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
    """Return one alert."""
    labels = {"alertname": name, "severity": severity, **labels}
    return ActiveAlert(labels, {"summary": summary}, state, "2023-11-15T12:00:00.123456789Z")


def test_what_fires_is_read():
    """Its name, how bad it is, what it is about, since when."""
    active = [alert("GPUHighTemperature", "critical", instance="ada", kind="gpu", device="3")]
    assert select_alerts(active, "ada") == (
        Alert("GPUHighTemperature", "critical", "gpu3", "It is so", 1_700_049_600.0),
    )


def test_this_machine_comes_first_then_the_worst():
    """Alerts of other machines have their names, and come last."""
    active = [
        alert("A", "info", instance="ada"),
        alert("B", "critical", instance="bob:9200", run="llama"),
        alert("C", "critical", instance="ada:9200"),
        alert("D", "warning"),
    ]
    found = [(each.name, each.subject) for each in select_alerts(active, "ada")]
    assert found == [("C", ""), ("D", ""), ("A", ""), ("B", "llama on bob:9200")]


def test_what_only_proves_that_the_way_is_open_is_left_out():
    """A watchdog always fires; what is pending does not yet."""
    assert select_alerts([alert("Watchdog", "none"), alert("P", state="pending")], "a") == ()


class Source:
    """Answers when a test lets it, and counts the questions."""

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
        """Let it answer, and wait until it has."""
        self.may_answer.set()
        for thread in threading.enumerate():
            if thread.name == "alerts":
                thread.join(30)
        self.may_answer.clear()


def test_looking_never_waits():
    """The first look knows nothing, the next one has what was answered meanwhile."""
    source = Source()
    assert source.alerts.latest() == (None, NOT_ASKED_YET)
    assert source.alerts.latest() == (None, NOT_ASKED_YET)
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


def test_a_look_that_may_wait_gets_the_first_answer():
    """Also the first one after a pause; the next ones have an answer and need not wait."""
    source = Source()
    threading.Timer(0.05, source.may_answer.set).start()
    alerts, trouble = source.alerts.latest(wait_seconds=30)
    assert ([each.name for each in alerts], trouble) == (["A"], "")
    source.now += 600
    source.answer = []
    assert source.alerts.latest(wait_seconds=30) == ((), "")


def test_a_look_waits_no_longer_than_it_may_and_not_again_after_a_failure():
    """A Prometheus that does not answer delays one look, not all of them."""
    source = Source()
    assert source.alerts.latest(wait_seconds=0.05) == (None, NOT_ASKED_YET)
    source.answer = SourceError("it does not answer")
    source.settle()
    assert source.alerts.latest(wait_seconds=30) == (None, "it does not answer")
    source.now += 6
    assert source.alerts.latest(wait_seconds=30) == (None, "it does not answer")
    source.settle()


def test_credentials_are_read_for_each_query(tmp_path, monkeypatch):
    """A changed file counts at the next query; one that is gone is the reason why it failed."""
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
