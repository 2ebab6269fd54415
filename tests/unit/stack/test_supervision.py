"""The supervisor's configuration and its socket."""

import pytest

from trainvitals.errors import ConfigurationError
from trainvitals.stack.programs import Program
from trainvitals.stack.supervision import ask_states, render_config, request_shutdown


def program(*command):
    """Describe a program that runs a command."""
    return Program("exporter", command, 9200, "/-/healthy")


def test_command_is_quoted():
    """Spaces are quoted for the shell-like splitting, and percent signs doubled."""
    config = render_config((program("/opt/my python", "-m", "100%"),))
    assert "\ncommand='/opt/my python' -m 100%%\n" in config


@pytest.mark.parametrize("argument", ["a\nb", "a ;b", "a #b"])
def test_what_cannot_be_expressed_is_refused(argument):
    """A line break or the beginning of a comment would cut the command short."""
    with pytest.raises(ConfigurationError, match="cannot supervise"):
        render_config((program(argument),))


def test_no_supervisor(tmp_path):
    """Where no supervisor runs there is nothing to ask or to stop."""
    assert ask_states(tmp_path) is None
    assert not request_shutdown(tmp_path)


def test_stale_socket(tmp_path):
    """A file in the place of the socket is as good as none."""
    (tmp_path / "supervisor.sock").touch()
    assert ask_states(tmp_path) is None
    assert not request_shutdown(tmp_path)


def test_variables_are_quoted():
    """A comma, a percent sign and spaces in a value reach the program as they are."""
    grafana = Program("grafana", ("x",), 3000, "/", environment={"A": "1, 2", "B": "50%=x"})
    assert '\nenvironment=A="1, 2",B="50%%=x"\n' in render_config((grafana,))
    assert "environment" not in render_config((program("x"),))


@pytest.mark.parametrize("value", ['a"b', "a\nb"])
def test_variable_that_cannot_be_expressed_is_refused(value):
    """A double quote or a line break would end the value early."""
    grafana = Program("grafana", ("x",), 3000, "/", environment={"A": value})
    with pytest.raises(ConfigurationError, match="cannot pass on A="):
        render_config((grafana,))
