"""Tests for the configuration of Prometheus and of Grafana's password."""

import re
import subprocess

import pytest
import yaml

from trainvitals.errors import StackError
from trainvitals.shipped import find_shipped
from trainvitals.stack.configuration import (
    ensure_admin_password,
    name_machine,
    write_prometheus_config,
)

ADDRESSES = {
    "trainvitals": "127.0.0.1:9300",
    "prometheus": "127.0.0.1:9301",
    "alertmanager": "127.0.0.1:9302",
}


def write(directory, addresses=None, machine="ada-1"):
    """Write the configuration of a machine and return its path."""
    return write_prometheus_config(
        directory,
        shipped=find_shipped("prometheus"),
        addresses=ADDRESSES if addresses is None else addresses,
        machine=machine,
    )


def check(promtool, config):
    """Check a configuration with promtool and return the output."""
    result = subprocess.run(
        (promtool, "check", "config", config), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_shipped_configuration_is_valid(promtool):
    """`promtool` accepts the shipped `prometheus.yml` with its rules."""
    assert "SUCCESS" in check(promtool, find_shipped("prometheus") / "prometheus.yml")


def test_written_configuration_is_the_shipped_one(promtool, tmp_path):
    """The written configuration is a link to the shipped file, with all shipped rule files."""
    config = write(tmp_path)
    shipped = find_shipped("prometheus")
    assert config.resolve() == shipped / "prometheus.yml"
    count = len(list((shipped / "rules").glob("*.yml")))
    assert f"{count} rule files found" in check(promtool, config)


def test_targets_carry_the_ports_and_the_machine(tmp_path):
    """Each job has one target, and its label `instance` is the name of the machine."""
    write(tmp_path, machine='ada "1": {x}')
    for job, address in ADDRESSES.items():
        targets = yaml.safe_load((tmp_path / f"targets/{job}.yml").read_text())
        assert targets == [{"targets": [address], "labels": {"instance": 'ada "1": {x}'}}]


def test_files_are_private(tmp_path):
    """The files with the targets are closed to other users."""
    write(tmp_path / "a")
    assert (tmp_path / "a/targets").stat().st_mode & 0o077 == 0
    assert (tmp_path / "a/targets/trainvitals.yml").stat().st_mode & 0o777 == 0o600


def test_what_a_person_added_stays(tmp_path):
    """Added target files and a user's own `prometheus.yml` are kept."""
    write(tmp_path)
    others = tmp_path / "targets/trainvitals-others.yml"
    others.write_text("- targets: ['gpu-02:9200']\n")
    (tmp_path / "prometheus.yml").unlink()
    (tmp_path / "prometheus.yml").write_text("global: {}\n")
    assert write(tmp_path).read_text() == "global: {}\n"
    assert others.read_text() == "- targets: ['gpu-02:9200']\n"


def test_unchanged_targets_are_not_written_again(tmp_path):
    """Unchanged target files are not written again, so Prometheus does not reload them."""
    write(tmp_path)
    before = (tmp_path / "targets/trainvitals.yml").stat().st_ino
    write(tmp_path)
    assert (tmp_path / "targets/trainvitals.yml").stat().st_ino == before
    write(tmp_path, machine="ada-2")
    assert (tmp_path / "targets/trainvitals.yml").stat().st_ino != before


def test_job_that_is_no_longer_there_has_no_targets(tmp_path):
    """The targets of a program that the stack no longer has are removed."""
    write(tmp_path)
    write(tmp_path, {"trainvitals": "127.0.0.1:9300", "prometheus": "127.0.0.1:9301"})
    assert sorted(path.name for path in (tmp_path / "targets").iterdir()) == [
        "prometheus.yml",
        "trainvitals.yml",
    ]


def test_link_follows_a_moved_installation(tmp_path):
    """A link to an installation that was moved is replaced."""
    (tmp_path / "rules").symlink_to("/nowhere/rules")
    write(tmp_path)
    assert (tmp_path / "rules").resolve() == find_shipped("prometheus") / "rules"


def test_directory_that_cannot_be_written(tmp_path):
    """The error names the file that is in the place of the directory."""
    (tmp_path / "config").touch()
    with pytest.raises(StackError, match=r"cannot write .*config.*; choose another"):
        write(tmp_path / "config")


def test_name_of_the_machine():
    """The machine is named by `HOST_NAME` if it is set, and otherwise has a default name."""
    assert name_machine({"HOST_NAME": "ada-1"}) == "ada-1"
    assert name_machine({})


def test_password_is_made_up_and_told_once(tmp_path):
    """Only the first call generates a password, saves it in a private file and reports it."""
    told = []
    path = ensure_admin_password(tmp_path, {}, report=told.append)
    password = path.read_text()
    assert path == tmp_path / "secrets/grafana_admin_password"
    assert re.fullmatch(r"[\w-]{24}", password)
    assert told == [f"log in to Grafana as admin with the password {password} (saved in {path})"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert ensure_admin_password(tmp_path, {}, report=told.append).read_text() == password
    assert len(told) == 1


def test_two_machines_have_two_passwords(tmp_path):
    """Each machine has a different password."""
    one = ensure_admin_password(tmp_path / "1", {}, report=print).read_text()
    assert ensure_admin_password(tmp_path / "2", {}, report=print).read_text() != one


def test_given_password_is_kept_and_not_told(tmp_path):
    """`GRAFANA_ADMIN_PASSWORD` replaces the saved password and is not reported."""
    told = []
    ensure_admin_password(tmp_path, {}, report=print)
    variables = {"GRAFANA_ADMIN_PASSWORD": "gaudi3admin"}
    path = ensure_admin_password(tmp_path, variables, report=told.append)
    assert (path.read_text(), told) == ("gaudi3admin", [])
    assert path.stat().st_mode & 0o777 == 0o600
    assert ensure_admin_password(tmp_path, {}, report=told.append).read_text() == "gaudi3admin"
