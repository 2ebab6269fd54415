"""Log lines on standard error: text for people, JSON for programs.

A line of JSON has `timestamp` (ISO 8601, UTC), `level`, `logger`, `message`, `module`,
`function`, `line`, `exception` where there is one, and whatever was given as `extra`, such as
`hpu_id`, `batch_idx` or `collector`.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

_KNOWN = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}


class StructuredFormatter(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record; values that JSON does not know become their text."""
        import json  # noqa: PLC0415 - only those who ask for JSON pay for it

        entry: dict[str, object] = {
            "timestamp": _write_time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "module": record.module,
            "function": record.funcName,
            "line": record.lineno,
        }
        if record.exc_info and record.exc_info[0] is not None:
            entry["exception"] = self.formatException(record.exc_info)
        extra = {key: value for key, value in vars(record).items() if key not in _KNOWN}
        try:
            return json.dumps(entry | extra | entry, default=str, allow_nan=False)
        except (ValueError, TypeError):  # no number, circular, keys that are no text
            texts = {
                key: value if type(value) is int else str(value) for key, value in extra.items()
            }
            return json.dumps(entry | texts | entry)


class TextFormatter(logging.Formatter):
    """Writes a record as time, level and message, and a traceback below where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        message = record.getMessage().replace("\n", "\\n")
        line = f"{_write_time(record.created)} {record.levelname.lower()} {message}"
        if record.exc_info and record.exc_info[0] is not None:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up_logging(level: str, format_: str, *, stream: TextIO | None = None) -> None:
    """Send what trainvitals logs to a stream.

    Args:
        level: One of `LEVELS`.
        format_: One of `FORMATS`.
        stream: Where to; standard error when None.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(StructuredFormatter() if format_ == "json" else TextFormatter())
    logger = logging.getLogger("trainvitals")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def _write_time(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
