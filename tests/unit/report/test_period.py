"""Which day or week is meant, also where the clock is put forward or back."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from trainvitals.errors import ConfigurationError
from trainvitals.report.period import choose_period, find_zone

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3600


def moment(text, zone=BERLIN):
    """Return a moment on a clock."""
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


NOW = moment("2026-11-22T14:30:20")


def choose(kind="daily", **words):
    """Choose a period with a fixed clock."""
    return choose_period(kind, now=words.pop("now", NOW), zone=words.pop("zone", BERLIN), **words)


def test_today_ends_with_the_last_whole_minute():
    """The part of today that has passed is known, and that it is not over."""
    period = choose()
    assert period.begin == moment("2026-11-22T00:00")
    assert period.end == moment("2026-11-22T14:30")
    assert period.planned_end == moment("2026-11-23T00:00")
    assert not period.is_over


def test_yesterday_is_whole():
    """Yesterday goes from midnight to midnight."""
    period = choose(day="yesterday")
    assert (period.begin, period.end) == (moment("2026-11-21T00:00"), moment("2026-11-22T00:00"))
    assert period.is_over


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-10-26", 24)]
)
def test_a_day_is_as_long_as_its_clock_says(day, hours):
    """Where the clock is put forward a day has 23 hours, where it is put back 25."""
    assert choose(day=day).seconds == hours * HOUR


@pytest.mark.parametrize(("day", "hours"), [("2026-03-25", 167), ("2026-10-19", 169)])
def test_a_week_goes_from_monday_to_monday(day, hours):
    """Any day of a week names it, and its clock decides how long it is."""
    period = choose("weekly", day=day)
    assert period.read_clock(period.begin).strftime("%A %H:%M") == "Monday 00:00"
    assert period.seconds == hours * HOUR


def test_the_week_of_a_sunday_began_on_monday_before():
    """Sunday is the last day."""
    period = choose("weekly", day="2026-11-22")
    assert period.begin == moment("2026-11-16T00:00")


def test_a_period_can_end_whenever_somebody_wants():
    """The day until a moment begins at the same time of the day before."""
    period = choose(until="2026-10-25T12:00")
    assert period.begin == moment("2026-10-24T12:00")
    assert period.seconds == 25 * HOUR
    assert choose(until="now").end == moment("2026-11-22T14:30")


def test_the_period_before_is_cut_off_at_the_same_time():
    """Half of today is compared with the same half of yesterday; a whole day with a whole one."""
    before = choose().step_back()
    assert (before.begin, before.end) == (moment("2026-11-21T00:00"), moment("2026-11-21T14:30"))
    before = choose(day="2026-03-30").step_back()
    assert (before.begin, before.end) == (moment("2026-03-29T00:00"), moment("2026-03-30T00:00"))


def test_the_zone_of_the_machine_knows_of_summer(monkeypatch):
    """Without a name the machine's own zone is taken, with its changes."""
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
    """The message says what to write."""
    with pytest.raises(ConfigurationError, match=message):
        choose(**words)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../etc/passwd", ""])
def test_an_unknown_zone_is_refused(name):
    """The message has an example."""
    with pytest.raises(ConfigurationError, match="no such time zone; write it as Europe/Berlin"):
        find_zone(name)
