"""Tests for the rendered configuration files, which hold secrets and may be edited by hand."""

import os
import shutil
import stat

import pytest

from trainvitals.alerting.alertmanager import check_configuration
from trainvitals.alerting.configfile import write_configuration
from trainvitals.errors import ConfigurationError

from .conftest import SHIPPED

SET = {"WEBHOOK_URL": "http://127.0.0.1:9/secret"}


def write(directory, variables=None, **arguments):
    """Write the configuration as the stack does."""
    return write_configuration(
        SET if variables is None else variables, directory, shipped=SHIPPED, **arguments
    )


def mode(path):
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_reads_it(tmp_path):
    """Files have mode 0600 and directories 0700 from their creation on, whatever the umask."""
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
    assert {mode(path) for path in directory.rglob("*.*") if path.is_file()} == {0o600}
    assert rendered.path == directory / "alertmanager.yml"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory to a group")
def test_the_group_that_root_has_chosen_goes_on_reading(tmp_path):
    """Writing again keeps the group's access to the directory, but removes the access of others."""
    directory = tmp_path / "alertmanager"
    write(directory)
    directory.chmod(0o750)
    write(directory, {})
    assert mode(directory) == 0o750
    directory.chmod(0o777)
    write(directory)
    assert mode(directory) == 0o750


def test_what_is_there(tmp_path):
    """The configuration and every template are written, and no other file remains."""
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
    """Files are rewritten only if their content changes."""
    write(tmp_path)
    before = {path: path.stat().st_ino for path in tmp_path.rglob("*.*") if path.is_file()}
    write(tmp_path)
    assert {path: path.stat().st_ino for path in tmp_path.rglob("*.*") if path.is_file()} == before
    write(tmp_path, {})
    assert (tmp_path / "alertmanager.yml").stat().st_ino != before[tmp_path / "alertmanager.yml"]
    assert "secret" not in (tmp_path / "alertmanager.yml").read_text(encoding="utf-8")


def test_permissions_are_mended(tmp_path):
    """A generated file that others can read gets mode 0600 again."""
    path = write(tmp_path).path
    path.chmod(0o644)
    write(tmp_path)
    assert mode(path) == 0o600


@pytest.mark.parametrize(
    "text", ["route: {receiver: mine}\nreceivers: [{name: mine}]\n", "", "\xff\n"]
)
def test_a_file_of_a_person_is_kept(tmp_path, text):
    """A handwritten configuration is used unchanged, and the report says so."""
    path = tmp_path / "alertmanager.yml"
    path.write_text(text, encoding="latin-1")
    told = []
    rendered = write(tmp_path, report=told.append)
    assert path.read_text(encoding="latin-1") == text
    assert told == [f"{path} was edited by hand and is not changed; remove it to use .env again"]
    assert rendered.destinations.describe() == (
        f"the receivers in {path}, which was edited by hand",
    )
    assert not rendered.destinations.is_nowhere


def test_a_changed_file_is_kept(tmp_path):
    """An edited configuration is kept, and after its removal the file is generated again."""
    path = write(tmp_path).path
    changed = path.read_text(encoding="utf-8").replace("12h", "13h")
    path.write_text(changed, encoding="utf-8")
    assert write(tmp_path, {}).destinations.written_by_hand == path
    assert path.read_text(encoding="utf-8") == changed
    path.unlink()
    assert write(tmp_path, {}).destinations.is_nowhere


def test_a_changed_template_is_kept(tmp_path):
    """An edited template is kept, and the configuration is still generated."""
    write(tmp_path)
    template = tmp_path / "templates/slack.tmpl"
    changed = template.read_text(encoding="utf-8") + "{{/* mine */}}\n"
    template.write_text(changed, encoding="utf-8")
    reports = []
    rendered = write(tmp_path, {}, report=reports.append)
    assert template.read_text(encoding="utf-8") == changed
    assert reports == [
        f"{template} was edited by hand and is not changed; remove it to use .env again"
    ]
    assert rendered.destinations.is_nowhere


def test_a_refused_configuration_takes_no_place(tmp_path):
    """If the check fails, the old file stays and no temporary file remains."""
    path = write(tmp_path).path
    before = path.read_text(encoding="utf-8")

    def refuse(_):
        raise ConfigurationError("no")

    with pytest.raises(ConfigurationError, match=r"^no$"):
        write(tmp_path, {}, check=refuse)
    assert path.read_text(encoding="utf-8") == before
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["alertmanager.yml"]


def test_a_chosen_file_is_used_as_it_is(tmp_path):
    """The file that ALERTMANAGER_CONFIG names is checked and used, and no file is written."""
    chosen, checked = tmp_path / "mine.yml", []
    chosen.write_text("mine", encoding="utf-8")
    variables = {**SET, "ALERTMANAGER_CONFIG": str(chosen)}
    rendered = write(tmp_path / "config", variables, check=checked.append)
    assert (rendered.path, checked) == (chosen, [chosen])
    assert rendered.destinations.written_by_hand == chosen
    assert not (tmp_path / "config").exists()


def test_a_chosen_file_must_exist(tmp_path):
    """If ALERTMANAGER_CONFIG names a missing file, the error has the variable and the path."""
    with pytest.raises(
        ConfigurationError, match=r"^ALERTMANAGER_CONFIG=.*/none\.yml: there is no such file"
    ):
        write(tmp_path, {"ALERTMANAGER_CONFIG": str(tmp_path / "none.yml")})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes owners")
def test_root_leaves_the_file_to_its_owner(tmp_path):
    """If root rewrites a file of another user, this user still owns the file with mode 0600."""
    path = write(tmp_path).path
    os.chown(path, 65534, 65534)
    write(tmp_path, {})
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (65534, 65534, 0o600)


def test_a_directory_that_cannot_be_written(tmp_path):
    """An error of the operating system becomes a configuration error with the path."""
    (tmp_path / "config").write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"cannot write .*config.*; choose another"):
        write(tmp_path / "config")


def test_links_lead_where_the_variables_say(tmp_path):
    """The rendered template of links contains the value of GRAFANA_URL."""
    write(tmp_path, {"GRAFANA_URL": "https://grafana.example.org"})
    text = (tmp_path / "templates/links.tmpl").read_text(encoding="utf-8")
    assert "https://grafana.example.org${1}" in text


def test_a_refused_configuration_is_named_as_it_would_be(tmp_path, amtool):
    """The error of amtool names the final file, not the temporary file that was checked."""
    broken = tmp_path / "shipped"
    shutil.copytree(SHIPPED, broken)
    (broken / "templates/slack.tmpl").write_text("{{ nothing }}", encoding="utf-8")
    path = tmp_path / "config/alertmanager.yml"
    with pytest.raises(ConfigurationError, match=rf"^amtool rejects {path}: template: slack"):
        write_configuration(
            SET,
            path.parent,
            shipped=broken,
            check=lambda each: check_configuration(each, amtool=amtool),
        )
    assert not path.exists()
