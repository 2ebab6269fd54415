"""Tests for the password check: its results, its order, and its log messages."""

import logging
from base64 import b64encode
from queue import SimpleQueue

import pytest

from tests.unit.http.test_web_config import HASH
from trainvitals.http.authentication import Passwords, Verdict, parse_credentials
from trainvitals.http.connection import Client, find_network
from trainvitals.http.failed_logins import FailedLogins


@pytest.mark.parametrize(
    ("header", "credentials"),
    [
        ("Basic YW5uOmxldCBtZSBpbg==", ("ann", b"let me in")),
        ("basic YW5uOmE6Yg==", ("ann", b"a:b")),
        ("Basic YW5uOg==", ("ann", b"")),
        ("Basic YW5u", None),
        ("Basic /w==", None),
        ("Basic !", None),
        ("Basic", None),
        ("Bearer YW5uOmxldCBtZSBpbg==", None),
        ("Basic \xe9", None),
        ("", None),
        (None, None),
    ],
)
def test_credentials(header, credentials):
    """A valid header returns a name and a password; an invalid header returns None."""
    assert parse_credentials(header) == credentials


ANN = "Basic YW5uOmxldCBtZSBpbg=="  # ann:let me in
ANN_WRONG = "Basic YW5uOndyb25n"  # ann:wrong
EVE = "Basic ZXZlOmxldCBtZSBpbg=="  # eve:let me in
USERS = {"ann": HASH}


class Calls:
    """An event loop that a test advances; it records the slow password comparisons."""

    def __init__(self):
        self.compared = []
        self.verdicts = []
        self._calls = SimpleQueue()
        self.passwords = Passwords(self._calls.put, compare=self.compare)

    def compare(self, password, hashed):
        """Compare a password with the correct one and record the call."""
        self.compared.append((password, hashed))
        return password == b"let me in"

    def check(self, header, users=USERS, client=None):
        """Check a header and record the verdict."""
        self.passwords.check(header, users, self.verdicts.append, client or Client())

    def guess(self, number, client):
        """Check a wrong password of ann from a connection."""
        header = b64encode(b"ann:%d" % number).decode()
        self.passwords.check(f"Basic {header}", USERS, lambda _: None, client)

    def turn(self, times=1):
        """Run the next pending calls of the loop."""
        for _ in range(times):
            self._calls.get(timeout=30)()


def test_password_remembered():
    """A right and a wrong password are each compared once, then remembered."""
    calls = Calls()
    for header in (ANN, ANN_WRONG):
        calls.check(header)
        calls.turn()
        calls.check(header)
    assert calls.verdicts == [Verdict.ADMITTED] * 2 + [Verdict.DENIED] * 2
    assert len(calls.compared) == 2


def test_same_password_at_once():
    """Requests with the same password that come at once share one comparison."""
    calls = Calls()
    for _ in range(200):
        calls.check(ANN)
    calls.turn()
    assert calls.verdicts == [Verdict.ADMITTED] * 200
    assert len(calls.compared) == 1


def test_unknown_user_costs_the_same():
    """An unknown user is compared with a known user's hash, and always denied."""
    calls = Calls()
    calls.check(EVE)
    calls.turn()
    assert calls.verdicts == [Verdict.DENIED]
    assert calls.compared == [(b"let me in", HASH.encode())]


def test_new_hash_forgets():
    """A remembered password is checked again if the hash changes or the user is removed."""
    calls = Calls()
    calls.check(ANN)
    calls.turn()
    calls.check(ANN, {"ann": HASH[:-1] + "u"})
    calls.check(ANN, {"bob": HASH})
    calls.turn(2)
    assert calls.verdicts == [Verdict.ADMITTED, Verdict.ADMITTED, Verdict.DENIED]
    assert len(calls.compared) == 3


def test_flood_of_guesses():
    """Guesses beyond the backlog are rejected at once and do not evict a remembered password."""
    calls = Calls()
    calls.check(ANN)
    calls.turn()
    for guess in range(200):
        header = b64encode(b"ann:%d" % guess).decode()
        calls.check(f"Basic {header}")
    assert calls.verdicts.count(Verdict.BUSY) == 184
    calls.turn(16)
    assert calls.verdicts.count(Verdict.DENIED) == 16
    for guess in range(1000, 1200):
        header = b64encode(b"ann:%d" % guess).decode()
        calls.check(f"Basic {header}")
        calls.turn()
    calls.check(ANN)
    assert calls.verdicts[-1] is Verdict.ADMITTED


def test_real_bcrypt():
    """A real bcrypt hash admits only its own password, also among long or binary passwords."""
    queue = SimpleQueue()
    passwords, verdicts = Passwords(queue.put), []
    zero_byte, long = "Basic YW5uOgA=", "Basic " + "YW5u" + "OmFh" + "YWFh" * 100
    for header in (ANN, ANN_WRONG, EVE, zero_byte, long):
        passwords.check(header, USERS, verdicts.append)
        queue.get(timeout=30)()
    assert verdicts == [Verdict.ADMITTED] + [Verdict.DENIED] * 4


def connection(number, host="10.0.0.9"):
    """Return a connection of an address."""
    return Client(host, number, host)


@pytest.mark.parametrize("count", [1, 16, 200])
def test_another_address_does_not_wait_for_guesses(count):
    """At most two waiting guesses of one address are checked before another address's password."""
    calls = Calls()
    for number in range(count):
        calls.guess(number, connection(number))
    calls.check(ANN, client=connection(1, "10.0.0.1"))
    calls.turn(min(count, 2) + 1)
    assert calls.verdicts == [Verdict.ADMITTED]


def test_the_same_address_waits_for_those_before_it():
    """A scraper at the address of 16 guessers is checked after one guess of each connection."""
    calls = Calls()
    for number in range(16):
        calls.guess(number, connection(number))
    calls.check(ANN, client=connection(99))
    for number in range(16):
        calls.turn()
        calls.guess(100 + number, connection(number))
    assert calls.verdicts == []
    calls.turn()
    assert calls.verdicts == [Verdict.ADMITTED]


def test_addresses_take_turns():
    """Three addresses with many guesses each are checked in turn."""
    calls = Calls()
    hosts = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    for host in hosts:
        for number in range(4):
            password = f"{host} {number}".encode()
            header = f"Basic {b64encode(b'ann:' + password).decode()}"
            calls.check(header, client=connection(number, host))
    calls.turn(12)
    # The first check began before the other guesses arrived.
    order = [password.decode().split()[0] for password, _ in calls.compared[1:]]
    assert order[:6] == [*hosts, *hosts]


GUESSERS = 48
NETWORKS = {
    "IPv4": [f"198.51.{number}.7" for number in range(GUESSERS)],
    "IPv4-mapped": [f"::ffff:198.51.{number}.7" for number in range(GUESSERS)],
    "addresses of one IPv4 network": [f"198.51.100.{number}" for number in range(GUESSERS)],
    "networks of one IPv6 site": [f"2001:db8:1:{number:x}::7" for number in range(GUESSERS)],
    "IPv6 sites": [f"2001:db8:{number:x}:1::7" for number in range(GUESSERS)],
}


@pytest.mark.parametrize("guessers", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("host", ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8:ffff::1"])
def test_guessers_from_many_addresses_delay_a_scraper_by_few_checks(guessers, host):
    """If all guessers have guessed before, a scraper waits for at most two of their checks."""
    calls = Calls()
    guess_all(calls, [Client(each, 1, find_network(each)) for each in guessers])
    calls.check(ANN, client=Client(host, 1, find_network(host)))
    calls.turn(3)
    assert calls.verdicts == [Verdict.ADMITTED]


def guess_all(calls, clients):
    """Guess three times over each connection, and run one check for each repeated guess."""
    for number, client in enumerate([*clients, *clients, *clients]):
        if number >= len(clients):
            calls.turn()
        calls.guess(number, client)


def test_a_scraper_behind_the_first_guesses_of_many_networks():
    """A scraper waits for at most 64 checks if 48 new networks guess before and after it.

    A check with a bcrypt cost of 10 takes less than 0.1 s, and a scrape may take 10 s.
    """
    calls = Calls()
    hosts = [f"10.1.{number}.1" for number in range(GUESSERS)]
    for number, host in enumerate(hosts):
        calls.guess(number, connection(1, host))
    calls.check(ANN, client=connection(1, "10.0.0.1"))
    turns = 0
    while not calls.verdicts:
        calls.turn()
        calls.guess(1000 + turns, connection(1, hosts[turns % GUESSERS]))
        turns += 1
    assert turns <= GUESSERS * 4 / 3 + 1


def test_networks_that_never_guessed_do_not_keep_others_waiting():
    """New networks with guesses delay a scraper that has failed before by at most four checks."""
    calls = Calls()
    scraper = connection(1, "10.0.0.1")
    calls.check(ANN_WRONG, client=scraper)
    calls.turn()
    for number in range(100):
        calls.guess(number, connection(1, f"10.1.{number}.1"))
    calls.check(ANN, client=scraper)
    calls.turn(5)
    assert calls.verdicts == [Verdict.DENIED, Verdict.ADMITTED]


def test_a_scraper_that_hung_up_is_checked_soon():
    """A scraper that disconnects before its check and reconnects is checked within three checks."""
    calls = Calls()
    calls.check(ANN_WRONG, client=connection(9, "10.9.9.9"))
    calls.check(ANN, client=connection(1, "10.0.0.1"))
    calls.passwords.forget(connection(1, "10.0.0.1"))
    guess_all(calls, [connection(1, f"10.1.{number}.1") for number in range(GUESSERS)])
    calls.check(ANN, client=connection(2, "10.0.0.1"))
    calls.turn(3)
    assert calls.verdicts[-1] is Verdict.ADMITTED


def test_closed_connections_cost_no_check():
    """Guesses of closed connections are dropped, except a guess whose check has already begun."""
    calls = Calls()
    for number in range(50):
        calls.guess(number, connection(number))
        calls.passwords.forget(connection(number))
    calls.check(ANN, client=connection(99))
    calls.turn(2)
    assert calls.verdicts == [Verdict.ADMITTED]
    assert len(calls.compared) == 2


def test_forgotten_password_is_checked_for_another():
    """A password that two connections wait for is still checked if one of them closes."""
    calls = Calls()
    calls.guess(0, connection(0))
    for number in (1, 2):
        calls.check(ANN, client=connection(number))
    calls.passwords.forget(connection(1))
    calls.turn(2)
    assert calls.verdicts == [Verdict.ADMITTED]


class Window:
    """A logging interval of one minute that a test ends."""

    def __init__(self):
        self._action = None
        self.failed = FailedLogins(self._set)

    def _set(self, _seconds, action):
        self._action = action

    def pass_(self):
        """End the minute; return whether the next failed login would be logged at once."""
        action, self._action = self._action, None
        if action:
            action()
        return self._action is None


def test_first_failed_login_is_logged_at_once(caplog):
    """The log line has the address and the user, but not the name of an unknown user."""
    for user, who in (("ann", "ann"), (None, "an unknown user")):
        caplog.clear()
        Window().failed.note("10.0.0.9", user)
        (record,) = caplog.records
        assert record.getMessage() == f"failed login from 10.0.0.9 as {who}"
        assert record.levelno == logging.WARNING


def test_flood_of_failed_logins_is_a_line_a_minute(caplog):
    """10,000 failed logins of 100 addresses within a minute are counted in two log lines."""
    window = Window()
    for number in range(10_000):
        window.failed.note(f"10.0.0.{number % 100}", "ann")
    assert not window.pass_()
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "failed login from 10.0.0.0 as ann"
    assert second.startswith("9999 more failed logins within 1m: 10.0.0.1 as ann (100), ")
    assert second.endswith(", 10.0.0.8 as ann (100), others (9199)")
    assert window.pass_()
    assert len(caplog.records) == 2
