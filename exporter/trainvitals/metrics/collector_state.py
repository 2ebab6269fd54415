"""The state of a collector: the latest result, the timeout, and the time of the next reading.

The timeout is `PATIENCE_FACTOR` times the duration of the longest recent reading, but at least
`SHORTEST_PATIENCE_SECONDS`. Before the first reading has ended or timed out, only the scrape's
deadline applies. A reading that timed out and ended after its scrape's deadline is not counted,
because a longer timeout would not have helped.

A collector that has failed `_FAILURES_BEFORE_PAUSE` consecutive times is read less often, at
intervals of up to `LONGEST_PAUSE_SECONDS`. The reasons for failures are label values, so their
texts do not vary; details are logged.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from trainvitals.errors import SourceError
from trainvitals.metrics.collector_metrics import Report
from trainvitals.metrics.collectors.collector import Collector
from trainvitals.metrics.families import Block
from trainvitals.workers import Outcome

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
class CollectorResult:
    """A reading, its metric families, the data it lacks, and the number of omitted items."""

    reading: object
    blocks: tuple[Block, ...]
    complaint: str | None
    omitted: int


class CollectorState:
    """A collector and its state.

    All methods except `run` are called in the runner's thread.

    Args:
        collector: The collector whose state is recorded.

    Attributes:
        collector: The collector that the state describes.
        name: The name of the collector.
        result: The collector's latest result; None before the first result, and after a failure or
            a timeout.
        turn: A number that increases with each new result, failure or timeout.
        give_up_at: The monotonic time at which the current reading times out; None if no reading is
            in progress or the reading has timed out.
    """

    def __init__(self, collector: Collector[Any]) -> None:
        self.collector = collector
        self.name = collector.name
        self.result: CollectorResult | None = None
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
        self._failures_in_a_row = 0
        self._paused_until = float("-inf")
        self._last_success: float | None = None
        self._durations: deque[float] = deque(maxlen=_REMEMBERED_DURATIONS)
        self._sizes: dict[Hashable, int] = {}

    def run(self) -> CollectorResult:
        """Call the collector's `read` and `express`, and return the result.

        This method is called in a worker thread, which catches exceptions.
        """
        reading = self.collector.read(self._deadline)
        blocks = self.collector.express(reading)
        for block in blocks:
            self._check(block)
        complaint = self.collector.complaint(reading)
        return CollectorResult(reading, blocks, complaint, self.collector.omitted(reading))

    def _check(self, block: Block) -> None:
        """Raise an exception if a block cannot be rendered, so that only this collector fails."""
        size = self._sizes.get(block.shape)
        if size is None:
            if len(self._sizes) >= _KEPT_SHAPES:
                self._sizes.clear()
            size = sum(len(family.samples) for family in block.describe())
            self._sizes[block.shape] = size
        if len(block.values) != size:
            raise ValueError(f"{size} samples but {len(block.values)} values")
        sum(block.values)  # raises TypeError if a value is not a number

    def _patience(self) -> float:
        if not self._durations and not self._timeouts:
            return float("inf")
        return max(SHORTEST_PATIENCE_SECONDS, PATIENCE_FACTOR * max(self._durations, default=0.0))

    def is_due(self, now: float, reuse_seconds: float) -> bool:
        """Return whether a new reading is due; results may be reused for `reuse_seconds`."""
        if self._started_at is not None or now < self._paused_until:
            return False
        return now - self._ended_at > reuse_seconds

    def start(self, now: float, deadline: float) -> None:
        """Record that a reading starts now, for a scrape with the given deadline."""
        self._started_at = now
        self._deadline = deadline
        self.give_up_at = now + self._patience()

    def give_up(self, now: float) -> None:
        """Record that the current reading timed out."""
        self.give_up_at = None
        self._timeouts += 1
        self.result = None
        self.turn += 1
        self._seconds = self._waited(now)
        self._report(_LEFT_ALONE, f"did not answer within {self._seconds:.1f} s; it is left alone")

    def finish(self, outcome: Outcome[Any]) -> None:
        """Record the outcome of the current reading; a result after the timeout is dropped."""
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
        self.result = outcome.value
        if outcome.error is not None:
            self._fail(outcome.error)
        elif self.result is not None:
            self._succeed(self.result)

    def _fail(self, error: Exception) -> None:
        self._failures_in_a_row += 1
        if isinstance(error, SourceError):
            self._report(str(error), str(error))
        else:
            kind = type(error).__name__
            self._report(
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

    def _succeed(self, result: CollectorResult) -> None:
        self._failures_in_a_row = 0
        if result.complaint is None:
            self._last_success = time.time()
        self._report(result.complaint, result.complaint or "reads again")

    def _report(self, reason: str | None, words: str, error: Exception | None = None) -> None:
        """Set the failure reason (None: no failure), and log the details if it has changed."""
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
        """Return the outcome of the collector's latest reading.

        Args:
            now: The current time of the monotonic clock, in seconds.
            is_late: Whether this scrape's deadline has passed while the reading is in progress for
                a scrape with a later deadline.
        """
        result = None if is_late else self.result
        return Report(
            collector=self.name,
            success=result is not None and result.complaint is None,
            answered=self._answered,
            seconds=self._waited(now) if is_late else self._seconds,
            reason=_LATE if is_late else self._reason,
            timeouts=self._timeouts,
            omitted=result.omitted if result is not None else 0,
            last_success=self._last_success,
        )
