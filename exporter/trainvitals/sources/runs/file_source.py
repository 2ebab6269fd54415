"""A source of runs without the training client, which follows files of one kind."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic

from trainvitals.sources.runs.discovery import FollowedState, FoundFile
from trainvitals.sources.runs.followed_file import Item, ReadBudget
from trainvitals.sources.runs.owners import Users
from trainvitals.sources.runs.scalars import FoundRun

if TYPE_CHECKING:  # most sources need no patterns
    from trainvitals.sources.runs.patterns import Pattern


class FileSource(ABC, Generic[Item]):
    """Reads the numbers in files that are followed while runs write them.

    If there are too many runs, runs are chosen from each user in turn, the latest runs first.

    Args:
        clock: A function that returns the current time, in Unix seconds.
        monotonic: A function that returns the time of the monotonic clock to which deadlines refer,
            in seconds.
        users: The users whose files are read.
        held: A function that returns the files of processes that hold accelerators.

    Attributes:
        most_runs: The maximum number of runs to follow.
        forget_after_seconds: The number of seconds without a write to a run's files after which the
            run is ignored.
        omitted: The number of runs that were left out of the last reading because of the limits.
        complaint: One line with a file or pattern that could not be used, the reason and the
            remedy; None if all files and patterns could be used.
        files: The state of each file that is followed.
        unmatched: The values of the source's flag that match no file.
    """

    most_runs = 16
    forget_after_seconds = 86_400.0

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        users: Users = Users(),  # noqa: B008 - immutable
        held: Callable[[], Iterable[FoundFile]] = tuple,
    ) -> None:
        self.omitted = 0
        self.complaint: str | None = None
        self.files: tuple[FollowedState, ...] = ()
        self.unmatched: tuple[str, ...] = ()
        self._clock = clock
        self._users = users
        self._held = held
        self._followed: dict[str, Item] = {}
        self._budget: ReadBudget[Item] = ReadBudget(monotonic=monotonic)

    def read(self, deadline: float) -> tuple[FoundRun, ...]:
        """Read new data from the files until no data is left or the deadline is reached.

        Args:
            deadline: The monotonic time by which the method returns; the next call reads the
                remaining data.

        Returns:
            The runs from which at least one number was read.
        """
        if self._budget.is_search_due():
            with self._budget.searching():
                self._find()
        for item in self._budget.take(list(self._followed.values()), deadline):
            self._follow(item)
        self.complaint = next(filter(None, self._list_complaints()), None)
        return self._describe()

    def use_patterns(self, patterns: Sequence[Pattern]) -> None:
        """Replace the log line patterns; files in other formats are not affected."""

    def close(self) -> None:
        """Close all files."""
        for item in self._followed.values():
            self._close(item)
        self._followed = {}

    @abstractmethod
    def _find(self) -> None:
        """Search for files, and follow those that were found."""

    @abstractmethod
    def _follow(self, item: Item) -> None:
        """Read new values of a run or a file until the time limit."""

    @abstractmethod
    def _list_complaints(self) -> Sequence[str | None]:
        """Return the complaints about the last reading, the most important complaint first."""

    @abstractmethod
    def _describe(self) -> tuple[FoundRun, ...]:
        """Return the runs with numbers, and set `files`."""

    @abstractmethod
    def _close(self, item: Item) -> None:
        """Close the files of a run."""
