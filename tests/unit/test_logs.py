"""Tests for log lines, as text and as JSON."""

import io
import json
import logging
import math
import re
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import ConfigurationError
from trainvitals.logs import (
    FORMATS,
    LEVELS,
    StructuredFormatter,
    TextFormatter,
    log_time,
    set_up_logging,
    setup_logger,
)

TIMESTAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def lines():
    """Yield a function that logs to memory, and restore the configuration of logging afterwards."""
    logger = logging.getLogger("trainvitals")
    before = logger.handlers[:], logger.level, logger.propagate
    stream = io.StringIO()

    def set_up(level, format_):
        set_up_logging(level, format_, stream=stream)
        return lambda: stream.getvalue().splitlines()

    yield set_up
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


@pytest.fixture
def name(request):
    """Yield the name of a logger whose handlers are removed after the test."""
    name = f"tests.{request.node.name}"
    yield name
    logger = logging.getLogger(name)
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()


def refuse(token):
    """Raise AssertionError for a constant that JSON does not have, such as NaN."""
    raise AssertionError(token)


def format_json(message="hello", level=logging.INFO, exc_info=None, **extra):
    """Format a record as JSON and return the parsed line."""
    record = logging.LogRecord(
        "trainvitals.x", level, "/a/scrape.py", 7, message, (), exc_info, "run"
    )
    vars(record).update(extra)
    line = StructuredFormatter().format(record)
    assert "\n" not in line
    return json.loads(line, parse_constant=refuse)


def test_a_line_of_json_has_exactly_these_fields(lines):
    """A JSON line contains seven fields in a fixed order."""
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
    """Extra values of a message are added as separate fields after the fixed fields."""
    written = lines("info", "json")
    logging.getLogger("trainvitals").info(
        "Training started", extra={"hpu_id": 0, "batch_idx": 1, "collector": "cpu"}
    )
    entry = json.loads(written()[0])
    assert list(entry)[7:] == ["hpu_id", "batch_idx", "collector"]
    assert (entry["hpu_id"], entry["batch_idx"], entry["collector"]) == (0, 1, "cpu")


def test_an_exception_is_one_field_of_one_line(lines):
    """A traceback is one field of the JSON line, with escaped line feeds."""
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
    """Extra values that JSON cannot represent are converted to text."""
    circle = []
    circle.append(circle)
    assert format_json(path=Path("/data"))["path"] == "/data"
    entry = format_json(loss=math.nan, hpu_id=3, table={(1, 2): 3}, circle=circle)
    assert (entry["loss"], entry["hpu_id"]) == ("nan", 3)
    assert entry["table"] == "{(1, 2): 3}"
    assert entry["circle"] == "[[...]]"


def test_extras_cannot_pass_for_the_fields():
    """An extra value with the name of a fixed field does not replace the field."""
    entry = format_json("real", level=logging.ERROR, timestamp="never", line=-1, level_="x")
    assert (entry["message"], entry["level"], entry["line"]) == ("real", "ERROR", 7)
    assert entry["timestamp"] != "never"


@given(st.text(), st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.binary()))
def test_any_message_and_extra_make_one_line_of_json(message, extra):
    """Any message and extra value form one valid line of JSON."""
    entry = format_json(message.replace("%", ""), extra=extra)
    assert entry["message"] == message.replace("%", "")


def test_a_line_of_text_has_time_level_and_message(lines):
    """A text line has a time, a level and a message, and line feeds in the message are escaped."""
    written = lines("debug", "text")
    logger = logging.getLogger("trainvitals.metrics.runner")
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
    """Messages below the configured level are not written."""
    written = lines(level, "text")
    logger = logging.getLogger("trainvitals.x")
    for name in LEVELS:
        getattr(logger, name)("said")
    assert [line.split()[1] for line in written()] == shown


def test_set_up_twice_writes_once(lines):
    """A second call of `set_up_logging` replaces the first handler."""
    lines("info", "json")
    written = lines("info", "text")
    logging.getLogger("trainvitals").info("once")
    assert len(written()) == 1


def test_the_root_logger_is_left_alone():
    """The root logger gets no handler, and messages are written to standard error."""
    code = (
        "import logging; from trainvitals.logs import set_up_logging;"
        "set_up_logging('info', 'text'); logging.getLogger('trainvitals').info('ours');"
        "print(logging.getLogger().handlers)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "exporter")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "[]\n"
    assert re.fullmatch(TIMESTAMP + " info ours\n", answer.stderr)


def test_formatters_are_the_two_that_can_be_chosen():
    """Each log format has a formatter class."""
    assert FORMATS == ("text", "json")
    assert issubclass(StructuredFormatter, logging.Formatter)
    assert issubclass(TextFormatter, logging.Formatter)


def run_script(code, directory):
    """Run a script in a directory, and return its standard output and standard error."""
    answer = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code],
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "exporter")},
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout, answer.stderr


def test_structured_logging_in_a_script_of_ones_own(tmp_path):
    """`StructuredFormatter` works on a handler of the script's own."""
    out, err = run_script(
        """
import logging
from trainvitals.logs import StructuredFormatter

logger = logging.getLogger('gaudi3_scale')
handler = logging.StreamHandler()
handler.setFormatter(StructuredFormatter())
logger.addHandler(handler)
logger.setLevel(logging.INFO)

logger.info("Training started", extra={'hpu_id': 0, 'batch_idx': 1})
""",
        tmp_path,
    )
    entry = json.loads(err)
    assert out == ""
    assert datetime.fromisoformat(entry.pop("timestamp").replace("Z", "+00:00"))
    assert entry == {
        "level": "INFO",
        "logger": "gaudi3_scale",
        "message": "Training started",
        "module": "<string>",
        "function": "<module>",
        "line": 11,
        "hpu_id": 0,
        "batch_idx": 1,
    }


def test_a_script_sets_up_its_logger(tmp_path):
    """The console and the file get the same lines, even after a second call without the file."""
    out, err = run_script(
        """
from trainvitals.logs import setup_logger, log_time

logger = setup_logger('training', 'training.log')
logger.info("Training started")
logger.warning("Learning rate adjusted")
logger.error("Out of memory error")

logger = setup_logger('training')
with log_time(logger, "Data loading"):
    pass
""",
        tmp_path,
    )
    assert err == ""
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d - training - "
    assert re.fullmatch(
        stamp
        + "INFO - Training started\n"
        + stamp
        + "WARNING - Learning rate adjusted\n"
        + stamp
        + "ERROR - Out of memory error\n"
        + stamp
        + r"INFO - Data loading took 0\.00 seconds\n",
        out,
    )
    assert (tmp_path / "training.log").read_text(encoding="utf-8") == out


def test_a_second_call_writes_no_line_twice(name, tmp_path, capsys):
    """Repeated calls do not duplicate lines, and the last call sets the level."""
    path = tmp_path / "training.log"
    for _ in range(3):
        logger = setup_logger(name, path, logging.DEBUG)
    logger.debug("once")
    setup_logger(name, level="warning")
    logger.info("not at all")
    assert capsys.readouterr().out.count("once") == 1
    assert path.read_text(encoding="utf-8").endswith(" - DEBUG - once\n")
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1


def test_a_second_call_follows_standard_output(name, capsys, monkeypatch):
    """If standard output was replaced, a second call logs to the new standard output."""
    setup_logger(name)
    later = io.StringIO()
    monkeypatch.setattr(sys, "stdout", later)
    setup_logger(name).info("said later")
    assert later.getvalue().endswith(" - INFO - said later\n")
    assert capsys.readouterr().out == ""


def test_two_files_get_each_line(name, tmp_path):
    """A second file is added to the first one, and its directory is created."""
    first, second = tmp_path / "a.log", tmp_path / "logs" / "deep" / "b.log"
    setup_logger(name, str(first))
    logger = setup_logger(name, second)
    logger.propagate = (
        False  # a captured record with a surrogate cannot be passed between test workers
    )
    logger.info("caf\u00e9 \udcff")
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().endswith(b" - INFO - caf\xc3\xa9 \\udcff\n")


def test_a_file_that_cannot_be_written_is_named(name, tmp_path):
    """The error for a file that cannot be written names the path and the remedy."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigurationError) as raised:
        setup_logger(name, tmp_path / "taken" / "training.log")
    path = tmp_path / "taken" / "training.log"
    assert str(raised.value) == f"cannot write {path}: File exists; choose another log_file"
    with pytest.raises(ConfigurationError, match=r": Is a directory; choose another log_file$"):
        setup_logger(name, tmp_path)


def test_a_level_that_does_not_exist_is_refused(name):
    """The error for an unknown level names the valid levels."""
    with pytest.raises(ConfigurationError, match=r"^level=loud: use one of debug, info, "):
        setup_logger(name, level="loud")


def test_the_time_of_an_operation_is_logged(name, caplog):
    """The duration is logged in seconds with two decimals, with the caller's function name."""
    with caplog.at_level(logging.INFO, logger=name), log_time(logging.getLogger(name), "90 %s"):
        time.sleep(0.02)
    (record,) = caplog.records
    assert re.fullmatch(r"90 %s took 0\.\d\d seconds", record.getMessage())
    assert float(record.getMessage().split()[3]) >= 0.02
    assert (record.levelname, record.module) == ("INFO", "test_logs")
    assert record.funcName == "test_the_time_of_an_operation_is_logged"


def test_an_operation_that_fails_is_timed_too(name, caplog):
    """The duration of a failed operation is logged, and the exception is raised again."""
    logger = logging.getLogger(name)
    with (
        caplog.at_level(logging.INFO, logger=name),
        pytest.raises(ZeroDivisionError),
        log_time(logger, "Model forward pass"),
    ):
        _ = 1 / 0
    assert re.fullmatch(r"Model forward pass took \d+\.\d\d seconds", caplog.messages[0])


def test_a_function_is_timed_by_decoration(name, caplog):
    """Each call of a decorated function is logged, and its result is returned."""
    logger = logging.LoggerAdapter(logging.getLogger(name), {"rank": 0})

    @log_time(logger, "Validation")
    def validate(loss):
        return loss + 1

    with caplog.at_level(logging.INFO, logger=name):
        assert [validate(1), validate(2)] == [2, 3]
    assert [message.partition(" took ")[0] for message in caplog.messages] == ["Validation"] * 2
    assert caplog.records[0].rank == 0
