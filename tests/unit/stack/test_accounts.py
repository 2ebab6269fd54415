"""Tests for the account as which root runs the programs of the stack."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.privileges import NOBODY, as_nobody
from trainvitals.stack.accounts import Account, drop_root, find_account
from trainvitals.stack.programs import Program, load_programs, save_programs
from trainvitals.stack.supervision import render_config

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
ACCOUNT = Account("nobody", NOBODY, NOBODY)


@pytest.fixture
def place():
    """Return a directory that every user may enter, unlike the temporary directory of pytest."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture
def state_dir(place):
    """Return a state directory in the state that `up` as root leaves before programs start."""
    state_dir = place / "state"
    for name in ("config/prometheus/targets", "config/alertmanager/templates", "secrets"):
        (state_dir / name).mkdir(parents=True)
    for name in (
        *("config/prometheus/targets/trainvitals.yml", "config/alertmanager/alertmanager.yml"),
        *("config/alertmanager/templates/links.tmpl", "secrets/grafana_admin_password", "lock"),
    ):
        (state_dir / name).write_text(name)
        (state_dir / name).chmod(0o600)
    rules = place / "shipped"
    rules.mkdir()
    (state_dir / "config/prometheus/rules").symlink_to(rules)
    for path in (state_dir, *state_dir.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    return state_dir


@contextmanager
def in_the_group_of_nobody():
    """Use the group of the user nobody instead of root's groups within the block."""
    groups = os.getgroups()
    os.setgroups(())
    os.setegid(NOBODY)
    try:
        yield
    finally:
        os.setegid(0)
        os.setgroups(groups)


def plan(state_dir):
    """Return the programs of an exporter, a Prometheus and an Alertmanager."""
    flags = (f"--config.file={state_dir}/config/prometheus/targets/trainvitals.yml",)
    return (
        Program("exporter", ("/bin/true",), 1, "/"),
        Program("prometheus", ("/bin/true", *flags), 2, "/"),
        Program("alertmanager", ("/bin/true",), 3, "/"),
    )


def drop(state_dir, programs=None, said=None):
    """Let the user nobody run the programs instead of root, and return the users by program."""
    said = [] if said is None else said
    programs = programs or plan(state_dir)
    dropped = drop_root(state_dir, programs, said.append, find=lambda _: ACCOUNT)
    return {each.name: each.user for each in dropped}


def test_the_supervisor_is_told_the_user(tmp_path):
    """The supervisor starts a program as the program's user, which is saved in the state."""
    programs = (Program("a", ("x",), 1, "/", user="nobody"), Program("b", ("y",), 2, "/"))
    config = render_config(programs)
    assert config.count("\nuser=") == 1
    assert "\nuser=nobody\n" in config.partition("[program:b]")[0]
    save_programs(tmp_path, programs)
    assert load_programs(tmp_path) == programs


def test_without_root_nothing_changes(tmp_path):
    """Without root, the programs run as the current user."""
    with as_nobody():
        assert find_account(tmp_path) is None
    programs = plan(tmp_path)
    assert drop_root(tmp_path, programs, print, find=lambda _: None) == programs


@ROOT_ONLY
def test_the_account_is_the_owner_of_the_directory_or_the_first_that_exists(tmp_path):
    """The owner of the directory is used, or else the first name for which an account exists."""
    assert find_account(tmp_path, ("no-such-user", "daemon", "nobody")).name == "daemon"
    assert find_account(tmp_path, ("no-such-user",)) is None
    os.chown(tmp_path, 1, 1)
    assert find_account(tmp_path).uid == 1


@ROOT_ONLY
def test_all_but_the_exporter_lose_root(state_dir):
    """Only the exporter runs as root, because it reads files that only root may read."""
    said = []
    assert drop(state_dir, said=said) == {
        "exporter": "",
        "prometheus": "nobody",
        "alertmanager": "nobody",
    }
    assert said == []


@ROOT_ONLY
def test_the_account_reads_its_secrets_and_writes_its_data_alone(state_dir):
    """Secrets belong to the account and are closed to others; their directories belong to root."""
    drop(state_dir)
    with in_the_group_of_nobody(), as_nobody():
        for name in ("config/alertmanager/alertmanager.yml", "secrets/grafana_admin_password"):
            assert (state_dir / name).read_text() == name
            assert (state_dir / name).stat().st_mode & 0o777 == 0o600
        assert list((state_dir / "config/prometheus/targets").iterdir())
        (state_dir / "prometheus/wal").mkdir(mode=0o700)
        for name in ("lock", "config/prometheus/targets/trainvitals.yml"):
            with pytest.raises(PermissionError):
                (state_dir / name).open("a")
        for name in ("config/alertmanager", "secrets", "config/prometheus", "."):
            with pytest.raises(PermissionError):
                (state_dir / name / "planted").touch()
    for path in (state_dir, *state_dir.rglob("*")):
        assert path.is_symlink() or path.stat().st_mode & 0o007 == 0, path


@ROOT_ONLY
def test_data_of_an_earlier_start_as_root_are_given(state_dir, place):
    """Data of an earlier start as root gets the account as its owner.

    The targets of links and files with a second hard link keep their owner.
    """
    data = state_dir / "prometheus"
    (data / "chunks").mkdir(parents=True)
    (data / "chunks/1").touch()
    (place / "other").touch()
    os.link(place / "other", data / "second")
    (data / "link").symlink_to(place / "shipped")
    drop(state_dir)
    owners = {path.name: path.lstat().st_uid for path in data.rglob("*")}
    assert owners == {"chunks": NOBODY, "1": NOBODY, "second": 0, "link": NOBODY}
    assert (place / "shipped").stat().st_uid == 0


@ROOT_ONLY
def test_below_a_closed_directory_nothing_changes(state_dir, place):
    """If a parent directory is closed, the programs run as root, and lines report the reason."""
    place.chmod(0o700)
    said = []
    assert set(drop(state_dir, said=said).values()) == {""}
    assert said == [
        f"{name} runs as root, because the user nobody cannot use {place}: "
        "put it where every user may enter, such as below /opt or /var/lib"
        for name in ("prometheus", "alertmanager")
    ]
    assert state_dir.stat().st_mode & 0o777 == 0o700


@ROOT_ONLY
def test_a_program_that_cannot_be_read_keeps_root(state_dir, place):
    """A program runs as root if the account cannot read its executable or its rules."""
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    exporter, prometheus, _ = plan(state_dir)
    (closed / "alertmanager").touch()
    alertmanager = Program("alertmanager", (str(closed / "alertmanager"),), 3, "/")
    config = state_dir / "config/prometheus/prometheus.yml"
    config.touch()
    (place / "shipped").chmod(0o700)
    prometheus = Program("prometheus", ("/bin/true", f"--config.file={config}"), 2, "/")
    said = []
    drop(state_dir, (exporter, prometheus, alertmanager), said)
    assert [line.split(" cannot use ")[1].partition(":")[0] for line in said] == [
        str(state_dir / "config/prometheus/rules"),
        str(closed / "alertmanager"),
    ]
