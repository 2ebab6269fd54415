"""Log lines: those of trainvitals itself on standard error, and loggers for a training script.

What trainvitals says is text for people or JSON for programs, as `set_up_logging` chooses.
A script makes a logger of its own with `setup_logger`, and `log_time` says how long a part took.

A line of JSON has `timestamp` (ISO 8601, UTC), `level`, `logger`, `message`, `module`,
`function`, `line`, `exception` where there is one, and whatever was given as `extra`, such as
`hpu_id`, `batch_idx` or `collector`.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from trainvitals.errors import ConfigurationError

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

_KNOWN = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}
_CONSOLE = "trainvitals.console"  # the name of the one handler of a logger that writes to stdout


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


def setup_logger(
    name: str,
    log_file: str | os.PathLike[str] | None = None,
    level: int | str = logging.INFO,
) -> logging.Logger:
    """Give a logger that writes to standard output and, where asked to, to a file.

    A line is `2025-10-07 10:00:00 - training - INFO - Training started`, in local time.
    A second call for the same name sets the level and adds only what is missing, so that no line
    is written twice.

    Args:
        name: Which logger, as for `logging.getLogger`.
        log_file: The file that lines are appended to, in UTF-8; its directory is made where it
            is missing. No file is added when None.
        level: The least important lines that are written: a number or name of `logging`.

    Raises:
        ConfigurationError: The file cannot be written, or there is no such level.
    """
    logger = logging.getLogger(name)
    try:
        logger.setLevel(level.upper() if isinstance(level, str) else level)
    except ValueError as error:
        raise ConfigurationError(f"level {level}: write one of {', '.join(LEVELS)}") from error
    formatter = logging.Formatter(
        "%(asctime)s - %(name)s - %(levelname)s - %(message)s", datefmt="%Y-%m-%d %H:%M:%S"
    )
    _add_console(logger, formatter)
    if log_file:
        _add_file(logger, Path(log_file), formatter)
    return logger


def _add_console(logger: logging.Logger, formatter: logging.Formatter) -> None:
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler) and handler.get_name() == _CONSOLE:
            handler.setStream(sys.stdout)  # which may be another one by now
            return
    console = logging.StreamHandler(sys.stdout)
    console.set_name(_CONSOLE)
    console.setFormatter(formatter)
    logger.addHandler(console)


def _add_file(logger: logging.Logger, path: Path, formatter: logging.Formatter) -> None:
    written = [
        handler.baseFilename
        for handler in logger.handlers
        if isinstance(handler, logging.FileHandler)
    ]
    if os.path.abspath(path) in written:  # noqa: PTH100 - spelled as FileHandler does
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {path}: {error.strerror}; choose another log_file"
        ) from error
    file.setFormatter(formatter)
    logger.addHandler(file)


@contextmanager
def log_time(
    logger: logging.Logger | logging.LoggerAdapter[logging.Logger], operation: str
) -> Iterator[None]:
    """Log, at level info, how long what is inside took, as `Data loading took 1.25 seconds`.

    It is logged also where an exception ends the operation; the exception goes on.
    Use it with `with`, or as a decorator of a function. Time is taken from the monotonic clock.

    Args:
        logger: Where to.
        operation: What is timed.
    """
    start = time.monotonic()
    try:
        yield
    finally:
        duration_seconds = time.monotonic() - start
        # Past this function and contextlib's, so that the line names the place of the `with`.
        logger.info("%s took %.2f seconds", operation, duration_seconds, stacklevel=3)


def _write_time(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
