"""The logging of trainvitals to standard error, and loggers for training scripts.

`set_up_logging` configures the `trainvitals` logger, which writes lines of text or JSON. Training
scripts create a logger with `setup_logger`, and log the duration of a block with `log_time`.

A JSON line contains `timestamp` (ISO 8601, UTC), `level`, `logger`, `message`, `module`,
`function`, `line`, `exception` if an exception is logged, and the fields of `extra`, such as
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
from trainvitals.units import format_iso

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")

_KNOWN = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}
_CONSOLE = "trainvitals.console"  # the name of the handler that writes to standard output


class StructuredFormatter(logging.Formatter):
    """A formatter that writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON; values that JSON does not support are converted to strings."""
        import json  # noqa: PLC0415 - only where JSON is chosen

        entry: dict[str, object] = {
            "timestamp": format_iso(record.created),
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
        except (ValueError, TypeError):  # for NaN, circular references, or keys that are not text
            texts = {
                key: value if type(value) is int else str(value) for key, value in extra.items()
            }
            return json.dumps(entry | texts | entry)


class TextFormatter(logging.Formatter):
    """A formatter that writes a record as time, level, message and, if present, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        message = record.getMessage().replace("\n", "\\n")
        line = f"{format_iso(record.created)} {record.levelname.lower()} {message}"
        if record.exc_info and record.exc_info[0] is not None:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up_logging(level: str, format_: str, *, stream: TextIO | None = None) -> None:
    """Configure the level, format and output of the `trainvitals` logger.

    Args:
        level: The minimum level that is logged, one of `LEVELS`.
        format_: The format of the log lines, one of `FORMATS`.
        stream: The stream to log to; None for standard error.
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
    """Return a logger that writes to standard output and optionally to a file.

    Lines have the form `2025-10-07 10:00:00 - training - INFO - Training started`, in local time. A
    second call with the same name sets the level and adds only missing handlers, so that each line
    is written once.

    Args:
        name: The name of the logger, which is passed to `logging.getLogger`.
        log_file: The file to which lines are appended, in UTF-8; missing directories are created.
            If None, no file is written.
        level: The minimum level that is logged, as a number or a level name of `logging`.

    Raises:
        ConfigurationError: The file cannot be written, or the level does not exist.
    """
    logger = logging.getLogger(name)
    try:
        logger.setLevel(level.upper() if isinstance(level, str) else level)
    except ValueError as error:
        raise ConfigurationError(f"level={level}: use one of {', '.join(LEVELS)}") from error
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
            handler.setStream(sys.stdout)  # `sys.stdout` may have been replaced
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
    """Log the duration of a block at level INFO, such as `Data loading took 1.25 seconds`.

    The duration is also logged if an exception ends the block; the exception propagates. Use
    `log_time` in a `with` statement or as a function decorator. The duration is measured with the
    monotonic clock.

    Args:
        logger: The logger that receives the message.
        operation: The name of the operation, which begins the log line.
    """
    start = time.monotonic()
    try:
        yield
    finally:
        duration_seconds = time.monotonic() - start
        # Skip the frames of this function and of contextlib, so that the record contains the
        # location of the `with` statement.
        logger.info("%s took %.2f seconds", operation, duration_seconds, stacklevel=3)
