"""Log lines: text for people, JSON for programs."""

import io
import json
import logging
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.logs import FORMATS, LEVELS, StructuredFormatter, TextFormatter, set_up_logging

TIMESTAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def lines():
    """Logs into memory; gives what was written and leaves logging as it was."""
    logger = logging.getLogger("trainvitals")
    before = logger.handlers[:], logger.level, logger.propagate
    stream = io.StringIO()

    def set_up(level, format_):
        set_up_logging(level, format_, stream=stream)
        return lambda: stream.getvalue().splitlines()

    yield set_up
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def refuse(token):
    """Refuse what JSON does not have."""
    raise AssertionError(token)


def format_json(message="hello", level=logging.INFO, exc_info=None, **extra):
    """Format a record and read it again."""
    record = logging.LogRecord(
        "trainvitals.x", level, "/a/scrape.py", 7, message, (), exc_info, "run"
    )
    vars(record).update(extra)
    line = StructuredFormatter().format(record)
    assert "\n" not in line
    return json.loads(line, parse_constant=refuse)


def test_a_line_of_json_has_exactly_these_fields(lines):
    """Timestamp, level, logger, message, module, function and line, in this order."""
    written = lines("info", "json")
    logging.getLogger("trainvitals.training").info("Training %s", "started")
    entry = json.loads(written()[0])
    assert re.fullmatch(TIMESTAMP, entry.pop("timestamp"))
    assert isinstance(entry.pop("line"), int)
    assert entry == {
        "level": "INFO",
        "logger": "trainvitals.training",
        "message": "Training started",
        "module": "test_logs",
        "function": "test_a_line_of_json_has_exactly_these_fields",
    }
    assert list(json.loads(written()[0])) == [
        "timestamp",
        "level",
        "logger",
        "message",
        "module",
        "function",
        "line",
    ]


def test_extras_follow(lines):
    """The card, the batch and the collector of a message are fields of their own."""
    written = lines("info", "json")
    logging.getLogger("trainvitals").info(
        "Training started", extra={"hpu_id": 0, "batch_idx": 1, "collector": "cpu"}
    )
    entry = json.loads(written()[0])
    assert list(entry)[7:] == ["hpu_id", "batch_idx", "collector"]
    assert (entry["hpu_id"], entry["batch_idx"], entry["collector"]) == (0, 1, "cpu")


def test_an_exception_is_one_field_of_one_line(lines):
    """The traceback is in the line, with its line feeds escaped."""
    written = lines("info", "json")
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logging.getLogger("trainvitals").exception("it broke")
    (line,) = written()
    exception = json.loads(line)["exception"]
    assert exception.startswith("Traceback (most recent call last):\n")
    assert exception.endswith("ZeroDivisionError: division by zero")


def test_extras_that_json_does_not_know_become_text():
    """Paths, numbers that are none, odd keys and circles do not break the line."""
    circle = []
    circle.append(circle)
    assert format_json(path=Path("/data"))["path"] == "/data"
    entry = format_json(loss=math.nan, hpu_id=3, table={(1, 2): 3}, circle=circle)
    assert (entry["loss"], entry["hpu_id"]) == ("nan", 3)
    assert entry["table"] == "{(1, 2): 3}"
    assert entry["circle"] == "[[...]]"


def test_extras_cannot_pass_for_the_fields():
    """An extra named like a field does not replace it."""
    entry = format_json("real", level=logging.ERROR, timestamp="never", line=-1, level_="x")
    assert (entry["message"], entry["level"], entry["line"]) == ("real", "ERROR", 7)
    assert entry["timestamp"] != "never"


@given(st.text(), st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.binary()))
def test_any_message_and_extra_make_one_line_of_json(message, extra):
    """Whatever is logged can be read again, in plain ASCII."""
    entry = format_json(message.replace("%", ""), extra=extra)
    assert entry["message"] == message.replace("%", "")


def test_a_line_of_text_has_time_level_and_message(lines):
    """A message is one line, even with a hostile name in it."""
    written = lines("debug", "text")
    logger = logging.getLogger("trainvitals.scrape")
    logger.warning("collector %s: %s", "cpu", "no\n2026-01-01 info all is well")
    assert re.fullmatch(
        TIMESTAMP + r" warning collector cpu: no\\n2026-01-01 info all is well", written()[0]
    )
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logger.exception("it broke")
    assert written()[2] == "Traceback (most recent call last):"
    assert written()[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_levels(lines, level, shown):
    """What is below the level is not written."""
    written = lines(level, "text")
    logger = logging.getLogger("trainvitals.x")
    for name in LEVELS:
        getattr(logger, name)("said")
    assert [line.split()[1] for line in written()] == shown


def test_set_up_twice_writes_once(lines):
    """The second call replaces the first."""
    lines("info", "json")
    written = lines("info", "text")
    logging.getLogger("trainvitals").info("once")
    assert len(written()) == 1


def test_the_root_logger_is_left_alone():
    """A program that embeds the package keeps its own logging, and logs go to standard error."""
    code = (
        "import logging; from trainvitals.logs import set_up_logging;"
        "set_up_logging('info', 'text'); logging.getLogger('trainvitals').info('ours');"
        "print(logging.getLogger().handlers)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(Path(__file__).parents[1] / "exporter")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "[]\n"
    assert re.fullmatch(TIMESTAMP + " info ours\n", answer.stderr)


def test_formatters_are_the_two_that_can_be_chosen():
    """Each format of the flag has its formatter."""
    assert FORMATS == ("text", "json")
    assert issubclass(StructuredFormatter, logging.Formatter)
    assert issubclass(TextFormatter, logging.Formatter)
