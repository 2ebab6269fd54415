"""Tests for the supervisor's configuration and socket."""

import pytest

from trainvitals.errors import ConfigurationError
from trainvitals.stack.programs import Program
from trainvitals.stack.supervision import ask_states, render_config, request_shutdown


def program(*command):
    """Return a program that runs a command."""
    return Program("exporter", command, 9200, "/-/healthy")


def test_command_is_quoted():
    """Arguments with spaces are quoted, and percent signs are doubled."""
    config = render_config((program("/opt/my python", "-m", "100%"),))
    assert "\ncommand='/opt/my python' -m 100%%\n" in config


@pytest.mark.parametrize("argument", ["a\nb", "a ;b", "a #b"])
def test_what_cannot_be_expressed_is_refused(argument):
    """An argument with a line break or the start of a comment is refused."""
    with pytest.raises(ConfigurationError, match="cannot supervise"):
        render_config((program(argument),))


def test_no_supervisor(tmp_path):
    """If no supervisor runs, there are no states and no shutdown."""
    assert ask_states(tmp_path) is None
    assert not request_shutdown(tmp_path)


def test_stale_socket(tmp_path):
    """A regular file in place of the socket counts as no supervisor."""
    (tmp_path / "supervisor.sock").touch()
    assert ask_states(tmp_path) is None
    assert not request_shutdown(tmp_path)


def test_variables_are_quoted():
    """Commas, percent signs and spaces in the value of a variable are passed on unchanged."""
    grafana = Program("grafana", ("x",), 3000, "/", environment={"A": "1, 2", "B": "50%=x"})
    assert '\nenvironment=A="1, 2",B="50%%=x"\n' in render_config((grafana,))
    assert "environment" not in render_config((program("x"),))


@pytest.mark.parametrize("value", ['a"b', "a\nb"])
def test_variable_that_cannot_be_expressed_is_refused(value):
    """A value with a double quote or a line break is refused."""
    grafana = Program("grafana", ("x",), 3000, "/", environment={"A": value})
    with pytest.raises(ConfigurationError, match="cannot pass on A="):
        render_config((grafana,))
