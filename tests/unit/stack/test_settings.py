"""Tests for the settings of the stack."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import ConfigurationError
from trainvitals.stack.settings import exposes_secrets, read_dotenv, read_settings

HOME = {"HOME": "/home/ada", "XDG_STATE_HOME": "/home/ada/state"}


@pytest.fixture
def dotenv(tmp_path):
    """Return a function that writes a `.env` file."""

    def write(text):
        path = tmp_path / ".env"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_default_ports(tmp_path):
    """Without settings, the default ports and the XDG state directory are used."""
    settings = read_settings(HOME, tmp_path / ".env")
    assert (settings.exporter_port, settings.prometheus_port) == (9200, 9090)
    assert settings.state_dir == Path("/home/ada/state/trainvitals")


def test_relative_xdg_directory_is_ignored():
    """A relative path is ignored, as XDG requires, so the state is below the home directory."""
    settings = read_settings({"XDG_STATE_HOME": "state"}, None)
    assert settings.state_dir == Path("~/.local/state/trainvitals").expanduser().resolve()


def test_flag_beats_environment_beats_dotenv(dotenv):
    """A flag takes precedence over the environment, and the environment over the file."""
    path = dotenv("EXPORTER_PORT=9201\nPROMETHEUS_PORT=9091\n")
    environ = {**HOME, "EXPORTER_PORT": "9202", "PROMETHEUS_PORT": ""}
    settings = read_settings(environ, path)
    assert (settings.exporter_port, settings.prometheus_port) == (9202, 9091)
    assert read_settings(environ, path, exporter_port=9203).exporter_port == 9203


def test_dotenv_forms(dotenv):
    """Comments, export, quotes and spaces are read as Docker Compose reads them."""
    path = dotenv(
        "# ports\n\nexport EXPORTER_PORT = 9201 # mine\n"
        "A='one # two' # three\nB=\"x=y\"\nC= # nothing\nD=a#b\nE=\n"
        "F=#training # mine\nG= #nothing\n"
    )
    assert read_dotenv(path) == {
        "EXPORTER_PORT": "9201",
        "A": "one # two",
        "B": "x=y",
        "C": "",
        "D": "a#b",
        "E": "",
        "F": "#training",
        "G": "",
    }


def test_byte_order_mark_is_skipped(tmp_path):
    """A byte order mark before the first line is not part of the first key."""
    path = tmp_path / ".env"
    path.write_bytes(b"\xef\xbb\xbfEXPORTER_PORT=9201\r\nHOST_NAME=gpu-01\r\n")
    assert read_dotenv(path) == {"EXPORTER_PORT": "9201", "HOST_NAME": "gpu-01"}


def test_line_without_equals_is_refused(dotenv):
    """The error for a line without `=` names the file and the line number."""
    path = dotenv("A=1\nEXPORTER_PORT 9201\n")
    with pytest.raises(ConfigurationError, match=r"\.env:2: not KEY=VALUE"):
        read_dotenv(path)


def test_unreadable_dotenv_is_refused(tmp_path):
    """A `.env` that cannot be read as a text file raises a `ConfigurationError`."""
    (tmp_path / ".env").mkdir()
    with pytest.raises(ConfigurationError, match="cannot read"):
        read_dotenv(tmp_path / ".env")


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "9 0", "²", "9" * 5000])
def test_what_is_no_port_is_refused(port):
    """The error names the setting and the range, but not the value, which may be a secret."""
    with pytest.raises(ConfigurationError) as refused:
        read_settings({**HOME, "EXPORTER_PORT": port}, None)
    said = "EXPORTER_PORT is not a port: set it to a number from 1 to 65535"
    assert str(refused.value) == said


def test_one_port_for_two_programs_is_refused():
    """Two programs with the same port are refused."""
    with pytest.raises(ConfigurationError, match="EXPORTER_PORT and PROMETHEUS_PORT are both 9090"):
        read_settings(HOME, None, exporter_port=9090)


NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,9}", fullmatch=True)
VALUES = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="'\"#"), max_size=9
)


@given(values=st.dictionaries(NAMES, VALUES), quote=st.sampled_from(["", "'", '"']))
def test_what_is_written_is_read(tmp_path_factory, values, quote):
    """Values are read as they were written, with and without quotes."""
    path = tmp_path_factory.mktemp("dotenv") / ".env"
    lines = (f"{name}={quote}{value}{quote}\n" for name, value in values.items())
    path.write_text("".join(lines), encoding="utf-8")
    assert read_dotenv(path) == values


@given(content=st.binary(max_size=60))
def test_any_file_is_read_or_refused(tmp_path_factory, content):
    """Reading an arbitrary file raises no exception other than `ConfigurationError`."""
    path = tmp_path_factory.mktemp("dotenv") / ".env"
    path.write_bytes(content)
    with suppress(ConfigurationError):
        assert all(name.isidentifier() for name in read_dotenv(path))


@pytest.mark.parametrize(
    ("mode", "text", "exposes"),
    [
        (0o600, "SMTP_PASSWORD=a\n", False),
        (0o640, "SMTP_PASSWORD=a\n", True),
        (0o604, "TEAM_A_SLACK_WEBHOOK_URL=a\n", True),
        (0o644, "SMTP_PASSWORD=\nEXPORTER_PORT=1\n", False),
    ],
)
def test_secrets_that_others_can_read_are_told(tmp_path, mode, text, exposes):
    """Only a file that contains secrets and that other users may read is reported."""
    path = tmp_path / ".env"
    assert not exposes_secrets(path)
    path.write_text(text)
    path.chmod(mode)
    assert exposes_secrets(path) is exposes
