"""The command `trainvitals`: help, usage, exit codes and errors of one line."""

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.cli import main, parse_expected
from trainvitals.collectors import COLLECTORS
from trainvitals.errors import ConfigurationError

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "serve",
    "up",
    "down",
    "status",
    "logs",
    "notify",
    "drill",
    "doctor",
    "top",
    "diagnose",
    "postmortem",
    "profile",
    "record",
    "plot",
    "report",
    "docker-logging",
)


def run(*arguments, **environ):
    """Run the command as a process."""
    return subprocess.run(
        [sys.executable, "-m", "trainvitals", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "exporter"), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def leave(capsys, *arguments):
    """Run the command here, where it must end by itself; give code, output and errors."""
    with pytest.raises(SystemExit) as left:
        main(arguments)
    out, err = capsys.readouterr()
    return left.value.code, out, err


@pytest.mark.parametrize("command", [(), *((command,) for command in COMMANDS)])
def test_help_has_examples(capsys, command):
    """Every command explains itself with examples that name it and exit codes, and exits with 0."""
    code, out, err = leave(capsys, *command, "--help")
    assert (code, err) == (0, "")
    examples = out.partition("\nExamples:\n")[2]
    assert f"trainvitals {' '.join(command)}" in examples
    assert "\nExit codes: 0 " in examples
    assert max(map(len, out.splitlines())) < 100


def test_all_commands_are_tested_here(capsys):
    """The list of commands in the help is the list above."""
    _, out, _ = leave(capsys, "--help")
    listed = re.findall(r"^    ([\w-]+)(?: |$)", out.partition("COMMAND")[2], re.MULTILINE)
    assert tuple(dict.fromkeys(listed)) == COMMANDS


def test_help_of_serve_names_every_collector_and_flag(capsys):
    """Each collector can be turned off, and the flags are those of other exporters."""
    _, out, _ = leave(capsys, "serve", "--help")
    for entry in COLLECTORS:
        assert f"--collector.{entry.name}, --no-collector.{entry.name}" in out
    for flag in ("--web.listen-address", "--web.config.file", "--log.level", "--log.format"):
        assert flag in out


def test_an_early_interrupt_is_no_traceback(monkeypatch):
    """Ctrl-C while the commands are still being imported ends the program without a word."""

    def press() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trainvitals.cli._build_parser", press)
    assert main(["status"]) == 2


def test_version_is_the_packages():
    """`--version` and pyproject.toml agree."""
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"$', pyproject, re.MULTILINE)[1]
    answer = run("--version")
    assert (answer.returncode, answer.stdout) == (0, f"trainvitals {version}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("sing",),
        ("--loud",),
        ("serve", "--loud"),
        ("serve", "extra"),
        ("serve", "--web.listen", "127.0.0.1:0"),
        ("serve", "--log.level=loud"),
        ("serve", "--log.format=xml"),
        ("serve", "--no-collector.weather"),
        ("status", "--exporter-port=many"),
    ],
)
def test_wrong_usage_exits_with_2(capsys, arguments):
    """What the command does not know is said below the usage, and nothing runs."""
    code, out, err = leave(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: trainvitals")
    assert "error: " in err.splitlines()[-1]


def test_a_taken_port_is_one_line_that_names_the_holder():
    """It cannot run: exit code 2, and no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        answer = run("serve", f"--web.listen-address=127.0.0.1:{port}")
    assert answer.returncode == 2
    assert answer.stdout == ""
    *before, line = answer.stderr.splitlines()
    assert all(" info " in log for log in before)
    assert line.startswith(f"trainvitals: cannot listen on 127.0.0.1:{port}: the port is held by ")
    assert f"(pid {os.getpid()}); stop it or choose another with --web.listen-address" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--web.listen-address=9200",),
            "9200",
        ),
        (
            ("--accelerators.expected=8",),
            "--accelerators.expected=8: write gpu=N or hpu=N, as in gpu=8",
        ),
        (
            ("--accelerators.memory-limit=lots",),
            "--accelerators.memory-limit='lots': write a size above 0 such as 7.5GB, 40GiB or ",
        ),
        (
            ("--web.config.file=/nonexistent/web.yml",),
            "/nonexistent/web.yml",
        ),
    ],
)
def test_a_configuration_that_cannot_be_is_one_line(arguments, words):
    """The exit code is 2, and the line says what is wrong."""
    answer = run("serve", "--web.listen-address=127.0.0.1:0", *arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("trainvitals: ")
    assert words in line


def test_a_stack_that_does_not_run_is_a_problem_that_was_found(tmp_path):
    """`trainvitals status` exits with 1 where nothing runs, and says so."""
    answer = run("status", "--state-dir", str(tmp_path))
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    assert answer.stdout + answer.stderr != ""


@pytest.mark.parametrize("arguments", [("serve", "--help"), ("status",)])
def test_a_reader_that_goes_away_is_no_traceback(tmp_path, arguments):
    """Output into a pipe that nobody reads any more ends quietly."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        answer = subprocess.run(
            [sys.executable, "-m", "trainvitals", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT / "exporter")},
            cwd=tmp_path,
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert "Traceback" not in answer.stderr


def test_output_that_cannot_be_written_is_one_line(tmp_path):
    """A full disk is said, and is not exit code 0."""
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        answer = subprocess.run(
            [sys.executable, "-m", "trainvitals", "status"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "exporter")},
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert answer.returncode == 2
    assert answer.stderr == "trainvitals: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", ">&- 2>&-"])
@pytest.mark.parametrize(
    "arguments", ["doctor --checks=swap", "top --once", "record --once --output -"]
)
def test_streams_that_are_closed_are_no_traceback(tmp_path, arguments, closed):
    """Nobody wants to read it, and nothing else fails."""
    answer = subprocess.run(
        f"exec {sys.executable} -m trainvitals {arguments} {closed}",
        env={**os.environ, "PYTHONPATH": str(ROOT / "exporter")},
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_file_never_gets_the_number_of_a_closed_stream(tmp_path):
    """What is said to a standard output that is closed does not stand in the recording."""
    file = tmp_path / "run.jsonl"
    answer = subprocess.run(
        f"exec {sys.executable} -m trainvitals record --once --output {file} >&- 2>&-",
        env={**os.environ, "PYTHONPATH": str(ROOT / "exporter")},
        shell=True,
        check=False,
    )
    assert answer.returncode == 0
    (line,) = file.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["snapshot"] == 1


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], {}),
        (["gpu=8"], {"gpu": 8}),
        (["gpu=8", "hpu=0"], {"gpu": 8, "hpu": 0}),
        (["gpu=8", "gpu=4"], {"gpu": 4}),
    ],
)
def test_expected_accelerators(texts, expected):
    """Each kind has its number; the last one counts."""
    assert parse_expected(texts) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "gpu",
        "gpu=",
        "gpu=-1",
        "gpu=8.0",
        "tpu=8",
        "GPU=8",
        "gpu=8,hpu=8",
        "gpu=²",
        "gpu=" + 5000 * "8",
    ],
)
def test_other_numbers_of_accelerators_are_refused(text):
    """The message repeats what was written and shows how to write it."""
    with pytest.raises(ConfigurationError) as refused:
        parse_expected([text])
    assert str(refused.value) == (
        f"--accelerators.expected={text}: write gpu=N or hpu=N, as in gpu=8"
    )


@given(st.text())
def test_any_text_is_a_number_of_accelerators_or_refused(text):
    """Nothing but a ConfigurationError comes of it."""
    with suppress(ConfigurationError):
        assert parse_expected([f"gpu={text}"])["gpu"] >= 0
