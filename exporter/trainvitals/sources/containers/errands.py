"""What is asked of an engine, now or after a while, by a few workers.

An engine that is slow so delays neither its own events nor what is due.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from trainvitals.crew import Crew
from trainvitals.sources.containers.agenda import Agenda, report_failure

_WORKERS = 4


class Errands:
    """Has things done that may take their time; any thread may ask for them.

    Args:
        agenda: Calls back after a while.
    """

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._crew = Crew(name="container", limit=_WORKERS)
        self._numbers = itertools.count()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing is to be done any more."""
        return self._is_closed

    def do(self, task: Callable[[], object]) -> None:
        """Have it done as soon as a worker is free."""
        if not self._is_closed:
            self._crew.submit(str(next(self._numbers)), lambda: self._do(task), report_failure)
            self._crew.call(1)

    def do_after(self, seconds: float, task: Callable[[], object]) -> None:
        """Have it done after so many seconds."""
        self._agenda.call_after(seconds, lambda: self.do(task))

    def close(self) -> None:
        """Begin nothing any more; what is under way ends by itself."""
        self._is_closed = True
        self._crew.close()

    def _do(self, task: Callable[[], object]) -> None:
        if not self._is_closed:
            task()
