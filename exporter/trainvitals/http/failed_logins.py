"""A log of failed logins with a limited number of lines."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from trainvitals.units import format_duration

_LOG = logging.getLogger(__name__)
_WINDOW_SECONDS = 60.0
_MOST_NAMED = 8
_UNKNOWN = "an unknown user"


class FailedLogins:
    """A log of failed logins, with one line for all failed logins within a minute.

    The first failed login is logged immediately. The failed logins of the next minute are logged
    together at the end of that minute.

    The name of an unknown user is not logged, because a user may have entered the password instead
    of the name.

    Args:
        call_later: A function that schedules a call in the server's loop after a number of seconds.
    """

    def __init__(self, call_later: Callable[[float, Callable[[], None]], None]) -> None:
        self._call_later = call_later
        self._is_waiting = False
        self._counts: Counter[str] = Counter()
        self._others = 0

    def note(self, host: str, user: str | None) -> None:
        """Record a failed login.

        Args:
            host: The IP address of the client.
            user: The name of a configured user; None for an unknown user.
        """
        who = f"{host} as {user or _UNKNOWN}"
        if not self._is_waiting:
            _LOG.warning("failed login from %s", who)
            self._wait()
        elif who in self._counts or len(self._counts) < _MOST_NAMED:
            self._counts[who] += 1
        else:
            self._others += 1

    def _wait(self) -> None:
        self._is_waiting = True
        self._call_later(_WINDOW_SECONDS, self._report)

    def _report(self) -> None:
        self._is_waiting = False
        if not self._counts:
            return
        named = [f"{who} ({count})" for who, count in self._counts.most_common()]
        named += [f"others ({self._others})"] if self._others else []
        total = self._counts.total() + self._others
        _LOG.warning(
            "%d more failed logins within %s: %s",
            total,
            format_duration(_WINDOW_SECONDS),
            ", ".join(named),
        )
        self._counts.clear()
        self._others = 0
        self._wait()
