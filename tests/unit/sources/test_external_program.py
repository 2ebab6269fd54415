"""Tests for running and stopping other programs."""

import signal
import subprocess
import sys

import pytest

from trainvitals.sources import external_program


def test_output_and_exit_code_are_returned_as_text(tmp_path):
    """Bytes that are not UTF-8 are replaced, and the standard input of the program is empty."""
    code = (
        "import os, sys; sys.stdin.read(); os.write(1, b'a\\xff'); sys.exit(os.environ['X'] == '3')"
    )
    ran = external_program.run(
        (sys.executable, "-c", code), timeout_seconds=30, environ={"X": "3"}, directory=tmp_path
    )
    assert (ran.returncode, ran.stdout) == (1, "a\ufffd")


def test_a_program_that_takes_too_long_is_killed():
    """A timeout raises `subprocess.TimeoutExpired`."""
    with pytest.raises(subprocess.TimeoutExpired):
        external_program.run(
            (sys.executable, "-c", "import time; time.sleep(60)"), timeout_seconds=0.3
        )


def test_a_program_that_ignores_sigterm_is_killed():
    """A program that ignores SIGTERM is killed after the timeout, with the exit code of SIGKILL."""
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);"
        "time.sleep(60)"
    )
    with subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert external_program.stop(process, timeout_seconds=0.2) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("amtool, version 0.25.0 (branch: debian/sid)", (0, 25)),
        ("prom/alertmanager:v0.34.0-rc.1", (0, 34)),
        ("0.34.0", (0, 34)),
        ("no version", None),
    ],
)
def test_versions_in_texts(text, version):
    """A version consists of the first two numbers that are separated by a dot."""
    assert external_program.parse_version(text) == version


def test_no_program_no_version(tmp_path):
    """A program that cannot be started has no version."""
    assert external_program.read_version(tmp_path / "none") is None
