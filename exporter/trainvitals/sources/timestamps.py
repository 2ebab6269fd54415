"""Parse timestamps from container engines, journald and Prometheus: RFC 3339 and variants."""

from __future__ import annotations

import re
from calendar import timegm
from datetime import datetime, timezone

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,12}))?(?:Z|([+-])(\d\d):?(\d\d))(?: |$)",
    re.ASCII,
)


def parse_time(text: str) -> float | None:
    """Return the timestamp at the start of a text, in Unix seconds.

    The result is None if the text does not start with a valid timestamp.

    A fraction of a second may have up to twelve digits, after a point or a comma. A time without a
    time zone is invalid. A time before 1970 is also invalid: in Go programs, the time
    `0001-01-01T00:00:00Z` means "never".
    """
    # Before Python 3.11, datetime.fromisoformat accepts neither nanoseconds nor `Z`.
    found = _TIME.match(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.group(1, 2, 3, 4, 5, 6))
    try:  # datetime has no leap seconds: use the second before
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
    except ValueError:
        return None
    seconds = timegm(moment.timetuple()) + float(f"0.{found[7] or 0}")
    if found[8]:
        offset = int(found[9]) * 3600 + int(found[10]) * 60
        seconds += offset if found[8] == "-" else -offset
    return seconds if seconds > 0 else None
