"""How fast a run goes, and how much of that time it waits for data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some batches that followed each other.

    Attributes:
        steps: How many optimizer steps ended.
        samples: How many samples they had.
        seconds: What they took, data included; validation and checkpoints are not in it.
        data_wait_seconds: What of it went by until the batch was there and on the device.
    """

    steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    data_wait_seconds: float = 0.0

    def __sub__(self, earlier: Stretch) -> Stretch:
        return Stretch(
            self.steps - earlier.steps,
            self.samples - earlier.samples,
            self.seconds - earlier.seconds,
            self.data_wait_seconds - earlier.data_wait_seconds,
        )

    @property
    def step_seconds(self) -> float | None:
        """Mean of one step; None without steps."""
        return self.seconds / self.steps if self.steps else None

    @property
    def samples_per_second(self) -> float | None:
        """Throughput; None without samples."""
        return self.samples / self.seconds if self.samples and self.seconds > 0 else None

    @property
    def data_wait_percent(self) -> float | None:
        """The share of the time in which the run waited for data; None where no time went by."""
        return 100 * self.data_wait_seconds / self.seconds if self.seconds > 0 else None


class Pace:
    """Measures batches, each from the end of the one before to its own end.

    Args:
        clock: Seconds that never go back.
    """

    __slots__ = (
        "_batch_at",
        "_clock",
        "_data_wait_seconds",
        "_samples",
        "_seconds",
        "_steps",
        "_waiting_at",
    )

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting_at: float | None = None
        self._batch_at = 0.0
        self._steps = self._samples = 0
        self._seconds = self._data_wait_seconds = 0.0

    @property
    def total(self) -> Stretch:
        """Everything until now; subtract an earlier one for what came between."""
        return Stretch(self._steps, self._samples, self._seconds, self._data_wait_seconds)

    def wait(self) -> None:
        """From now on the run waits for a batch."""
        self._waiting_at = self._clock()

    def pause(self) -> None:
        """Leave out what goes by until `wait`, or until the end of a batch that was not waited for.

        For validation, for checkpoints, and for the first batch of an epoch, which waits for the
        loader's workers to start.
        """
        self._waiting_at = None

    def begin_batch(self) -> None:
        """The batch is there."""
        self._batch_at = self._clock()

    def end_batch(self, samples: int, *, steps: int = 1) -> None:
        """The batch is done, and the run waits for the next.

        Args:
            samples: How many it had.
            steps: How many optimizer steps ended with it.
        """
        now = self._clock()
        if self._waiting_at is not None:
            self._steps += steps
            self._samples += samples
            self._seconds += now - self._waiting_at
            self._data_wait_seconds += self._batch_at - self._waiting_at
        self._waiting_at = now
