"""Tests that series for `promtool test rules` are written in its documented notation."""

from dataclasses import dataclass

from fleet.promtool import Served, write_input_series


@dataclass
class Script:
    """A fake of the demo's metrics page with one value for each minute."""

    values: dict[int, str]

    def write(self, now):
        """Return the lines of a metrics page."""
        value = self.values.get(now // 60)
        return "" if value is None else f'x{{a="b"}} {value} {now}\nother 1 {now}\n'


class Machine:
    """A fake machine that has only a name."""

    name = "m"


def write(monkeypatch, values, *, minutes, silent=()):
    """Return the series of a machine with these values."""
    monkeypatch.setattr("fleet.promtool.Scribe", lambda _: Script(values))
    lives = [Served(Machine(), 0, minutes, silent)]
    return dict(write_input_series(lives, minutes, lambda name: name == "x"))


def test_what_holds_or_climbs_is_one_piece(monkeypatch):
    """Constant and linearly changing values are each written as one item."""
    values = dict(enumerate(["5", "5", "5", "7", "9", "11", "10.5", "10.0"]))
    series = write(monkeypatch, values, minutes=8)
    assert series['x{a="b"}'] == "5x2 7+2x2 10.5-0.5x1"


def test_a_gap_is_stale_and_a_late_start_is_missing(monkeypatch):
    """A missing start is written as `_`, and the end of values as `stale`."""
    series = write(monkeypatch, {2: "1", 3: "1", 6: "4"}, minutes=8)
    assert series['x{a="b"}'] == "_x2 1x1 stale _x1 4 stale"


def test_a_scrape_that_fails_is_seen_in_up(monkeypatch):
    """In a minute without a scrape, the series is stale and `up` is 0."""
    series = write(monkeypatch, dict.fromkeys(range(4), "1"), minutes=4, silent=[2])
    assert series['x{a="b"}'] == "1x1 stale 1"
    assert series['up{instance="m",job="trainvitals"}'] == "1x1 0+1x1"
