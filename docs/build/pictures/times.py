"""Times, as Grafana reckons with them: how far apart points are, and over what rates are taken."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Grafana rounds a step to one of these: up to which it is what, in milliseconds.
_ROUNDED: Final = (
    *((10, 1), (15, 10), (35, 20), (75, 50), (150, 100), (350, 200), (750, 500), (1_500, 1_000)),
    *((3_500, 2_000), (7_500, 5_000), (12_500, 10_000), (17_500, 15_000), (25_000, 20_000)),
    *((45_000, 30_000), (90_000, 60_000), (210_000, 120_000), (450_000, 300_000)),
    *((750_000, 600_000), (1_050_000, 900_000), (1_500_000, 1_200_000), (2_700_000, 1_800_000)),
    *((5_400_000, 3_600_000), (9_000_000, 7_200_000), (16_200_000, 10_800_000)),
    *((32_400_000, 21_600_000), (86_400_000, 43_200_000), (604_800_000, 86_400_000)),
    *((1_814_400_000, 604_800_000), (3_628_800_000, 2_592_000_000)),
)
_YEAR: Final = 31_536_000_000
_MOST_POINTS: Final = 11_000  # that Prometheus gives for a series

_SECONDS: Final[Mapping[str, float]] = {
    "ms": 0.001,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86_400,
    "w": 604_800,
    "M": 2_592_000,
    "y": 31_536_000,
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdwMy])")


def read_duration(text: str) -> float:
    """Give the seconds of a duration such as `6h`.

    Raises:
        ValueError: It is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no duration such as 6h")
    return float(found[1]) * _SECONDS[found[2]]


def round_interval(milliseconds: float) -> int:
    """Round a step as Grafana does."""
    return next((rounded for below, rounded in _ROUNDED if milliseconds < below), _YEAR)


@dataclass(frozen=True, slots=True)
class Window:
    """What the time picker shows, and how often Prometheus scrapes.

    Attributes:
        start: In seconds since 1970.
        end: The same.
        scrape_seconds: The data source's `timeInterval`.
    """

    start: float
    end: float
    scrape_seconds: float = 5.0

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.start

    def look_back(self, seconds: float) -> Window:
        """Give another that ends at the same time."""
        return Window(self.end - seconds, self.end, self.scrape_seconds)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a query goes through a time range.

    Attributes:
        window: The range.
        step: The seconds from one point to the next.
        rate_seconds: What `$__rate_interval` is.
    """

    window: Window
    step: float
    rate_seconds: float

    @property
    def start(self) -> float:
        """The first point, a multiple of the step."""
        return math.floor(self.window.start / self.step) * self.step

    @property
    def end(self) -> float:
        """The last point, a multiple of the step."""
        return math.floor(self.window.end / self.step) * self.step

    def list_variables(self) -> dict[str, str]:
        """Give what the time variables are, by name."""
        milliseconds = round(1000 * self.window.seconds)
        return {
            "__interval": write_duration(self.step),
            "__interval_ms": str(round(1000 * self.step)),
            "__rate_interval": write_duration(self.rate_seconds),
            "__rate_interval_ms": str(round(1000 * self.rate_seconds)),
            "__range": f"{round(milliseconds / 1000)}s",
            "__range_s": str(round(milliseconds / 1000)),
            "__range_ms": str(milliseconds),
            "__from": str(round(1000 * self.window.start)),
            "__to": str(round(1000 * self.window.end)),
        }


def find_pace(
    window: Window, points: int, *, least_seconds: float = 0.0, own_seconds: float = 0.0
) -> Pace:
    """Find the pace of a query, as Grafana does.

    Args:
        window: The range.
        points: As many as the panel has pixels.
        least_seconds: The panel's own `interval`: the step is at least this long.
        own_seconds: The query's own `interval`, which counts as the scrape interval.
    """
    scrape = own_seconds or window.scrape_seconds
    fine = round_interval(1000 * window.seconds / max(1, points)) / 1000
    safe = round_interval(1000 * window.seconds / _MOST_POINTS) / 1000
    step = max(fine, safe, least_seconds or window.scrape_seconds, own_seconds)
    return Pace(window, step, max(step + scrape, 4 * scrape))


def write_duration(seconds: float) -> str:
    """Write a duration as PromQL takes it."""
    milliseconds = round(1000 * seconds)
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"
