"""The connections of a server, and the choice of the one to close when another client connects.

A connection that makes progress stays. One without a request is closed first, and likewise one that
does not read its response; a request that is being answered never leaves. Among these, clients of an
address that holds more than its share leave before others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from trainvitals.http.connection import Connection, Phase

_SHARES = 4  # An address that holds more than this part of all places holds more than its share.


class Places:
    """The connections of a server, in the order of their last progress.

    Args:
        most: The number of places.
        stall_seconds: The time without progress after which a client does not read its response.
        unsent_bytes: The size of all responses that wait for their clients.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        most: int,
        *,
        stall_seconds: float,
        unsent_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._stall_seconds = stall_seconds
        self._unsent_bytes = unsent_bytes
        self._clock = clock
        self._progress: dict[Connection, float] = {}
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._progress)

    def __iter__(self) -> Iterator[Connection]:
        """Iterate over the connections, the one whose last progress is the longest ago first."""
        return iter(self._progress)

    @property
    def is_full(self) -> bool:
        """Whether there is no place left."""
        return len(self._progress) >= self._most

    def add(self, connection: Connection) -> None:
        """Assign a place to a connection."""
        self._progress[connection] = self._clock()
        self._held[connection.client.network] += 1

    def remove(self, connection: Connection) -> None:
        """Free the place of a connection."""
        del self._progress[connection]
        self._held[connection.client.network] -= 1
        if not self._held[connection.client.network]:
            del self._held[connection.client.network]

    def note_progress(self, connection: Connection) -> None:
        """Record that a response was sent to a connection, or a part of one."""
        del self._progress[connection]
        self._progress[connection] = self._clock()

    def is_crowding(self, connection: Connection) -> bool:
        """Return whether no place is left and the address of a connection holds more than its share."""
        return self.is_full and self._is_over_share(connection)

    def choose_leaver(self) -> Connection | None:
        """Return the connection that leaves for another one; None if all have requests in flight."""
        leavers = [each for each in self._progress if self._may_leave(each)]
        return next(filter(self._is_over_share, leavers), next(iter(leavers), None))

    def choose_stalled(self) -> Connection | None:
        """Return the connection to close because too much waits for clients that do not read.

        Returns:
            The one that has not read for the longest time; None if no more waits than is allowed,
            or if it is all for one client.
        """
        writing = [each for each in self._progress if each.phase is Phase.WRITING]
        unsent = sum(len(part) for each in writing for part in each.unsent)
        return writing[0] if unsent > self._unsent_bytes and len(writing) > 1 else None

    def _is_over_share(self, connection: Connection) -> bool:
        return self._held[connection.client.network] * _SHARES > self._most

    def _may_leave(self, connection: Connection) -> bool:
        if connection.phase is Phase.ANSWERING:
            return not connection.is_admitted and self._is_over_share(connection)
        if connection.phase is Phase.WRITING:
            return self._clock() - self._progress[connection] >= self._stall_seconds
        return True
