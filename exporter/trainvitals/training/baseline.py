"""Adaptive alerting: learns what is usual for this run, and says when it is left for long.

Step time, throughput and utilisation are each compared with their own median over a bounded past;
only the bad direction counts. A value deviates when it is further from the median than five times
the usual scatter (the median absolute deviation, scaled to a standard deviation) and than a
quarter of the median. What deviates does not enter the past, so that a slow decline is not learned
as usual; but a new pace that lasts for as long as the past is remembered becomes the usual one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from trainvitals.training.alerts import Alerts, Changes, Finding

_WARM_UP_LOOKS = 3
_FEWEST_LOOKS = 20
_MOST_LOOKS = 200
_SCATTERS = 5.0
_SCATTER_OF_NORMAL = 1.4826
_SMALLEST_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usual for the run; None until it is learned.

    Attributes:
        step_seconds: Of a step.
        samples_per_second: Throughput.
        utilization_ratio: Of the GPUs, 0 to 1.
        deviations: Sum of 1 (step time), 2 (throughput) and 4 (utilisation) for those that
            deviate now.
    """

    step_seconds: float | None
    samples_per_second: float | None
    utilization_ratio: float | None
    deviations: int


class Baseline:
    """Learns and compares; give it one look at the run every few seconds.

    Args:
        lasting_seconds: How long a value must deviate before it is told; a quarter of that is
            how long it must be back before it is cleared.
        clock: Seconds that never go back.
    """

    def __init__(
        self, *, lasting_seconds: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lasting_seconds = lasting_seconds
        self._alerts = Alerts(clock=clock)
        self._looks = 0
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
        """The names of `runfile.ALERTS` under which something deviates now."""
        return self._alerts.active

    @property
    def usual(self) -> Usual:
        """What is usual now."""
        active = self._alerts.active
        quantities = (self._step, self._throughput, self._utilization)
        return Usual(
            self._step.usual,
            self._throughput.usual,
            self._utilization.usual,
            sum(1 << place for place, each in enumerate(quantities) if each.name in active),
        )

    def look(
        self,
        *,
        step_seconds: float | None = None,
        samples_per_second: float | None = None,
        utilization_ratio: float | None = None,
    ) -> Changes:
        """Enter what the run does now; None is not known.

        The first looks are left out, because a run warms up.
        """
        self._looks += 1
        if self._looks <= _WARM_UP_LOOKS:
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
    """One quantity and its past.

    Attributes:
        name: Of its alert.
        usual: The median of the past; None before it is learned.
    """

    def __init__(self, name: str, text: str, *, bad: int) -> None:
        self.name = name
        self.usual: float | None = None
        self._text = text
        self._bad = bad
        self._past: deque[float] = deque(maxlen=_MOST_LOOKS)
        self._deviating: list[float] = []

    def compare(self, value: float | None) -> tuple[_Quantity, str, bool] | None:
        """Learn from a value, and tell whether it deviates; None while nobody can know."""
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
        if len(self._past) >= _FEWEST_LOOKS:
            self.usual = median(self._past)

    def _note_deviation(self, value: float) -> None:
        """Keep it aside; what has been so for as long as we remember is usual from now on."""
        self._deviating.append(value)
        if len(self._deviating) >= _MOST_LOOKS:
            self._past.clear()
            self._past.extend(self._deviating)
            self._deviating.clear()
            self.usual = median(self._past)
