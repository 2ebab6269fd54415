"""A native stack that root starts, with real programs in a directory open to all users."""

import os
import pwd
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from trainvitals.stack.native import take_down
from trainvitals.stack.status import describe
from trainvitals.stack.supervision import find_processes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NOBODY = 65534


@pytest.fixture
def place():
    """Yield a directory that all users may enter; pytest's `tmp_path` is closed to others."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture
def open_programs(place, programs):
    """Return a function that finds a program and copies it to a place open to all users."""

    def find(name):
        program = programs(name)
        copy = place / "usr/bin" / program.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists():
            shutil.copy(program, copy)
        return copy

    return find


def users(settings):
    """Return the real, effective and saved user IDs of the stack's processes, by program."""
    return {name: tuple(each.uids()) for each, name in find_processes(settings.state_dir).items()}


def test_only_the_exporter_and_the_supervisor_are_roots(
    place, new_settings, open_programs, quick_up, quick_files
):
    """In a stack started by root, only the exporter and supervisord run with root's rights."""
    for name in ("prometheus", "alertmanager"):
        shutil.copytree(quick_files(name), place / "shipped" / name)
    settings = new_settings(place / "state")
    up = {"find": open_programs, "shipped": (place / "shipped").joinpath}
    try:
        quick_up(settings, **up, report=print)
        roots, others = (0,) * 3, (find_uid(),) * 3
        assert users(settings) == {
            "supervisord": roots,
            "exporter": roots,
            "prometheus": others,
            "alertmanager": others,
        }
        for process, name in find_processes(settings.state_dir).items():
            status = Path(f"/proc/{process.pid}/status").read_text()
            has_rights = "CapEff:\t0000000000000000" not in status
            assert has_rights == (name in {"supervisord", "exporter"}), name
        assert describe(settings).fine
        before = {each.pid for each in find_processes(settings.state_dir)}
        told = []
        hook = {"WEBHOOK_URL": "http://127.0.0.1:9/", **settings.variables}
        quick_up(replace(settings, variables=hook), **up, report=told.append)
        assert "already running" in told
        assert {each.pid for each in find_processes(settings.state_dir)} == before
        assert describe(settings).fine
        assert not [line for line in told if "runs as root" in line]
    finally:
        take_down(settings, report=print)
    assert not find_processes(settings.state_dir)
    assert (settings.state_dir / "prometheus").stat().st_uid == find_uid()


def find_uid():
    """Return the user ID of the account `trainvitals`, or of nobody if there is no such account."""
    names = {each.pw_name: each.pw_uid for each in pwd.getpwall()}
    return names.get("trainvitals", NOBODY)
