"""The places for a server's connections, and the choice of a connection to close.

A connection that makes progress is not closed. A connection may be closed if it has no request, or
if its client does not read the response. A connection that waits for its password check may be
closed if its address uses more than its share of the places. An admitted request that is being
answered is never interrupted. Connections from an address that uses more than its share are closed
first.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from trainvitals.http.connection import Connection, Phase

_SHARES = 4  # An address's share is a quarter of all places.


class Places:
    """The connections of a server, ordered by the time of their last progress.

    Args:
        most: The maximum number of connections.
        stall_seconds: The time in seconds without progress after which a client is assumed not to
            read its response.
        unsent_bytes: The maximum total size of the responses that wait for clients, in bytes.
        clock: A function that returns the time of a monotonic clock, in seconds.
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
        """Iterate over the connections, from the oldest to the most recent progress."""
        return iter(self._progress)

    @property
    def is_full(self) -> bool:
        """Whether all places for connections are in use."""
        return len(self._progress) >= self._most

    def add(self, connection: Connection) -> None:
        """Assign a place to a new connection."""
        self._progress[connection] = self._clock()
        self._held[connection.client.network] += 1

    def remove(self, connection: Connection) -> None:
        """Free the place of a connection."""
        del self._progress[connection]
        self._held[connection.client.network] -= 1
        if not self._held[connection.client.network]:
            del self._held[connection.client.network]

    def note_progress(self, connection: Connection) -> None:
        """Record that part of a response, or a whole response, was sent to a client."""
        del self._progress[connection]
        self._progress[connection] = self._clock()

    def is_crowding(self, connection: Connection) -> bool:
        """Return whether all places are in use and the client's address exceeds its share."""
        return self.is_full and self._is_over_share(connection)

    def choose_leaver(self) -> Connection | None:
        """Return the connection to close for a new one; None if no connection may be closed."""
        leavers = [each for each in self._progress if self._may_leave(each)]
        return next(filter(self._is_over_share, leavers), next(iter(leavers), None))

    def choose_stalled(self) -> Connection | None:
        """Return the connection to close if clients leave too many response bytes unread.

        Returns:
            The connection with the longest time since the last read; None if the total size is
            within the limit, or if only one connection has unread bytes.
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
