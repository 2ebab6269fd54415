"""Fields of log records that are named after an error but report that there was none."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

_TROUBLE = re.compile(
    r"err|exc|fail|fault|kill|oom|nan|inf|time_?d?_?out|crash|abort|lost|hang|hung|preempt|evict|corrupt"
    r"|xid|overflow|terminated|stall|signal|reason",
    re.IGNORECASE,
)
_EMPTY = r"(?:0(?:\.0{1,6})?|null|none|false|\"\"|''|\[\]|\{\}|[\"'](?:none|null|ok|0)[\"'])"
_FIELD = re.compile(
    rf"(?<=[{{,\[ (])([\"'])([\w.-]{{1,80}})\1 ?: ?{_EMPTY}(?=[,}}\]])"
    rf"|(?<![^\s,;|(])([a-z][\w.-]{{0,79}})={_EMPTY}(?![^\s,;|)])",
    re.IGNORECASE,
)
_EARLIER = re.compile(
    r"\"(?:last|prev|previous|earlier)_[\w.-]{0,20}(?:error|exception|failure|reason|exit)[\w.-]{0,20}\" ?: ?"
    r"\"[^\"]{1,400}\""
)
_OF_STEP = re.compile(r"\"(?:[\w.-]{0,20}_)?(?:step|iter|iteration|epoch)\" ?: ?[0-9]")
_MOST_NEW = 3
_SIGNS = ('":', "':", "=")


def drop_empty_fields(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return log lines without the fields that are named after an error and have an empty value.

    A record with `"oom_kills": 0, "killed": false` or `errors=0` reports that there was no error.
    If more than three step records contain the same `"last_error"`, the program survived this
    error, so this field is also removed.
    """
    record, other, pair = _SIGNS
    return _drop_earlier(
        tuple(
            _FIELD.sub(_keep, line) if record in line or pair in line or other in line else line
            for line in lines
        )
    )


def _keep(found: re.Match[str]) -> str:
    """Return the text of a field, or an empty string if the field is to be removed.

    A field is removed if it is named after an error, unless its name is in upper case, as in an
    environment variable.
    """
    is_variable = found[3] is not None and found[3].isupper()
    return found[0] if is_variable or not _is_trouble(found[2] or found[3]) else ""


@lru_cache(maxsize=1024)  # a log contains the same fields many times
def _is_trouble(name: str) -> bool:
    return _TROUBLE.search(name) is not None


def _drop_earlier(lines: tuple[str, ...]) -> tuple[str, ...]:
    found = {
        at: earlier[0]
        for at, line in enumerate(lines)
        if "_" in line and (earlier := _EARLIER.search(line)) and _OF_STEP.search(line)
    }
    times = Counter(found.values())
    return tuple(
        line.replace(found[at], "") if times[found.get(at, "")] > _MOST_NEW else line
        for at, line in enumerate(lines)
    )
