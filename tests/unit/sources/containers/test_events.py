"""Tests for reading and following an engine's events, with interruptions, repetitions and hangs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engine_stand_in import ID, EngineStandIn, write_event
from tests.support.waiting import wait_until
from trainvitals.sources.containers.engine import EngineClient
from trainvitals.sources.containers.events import (
    ContainerEvent,
    EventFollower,
    parse_event,
    read_events,
)
from trainvitals.sources.containers.evidence import EngineEvent

NANO = 1_795_299_157_000_000_000
DIED = {
    "status": "die",
    "id": ID,
    "from": "train:latest",
    "Type": "container",
    "Action": "die",
    "Actor": {
        "ID": ID,
        "Attributes": {
            "com.docker.compose.project": "vision",
            "com.docker.compose.service": "trainer",
            "exitCode": "137",
            "image": "train:latest",
            "name": "train",
            "secret": "hunter2",
        },
    },
    "scope": "local",
    "time": 1795299156,
    "timeNano": 1795299156925307368,
}


class Log:
    """The calls of a follower's callbacks, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._news = threading.Condition()

    def add(self, what: str) -> None:
        """Append a callback's call to the log."""
        with self._news:
            self.told.append(what)
            self._news.notify_all()

    def wait(self, *expected: str) -> None:
        """Wait until the callbacks were called exactly as expected."""
        with self._news:
            self._news.wait_for(lambda: len(self.told) >= len(expected), 10)
            assert self.told == list(expected)


@pytest.fixture
def log() -> Log:
    """A log of the follower's callbacks."""
    return Log()


@pytest.fixture
def follower(engine: EngineStandIn, log: Log) -> Iterator[EventFollower]:
    """A follower that reconnects quickly and pings an engine soon if it sends no events."""
    client = EngineClient(engine.address, timeout_seconds=1.0)
    with_log = EventFollower(
        client,
        on_event=lambda event: log.add(event.action),
        on_connect=lambda: log.add("connected"),
        on_gap=lambda why: log.add(f"gap: {why}"),
        first_wait_seconds=0.05,
        quiet_seconds=0.1,
    )
    yield with_log
    with_log.close()


def test_a_death_is_read_whole():
    """A `die` event is read with time, exit code, image and Compose names, without other labels."""
    event = parse_event(json.dumps(DIED))
    assert event == ContainerEvent(
        time=1795299156.925307368,
        action="die",
        id=ID,
        name="train",
        image="train:latest",
        compose_project="vision",
        compose_service="trainer",
        exit_code=137,
    )
    assert event.to_evidence() == EngineEvent(1795299156.925307368, "die", 137, None)


@pytest.mark.parametrize(
    ("action", "attributes", "expected"),
    [
        ("kill", {"signal": "9"}, ("kill", None, 9)),
        ("kill", {"signal": "SIGTERM"}, ("kill", None, 15)),
        ("kill", {}, ("kill", None, None)),
        ("die", {"exitCode": "-1"}, ("die", -1, None)),
        ("die", {"exitCode": "many"}, ("die", None, None)),
        ("died", {"containerExitCode": "7"}, ("die", 7, None)),
        ("remove", {}, ("destroy", None, None)),
        ("health_status: unhealthy", {}, ("health_status: unhealthy", None, None)),
        ("health_status", {"health_status": "healthy"}, ("health_status: healthy", None, None)),
        ("rename", {"oldName": "/job1"}, ("rename", None, None)),
        ("start", {"exitCode": "3", "signal": "9"}, ("start", None, None)),
    ],
)
def test_actions_have_docker_s_words(
    action: str, attributes: dict[str, str], expected: tuple[object, ...]
):
    """Podman's actions get Docker's names, and signals are read as numbers or by name.

    The exit code and the signal are read only for the actions that they belong to.
    """
    event = parse_event(write_event(action, **attributes))
    assert event is not None
    assert (event.action, event.exit_code, event.signal) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"Type":"network","Action":"connect","Actor":{"ID":"25e7"}}',
        b'{"Type":"container","Action":"die","Actor":null}',
        b'{"Type":"container","Actor":{"ID":"25e7"}}',
        b'{"Type":["container"],"Action":7,"Actor":{"ID":{}}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_event_is_none(line: bytes):
    """Invalid JSON, other kinds of events and events without an ID or an action are ignored."""
    assert parse_event(line) is None


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_line_is_an_event_or_none(line: bytes | str):
    """No line raises an exception."""
    parse_event(line)


def test_old_events_are_read(engine: EngineStandIn):
    """Past events between two times are returned, without lines that are not events."""
    lines = write_event("start") + b"{\n" + write_event("die", exitCode="1")
    engine.put("/events", lines)
    events = read_events(EngineClient(engine.address), since=5.0, until=2e9)
    assert [event.action for event in events] == ["start", "die"]
    query = engine.requests[0].query
    assert query["since"] == "5.000000000"
    assert float(query["until"]) <= time.time()


def test_events_come_once_connected(engine: EngineStandIn, follower: EventFollower, log: Log):
    """The connection is reported first, then each event, regardless of how its line is split."""
    assert not follower.is_connected
    follower.start()
    log.wait("connected")
    assert follower.is_connected
    data = write_event("start", time_nano=NANO) + b"{nonsense\n" + write_event("oom")
    for place in range(0, len(data), 50):
        engine.send("/events", data[place : place + 50])
    engine.send_event("die", time_nano=NANO + 1)
    log.wait("connected", "start", "oom", "die")
    assert (follower.gaps, follower.complaint) == (0, None)
    filters = json.loads(engine.requests[0].query["filters"])
    assert filters["type"] == ["container"]
    assert {"create", "start", "oom", "kill", "die", "destroy"} <= set(filters["event"])
    assert not any(action.startswith("exec") for action in filters["event"])
    assert engine.methods == {"GET"}


@pytest.mark.parametrize("ending", ["end", "cut"])
def test_an_end_is_a_gap_and_is_followed_by_a_connect(
    engine: EngineStandIn, follower: EventFollower, log: Log, ending: str
):
    """After a regular or an abrupt end of the stream, the follower reconnects at the last event."""
    follower.start()
    log.wait("connected")
    engine.send_event("start", time_nano=NANO)
    log.wait("connected", "start")
    getattr(engine, ending)("/events")
    gap = "gap: the engine ended the events"
    log.wait("connected", "start", gap, "connected")
    assert (follower.gaps, follower.is_connected) == (1, True)
    subscriptions = [entry for entry in engine.requests if entry.path == "/events"]
    assert subscriptions[1].query["since"].startswith("1795299157.0000")
    # The engine repeats the events that it still has from this time on.
    engine.send_event("start", time_nano=NANO)
    engine.send_event("die", time_nano=NANO)
    log.wait("connected", "start", gap, "connected", "die")


def test_an_engine_that_goes_away_is_found_again(
    engine: EngineStandIn, follower: EventFollower, log: Log
):
    """If the engine stops, the complaint gives the reason, and the follower reconnects later."""
    follower.start()
    log.wait("connected")
    engine.stop()
    wait_until(lambda: "no engine listens" in (follower.complaint or ""))
    assert not follower.is_connected
    engine.start()
    log.wait("connected", "gap: the engine ended the events", "connected")
    assert (follower.is_connected, follower.complaint) == (True, None)


def test_an_engine_that_is_not_there_yet_is_waited_for(tmp_path: Path, log: Log):
    """An engine that does not run at the start is not a gap; the follower waits for the engine."""
    engine = EngineStandIn(tmp_path / "late.sock")
    follower = EventFollower(
        EngineClient(engine.address),
        on_event=lambda event: log.add(event.action),
        on_connect=lambda: log.add("connected"),
        on_gap=log.add,
        first_wait_seconds=0.02,
    )
    follower.start()
    wait_until(lambda: follower.complaint is not None)
    with engine:
        log.wait("connected")
        follower.close()
    assert (log.told, follower.gaps) == (["connected"], 0)


def test_an_engine_that_hangs_is_noticed(engine: EngineStandIn, follower: EventFollower, log: Log):
    """A hung engine counts as not connected, but its events arrive later, so there is no gap."""
    follower.start()
    log.wait("connected")
    with engine.hanging():
        wait_until(lambda: not follower.is_connected)
        assert "does not answer" in (follower.complaint or "")
        engine.send_event("die")
    log.wait("connected", "connected", "die")
    assert (follower.is_connected, follower.gaps) == (True, 0)


def test_a_quiet_engine_stays_connected(engine: EngineStandIn, follower: EventFollower, log: Log):
    """An engine without events is pinged periodically and stays connected."""
    follower.start()
    wait_until(lambda: sum(entry.path == "/_ping" for entry in engine.requests) >= 3)
    assert follower.is_connected
    assert log.told == ["connected"]
    assert sum(entry.path == "/events" for entry in engine.requests) == 1


def test_a_proxy_that_refuses_the_question_is_there(
    engine: EngineStandIn, follower: EventFollower, log: Log
):
    """An engine that refuses the ping with an error status counts as connected."""
    engine.put("/_ping", {"message": "forbidden"}, status=403)
    follower.start()
    wait_until(lambda: sum(entry.path == "/_ping" for entry in engine.requests) >= 2)
    assert follower.is_connected


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # load only adds time
def test_closing_is_quick(engine: EngineStandIn, log: Log):
    """Closing is quick if the engine sends no events, hangs or was never contacted.

    No callback is called afterwards.
    """
    client = EngineClient(engine.address, timeout_seconds=5)
    for hangs in (False, True):
        follower = EventFollower(
            client,
            on_event=lambda event: log.add(event.action),
            on_connect=lambda: log.add("connected"),
            on_gap=log.add,
        )
        follower.start()
        log.wait(*["connected"] * (1 + hangs))
        if hangs:
            engine.awake.clear()
        began = time.monotonic()
        follower.close()
        assert time.monotonic() - began < 0.9
    assert log.told == ["connected"] * 2
    began = time.monotonic()
    EventFollower(
        client, on_event=lambda _: None, on_connect=lambda: None, on_gap=lambda _: None
    ).close()
    assert time.monotonic() - began < 0.9


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # load only adds time
def test_closing_while_nobody_answers_takes_a_second_at_most(engine: EngineStandIn):
    """Closing waits about a second for a pending subscription, not for its timeout."""
    engine.awake.clear()
    client = EngineClient(engine.address, timeout_seconds=3)
    follower = EventFollower(
        client, on_event=lambda _: None, on_connect=lambda: None, on_gap=lambda _: None
    )
    follower.start()
    wait_until(lambda: bool(engine.requests))
    began = time.monotonic()
    follower.close()
    assert time.monotonic() - began < 1.9


def test_what_is_remembered_is_bounded(engine: EngineStandIn, follower: EventFollower, log: Log):
    """Of three thousand events, each is reported once, and only the last 512 are remembered."""
    follower.start()
    log.wait("connected")
    for number in range(3000):
        engine.send_event("start", time_nano=NANO + 1000 * number)
    wait_until(lambda: len(log.told) == 3001)
    assert len(follower._seen) == 512
