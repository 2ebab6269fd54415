"""Files that hold secrets and may become a person's."""

import os
import shutil
import stat

import pytest

from trainvitals.errors import ConfigurationError
from trainvitals.notify import check_configuration, write_configuration

from .conftest import SHIPPED

SET = {"WEBHOOK_URL": "http://127.0.0.1:9/secret"}


def write(directory, variables=None, **arguments):
    """Write as the stack does."""
    return write_configuration(
        SET if variables is None else variables, directory, shipped=SHIPPED, **arguments
    )


def mode(path):
    """Give the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_reads_it(tmp_path):
    """Files are 0600 and directories 0700, whatever the umask, from the first moment on."""
    directory = tmp_path / "state/config/alertmanager"
    seen = []
    old = os.umask(0)
    try:
        rendered = write(directory, check=lambda path: seen.append(mode(path)))
    finally:
        os.umask(old)
    assert seen == [0o600]
    assert mode(directory) == mode(directory / "templates") == 0o700
    assert mode(tmp_path / "state") == mode(tmp_path / "state/config") == 0o700
    assert {mode(path) for path in directory.rglob("*.*ml")} == {0o600}
    assert rendered.path == directory / "alertmanager.yml"


def test_what_is_there(tmp_path):
    """The configuration and every template are written, and nothing is left over."""
    write(tmp_path)
    names = sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
    )
    assert names == [
        "alertmanager.yml",
        "templates/common.tmpl",
        "templates/discord.tmpl",
        "templates/email.tmpl",
        "templates/links.tmpl",
        "templates/pagerduty.tmpl",
        "templates/slack.tmpl",
        "templates/teams.tmpl",
        "templates/telegram.tmpl",
    ]


def test_same_variables_change_nothing(tmp_path):
    """A second time nothing is written; another variable writes one file anew."""
    assert write(tmp_path).is_changed
    before = (tmp_path / "alertmanager.yml").stat().st_ino
    assert not write(tmp_path).is_changed
    assert (tmp_path / "alertmanager.yml").stat().st_ino == before
    assert write(tmp_path, {}).is_changed
    assert "secret" not in (tmp_path / "alertmanager.yml").read_text(encoding="utf-8")


def test_permissions_are_mended(tmp_path):
    """A file of ours that others may read is written anew for its owner alone."""
    path = write(tmp_path).path
    path.chmod(0o644)
    assert write(tmp_path).is_changed
    assert mode(path) == 0o600


@pytest.mark.parametrize(
    "text", ["route: {receiver: mine}\nreceivers: [{name: mine}]\n", "", "\xff\n"]
)
def test_a_file_of_a_person_is_kept(tmp_path, text):
    """What a person wrote is used and not touched, and that is said."""
    path = tmp_path / "alertmanager.yml"
    path.write_text(text, encoding="latin-1")
    told = []
    rendered = write(tmp_path, report=told.append)
    assert path.read_text(encoding="latin-1") == text
    assert told == [
        f"{path} was written by hand and is left as it is; remove it to go back to .env"
    ]
    assert rendered.destinations.describe() == (
        f"those that {path} names, which was written by hand",
    )
    assert not rendered.destinations.is_nowhere


def test_a_changed_file_is_kept(tmp_path):
    """One character that a person changed makes the file theirs; removing it makes it ours."""
    path = write(tmp_path).path
    changed = path.read_text(encoding="utf-8").replace("12h", "13h")
    path.write_text(changed, encoding="utf-8")
    assert write(tmp_path, {}).destinations.written_by_hand == path
    assert path.read_text(encoding="utf-8") == changed
    path.unlink()
    assert write(tmp_path, {}).destinations.is_nowhere


def test_a_changed_template_is_kept(tmp_path):
    """A template that a person changed stays, and the configuration is still ours."""
    write(tmp_path)
    template = tmp_path / "templates/slack.tmpl"
    changed = template.read_text(encoding="utf-8") + "{{/* mine */}}\n"
    template.write_text(changed, encoding="utf-8")
    rendered = write(tmp_path, {})
    assert template.read_text(encoding="utf-8") == changed
    assert rendered.remarks == (
        f"{template} was written by hand and is left as it is; remove it to go back to .env",
    )
    assert rendered.destinations.is_nowhere


def test_a_refused_configuration_takes_no_place(tmp_path):
    """When the check fails the old file stays, and nothing is left over."""
    path = write(tmp_path).path
    before = path.read_text(encoding="utf-8")

    def refuse(_):
        raise ConfigurationError("no")

    with pytest.raises(ConfigurationError, match=r"^no$"):
        write(tmp_path, {}, check=refuse)
    assert path.read_text(encoding="utf-8") == before
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["alertmanager.yml"]


def test_a_chosen_file_is_used_as_it_is(tmp_path):
    """ALERTMANAGER_CONFIG is checked and used, and nothing is written."""
    chosen, checked = tmp_path / "mine.yml", []
    chosen.write_text("mine", encoding="utf-8")
    variables = {**SET, "ALERTMANAGER_CONFIG": str(chosen)}
    rendered = write(tmp_path / "config", variables, check=checked.append)
    assert (rendered.path, checked) == (chosen, [chosen])
    assert rendered.destinations.written_by_hand == chosen
    assert not (tmp_path / "config").exists()


def test_a_chosen_file_must_exist(tmp_path):
    """A path that leads nowhere is an error that names the variable and the path."""
    with pytest.raises(ConfigurationError, match=r"^ALERTMANAGER_CONFIG names .*/none\.yml, and"):
        write(tmp_path, {"ALERTMANAGER_CONFIG": str(tmp_path / "none.yml")})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_it_is_given_to_the_user_of_a_container(tmp_path):
    """Owner and mode are those asked for, and a later writing by another caller keeps the owner."""
    directory = tmp_path / "alertmanager"
    path = write(directory, owner=(65534, 65534), mode=0o400).path
    template = directory / "templates/slack.tmpl"
    for each in (directory, directory / "templates", path, template):
        assert (each.stat().st_uid, each.stat().st_gid) == (65534, 65534)
    assert mode(path) == mode(template) == 0o400
    write(directory, {})
    assert (path.stat().st_uid, mode(path)) == (65534, 0o600)


def test_a_directory_that_cannot_be_written(tmp_path):
    """What the operating system refuses is one line with the path."""
    (tmp_path / "config").write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"cannot write .*config.*; mend that, or ch"):
        write(tmp_path / "config")


def test_links_lead_where_the_variables_say(tmp_path):
    """GRAFANA_URL reaches the rendered template."""
    write(tmp_path, {"GRAFANA_URL": "https://grafana.example.org"})
    text = (tmp_path / "templates/links.tmpl").read_text(encoding="utf-8")
    assert "https://grafana.example.org${1}" in text


def test_a_refused_configuration_is_named_as_it_would_be(tmp_path, amtool):
    """The error of amtool names the file, not the one that was tried in its place."""
    broken = tmp_path / "shipped"
    shutil.copytree(SHIPPED, broken)
    (broken / "templates/slack.tmpl").write_text("{{ nothing }}", encoding="utf-8")
    path = tmp_path / "config/alertmanager.yml"
    with pytest.raises(ConfigurationError, match=rf"^{path}: amtool refuses it: template: slack"):
        write_configuration(
            SET,
            path.parent,
            shipped=broken,
            check=lambda each: check_configuration(each, amtool=amtool),
        )
    assert not path.exists()
