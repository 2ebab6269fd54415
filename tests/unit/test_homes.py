"""Tests for the expansion of paths that begin with `~`."""

from pathlib import Path

import pytest

from trainvitals.cli import main
from trainvitals.errors import ConfigurationError
from trainvitals.homes import expand_home


def test_a_home_is_put_in(monkeypatch):
    """`~` is replaced with the home directory, and other paths are unchanged."""
    monkeypatch.setenv("HOME", "/home/ada")
    assert expand_home(Path("~/runs"), "--dir") == Path("/home/ada/runs")
    assert expand_home(Path("/data/~x"), "--dir") == Path("/data/~x")


def test_a_home_that_nobody_knows_is_one_line():
    """The error for an unknown home directory names the option and the path."""
    with pytest.raises(ConfigurationError, match=r"^--dir=~nobody-here/x: there is no such home"):
        expand_home(Path("~nobody-here/x"), "--dir")


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--state-dir=~nobody-here/x"],
        ["docker-logging", "--file=~nobody-here/x"],
        ["record", "--once", "--directory=~nobody-here/x"],
    ],
)
def test_no_command_shows_a_traceback_for_it(capsys, words):
    """The commands exit with code 2 and print no traceback."""
    assert main(words) == 2
    assert "there is no such home directory" in capsys.readouterr().err
