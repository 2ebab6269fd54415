"""What Alertmanager's programs say."""

from pathlib import Path

import pytest

from trainvitals.errors import ConfigurationError
from trainvitals.notify import check_configuration, read_version
from trainvitals.notify.checking import parse_version


def test_programs_tell_the_same_version(alertmanager, amtool):
    """Alertmanager and its amtool are of one version, which is not before 0.23."""
    assert read_version(alertmanager) == read_version(amtool)
    assert read_version(amtool) >= (0, 23)


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
    """A version is the first two numbers with a dot between."""
    assert parse_version(text) == version


def test_no_program_no_version(tmp_path):
    """A program that cannot be started has no version."""
    assert read_version(tmp_path / "none") is None


def test_a_bad_configuration_is_refused(amtool, tmp_path):
    """The error is one line with the file and amtool's reason."""
    path = tmp_path / "alertmanager.yml"
    path.write_text("route: {receiver: nobody}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        check_configuration(path, amtool=amtool)
    message = str(caught.value)
    assert message.startswith(f"{path}: amtool refuses it: ")
    assert "undefined receiver" in message
    assert "\n" not in message


def test_no_address_is_quoted(amtool, tmp_path):
    """What amtool quotes of an address, which may be a secret, is left out."""
    path = tmp_path / "alertmanager.yml"
    path.write_text(
        "route: {receiver: a}\n"
        "receivers: [{name: a, webhook_configs: [{url: 'https://a.example.org/hush%d'}]}]\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigurationError) as caught:
        check_configuration(path, amtool=amtool)
    message = str(caught.value)
    assert "invalid URL escape" in message
    assert "https://…" in message
    assert "hush" not in message


def test_no_amtool(tmp_path):
    """An amtool that cannot be started is an error and no approval."""
    with pytest.raises(ConfigurationError, match="cannot run /nowhere/amtool"):
        check_configuration(tmp_path, amtool=Path("/nowhere/amtool"))
