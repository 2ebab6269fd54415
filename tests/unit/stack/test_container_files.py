"""Tests for the files that are mounted into containers."""

import os

import pytest
import yaml

from trainvitals.stack import container_files
from trainvitals.stack.configuration import Retention
from trainvitals.stack.container_files import (
    is_config_shared,
    share_alertmanager_config,
    share_password,
    share_prometheus_config,
    share_targets,
)


def mode(path):
    """Return the permissions of a path."""
    return path.stat().st_mode & 0o777


@pytest.fixture
def config(tmp_path):
    """Return an Alertmanager configuration with a template beside it."""
    path = tmp_path / "config/alertmanager/alertmanager.yml"
    (path.parent / "templates").mkdir(parents=True)
    path.write_text("one")
    (path.parent / "templates/a.tmpl").write_text("a")
    return path


def test_targets_are_the_services_under_the_machines_name(tmp_path):
    """The target files are readable for all users, and files that a user adds are kept."""
    share_targets(tmp_path, machine="ada-1")
    folder = tmp_path / "config/compose/targets"
    written = (folder / "trainvitals.yml").read_text()
    assert written.endswith('- targets: ["exporter:9200"]\n  labels: {instance: "ada-1"}\n')
    assert {path.name for path in folder.iterdir()} == {
        "trainvitals.yml",
        "prometheus.yml",
        "alertmanager.yml",
    }
    assert (mode(folder), mode(folder / "trainvitals.yml")) == (0o755, 0o644)
    (folder / "trainvitals-others.yml").write_text("[]")
    share_targets(tmp_path, machine="ada-2")
    assert (folder / "trainvitals-others.yml").exists()
    assert mode(folder.parent) == 0o700


@pytest.mark.parametrize(
    ("text", "retention", "is_in_file"),
    [
        ("global: {}\n", Retention("2d", "8GB"), True),
        ("global: {}\n", None, False),
        ("storage: {tsdb: {}}\n", Retention("2d", "8GB"), False),
    ],
)
def test_prometheus_has_the_retention_in_one_place(tmp_path, text, retention, is_in_file):
    """A given retention is in the file, unless the file has a `storage` section of its own."""
    shipped = tmp_path / "prometheus.yml"
    shipped.write_text(text)
    assert share_prometheus_config(tmp_path, shipped=shipped, retention=retention) == is_in_file
    folder = tmp_path / "config/compose/prometheus"
    read = yaml.safe_load((folder / "prometheus.yml").read_text())
    written = {"storage": {"tsdb": {"retention": {"time": "2d", "size": "8GB"}}}}
    assert read == yaml.safe_load(text) | (written if is_in_file else {})
    assert (mode(folder), mode(folder / "prometheus.yml")) == (0o755, 0o644)
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"rules", "targets"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_gives_secrets_to_the_containers_users(tmp_path, config):
    """Root gives Alertmanager's files to the user ID 65534 and Grafana's password to 472."""
    share_alertmanager_config(tmp_path, config)
    folder = tmp_path / "config/compose/alertmanager"
    for path in (folder, folder / "alertmanager.yml", folder / "templates/a.tmpl"):
        assert path.stat().st_uid == 65534
        assert mode(path) & 0o077 == 0
    password = tmp_path / "password"
    password.touch(mode=0o600)
    share_password(password)
    assert (password.stat().st_uid, mode(password)) == (472, 0o600)


def test_others_open_them_in_a_folder_that_nobody_enters(tmp_path, config, monkeypatch):
    """Other users make the files readable for all, in a folder that only the owner may enter."""
    monkeypatch.setattr(container_files.os, "geteuid", lambda: 1000)
    share_alertmanager_config(tmp_path, config)
    folder = tmp_path / "config/compose/alertmanager"
    assert (mode(folder), mode(folder / "alertmanager.yml")) == (0o755, 0o644)
    assert mode(folder.parent) == 0o700
    password = tmp_path / "secrets/password"
    password.parent.mkdir()
    password.touch(mode=0o600)
    share_password(password)
    assert (mode(password), mode(password.parent)) == (0o644, 0o700)


def test_a_new_configuration_replaces_the_old_one(tmp_path, config):
    """Templates that no longer exist are removed, and the mounted folder is not replaced."""
    assert not is_config_shared(tmp_path)
    share_alertmanager_config(tmp_path, config)
    assert is_config_shared(tmp_path)
    folder = tmp_path / "config/compose/alertmanager"
    mounted = folder.stat().st_ino
    config.write_text("two")
    (config.parent / "templates/a.tmpl").unlink()
    share_alertmanager_config(tmp_path, config)
    assert (folder / "alertmanager.yml").read_text() == "two"
    assert list((folder / "templates").iterdir()) == []
    assert folder.stat().st_ino == mounted
