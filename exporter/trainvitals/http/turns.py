"""The order in which waiting passwords are checked.

Networks take turns, so that many guesses from one network do not delay another network's password.
Three out of every four password checks give priority to networks from which no wrong password has
been received since the server started. After a restart, a scraper therefore waits for only a few
guesses, regardless of how many networks guessed passwords before the restart. The fourth check
gives priority to the other networks, so that a scraper in such a network does not wait for an
endless series of new networks.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

_MOST_FAILED = 4096
_SITE_GROUPS = 3
_CYCLE = 4  # one turn in four is for networks that have sent a wrong password

Check = TypeVar("Check")


class Turns(Generic[Check]):
    """A queue of password checks, in which networks take turns."""

    def __init__(self) -> None:
        self._new: OrderedDict[str, deque[Check]] = OrderedDict()
        self._known: OrderedDict[str, deque[Check]] = OrderedDict()
        self._failed: OrderedDict[str, None] = OrderedDict()
        self._turn = 0

    def add(self, network: str, check: Check) -> None:
        """Add a password check after the other checks from the same network."""
        is_new = network in self._new
        is_known = network in self._known or _find_site(network) in self._failed
        turns = self._known if is_known and not is_new else self._new
        turns.setdefault(network, deque()).append(check)

    def take(self) -> Check | None:
        """Remove and return the next password check; None if no check is waiting."""
        self._sort()
        self._turn = (self._turn + 1) % _CYCLE
        turns = (self._new if self._turn else self._known) or self._new or self._known
        if not turns:
            return None
        network, checks = turns.popitem(last=False)
        check = checks.popleft()
        if checks:
            turns[network] = checks  # the network moves to the end of the queue
        return check

    def note_failure(self, network: str) -> None:
        """Record that a password from a network was wrong."""
        site = _find_site(network)
        self._failed[site] = None
        self._failed.move_to_end(site)
        if len(self._failed) > _MOST_FAILED:
            self._failed.popitem(last=False)

    def _sort(self) -> None:
        """Move networks that sent a wrong password out of the queue of new networks."""
        while self._new:
            network, checks = self._new.popitem(last=False)
            if _find_site(network) not in self._failed:
                self._new[network] = checks
                self._new.move_to_end(network, last=False)
                return
            self._known[network] = checks


def _find_site(network: str) -> str:
    """Return the range of addresses that one client may control: an IPv6 /48 or an IPv4 /24."""
    if ":" in network:
        return ":".join(network.split(":")[:_SITE_GROUPS])
    return network.rpartition(".")[0]
