"""Tests for the command line: help, usage errors, exit codes and one-line error messages."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.cli import build_parser, main
from trainvitals.metrics.collectors import COLLECTORS

ROOT = Path(__file__).parents[2]
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
    "run",
    "runs",
    "profile",
    "record",
    "plot",
    "report",
    "docker-logging",
)


def run(*arguments, **environ):
    """Run the command in a process."""
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
    """Run the command in this process until it exits, and return its exit code and output."""
    with pytest.raises(SystemExit) as left:
        main(arguments)
    out, err = capsys.readouterr()
    return left.value.code, out, err


@pytest.mark.parametrize("command", [(), *((command,) for command in COMMANDS)])
def test_help_has_examples(capsys, command):
    """The help of every command contains examples and exit codes."""
    code, out, err = leave(capsys, *command, "--help")
    assert (code, err) == (0, "")
    examples = out.partition("\nExamples:\n")[2]
    assert f"trainvitals {' '.join(command)}" in examples
    assert "\nExit codes: 0 " in examples
    assert max(map(len, out.splitlines())) < 100


def test_all_commands_are_tested_here(capsys):
    """The tests in this module cover all commands that the help lists."""
    _, out, _ = leave(capsys, "--help")
    listed = re.findall(r"^    ([\w-]+)(?: |$)", out.partition("COMMAND")[2], re.MULTILINE)
    assert tuple(dict.fromkeys(listed)) == COMMANDS


def test_only_the_chosen_command_is_imported():
    """The parser of `serve` imports no module of another command."""
    source = (
        "import sys; from trainvitals.cli import build_parser; build_parser('serve');"
        "print([name for name in sys.modules if name.startswith('trainvitals.commands.')])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=30
    )
    assert answer.stdout == "['trainvitals.commands.parsing', 'trainvitals.commands.serve']\n"


def test_the_help_imports_no_command():
    """The help lists all commands without importing their modules."""
    source = (
        "import sys; from trainvitals.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print([name for name in sorted(sys.modules) if 'trainvitals' in name])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=30
    )
    assert answer.stdout.splitlines()[-1] == (
        "['trainvitals', 'trainvitals.cli', 'trainvitals.commands', "
        "'trainvitals.commands.parsing', 'trainvitals.errors']"
    )


def test_help_of_serve_names_every_collector_and_flag(capsys):
    """Each collector has a flag to disable it, and common flags are named as in other exporters."""
    _, out, _ = leave(capsys, "serve", "--help")
    for entry in COLLECTORS:
        assert f"--collector.{entry.name}, --no-collector.{entry.name}" in out
    for flag in ("--web.listen-address", "--web.config.file", "--log.level", "--log.format"):
        assert flag in out


def test_what_an_interrupt_could_stop_is_imported_in_main():
    """Before `main` handles Ctrl-C, importing the module loads no other module."""
    source = (
        "import sys, __future__; before = set(sys.modules); import trainvitals.cli;"
        "print(sorted(set(sys.modules) - before))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=30
    )
    assert answer.stdout == "['trainvitals', 'trainvitals.cli']\n"


def test_an_early_interrupt_is_no_traceback(monkeypatch):
    """Ctrl-C while the commands are being imported ends the program without a traceback."""

    def press(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trainvitals.cli.build_parser", press)
    assert main(["status"]) == 2


def test_version_is_the_packages():
    """`--version` prints the version in `pyproject.toml`."""
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
    """An unknown argument is reported below the usage, and the exit code is 2."""
    code, out, err = leave(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: trainvitals")
    assert "error: " in err.splitlines()[-1]


def test_a_taken_port_is_one_line_that_names_the_holder():
    """If the port is in use, the error is one line that names the process that uses the port."""
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
            ("--accelerators.temperature-limit=hot",),
            "--accelerators.temperature-limit='hot': write degrees Celsius above 0 such as 80 ",
        ),
        (
            ("--web.config.file=/nonexistent/web.yml",),
            "/nonexistent/web.yml",
        ),
    ],
)
def test_a_configuration_that_cannot_be_is_one_line(arguments, words):
    """The error for an invalid option is one line that names the value, and the exit code is 2."""
    answer = run("serve", "--web.listen-address=127.0.0.1:0", *arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("trainvitals: ")
    assert words in line


def test_a_message_steers_no_terminal(capsys):
    """Escape codes in a file name are not printed in an error message."""
    assert main(["plot", "\x1b]0;title\x07\x1b[2Jred\x9b31m"]) == 2
    err = capsys.readouterr().err
    assert "cannot read red" in err
    assert err.removesuffix("\n").isprintable()


def test_a_stack_that_does_not_run_is_a_problem_that_was_found(tmp_path):
    """`trainvitals status` exits with code 1 if no program of the stack runs."""
    answer = run("status", "--state-dir", str(tmp_path))
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    assert answer.stdout + answer.stderr != ""


@pytest.mark.parametrize("arguments", [("serve", "--help"), ("status",)])
def test_a_reader_that_goes_away_is_no_traceback(tmp_path, arguments):
    """Writing to a pipe without a reader prints no traceback."""
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


@pytest.mark.parametrize("words", ["status", "--version", "--help", "serve --help"])
def test_output_that_cannot_be_written_is_one_line(tmp_path, words):
    """If the output cannot be written, the error is one line and the exit code is 2."""
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        answer = subprocess.run(
            [sys.executable, "-m", "trainvitals", *words.split()],
            # Without a buffer, the interpreter has nothing to flush at its end.
            env={**os.environ, "PYTHONPATH": str(ROOT / "exporter"), "PYTHONUNBUFFERED": ""},
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert answer.returncode == 2
    assert answer.stderr == "trainvitals: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    ("arguments", "closed"),
    [
        ("doctor --checks=swap", ">&-"),
        ("doctor --checks=swap", "<&- >&-"),
        ("doctor --checks=swap", ">&- 2>&-"),
        ("top --once", "<&- >&- 2>&-"),
        ("record --once --output -", "<&- >&- 2>&-"),
    ],
)
def test_streams_that_are_closed_are_no_traceback(tmp_path, arguments, closed):
    """Closed standard streams cause no error and no traceback."""
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
    """The recording contains nothing that was written to the closed standard output."""
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


@pytest.mark.parametrize("command", ["serve", "top", "record", "doctor", "diagnose"])
def test_an_old_spelling_of_a_flag_still_works(command):
    """The flags `--engine` and `--containers.engine` set the same option."""
    options = build_parser(command).parse_args([command, "--engine=tcp://a:1"])
    assert options.engine == "tcp://a:1"
    options = build_parser(command).parse_args([command, "--containers.engine=tcp://b:1"])
    assert options.engine == "tcp://b:1"


def test_an_old_spelling_is_not_in_the_help(capsys):
    """The help shows one spelling of each flag."""
    _, out, _ = leave(capsys, "diagnose", "--help")
    assert "--containers.journal" in out
    assert re.search(r"--(engine|journal)\b", out) is None
