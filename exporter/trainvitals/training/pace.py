"""The pace of a run: the current speed, the usual speed, and deviations from the usual speed.

`Pace` measures batches and the share of time spent waiting for data. `Baseline` compares step time,
throughput and utilisation with the median of each quantity over a limited number of past values.
Only deviations in the unfavourable direction are detected. A value deviates if it differs from the
median by more than five times the usual scatter (the median absolute deviation, scaled to a
standard deviation) and by more than a quarter of the median. Values that deviate are not added to
the past values and thus do not change the baseline. However, after 200 consecutive values that
deviate, these values replace the past values, so that a lasting new pace becomes the usual pace.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from trainvitals.training.alerts import Alerts, Changes, Finding


@dataclass(frozen=True, slots=True)
class Stretch:
    """The totals of consecutive batches.

    Attributes:
        steps: The number of optimizer steps that ended in these batches.
        samples: The number of samples in these steps.
        seconds: The duration of the batches, including the wait for data, without validation and
            checkpoints.
        data_wait_seconds: The part of the duration in which the run waited until each batch was
            loaded and on the device.
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
        """The mean duration of a step in seconds; None if no step ended."""
        return self.seconds / self.steps if self.steps else None

    @property
    def samples_per_second(self) -> float | None:
        """The samples per second; None if no samples were processed or no time passed."""
        return self.samples / self.seconds if self.samples and self.seconds > 0 else None

    @property
    def data_wait_percent(self) -> float | None:
        """The share of time spent waiting for data, in percent; None if no time passed."""
        return 100 * self.data_wait_seconds / self.seconds if self.seconds > 0 else None


class Pace:
    """A meter of batches; a batch lasts from the end of the previous batch until it ends.

    Args:
        clock: A function that returns the time of a monotonic clock, in seconds.
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
        """The totals of all batches; subtract earlier totals to obtain the batches in between."""
        return Stretch(self._steps, self._samples, self._seconds, self._data_wait_seconds)

    def wait(self) -> None:
        """Record that the run begins to wait for a batch now."""
        self._waiting_at = self._clock()

    def pause(self) -> None:
        """Exclude the time until `wait`, or until the end of a batch without a recorded wait.

        The excluded time is spent on validation, on saving a checkpoint, or on the first batch of
        an epoch, which waits until the loader's workers have started.
        """
        self._waiting_at = None

    def begin_batch(self) -> None:
        """Record that the batch has been loaded."""
        self._batch_at = self._clock()

    def end_batch(self, samples: int, *, steps: int = 1) -> None:
        """Record the end of a batch; the wait for the next batch then begins.

        Args:
            samples: The number of samples in the batch.
            steps: The number of optimizer steps that ended with the batch.
        """
        now = self._clock()
        if self._waiting_at is not None:
            self._steps += steps
            self._samples += samples
            self._seconds += now - self._waiting_at
            self._data_wait_seconds += self._batch_at - self._waiting_at
        self._waiting_at = now


_WARM_UP_READINGS = 3
_FEWEST_READINGS = 20
_MOST_READINGS = 200
_SCATTERS = 5.0
_SCATTER_OF_NORMAL = 1.4826
_SMALLEST_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Usual:
    """The usual values of a run; a value is None until enough readings exist.

    Attributes:
        step_seconds: The usual duration of a step in seconds.
        samples_per_second: The usual throughput in samples per second.
        utilization_ratio: The usual utilisation of the GPUs, 0 to 1.
        deviations: The quantities that currently deviate from their usual values, as a sum of 1
            (step time), 2 (throughput) and 4 (utilisation).
    """

    step_seconds: float | None
    samples_per_second: float | None
    utilization_ratio: float | None
    deviations: int


class Baseline:
    """The usual pace of a run, determined from one reading every few seconds.

    Args:
        lasting_seconds: The time for which a value must deviate before an alert is raised. The
            alert is cleared after a quarter of this time without deviation.
        clock: A function that returns the time of a monotonic clock, in seconds.
    """

    def __init__(
        self, *, lasting_seconds: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lasting_seconds = lasting_seconds
        self._alerts = Alerts(clock=clock)
        self._readings = 0
        self._step = _Quantity(
            "adaptive_step_time", "step time is {value:.3g} s, usually {usual:.3g} s", bad=1
        )
        self._throughput = _Quantity(
            "adaptive_throughput", "{value:.3g} samples/s, usually {usual:.3g}", bad=-1
        )
        self._utilization = _Quantity(
            "adaptive_utilization", "GPU use is {value:.0%}, usually {usual:.0%}", bad=-1
        )

    @property
    def active(self) -> frozenset[str]:
        """The names in `runfile.ALERTS` of the alerts that are currently raised."""
        return self._alerts.active

    @property
    def usual(self) -> Usual:
        """The usual values of the run according to the readings so far."""
        active = self._alerts.active
        quantities = (self._step, self._throughput, self._utilization)
        return Usual(
            self._step.usual,
            self._throughput.usual,
            self._utilization.usual,
            sum(1 << place for place, each in enumerate(quantities) if each.name in active),
        )

    def compare(
        self,
        *,
        step_seconds: float | None = None,
        samples_per_second: float | None = None,
        utilization_ratio: float | None = None,
    ) -> Changes:
        """Return the alerts that a reading raises or clears; an unknown value is None.

        The first three readings are ignored, because they belong to the warm-up of the run.
        """
        self._readings += 1
        if self._readings <= _WARM_UP_READINGS:
            return Changes()
        found = (
            self._step.compare(step_seconds),
            self._throughput.compare(samples_per_second),
            self._utilization.compare(utilization_ratio),
        )
        return self._alerts.judge(
            tuple(
                Finding(
                    name=quantity.name,
                    subject="",
                    text=text,
                    is_alarming=deviates,
                    is_clear=not deviates,
                    raise_seconds=self._lasting_seconds,
                    clear_seconds=self._lasting_seconds / 4,
                )
                for compared in found
                if compared is not None
                for quantity, text, deviates in (compared,)
            )
        )


class _Quantity:
    """A quantity of the run, such as the step time, and its past values.

    Attributes:
        name: The name of the alert about this quantity.
        usual: The median of the past values; None until enough values are known.
    """

    def __init__(self, name: str, text: str, *, bad: int) -> None:
        self.name = name
        self.usual: float | None = None
        self._text = text
        self._bad = bad
        self._past: deque[float] = deque(maxlen=_MOST_READINGS)
        self._deviating: list[float] = []

    def compare(self, value: float | None) -> tuple[_Quantity, str, bool] | None:
        """Add a value; return the quantity, the alert's text, and whether the value deviates.

        The result is None if the value or the usual value is unknown.
        """
        if value is None or value != value:  # noqa: PLR0124 - NaN
            return None
        if self.usual is None:
            self._learn(value)
            return None
        text = self._text.format(value=value, usual=self.usual)
        scatter = median(abs(each - self.usual) for each in self._past)
        allowed = max(_SCATTERS * _SCATTER_OF_NORMAL * scatter, _SMALLEST_SHARE * self.usual)
        deviates = self._bad * (value - self.usual) > allowed
        if deviates:
            self._note_deviation(value)
        else:
            self._deviating.clear()
            self._learn(value)
        return self, text, deviates

    def _learn(self, value: float) -> None:
        self._past.append(value)
        if len(self._past) >= _FEWEST_READINGS:
            self.usual = median(self._past)

    def _note_deviation(self, value: float) -> None:
        """Record a value that deviates; after 200 in a row, their median is the usual value."""
        self._deviating.append(value)
        if len(self._deviating) >= _MOST_READINGS:
            self._past.clear()
            self._past.extend(self._deviating)
            self._deviating.clear()
            self.usual = median(self._past)
