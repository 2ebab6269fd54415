"""A machine's metrics for every minute, in the notation of `promtool test rules`.

Minute 0 is the Unix time 0, as in promtool. A series is written in segments with a constant value
or a constant increase per minute. The series is stale between two segments and where a scrape
failed, as in Prometheus after a scrape without the series.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from fleet.history import JOB, Scribe
from fleet.machine import Machine

MINUTE = 60


@dataclass(frozen=True, slots=True)
class Served:
    """A machine between two boots.

    Attributes:
        machine: The machine.
        start: The first minute in which the machine is scraped.
        end: The minute after the last scrape.
        silent: The minutes in between in which a scrape fails.
    """

    machine: Machine
    start: int
    end: int
    silent: Collection[int] = ()


@dataclass(slots=True)
class _Values:
    """The values of a series, added one per minute."""

    words: list[str] = field(default_factory=list)
    end: int = 0
    first: float = 0.0
    step: float = 0.0
    count: int = 0

    def add(self, minute: int, value: float) -> None:
        if self.count and minute == self.end:
            step = value - self.first if self.count == 1 else self.step
            if abs(self.first + self.count * step - value) <= 1e-9 * abs(value):
                self.step, self.count, self.end = step, self.count + 1, minute + 1
                return
        self._close(minute)
        self.first, self.step, self.count, self.end = value, 0.0, 1, minute + 1

    def write(self, minutes: int) -> str:
        self._close(minutes)
        return " ".join(self.words)

    def _close(self, minute: int) -> None:
        """End the current segment, and mark the minutes before the next segment as missing."""
        if self.count:
            sign = "-" if self.step < 0 else "+"
            climb = f"{sign}{_write(abs(self.step))}" if self.step else ""
            more = f"{climb}x{self.count - 1}" if self.count > 1 else ""
            self.words.append(_write(self.first) + more)
        if missing := minute - self.end:
            if self.words:
                self.words.append("stale")
                missing -= 1
            if missing:
                self.words.append(f"_x{missing}")
        self.count = 0


def _write(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def write_input_series(
    lives: Sequence[Served], minutes: int, is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Generate the series of a machine.

    Args:
        lives: The machine between boots, in chronological order.
        minutes: The number of minutes from minute 0.
        is_wanted: A function that returns whether the metric with a name is written.

    Yields:
        The selector and the values of each series.
    """
    series: dict[str, _Values] = {}
    wanted: dict[str, bool] = {}
    up = f'up{{instance="{lives[0].machine.name}",job="{JOB}"}}'
    answered = set()
    for life in lives:
        scribe = Scribe(life.machine)
        for minute in range(life.start, min(life.end, minutes)):
            if minute in life.silent:
                continue
            answered.add(minute)
            for line in scribe.write(MINUTE * minute).splitlines():
                selector, value, _ = line.rsplit(" ", 2)
                if selector not in wanted:
                    wanted[selector] = selector != up and is_wanted(selector.partition("{")[0])
                if wanted[selector]:
                    rounded = round(float(value), 4)
                    series.setdefault(selector, _Values()).add(minute, rounded)
    series[up] = _Values()
    for minute in range(minutes):
        series[up].add(minute, float(minute in answered))
    for selector, values in series.items():
        yield selector, values.write(minutes)
