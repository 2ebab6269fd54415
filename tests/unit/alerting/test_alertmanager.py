"""Tests for the version query and the configuration check by Alertmanager's programs."""

from pathlib import Path

import pytest

from trainvitals.alerting.alertmanager import check_configuration
from trainvitals.errors import ConfigurationError
from trainvitals.sources.external_program import read_version


def test_programs_have_the_same_version(alertmanager, amtool):
    """Alertmanager and its amtool report the same version, which is at least 0.23."""
    assert read_version(alertmanager) == read_version(amtool)
    assert read_version(amtool) >= (0, 23)


def test_a_bad_configuration_is_refused(amtool, tmp_path):
    """The error for an invalid configuration is one line with the file and amtool's reason."""
    path = tmp_path / "alertmanager.yml"
    path.write_text("route: {receiver: nobody}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        check_configuration(path, amtool=amtool)
    message = str(caught.value)
    assert message.startswith(f"amtool rejects {path}: ")
    assert "undefined receiver" in message
    assert "\n" not in message


def test_no_address_is_quoted(amtool, tmp_path):
    """The error omits the URL that amtool quotes, because a URL may be a secret."""
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
    """If amtool cannot be started, the check fails with an error."""
    with pytest.raises(ConfigurationError, match="cannot run /nowhere/amtool"):
        check_configuration(tmp_path, amtool=Path("/nowhere/amtool"))
