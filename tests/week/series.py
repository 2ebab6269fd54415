"""Series of a week, minute by minute, in the notation that `promtool test rules` reads.

A series is a list of pieces, each of which holds a value or climbs by the same amount every minute:
a week of 10,080 readings is then a few hundred numbers. Between two pieces, and where a scrape
failed, the series is stale, as it is in a Prometheus that has scraped a page without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]
Minutes = tuple[int, int]
_NEVER = 1_000_000


class Piece(NamedTuple):
    """A part of a series.

    Attributes:
        start: Minute of the first reading.
        end: Minute after the last one.
        first: What was read first.
        per_minute: By how much each reading is above the one before.
    """

    start: int
    end: int
    first: float
    per_minute: float = 0.0

    def cut(self, gaps: Sequence[Minutes]) -> Iterator[Piece]:
        """Give what is left of it outside of the gaps, which are in order."""
        start = self.start
        for gap_start, gap_end in gaps:
            if gap_end <= start or gap_start >= self.end:
                continue
            if gap_start > start:
                yield self._take(start, gap_start)
            start = gap_end
        if start < self.end:
            yield self._take(start, self.end)

    def write(self) -> str:
        """Write it as promtool's `first+by x times`."""
        more = self.end - self.start - 1
        if not more:
            return _write(self.first)
        if not self.per_minute:
            return f"{_write(self.first)}x{more}"
        sign = "-" if self.per_minute < 0 else "+"
        return f"{_write(self.first)}{sign}{_write(abs(self.per_minute))}x{more}"

    def _take(self, start: int, end: int) -> Piece:
        return Piece(
            start, end, self.first + (start - self.start) * self.per_minute, self.per_minute
        )


def _write(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


@dataclass(slots=True)
class Page:
    """What the programs of one machine serve during the week.

    Attributes:
        instance: Name of the machine.
        series: The pieces of each series, in order, by metric and labels.
        away: When the machine did not answer.
        reboots: Minutes in which it was up again after a reboot: counters begin at 0.
    """

    instance: str
    series: dict[tuple[str, Labels], list[Piece]] = field(default_factory=dict)
    away: list[Minutes] = field(default_factory=list)
    reboots: list[int] = field(default_factory=list)

    def hold(self, name: str, start: int, end: int, value: float, **labels: str) -> None:
        """Read the same value from one minute until before another."""
        self.climb(name, start, end, value, 0.0, **labels)

    def climb(
        self, name: str, start: int, end: int, first: float, per_minute: float, **labels: str
    ) -> None:
        """Read a value that grows, or shrinks, by the same amount every minute."""
        if end <= start:
            return
        pieces = self.series.setdefault((name, _sort(labels)), [])
        if pieces:
            last = pieces[-1]
            if start < last.end:
                msg = f"{name}{labels} goes back from minute {last.end} to {start}"
                raise ValueError(msg)
            if start == last.end and (last.first, 0.0, 0.0) == (first, per_minute, last.per_minute):
                pieces[-1] = Piece(last.start, end, first)
                return
        pieces.append(Piece(start, end, float(first), float(per_minute)))

    def count(
        self,
        name: str,
        start: int,
        end: int,
        per_minute: float,
        *,
        anew: bool = False,
        **labels: str,
    ) -> None:
        """Go on counting from what was read last.

        Args:
            name: The counter.
            start: First minute.
            end: Minute after the last one.
            per_minute: How much is added a minute.
            anew: Whether it begins at 0 once more, as with a new process.
            labels: Its labels.
        """
        for reboot in self.reboots:
            if start < reboot < end:
                self.count(name, start, reboot, per_minute, anew=anew, **labels)
                start, anew = reboot, True
        pieces = self.series.get((name, _sort(labels)))
        value = 0.0
        if pieces and not anew and start not in self.reboots:
            last = pieces[-1]
            value = last.first + (last.end - last.start) * last.per_minute
        self.climb(name, start, end, value, per_minute, **labels)

    def write(self, minutes: int, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Write the series of some metrics.

        Args:
            minutes: How many, from the beginning on.
            names: The metrics.

        Yields:
            Selector and values of each.
        """
        wanted = frozenset(names)
        for (name, labels), pieces in self.series.items():
            if name not in wanted:
                continue
            # What Prometheus says about a scrape itself is there when it failed, too.
            away = [] if name == "up" else self.away
            gaps = [(-_NEVER, 0), *away, (minutes, _NEVER)]
            if kept := [part for piece in pieces for part in piece.cut(gaps)]:
                pairs = {"job": "trainvitals", "instance": self.instance} | dict(labels)
                text = ",".join(f'{key}="{value}"' for key, value in pairs.items())
                yield f"{name}{{{text}}}", _write_values(kept, minutes)


def _sort(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _write_values(pieces: Sequence[Piece], minutes: int) -> str:
    cursor, words = 0, []
    for piece in pieces:
        if (missing := piece.start - cursor) > 0:
            if words:
                words.append("stale")
                missing -= 1
            if missing:
                words.append(f"_x{missing}")
        words.append(piece.write())
        cursor = piece.end
    if cursor < minutes:
        words.append("stale")
    return " ".join(words)
