"""One collector as the runner sees it: how it fared, how long to wait for it, when to ask again.

How long it is waited for is learned: `PATIENCE_FACTOR` times the longest of its last readings, at
least `SHORTEST_PATIENCE_SECONDS`. A reading that took longer than its scrape had teaches nothing:
waiting would not have helped.

A collector that failed `_FAILURES_BEFORE_PAUSE` times in a row is asked less often, at most
`LONGEST_PAUSE_SECONDS` apart, and its reason says so. A reason is a label, so it is the same
words every time; what differs stands in the log.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from trainvitals.collectors.collector import Collector
from trainvitals.crew import Outcome
from trainvitals.errors import SourceError
from trainvitals.families import Block
from trainvitals.reports import Report

PATIENCE_FACTOR = 25.0
SHORTEST_PATIENCE_SECONDS = 0.4
LONGEST_PAUSE_SECONDS = 8.0
_SHORTEST_PAUSE_SECONDS = 0.5
_FAILURES_BEFORE_PAUSE = 3
_REMEMBERED_DURATIONS = 8
_KEPT_SHAPES = 64
_LATE = "did not answer in time"
_LEFT_ALONE = "did not answer in time and is left alone until it does"
_ASKED_LESS_OFTEN = "; asked less often until it succeeds"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """What a collector brought: its reading, named, and what is missing from it."""

    reading: object
    blocks: tuple[Block, ...]
    complaint: str | None
    omitted: int


class Post:
    """One collector and what the runner knows of it.

    All but `run` belongs to the runner's thread.

    Args:
        collector: The collector.

    Attributes:
        collector: The same.
        name: Its name.
        page: Its latest reading; None when that failed, is not waited for, or before the first.
        turn: Changes whenever there is something new to report.
        give_up_at: The `time.monotonic` at which the reading under way is no longer waited for;
            None when there is nothing to wait for.
    """

    def __init__(self, collector: Collector[Any]) -> None:
        self.collector = collector
        self.name = collector.name
        self.page: Page | None = None
        self.turn = 0
        self._started_at: float | None = None
        self._ended_at = float("-inf")
        self._deadline = 0.0
        self.give_up_at: float | None = None
        self._answered = False
        self._seconds: float | None = None
        self._reason: str | None = None
        self._logged: str | None = None
        self._timeouts = 0
        self._failures = 0
        self._failures_in_a_row = 0
        self._paused_until = float("-inf")
        self._last_success: float | None = None
        self._durations: deque[float] = deque(maxlen=_REMEMBERED_DURATIONS)
        self._sizes: dict[Hashable, int] = {}

    def run(self) -> Page:
        """Read and name what was read; on a worker's thread, which catches what is raised."""
        reading = self.collector.read(self._deadline)
        blocks = self.collector.express(reading)
        for block in blocks:
            self._check(block)
        complaint = self.collector.complaint(reading)
        return Page(reading, blocks, complaint, self.collector.omitted(reading))

    def _check(self, block: Block) -> None:
        """Find now, while it costs this collector alone, what could not be written later."""
        size = self._sizes.get(block.shape)
        if size is None:
            if len(self._sizes) >= _KEPT_SHAPES:
                self._sizes.clear()
            size = sum(len(family.samples) for family in block.describe())
            self._sizes[block.shape] = size
        if len(block.values) != size:
            raise ValueError(f"{size} samples but {len(block.values)} values")
        sum(block.values)  # TypeError for what is no number

    def _patience(self) -> float:
        if not self._durations and not self._timeouts:
            return float("inf")
        return max(SHORTEST_PATIENCE_SECONDS, PATIENCE_FACTOR * max(self._durations, default=0.0))

    def is_due(self, now: float, reuse_seconds: float) -> bool:
        """Tell whether to read anew, when a reading serves for so long."""
        if self._started_at is not None or now < self._paused_until:
            return False
        return now - self._ended_at > reuse_seconds

    def start(self, now: float, deadline: float) -> None:
        """Note that a reading begins now, for a scrape that ends at the deadline."""
        self._started_at = now
        self._deadline = deadline
        self.give_up_at = now + self._patience()

    def give_up(self, now: float) -> None:
        """Leave the reading under way alone: it is no longer waited for."""
        self.give_up_at = None
        self._timeouts += 1
        self.page = None
        self.turn += 1
        self._seconds = self._waited(now)
        self._tell(_LEFT_ALONE, f"did not answer within {self._seconds:.1f} s; it is left alone")

    def finish(self, outcome: Outcome[Any]) -> None:
        """Take up what came of the reading under way; too late, it is thrown away."""
        was_late = self.give_up_at is None
        is_hopeless = was_late and outcome.ended_at > self._deadline
        self._started_at = self.give_up_at = None
        self._answered = True
        if not is_hopeless:
            self._durations.append(outcome.seconds)
        if was_late:
            _log.debug("collector %s came late", self.name, exc_info=outcome.error)
            return
        self._ended_at = outcome.ended_at
        self.turn += 1
        self._seconds = outcome.seconds
        self.page = outcome.value
        if outcome.error is not None:
            self._fail(outcome.error)
        elif self.page is not None:
            self._succeed(self.page)

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        self._failures_in_a_row += 1
        if isinstance(error, SourceError):
            self._tell(str(error), str(error))
        else:
            kind = type(error).__name__
            self._tell(
                f"failed by a bug ({kind}); see the log", f"failed by a bug: {error!r}", error
            )
        doublings = self._failures_in_a_row - _FAILURES_BEFORE_PAUSE
        if doublings == 0:
            _log.warning(
                "collector %s failed %d times in a row and is asked less often",
                self.name,
                self._failures_in_a_row,
                extra={"collector": self.name},
            )
        if doublings >= 0:
            pause = min(LONGEST_PAUSE_SECONDS, _SHORTEST_PAUSE_SECONDS * 2 ** min(doublings, 10))
            self._paused_until = self._ended_at + pause
            self._reason = f"{self._reason}{_ASKED_LESS_OFTEN}"

    def _succeed(self, page: Page) -> None:
        self._failures_in_a_row = 0
        if page.complaint is None:
            self._last_success = time.time()
        self._tell(page.complaint, page.complaint or "reads again")

    def _tell(self, reason: str | None, words: str, error: Exception | None = None) -> None:
        """Keep the reason, and log it in other words if it is another one than before."""
        self._reason = reason
        if reason == self._logged:
            return
        self._logged = reason
        _log.log(
            logging.INFO if reason is None else logging.WARNING,
            "collector %s: %s",
            self.name,
            words,
            extra={"collector": self.name},
            exc_info=error,
        )

    def _waited(self, now: float) -> float:
        return now - (self._started_at if self._started_at is not None else now)

    def report(self, now: float, *, is_late: bool) -> Report:
        """Tell how it fared; `is_late` for a scrape that ends while others go on waiting for it."""
        page = None if is_late else self.page
        return Report(
            collector=self.name,
            success=page is not None and page.complaint is None,
            answered=self._answered,
            seconds=self._waited(now) if is_late else self._seconds,
            reason=_LATE if is_late else self._reason,
            failures=self._failures,
            timeouts=self._timeouts,
            omitted=page.omitted if page is not None else 0,
            last_success=self._last_success,
        )
