"""Parse a saved kernel log in any of the formats that common commands write.

The supported formats are those of `dmesg`, `dmesg -T`, `dmesg --time-format iso`,
`/var/log/kern.log` and other syslog files, the short formats of `journalctl -k`, and the records of
`/dev/kmsg`. Month names may be in languages other than English.
"""

from __future__ import annotations

import datetime as dt
import re
import time as clocks
import unicodedata
from collections.abc import Callable, Mapping

from trainvitals.foreign_text import strip_escape_codes
from trainvitals.sources.host.kernel_lines import KernelLines, KernelNews

_Read = Callable[[re.Match[str]], float]
_EPOCH = dt.date(1970, 1, 1)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# The first letters of month names in other languages, as `strftime` writes them for `LC_TIME`.
_FOREIGN = (
    ("янв", "jan", "ene", "gen", "sty", "led", "oca", "січ"),
    ("фев", "feb", "fév", "fev", "lut", "úno", "şub", "лют", "helmi"),
    ("мар", "mar", "mär", "mrt", "bře", "бер", "maalis"),  # noqa: RUF001
    ("апр", "apr", "avr", "abr", "kwi", "dub", "nis", "кві", "huhti"),
    ("мая", "май", "mai", "may", "maj", "mag", "mei", "kvě", "тра", "touko"),
    ("июн", "jun", "juin", "giu", "cze", "čer", "haz", "чер", "kesä"),
    ("июл", "jul", "juil", "lug", "lip", "čvc", "červenec", "tem", "лип", "heinä"),
    ("авг", "aug", "aoû", "ago", "sie", "srp", "ağu", "сер", "elo"),  # noqa: RUF001
    ("сен", "sep", "set", "wrz", "zář", "eyl", "вер", "syys"),
    ("окт", "oct", "okt", "out", "ott", "paź", "říj", "eki", "жов", "loka"),
    ("ноя", "nov", "lis", "kas", "лис", "marras"),
    ("дек", "dec", "dez", "des", "dic", "déc", "gru", "pro", "ara", "гру", "joulu"),  # noqa: RUF001
)
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_CLOCK = (
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?P<fraction>[.,][0-9]{1,9})?"
)
_DATE = r"(?P<year>[0-9]{4})-(?P<number>[0-9]{2})-(?P<day>[0-9]{2})"
_ZONE = r"(?P<zone>Z|[A-Z]{3,5}|[+-][0-9]{2}(?::?[0-9]{2})?)"
_HOST = r"(?:[^ ]{1,255} kernel(?:\[[0-9]+\])?: )"
_UPTIME = r"\[ *(?P<uptime>[0-9]{1,10}\.[0-9]{1,9})\](?:\[ *[TC][0-9]+\])?"
_LEVEL = re.compile(r"^(?:<[0-9]{1,4}>|[a-z0-9]{2,8} *:[a-z]{2,8} *: )")

_RECORD = re.compile(r"[0-9]{1,6},[0-9]{1,20},(?P<micros>[0-9]{1,18}),[^;]{0,64};(?P<text>.*)")
_SINCE_BOOT = re.compile(rf"{_UPTIME} {_HOST}?(?P<text>.*)")
_CTIME = re.compile(
    rf"\[?[A-Z][a-z]{{2}} {_MONTH} +(?P<day>[0-9]{{1,2}}) {_CLOCK} (?P<year>[0-9]{{4}})\]? (?P<text>.*)"
)
_ISO = re.compile(rf"(?:[^\s0-9]{{1,6}} )?{_DATE}[T ]{_CLOCK} ?{_ZONE}? {_HOST}?(?P<text>.*)")
_SYSLOG = re.compile(rf"{_MONTH} +(?P<day>[0-9]{{1,2}}) {_CLOCK} {_HOST}(?P<text>.*)")
_OTHER_SYSLOG = re.compile(
    rf"(?P<text>{_MONTH} +(?P<day>[0-9]{{1,2}}) {_CLOCK} [^ ]{{1,255}} [^ ]{{1,80}}: .*)"
)
# Month and day in any order and language: `28. Apr`, `апр 28`, `4月 28`.
_DAY_OF_MONTH = r"(?P<date>[^\s:\[\]]{1,12} {1,2}[^\s:\[\]]{1,12}) {1,2}"
_FOREIGN_SYSLOG = re.compile(rf"{_DAY_OF_MONTH}{_CLOCK} {_HOST}(?P<text>.*)")
_FOREIGN_CTIME = re.compile(
    rf"\[[^\s\[\]]{{1,12}} {{1,2}}{_DAY_OF_MONTH}{_CLOCK} (?P<year>[0-9]{{4}})\] (?P<text>.*)"
)
_NUMBER = re.compile(r"[0-9]{1,2}")
_UNIX = re.compile(rf"(?P<unix>[0-9]{{9,10}}\.[0-9]{{1,9}}) {_HOST}(?P<text>.*)")
_ANY_UPTIME = re.compile(rf"^{_UPTIME} ")

_MOST_CHARACTERS = 8 << 20
_MOST_LINES = 200_000
_MICROSECONDS = 1_000_000
_BOOT = "Linux version "
_EARLIEST_DATE = 946_684_800.0  # 2000-01-01; no kernel runs for 30 years
_DAY_SECONDS, _HOUR_SECONDS, _MINUTE_SECONDS = 86_400, 3_600, 60


def parse_kernel_text(text: str, *, now: float, boot_time: float | None = None) -> KernelNews:
    """Parse the lines of a saved kernel log, the oldest first.

    A time without a time zone is interpreted in the time zone of this process. If the text is
    longer than 8 388 608 characters or 200 000 lines, only the end of the text is parsed. Lines
    that report none of the events in `KernelNews` are ignored.

    Args:
        text: The lines of the saved kernel log.
        now: The time at which the log was saved, in seconds since 1970, or a later time in the same
            year. A date without a year is interpreted as the latest such date that is at most one
            day after `now`.
        boot_time: The time at which the machine booted, in seconds since 1970, which is added to
            times since boot. None means that the last line was written at `now`. 0 means that the
            boot time is unknown; the result's times are then seconds since boot, and lines before
            the first time have the time 0 (see `is_since_boot`).
    """
    # The text is not split at other line separators, because a process name may contain them.
    lines = [line.rstrip("\r") for line in _take_end(text)]
    understood = KernelLines()
    stamps = _Stamps(now, _find_boot_time(lines, now) if boot_time is None else boot_time)
    time = stamps.last
    for line in lines:
        if line.startswith(" ") and not line.lstrip().startswith("NVRM:"):
            continue  # a line with details about a device, from `/dev/kmsg`
        stamped = stamps.split(_tidy(line))
        time, message = (time, line.lstrip()) if stamped is None else stamped
        understood.take(time, message)
    return understood.collect()


def counts_from_boot(text: str) -> bool:
    """Return whether a saved kernel log contains times since boot instead of dates."""
    lines = map(_tidy, _take_end(text))
    return any(_RECORD.fullmatch(line) or _SINCE_BOOT.fullmatch(line) for line in lines)


def _take_end(text: str) -> list[str]:
    """Return the last lines of a saved kernel log, up to the maximum size that is parsed."""
    return text[-_MOST_CHARACTERS:].rsplit("\n", _MOST_LINES)[-_MOST_LINES:]


def drop_earlier_boots(text: str) -> str:
    """Return the lines of a saved kernel log from the last boot onward."""
    at = text.rfind(_BOOT)
    return text if at < 0 else text[text.rfind("\n", 0, at) + 1 :]


def is_since_boot(time: float) -> bool:
    """Return whether a time is in seconds since boot, rather than in seconds since 1970."""
    return time < _EARLIEST_DATE


class _Stamps:
    """Parses the times at the start of kernel log lines.

    Attributes:
        last: The time in the last line that contained a time. Before the first such line, the value
            is `now`, or 0 if the boot time is unknown.
    """

    def __init__(self, now: float, boot_time: float) -> None:
        self._now = now
        self.last = 0.0 if boot_time == 0.0 else now
        self._kinds: tuple[tuple[re.Pattern[str], _Read], ...] = (
            (_RECORD, lambda found: boot_time + int(found["micros"]) / _MICROSECONDS),
            (_SINCE_BOOT, lambda found: boot_time + float(found["uptime"])),
            (_CTIME, lambda found: _read_date(found.groupdict(), int(found["year"]))),
            (_ISO, lambda found: _read_date(found.groupdict(), int(found["year"]))),
            (_SYSLOG, self._guess_year),
            (_OTHER_SYSLOG, self._guess_year),
            (_FOREIGN_CTIME, self._guess_month),
            (_FOREIGN_SYSLOG, self._guess_month),
            (_UNIX, lambda found: float(found["unix"])),
        )

    def split(self, line: str) -> tuple[float, str] | None:
        """Return a line's time and text; None if the line does not begin with a time."""
        for pattern, read in self._kinds:
            found = pattern.fullmatch(line)
            if found is None:
                continue
            try:
                time = read(found)
            except (ValueError, OverflowError):  # the date does not exist
                return None
            self.last = time
            return time, _ANY_UPTIME.sub("", found["text"], count=1)
        return None

    def _guess_year(self, found: re.Match[str]) -> float:
        return self._choose_year(found.groupdict())

    def _guess_month(self, found: re.Match[str]) -> float:
        parts = found.groupdict()
        month, day = parts["date"].split()
        if not _NUMBER.match(day):  # `28. Apr`
            month, day = day, month
        number, of_month = _read_month(month), _NUMBER.match(day)
        if number is None or of_month is None:  # the language is unknown
            return self.last
        return self._choose_year({**parts, "number": str(number), "day": of_month[0]})

    def _choose_year(self, parts: Mapping[str, str]) -> float:
        if "year" in parts:
            return _read_date(parts, int(parts["year"]))
        year = clocks.localtime(self._now).tm_year
        time = _read_date(parts, year)
        return time if time <= self._now + _DAY_SECONDS else _read_date(parts, year - 1)


def _read_month(name: str) -> int | None:
    """Return the number of the month with a name in any language; None if it is unknown."""
    if number := _NUMBER.match(name):  # `4月`
        return int(number[0])
    lower = unicodedata.normalize("NFC", name).lower()
    named = [
        (len(start), at)
        for at, starts in enumerate(_FOREIGN, 1)
        for start in starts
        if lower.startswith(start)
    ]
    return max(named)[1] if named else None


def _read_date(parts: Mapping[str, str], year: int) -> float:
    month = int(parts["number"]) if "number" in parts else 1 + _MONTHS.index(parts["month"])
    day, hour, minute, second = (int(parts[name]) for name in ("day", "hour", "minute", "second"))
    fraction = float("0." + (parts["fraction"] or ".0")[1:])
    zone = parts.get("zone")
    midnight = dt.date(year, month, day)  # raises ValueError if the day does not exist
    if zone is not None and zone[0] in "+-":
        shift = int(zone[1:3]) * _HOUR_SECONDS + int(zone[3:].lstrip(":") or "0") * _MINUTE_SECONDS
        shift = -shift if zone[0] == "-" else shift
    elif zone in {"Z", "UTC", "GMT"}:
        shift = 0
    else:  # no time zone, or a name, which is interpreted as the local time zone
        return clocks.mktime((*midnight.timetuple()[:3], hour, minute, second, 0, 0, -1)) + fraction
    days = midnight.toordinal() - _EPOCH.toordinal()
    seconds = hour * _HOUR_SECONDS + minute * _MINUTE_SECONDS + second - shift
    return days * _DAY_SECONDS + seconds + fraction


def _find_boot_time(lines: list[str], now: float) -> float:
    """Return the boot time if the last line with a time since boot was written at `now`."""
    for line in reversed(lines):
        line = _tidy(line)  # noqa: PLW2901 - the same line
        if found := _RECORD.fullmatch(line):
            return now - int(found["micros"]) / _MICROSECONDS
        if found := _SINCE_BOOT.fullmatch(line):
            return now - float(found["uptime"])
    return now


def _tidy(line: str) -> str:
    """Remove color codes and a leading log level from a kernel log line."""
    return _LEVEL.sub("", strip_escape_codes(line), count=1)
