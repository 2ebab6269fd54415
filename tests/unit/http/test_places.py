"""Tests for choosing the connection to close if a new connection needs a place."""

import itertools

import pytest

from trainvitals.http.connection import Client, Connection, Phase, find_network
from trainvitals.http.http1 import KeptHeads, RequestReader
from trainvitals.http.places import Places


class Room:
    """A set of eight places with a clock that a test sets."""

    def __init__(self):
        self.now = 0.0
        self.places = Places(8, stall_seconds=0.5, unsent_bytes=1000, clock=lambda: self.now)
        self._ports = itertools.count(1)

    def add(self, phase, host="10.0.0.1", unsent=0):
        """Add a connection in a phase and return it."""
        connection = Connection(
            None,
            descriptor=0,
            client=Client(host, next(self._ports), find_network(host)),
            is_loopback=False,
            reader=RequestReader(KeptHeads(), head_bytes=1, target_bytes=1),
        )
        connection.phase = phase
        connection.unsent = [memoryview(bytes(unsent))]
        self.places.add(connection)
        return connection


@pytest.fixture
def room():
    """Return eight places without a connection."""
    return Room()


def test_longest_without_progress_leaves(room):
    """The connection with the oldest progress is closed first."""
    first, second = room.add(Phase.READING), room.add(Phase.READING)
    assert room.places.choose_leaver() is first
    room.places.note_progress(first)
    assert room.places.choose_leaver() is second


@pytest.mark.parametrize("phase", [Phase.READING, Phase.LINGERING])
def test_request_in_flight_never_leaves(room, phase):
    """A connection whose request is being answered is never closed for another."""
    for _ in range(7):
        room.add(Phase.ANSWERING)
    other = room.add(phase, host="10.0.0.2")
    room.now = 1000.0
    assert room.places.choose_leaver() is other
    room.places.remove(other)
    assert room.places.choose_leaver() is None


def test_stalled_reader_leaves(room):
    """A client that has not read for 0.5 s loses its place; a client that reads keeps its place."""
    stalled, reading = room.add(Phase.WRITING), room.add(Phase.WRITING)
    assert room.places.choose_leaver() is None
    room.now = 0.4
    room.places.note_progress(reading)
    room.now = 0.6
    assert room.places.choose_leaver() is stalled
    room.places.remove(stalled)
    assert room.places.choose_leaver() is None


def test_greedy_address_leaves_first(room):
    """An address with more than a quarter of the places loses one before other addresses do."""
    modest = room.add(Phase.READING, host="10.0.0.2")
    greedy = [room.add(Phase.READING) for _ in range(3)]
    assert room.places.choose_leaver() is greedy[0]
    room.places.remove(greedy[2])
    assert room.places.choose_leaver() is modest


def test_password_that_waits_gives_way_if_its_address_is_greedy(room):
    """A waiting password check loses its place only if its address holds too many places."""
    guesses = [room.add(Phase.ANSWERING, host="10.0.0.9") for _ in range(3)]
    alone = room.add(Phase.ANSWERING)
    for connection in (*guesses, alone):
        connection.is_admitted = False
    assert room.places.choose_leaver() is guesses[0]
    for connection in guesses:
        room.places.remove(connection)
    assert room.places.choose_leaver() is None


def test_crowding(room):
    """If all places are taken, an address with more than its share counts as crowding."""
    greedy = [room.add(Phase.ANSWERING) for _ in range(7)]
    assert not room.places.is_crowding(greedy[0])
    modest = room.add(Phase.ANSWERING, host="10.0.0.2")
    assert room.places.is_crowding(greedy[0])
    assert not room.places.is_crowding(modest)


def test_unsent_responses_are_bounded(room):
    """Above the limit of unsent bytes, the client that has not read for the longest is chosen."""
    first = room.add(Phase.WRITING, unsent=5000)
    assert room.places.choose_stalled() is None  # a single large response may be slow
    room.add(Phase.WRITING, unsent=1)
    assert room.places.choose_stalled() is first
    room.places.remove(first)
    room.add(Phase.WRITING, unsent=999)
    assert room.places.choose_stalled() is None


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("::10.0.0.7", "0000:0000:0000:0000"),
        ("2001:db8:1:2:3:4:5:6", "2001:0db8:0001:0002"),
        ("2001:db8:1:2::9", "2001:0db8:0001:0002"),
        ("fe80::1%eth0", "fe80:0000:0000:0000"),
        ("::1", "127.0.0.0/8"),
        ("127.0.1.9", "127.0.0.0/8"),
    ],
)
def test_network(host, network):
    """All addresses of one IPv6 network count as one client."""
    assert find_network(host) == network
