"""Tests for the formats of amounts and times, with manually calculated boundary values."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals import units

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = 1795226727.25  # 2026-11-21 02:05:27.250 UTC
KIB, MIB, GIB, TIB, PIB = (1 << shift for shift in (10, 20, 30, 40, 50))
NUMBERS = st.none() | st.floats()
FORMATS = (
    units.format_bytes,
    units.format_byte_rate,
    units.format_percent,
    units.format_duration,
    units.format_hours,
    units.format_energy,
    units.format_count,
    units.format_rate,
    units.format_temperature,
    units.format_power,
)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1.0 KiB"),  # 1000 / 1024 = 0.98
        (512 * MIB, "512 MiB"),
        (32 * MIB, "32.0 MiB"),
        (71.2 * GIB, "71.2 GiB"),
        (99.94 * GIB, "99.9 GiB"),
        (99.95 * GIB, "100 GiB"),
        (2015 * GIB, "2015 GiB"),
        (10 * TIB - GIB, "10239 GiB"),
        (10 * TIB, "10.0 TiB"),
        (999 * TIB, "999 TiB"),
        (1000 * TIB, "1.0 PiB"),  # 1000 / 1024 = 0.98
        (5000 * PIB, "5000 PiB"),
        (-2 * GIB, "-2.0 GiB"),
    ],
)
def test_bytes(size, text):
    """Sizes are formatted with powers of 1024, with one decimal below 100."""
    assert units.format_bytes(size) == text


@pytest.mark.parametrize(
    ("used", "total", "text"),
    [
        (66 * GIB, 79.6 * GIB, "66.0 / 79.6 GiB"),
        (512 * MIB, 80 * GIB, "0.5 / 80.0 GiB"),
        (None, 79.6 * GIB, "- / 79.6 GiB"),
        (math.nan, 79.6 * GIB, "- / 79.6 GiB"),
        (GIB, None, "1.0 GiB"),
        (GIB, 0, "1.0 GiB"),
        (None, None, "-"),
    ],
)
def test_bytes_of_a_whole(used, total, text):
    """A part and its total are formatted with the unit of the total."""
    assert units.format_bytes_of(used, total) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0, "0 B/s"),
        (999.4, "999 B/s"),
        (999.5, "1.0 kB/s"),
        (1.3e9, "1.3 GB/s"),
        (99.95e6, "100 MB/s"),
        (5e15, "5000 TB/s"),
        (-2e6, "-2.0 MB/s"),
    ],
)
def test_byte_rates(rate, text):
    """Byte rates are formatted with powers of 1000."""
    assert units.format_byte_rate(rate) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0, "0%"),
        (0.004, "0.4%"),
        (0.0094, "0.9%"),
        (0.0096, "1%"),
        (0.97, "97%"),
        (1, "100%"),
        (1.5, "150%"),
        (-0.004, "-0.4%"),
        (-0.5, "-50%"),
    ],
)
def test_shares(ratio, text):
    """Percentages below 1% are formatted with one decimal."""
    assert units.format_percent(ratio) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (0.0004, "0s"),
        (0.0006, "1ms"),
        (0.012, "12ms"),
        (0.9994, "999ms"),
        (0.9996, "1s"),
        (2.0, "2s"),
        (2.96, "3s"),
        (3.2, "3.2s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (45, "45s"),
        (59.4, "59s"),
        (59.6, "1m"),
        (60, "1m"),
        (725, "12m 5s"),
        (3599.6, "1h"),
        (7459, "2h 4m"),
        (86_399.6, "1d"),
        (86_400, "1d"),
        (266_400, "3d 2h"),
        (1e9, "11574d 1h"),
    ],
)
def test_durations(seconds, text):
    """Durations have at most two units, and a full unit is carried into the next one."""
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(900, "0.25 h"), (3599, "1.00 h"), (12_600, "3.5 h"), (4_334_400, "1,204 h")],
)
def test_hours(seconds, text):
    """Accelerator time is formatted in hours."""
    assert units.format_hours(seconds) == text


@pytest.mark.parametrize(
    ("joules", "text"),
    [
        (0, "0 Wh"),
        (432_000, "120 Wh"),
        (3_596_400, "999 Wh"),
        (3_600_000, "1.0 kWh"),
        (150_120_000, "41.7 kWh"),
        (4_320_000_000, "1.20 MWh"),
        (4_446_000_000, "1.24 MWh"),  # 1.235, to the even digit
    ],
)
def test_energy(joules, text):
    """Kilowatt-hours are formatted with one decimal, and megawatt-hours with two."""
    assert units.format_energy(joules) == text


def test_temperatures_and_power():
    """Temperatures and power are formatted as whole numbers, with the limit if it is known."""
    assert units.format_temperature(84.4) == "84 °C"
    assert units.format_temperature(-5) == "-5 °C"
    assert units.format_power(1204.4) == "1,204 W"
    assert units.format_limited(63.4, 87, "°C") == "63 / 87 °C"
    assert units.format_limited(1204, 1400, "W") == "1,204 / 1,400 W"
    assert units.format_limited(63.4, math.inf, "°C") == "63 °C"
    assert units.format_limited(None, 87, "°C") == "-"


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (8.05, "8.05"),
        (99.94, "99.9"),
        (99.95, "100"),
        (1302.4, "1,302"),
        (0, "0"),
        (-3.256, "-3.26"),
    ],
)
def test_rates(rate, text):
    """Rates have three significant digits below 100, and no decimals from 100 on."""
    assert units.format_rate(rate) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.42131, "0.4213"),
        (1.2e-5, "1.2e-05"),
        (12345.6, "1.235e+04"),
        (math.nan, "NaN"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (None, "-"),
    ],
)
def test_values(value, text):
    """A NaN or infinite loss is shown as NaN or infinite, because it was logged like that."""
    assert units.format_value(value) == text


def test_counts():
    """Thousands are separated, and a noun agrees with its number."""
    assert units.format_count(30_990) == "30,990"
    assert units.count_noun(1, "run") == "1 run"
    assert units.count_noun(0, "run") == "0 runs"
    assert units.count_noun(2, "process") == "2 processes"
    assert units.count_noun(1200, "entry", "entries") == "1,200 entries"


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_known(format_, value):
    """Unknown, NaN and infinite values are formatted as `-`."""
    assert format_(value) == "-"


@given(NUMBERS)
def test_every_number_has_a_short_text(value):
    """Every number is formatted as one printable line without an exception."""
    for format_ in FORMATS:
        assert format_(value).isprintable()


@given(st.floats(min_value=0, max_value=1e9))
def test_durations_are_read_as_they_were(seconds):
    """The units of a formatted duration add up to the duration, within the smallest unit."""
    seconds_of = {"d": 86400.0, "h": 3600.0, "m": 60.0, "ms": 0.001, "s": 1.0}
    parts = units.format_duration(seconds).split()
    assert len(parts) <= 2
    total, least = 0.0, 0.0
    for part in parts:
        unit = part.lstrip("0123456789.")
        total += float(part.removesuffix(unit)) * seconds_of[unit]
        least = seconds_of[unit]
    assert abs(total - seconds) <= least


def test_times():
    """Times for people are in a given time zone, and times for programs in UTC."""
    assert units.format_time(NIGHT, timezone.utc) == "2026-11-21 02:05:27 UTC"
    assert units.format_time(NIGHT, BERLIN) == "2026-11-21 03:05:27 CET"
    assert units.format_iso(NIGHT) == "2026-11-21T02:05:27.250Z"
    assert units.format_iso(NIGHT, timespec="seconds") == "2026-11-21T02:05:27Z"
    assert units.format_local_iso(NIGHT, BERLIN) == "2026-11-21T03:05:27.250+01:00"
    assert units.format_local_iso(NIGHT, timezone.utc) == "2026-11-21T02:05:27.250+00:00"
    assert units.format_age(NIGHT, NIGHT + 185) == "3m 5s ago"


def test_the_time_of_day():
    """The date is added only if the time is not on the current day."""
    assert units.format_clock(NIGHT, NIGHT + 60, BERLIN) == "03:05:27"
    assert units.format_clock(NIGHT, None, BERLIN) == "03:05:27"
    assert units.format_clock(NIGHT, NIGHT + 60, BERLIN, is_exact=True) == "03:05:27.250"
    assert units.format_clock(NIGHT, NIGHT + 86_400, BERLIN) == "11-21 03:05"
    assert units.format_clock(NIGHT, NIGHT + 86_400, BERLIN, is_exact=True) == "11-21 03:05"


def test_dates_of_reports():
    """Dates in reports are in the time zone of the given time."""
    when = datetime(2026, 11, 21, 3, 5, tzinfo=timezone(timedelta(hours=1)))
    assert units.format_date(when) == "2026-11-21"
    assert units.format_minute(when) == "2026-11-21 03:05"


def test_stamps_in_names_of_files():
    """Time stamps in UTC end in `Z`, and time stamps in the local time zone have no suffix."""
    assert units.format_stamp(NIGHT) == "20261121T020527Z"
    assert units.format_stamp(NIGHT, is_exact=True) == "20261121T020527.250Z"
    assert re.fullmatch(r"2026112[01]T[0-9]{6}", units.format_stamp(NIGHT, None))


@pytest.mark.parametrize("time", [None, math.nan, math.inf, -1e300, 1e300])
def test_times_that_no_clock_shows(time):
    """Unknown times, and times outside the supported range, are formatted as `-`."""
    assert units.format_time(time) == "-"
    assert units.format_clock(time, NIGHT) == "-"
    assert units.format_iso(time) is None
