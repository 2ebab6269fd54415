"""Tests for calls of the `docker` command."""

import time

import pytest

from tests.unit.stack.docker_stand_in import install_docker
from trainvitals.stack.dockercli import CommandResult, Docker


def test_an_answer_has_both_streams(tmp_path):
    """A result has both output streams; a failed command raises no exception."""
    docker = Docker(install_docker(tmp_path, {"one": "1\n", "two": "2\n"}, failures=("two",)))
    assert docker.call("one") == CommandResult(0, "1\n", "")
    assert docker.call("two") == CommandResult(1, "", "2\n")


def test_no_command_is_an_answer_too(tmp_path):
    """If `docker` is not installed, the result has code 127, as in a shell."""
    docker = Docker({"PATH": str(tmp_path)})
    missing = CommandResult(127, "", "cannot run docker: No such file or directory")
    assert docker.call("ps") == missing
    assert docker.follow("up", on_line=print) == missing
    assert docker.show("logs") == 127


def test_silence_has_an_end(tmp_path):
    """A command that exceeds its timeout is ended with code 124, as by timeout(1)."""
    docker = Docker(install_docker(tmp_path, {"info": ""}, slow=("info",)))
    said = docker.call("info", timeout_seconds=0.5)
    assert said == CommandResult(124, "", "docker info did not end within 500ms")


def test_lines_are_told_as_they_come(tmp_path):
    """Each line of output is passed on as it is printed, and the last lines are returned."""
    docker = Docker(install_docker(tmp_path, {"up": "one\ntwo\n"}))
    told = []
    assert docker.follow("up", on_line=told.append) == CommandResult(0, "", "one\ntwo")
    assert told == ["one", "two"]


def test_who_gives_up_ends_the_command(tmp_path):
    """An exception from `on_idle` ends the command at once."""
    docker = Docker(install_docker(tmp_path, {"up": "one\n"}, slow=("up",)))

    def give_up():
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        docker.follow("up", on_line=print, on_idle=give_up, idle_seconds=0.2)
    assert time.monotonic() - began < 9
