"""Reader threads and reader processes open, answer, fail and end in the same way."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from tests.support.waiting import wait_until
from tests.unit.sources.accelerators import scripted
from tests.unit.sources.accelerators.scripted import ScriptedDevice, ScriptedSession
from trainvitals.sources.accelerators.child import run_reader
from trainvitals.sources.accelerators.process import ReaderProcess, make_pair
from trainvitals.sources.accelerators.reader import UNEXPECTED_END, Answer, Opener, Reader
from trainvitals.sources.accelerators.thread import ReaderThread

Start = Callable[..., Reader]
BOTH = pytest.mark.parametrize("kind", [ReaderThread, ReaderProcess])


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a reader; all readers are ended after the test."""
    readers = []

    def start(kind: type[Reader], opener: str) -> Reader:
        reader = kind(Opener(scripted.__name__, opener))
        readers.append(reader)
        return reader

    yield start
    for reader in readers:
        reader.end()


def opened(reader: Reader) -> Reader:
    """Wait until a reader has opened the driver or failed to, and return the reader."""
    reader.wait_until_opened(time.monotonic() + 10)
    return reader


def answer(reader: Reader, seconds: float = 10.0) -> Answer | None:
    """Request a reading and return the answer."""
    reader.ask(seconds, {"uuid-0": 41})
    return reader.take_answer(time.monotonic() + seconds)


@BOTH
def test_a_reader_opens_answers_and_reports(start, kind):
    """A reader lists its devices, reads them and reports their Xid errors."""
    reader = opened(start(kind, "open_two"))
    assert reader.opened
    assert (reader.gone, reader.absent, reader.unreadable) == (None, None, [])
    assert [(who.index, who.uuid) for who in reader.identities] == [(0, "uuid-0"), (1, "uuid-1")]
    for _ in range(2):
        found = answer(reader)
        assert [row[0] for row in found.rows] == ["uuid-0", "uuid-1"]
        assert found.rows[0][2] == (42, 0.1, 0.0)
        assert (found.states, found.is_current, found.troubles) == ([], True, [])
    xids = wait_until(reader.take_xids)
    assert [(xid.uuid, xid.code) for xid in xids] == [("uuid-1", 31)]
    assert xids[0].at == pytest.approx(time.time(), abs=60)
    assert reader.take_xids() == []


@BOTH
def test_a_missing_driver_is_absent(start, kind):
    """A missing driver is reported as absent, not as an error."""
    reader = opened(start(kind, "open_absent"))
    assert (reader.opened, reader.absent, reader.gone) == (False, "no driver in the script", None)


@BOTH
def test_a_driver_that_refuses_is_gone(start, kind):
    """A driver that refuses to open is reported with the driver's reason."""
    reader = opened(start(kind, "open_gone"))
    assert (reader.opened, reader.absent, reader.gone) == (False, None, "refused by the script")


@BOTH
def test_a_driver_that_goes_when_it_is_read_is_gone(start, kind):
    """If the driver goes away during a reading, there is a reason instead of an answer."""
    reader = opened(start(kind, "open_and_go"))
    assert answer(reader) is None
    assert reader.gone == "gone by the script"


@BOTH
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_opener_with_a_bug_is_an_unexpected_end(start, kind):
    """An exception in the opener ends the reader unexpectedly."""
    reader = opened(start(kind, "open_wrongly"))
    wait_until(lambda: reader.gone is not None)
    assert not reader.opened
    assert reader.gone == UNEXPECTED_END


@pytest.mark.parametrize("opener", ["open_and_die", "open_and_die_when_read"])
def test_a_process_that_dies_is_an_unexpected_end(start, opener):
    """A process that exits while opening or reading the driver counts as an unexpected end."""
    reader = opened(start(ReaderProcess, opener))
    assert reader.opened == (opener == "open_and_die_when_read")
    assert answer(reader, 5.0) is None
    assert reader.gone == UNEXPECTED_END
    wait_until(reader.reap)


@BOTH
def test_an_opener_that_hangs_is_waited_for_no_longer_than_asked(start, kind):
    """The wait for a hanging opener ends at the deadline, and the reader is not open."""
    reader = start(kind, "open_never")
    begin = time.monotonic()
    reader.wait_until_opened(begin + 0.2)
    assert 0.15 < time.monotonic() - begin < 30
    assert (reader.opened, reader.gone, reader.absent) == (False, None, None)


def test_what_a_process_reported_before_it_was_killed_is_read(start):
    """Xid errors that a process reported before it was killed are read."""
    reader = opened(start(ReaderProcess, "open_two"))
    wait_until(lambda: select.select([reader._connection], [], [], 0)[0])
    os.kill(reader.pid, 19)  # stopped, so that the request stays unread
    reader.ask(1.0, {})
    os.kill(reader.pid, 9)
    assert reader.take_answer(time.monotonic() + 30) is None
    assert reader.gone == UNEXPECTED_END
    assert [xid.code for xid in reader.take_xids()] == [31]


def test_an_answer_that_comes_late_is_not_taken_for_a_later_one(start):
    """A late answer is not used as the answer to the next request."""
    reader = opened(start(ReaderProcess, "open_two"))
    os.kill(reader.pid, 19)
    assert answer(reader, 0.1) is None
    assert reader.is_busy
    os.kill(reader.pid, 18)
    assert reader.take_answer(time.monotonic() + 30) is not None
    assert not reader.is_busy
    reader.ask(5.0, {"uuid-0": 99})
    assert reader.take_answer(time.monotonic() + 30).rows[0][2] == (100, 0.1, 0.0)


def test_hanging_up_ends_a_wait_for_a_process_at_once(start):
    """`hang_up` ends a pending wait at once, so that a signal is not delayed by a reading."""
    reader = opened(start(ReaderProcess, "open_two"))
    os.kill(reader.pid, 19)
    begin = time.monotonic()
    Thread(target=lambda: (time.sleep(0.1), reader.hang_up())).start()
    assert answer(reader, 60.0) is None
    assert time.monotonic() - begin < 30
    assert reader.gone == UNEXPECTED_END


def test_a_thread_that_is_asked_to_end_closes_the_driver(monkeypatch):
    """A reader thread closes the driver when it is ended, and is reaped afterwards."""
    session = ScriptedSession(ScriptedDevice(0))
    monkeypatch.setattr(scripted, "open_noted", lambda: session, raising=False)
    reader = opened(ReaderThread(Opener(scripted.__name__, "open_noted")))
    assert not reader.reap()
    assert not session.is_closed
    reader.end()
    wait_until(reader.reap)
    assert session.is_closed


def test_the_childs_end_of_the_line_answers_until_it_is_closed():
    """The child's loop answers requests over a socket until the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = Thread(target=run_reader, args=(scripted.open_two, theirs))
    child.start()
    reader = ReaderProcess.__new__(ReaderProcess)
    Reader.__init__(reader)
    reader._opened, reader._answer, reader._xids = False, None, []
    reader._number = reader._awaited = 0
    reader._ended, reader._connection = False, ours
    assert opened(reader).opened
    assert [row[0] for row in answer(reader).rows] == ["uuid-0", "uuid-1"]
    ours.close()
    child.join(30)
    assert not child.is_alive()
    theirs.close()


@pytest.mark.parametrize("opener", [scripted.open_absent, scripted.open_gone])
def test_the_childs_loop_ends_when_there_is_nothing_to_read(opener):
    """The child's loop sends the reason and returns if the driver cannot be opened."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        run_reader(opener, theirs)
        assert b"the script" in ours.recv(1000)


def test_an_answer_of_many_devices_fits_into_a_packet():
    """A packet can hold 330 kB, the size of the answer for 64 devices with 256 holders each."""
    parent, child = make_pair()
    with parent, child:
        child.settimeout(0)
        assert child.send(bytes(330_000)) == 330_000
        assert len(parent.recv(1 << 20)) == 330_000
