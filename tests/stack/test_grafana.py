"""Grafana's settings and its administrator's password."""

import re

from trainvitals.stack.grafana import keep_admin_password


def test_password_is_made_up_and_told_once(tmp_path):
    """The first call makes a password up, keeps it for the owner alone and tells it; no other does."""
    told = []
    path = keep_admin_password(tmp_path, {}, report=told.append)
    password = path.read_text()
    assert path == tmp_path / "secrets/grafana_admin_password"
    assert re.fullmatch(r"[\w-]{24}", password)
    assert told == [f"Grafana's user is admin, the password {password} (kept in {path})"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert keep_admin_password(tmp_path, {}, report=told.append).read_text() == password
    assert len(told) == 1


def test_two_machines_have_two_passwords(tmp_path):
    """No password is known beforehand."""
    one = keep_admin_password(tmp_path / "1", {}, report=print).read_text()
    assert keep_admin_password(tmp_path / "2", {}, report=print).read_text() != one


def test_given_password_is_kept_and_not_told(tmp_path):
    """GRAFANA_ADMIN_PASSWORD replaces what was there and is printed nowhere."""
    told = []
    keep_admin_password(tmp_path, {}, report=print)
    variables = {"GRAFANA_ADMIN_PASSWORD": "gaudi3admin"}
    path = keep_admin_password(tmp_path, variables, report=told.append)
    assert (path.read_text(), told) == ("gaudi3admin", [])
    assert path.stat().st_mode & 0o777 == 0o600
    assert keep_admin_password(tmp_path, {}, report=told.append).read_text() == "gaudi3admin"
