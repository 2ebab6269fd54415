"""What Alertmanager's programs say."""

from pathlib import Path

import pytest

from trainvitals.alerting.alertmanager import check_configuration
from trainvitals.errors import ConfigurationError
from trainvitals.sources.external_program import read_version


def test_programs_have_the_same_version(alertmanager, amtool):
    """Alertmanager and its amtool are of one version, which is not before 0.23."""
    assert read_version(alertmanager) == read_version(amtool)
    assert read_version(amtool) >= (0, 23)


def test_a_bad_configuration_is_refused(amtool, tmp_path):
    """The error is one line with the file and amtool's reason."""
    path = tmp_path / "alertmanager.yml"
    path.write_text("route: {receiver: nobody}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        check_configuration(path, amtool=amtool)
    message = str(caught.value)
    assert message.startswith(f"amtool rejects {path}: ")
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
