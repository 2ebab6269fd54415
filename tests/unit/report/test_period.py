"""Tests for choosing the period of a report, also across changes of daylight saving time."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from trainvitals.errors import ConfigurationError
from trainvitals.report.period import choose_period, find_zone

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3600


def moment(text, zone=BERLIN):
    """Return the timestamp of a local time."""
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


NOW = moment("2026-11-22T14:30:20")


def choose(kind="daily", **words):
    """Return the period for these arguments at a fixed time."""
    return choose_period(kind, now=words.pop("now", NOW), zone=words.pop("zone", BERLIN), **words)


def test_today_ends_with_the_last_whole_minute():
    """The period of today ends with the last full minute and is not over."""
    period = choose()
    assert period.begin == moment("2026-11-22T00:00")
    assert period.end == moment("2026-11-22T14:30")
    assert period.planned_end == moment("2026-11-23T00:00")
    assert not period.is_over


def test_yesterday_is_whole():
    """The period of yesterday lasts from midnight to midnight."""
    period = choose(day="yesterday")
    assert (period.begin, period.end) == (moment("2026-11-21T00:00"), moment("2026-11-22T00:00"))
    assert period.is_over


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-10-26", 24)]
)
def test_a_day_is_as_long_as_its_clock_says(day, hours):
    """A day with a change of daylight saving time has 23 or 25 hours."""
    assert choose(day=day).seconds == hours * HOUR


@pytest.mark.parametrize(("day", "hours"), [("2026-03-25", 167), ("2026-10-19", 169)])
def test_a_week_goes_from_monday_to_monday(day, hours):
    """The week of any day lasts from Monday to Monday in local time."""
    period = choose("weekly", day=day)
    assert period.read_clock(period.begin).strftime("%A %H:%M") == "Monday 00:00"
    assert period.seconds == hours * HOUR


def test_the_week_of_a_sunday_began_on_monday_before():
    """Sunday is the last day of its week."""
    period = choose("weekly", day="2026-11-22")
    assert period.begin == moment("2026-11-16T00:00")


def test_a_period_can_end_whenever_somebody_wants():
    """A day until a given time begins at the same time of the previous day."""
    period = choose(until="2026-10-25T12:00")
    assert period.begin == moment("2026-10-24T12:00")
    assert period.seconds == 25 * HOUR
    assert choose(until="now").end == moment("2026-11-22T14:30")


def test_the_period_before_is_cut_off_at_the_same_time():
    """The previous period of an incomplete day ends at the same time of the previous day."""
    before = choose().step_back()
    assert (before.begin, before.end) == (moment("2026-11-21T00:00"), moment("2026-11-21T14:30"))
    before = choose(day="2026-03-30").step_back()
    assert (before.begin, before.end) == (moment("2026-03-29T00:00"), moment("2026-03-30T00:00"))


def test_the_zone_of_the_machine_knows_of_summer(monkeypatch):
    """Without a name, the time zone of the machine is used, including daylight saving time."""
    import time  # noqa: PLC0415 - the machine's zone is set for this test alone

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        zone = find_zone(None)
        for day, hours in (("2026-03-29", 23), ("2026-10-25", 25), ("2026-07-01", 24)):
            assert choose(day=day, zone=zone).seconds == hours * HOUR
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"day": "22.11.2026"}, "--date=22.11.2026: write a day as 2026-11-21, today or yesterday"),
        ({"day": "0001-01-01"}, "--date=0001-01-01: write a day as"),
        ({"day": "9999-12-31"}, "--date=9999-12-31: write a day as"),
        ({"until": "0001-01-01T00:00"}, "--until=0001-01-01T00:00: write a time as"),
        ({"until": "9999-12-31T23:59"}, "--until=9999-12-31T23:59: write a time as"),
        ({"day": "2026-11-23"}, "is less than a minute ago: give an earlier --date"),
        ({"until": "noon"}, "--until=noon: write a time as 2026-11-21T14:00, or now"),
        ({"until": "2026-11-23T00:00"}, "this is in the future"),
        (
            {"day": "today", "until": "now"},
            "--date and --until cannot be combined: give one of them",
        ),
    ],
)
def test_what_is_no_period_is_refused(words, message):
    """An invalid period is refused with an example of a valid argument."""
    with pytest.raises(ConfigurationError, match=message):
        choose(**words)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../etc/passwd", ""])
def test_an_unknown_zone_is_refused(name):
    """An unknown time zone is refused with an example."""
    with pytest.raises(ConfigurationError, match="no such time zone; write it as Europe/Berlin"):
        find_zone(name)
