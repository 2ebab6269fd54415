"""Tests for keeping containers' last log lines, with a stand-in that ends, breaks or floods logs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine_stand_in import EngineStandIn, write_frame
from tests.support.waiting import wait_until
from trainvitals.sources.containers.engine import EngineClient
from trainvitals.sources.containers.loglines import LogRing

TRAIN = "a" * 64
OTHER = "b" * 64


@pytest.fixture
def ring(engine: EngineStandIn) -> Iterator[LogRing]:
    """A ring for two containers and three lines each, with a short retry time."""
    client = EngineClient(engine.address, timeout_seconds=1.0)
    small = LogRing(client, most_containers=2, most_lines=3, retry_seconds=0.05)
    small.start()
    yield small
    small.close()


def path_of(container: str) -> str:
    """Return the path of the request for a container's log."""
    return f"/containers/{container}/logs"


def write(engine: EngineStandIn, text: bytes, container: str = TRAIN) -> None:
    """Write text to a container's log as soon as the log is followed."""
    engine.await_streams(path_of(container))
    engine.send(path_of(container), write_frame(text))


def test_the_last_lines_are_kept_after_the_end(engine: EngineStandIn, ring: LogRing):
    """The last lines of both streams, and an unfinished line, are kept until they are dropped."""
    ring.watch(TRAIN)
    write(engine, b"step 1\nstep 2\nstep 3\n")
    engine.send(path_of(TRAIN), write_frame(b"HF_TOKEN=hf_0123456789abcdefABCDEF\n", channel=2))
    write(engine, b"Kil")
    engine.end(path_of(TRAIN))
    assert ring.await_end(TRAIN, 10)
    assert ring.lines(TRAIN) == ("step 2", "step 3", "HF_TOKEN=***", "Kil")
    time.sleep(0.2)
    assert ring.lines(TRAIN) is not None
    ring.forget(TRAIN)
    assert ring.lines(TRAIN) is None
    query = engine.requests[0].query
    assert query == {
        "stdout": "1",
        "stderr": "1",
        "timestamps": "0",
        "tail": "3",
        "follow": "1",
    }
    assert (engine.methods, len(engine.requests)) == ({"GET"}, 1)


def test_a_quiet_container_has_no_lines_yet(engine: EngineStandIn, ring: LogRing):
    """A watched container without output has no lines; an unwatched container has None."""
    ring.watch(TRAIN)
    wait_until(lambda: ring.lines(TRAIN) == ())
    assert ring.lines(OTHER) is None
    assert not ring.await_end(TRAIN, 0.01)
    assert not ring.await_end(OTHER, 0.01)


def test_a_container_that_says_nothing_ends(engine: EngineStandIn, ring: LogRing):
    """The end of a log without any line is noticed."""
    ring.watch(TRAIN)
    engine.await_streams(path_of(TRAIN))
    engine.end(path_of(TRAIN))
    assert ring.await_end(TRAIN, 10)
    assert ring.lines(TRAIN) == ()


def test_one_that_is_watched_too_early_is_watched_again(engine: EngineStandIn, ring: LogRing):
    """The log of a container that has not started yet ends at once and can be followed again."""
    ring.watch(TRAIN)
    engine.await_streams(path_of(TRAIN))
    engine.end(path_of(TRAIN))
    assert ring.await_end(TRAIN, 10)
    ring.watch(TRAIN)
    assert not ring.await_end(TRAIN, 0.01)
    write(engine, b"step 1\n")
    wait_until(lambda: ring.lines(TRAIN) == ("step 1",))


def test_a_terminal_s_log_is_read_as_it_is(engine: EngineStandIn, ring: LogRing):
    """The log of a container with a terminal is recognized by its content."""
    ring.watch(TRAIN)
    engine.await_streams(path_of(TRAIN))
    engine.send(path_of(TRAIN), b"one\r\ntwo\r\n")
    wait_until(lambda: ring.lines(TRAIN) == ("one", "two"))


@pytest.mark.parametrize("status", [404, 409, 501])
def test_a_log_that_cannot_be_read_has_no_lines(engine: EngineStandIn, ring: LogRing, status: int):
    """A log that the engine refuses to return has no lines and is not requested again."""
    engine.refuse(path_of(TRAIN), status, "no")
    ring.watch(TRAIN)
    assert ring.await_end(TRAIN, 10)
    assert ring.lines(TRAIN) is None
    time.sleep(0.2)
    assert len(engine.requests) == 1


def test_lines_stay_while_the_engine_is_away(engine: EngineStandIn, ring: LogRing):
    """After an interruption, the log is read again from the same time without repeated lines."""
    ring.watch(TRAIN, since=5.5)
    write(engine, b"step 1\nstep 2\n")
    wait_until(lambda: ring.lines(TRAIN) == ("step 1", "step 2"))
    engine.stop()
    time.sleep(0.2)
    assert ring.lines(TRAIN) == ("step 1", "step 2")
    engine.start()
    engine.await_streams(path_of(TRAIN))
    assert ring.lines(TRAIN) == ("step 1", "step 2")
    write(engine, b"step 2\nstep 3\n")
    wait_until(lambda: ring.lines(TRAIN) == ("step 2", "step 3"))
    assert {entry.query["since"] for entry in engine.requests} == {"5.300000000"}


def test_lines_stay_when_the_log_is_gone_after_a_break(engine: EngineStandIn, ring: LogRing):
    """The lines that were read before an interruption are kept if the log no longer exists."""
    ring.watch(TRAIN)
    write(engine, b"step 1\n")
    wait_until(lambda: ring.lines(TRAIN) == ("step 1",))
    engine.refuse(path_of(TRAIN), 404, "gone")
    engine.cut(path_of(TRAIN))
    assert ring.await_end(TRAIN, 10)
    assert ring.lines(TRAIN) == ("step 1",)


def test_a_new_start_begins_anew(engine: EngineStandIn, ring: LogRing):
    """A container is followed again only if it has been restarted.

    The log is read from 0.2 s before the start, as engines report the start a little late.
    """
    ring.watch(TRAIN, since=1.0)
    write(engine, b"first run\n")
    wait_until(lambda: ring.lines(TRAIN) == ("first run",))
    ring.watch(TRAIN, since=1.0)
    time.sleep(0.1)
    assert ring.lines(TRAIN) == ("first run",)
    ring.watch(TRAIN, since=2.0)
    wait_until(lambda: ring.lines(TRAIN) == () and len(engine.requests) == 2)
    assert [entry.query["since"] for entry in engine.requests] == ["0.800000000", "1.800000000"]
    engine.cut(path_of(TRAIN))


def test_one_more_takes_the_place_of_one_that_ended(engine: EngineStandIn, ring: LogRing):
    """An additional container replaces one that has ended, otherwise the oldest one.

    The stream of the replaced container is closed.
    """
    ring.watch("1" * 64)
    ring.watch("2" * 64)
    engine.await_streams(path_of("2" * 64))
    engine.end(path_of("2" * 64))
    assert ring.await_end("2" * 64, 10)
    ring.watch("3" * 64)
    wait_until(lambda: ring.lines("3" * 64) == ())
    assert ring.lines("1" * 64) == ()
    assert ring.lines("2" * 64) is None
    ring.watch("4" * 64)
    wait_until(lambda: ring.lines("4" * 64) == ())
    assert ring.lines("1" * 64) is None
    assert len(ring._followed) == 2
    wait_until(lambda: len(ring._selector.get_map()) == 3)  # the wake-up socket and two streams


def test_a_flood_is_let_go_and_looked_up_instead(engine: EngineStandIn):
    """If a container writes too fast, its last lines are polled instead of followed."""
    client = EngineClient(engine.address)
    ring = LogRing(client, most_lines=2, flood_seconds=0.5, poll_seconds=0.1)
    ring.start()
    engine.put(path_of(TRAIN), write_frame(b"line 999999\n"))
    ring.watch(TRAIN)
    engine.await_streams(path_of(TRAIN))
    for _ in range(20):
        engine.send(path_of(TRAIN), write_frame(b"x" * 999 + b"\n") * 64)
    assert ring.lines(TRAIN) != ("line 999999",)
    wait_until(lambda: ring.lines(TRAIN) == ("line 999999",))
    engine.put(path_of(TRAIN), write_frame(b"line 2000000\n"))
    wait_until(lambda: ring.lines(TRAIN) == ("line 2000000",))
    engine.put(path_of(TRAIN), {"message": "gone"}, status=404)
    assert ring.await_end(TRAIN, 10)
    assert ring.lines(TRAIN) == ("line 2000000",)
    ring.close()


def test_a_burst_is_no_flood(engine: EngineStandIn):
    """A megabyte that is written at once is followed to its end."""
    ring = LogRing(EngineClient(engine.address), most_lines=2, flood_seconds=20)
    ring.start()
    ring.watch(TRAIN)
    engine.await_streams(path_of(TRAIN))
    for _ in range(16):
        engine.send(path_of(TRAIN), write_frame(b"x" * 999 + b"\n") * 64)
    write(engine, b"done\n")
    engine.end(path_of(TRAIN))
    assert ring.await_end(TRAIN, 30)
    assert ring.lines(TRAIN) == ("x" * 999, "done")
    ring.close()


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # load only adds time
def test_an_engine_that_hangs_holds_nobody_up(engine: EngineStandIn, ring: LogRing):
    """While the engine hangs, `watch`, `lines` and `close` return at once."""
    ring.watch(TRAIN)
    write(engine, b"step 1\n")
    wait_until(lambda: ring.lines(TRAIN) == ("step 1",))
    with engine.hanging():
        began = time.monotonic()
        ring.watch(OTHER)
        assert ring.lines(TRAIN) == ("step 1",)
        ring.close()
        assert time.monotonic() - began < 0.9


def test_a_ring_that_was_never_started_closes(engine: EngineStandIn):
    """A ring that was never started can be closed twice and sends no request."""
    ring = LogRing(EngineClient(engine.address))
    ring.watch(TRAIN)
    ring.close()
    ring.close()
    ring.watch(OTHER)
    assert engine.requests == []


def test_hundreds_of_containers_leave_nothing(engine: EngineStandIn, ring: LogRing):
    """Containers that are forgotten leave no file descriptor, thread or entry."""
    ring.watch(TRAIN)
    engine.await_streams(path_of(TRAIN))
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    threads = sum(thread.name == "container-logs" for thread in threading.enumerate())
    for number in range(200):
        container = f"{number:064x}"
        ring.watch(container)
        if number % 10 == 0:
            engine.await_streams(path_of(container))
            engine.send(path_of(container), b"broken \x01 frames")
            engine.end(path_of(container))
        ring.forget(container)
    wait_until(lambda: len(ring._selector.get_map()) == 2)
    wait_until(lambda: len(engine.streams) == 1)
    wait_until(lambda: sum(1 for _ in Path("/proc/self/fd").iterdir()) <= before)
    assert set(ring._followed) == {TRAIN}
    assert sum(thread.name == "container-logs" for thread in threading.enumerate()) == threads
