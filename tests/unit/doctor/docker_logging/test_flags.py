"""Tests for finding dockerd's flags in systemd units and processes."""

from pathlib import Path

import pytest

from trainvitals.doctor.docker_logging.flags import DEFAULT_FILE, find_flags
from trainvitals.doctor.docker_logging.keys import name_option

UNIT = "usr/lib/systemd/system/docker.service"


def write(root, path, text):
    """Write a file below a root."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def keys(root, file=DEFAULT_FILE):
    """Return the options that are set by flags, each with its flag."""
    return {flag.key: flag.word for flag in find_flags(file, root=root)}


def test_a_unit_says_its_flags(tmp_path):
    """Flags are read from a unit with an environment file and a continued line, as in Debian."""
    write(tmp_path, "etc/default/docker", "# mine\nDOCKER_OPTS='--log-opt max-size=1m -D'\n")
    write(
        tmp_path,
        UNIT,
        "[Service]\nEnvironmentFile=-/etc/default/docker\n"
        "ExecStart=/usr/sbin/dockerd -H fd:// \\\n  --containerd=/run/c.sock $DOCKER_OPTS\n",
    )
    assert keys(tmp_path) == {
        "hosts": "-H",
        "containerd": "--containerd",
        "log-opts": "--log-opt",
        "debug": "-D",
    }
    assert find_flags(DEFAULT_FILE, root=tmp_path)[0].where == str(tmp_path / UNIT)


def test_a_drop_in_takes_the_place_of_the_command(tmp_path):
    """The last ExecStart of the drop-ins is used; a drop-in in /etc hides one of the same name."""
    write(tmp_path, UNIT, "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n")
    override = "etc/systemd/system/docker.service.d/override.conf"
    write(tmp_path, override, "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd ${MORE}\n")
    write(tmp_path, f"{UNIT}.d/override.conf", "[Service]\nExecStart=/usr/bin/dockerd --debug\n")
    write(
        tmp_path,
        "etc/systemd/system/docker.service.d/proxy.conf",
        '[Service]\nEnvironment="MORE=--live-restore --mtu 1400" "OTHER=x"\n',
    )
    assert keys(tmp_path) == {"live-restore": "--live-restore", "mtu": "--mtu"}


def test_a_process_says_its_flags(tmp_path):
    """Flags are read from a running process named dockerd, not from other processes."""
    write(tmp_path, "proc/41/cmdline", "/usr/bin/dockerd\0--log-driver=journald\0")
    write(tmp_path, "proc/42/cmdline", "/usr/bin/docker\0-H\0unix:///x\0")
    write(tmp_path, "proc/43/cmdline", "")
    assert keys(tmp_path) == {"log-driver": "--log-driver"}


def test_a_dockerd_with_another_file_is_another_one(tmp_path):
    """Flags of a dockerd apply only to the configuration file that this dockerd reads."""
    write(tmp_path, "proc/7/cmdline", "dockerd\0--config-file\0/second.json\0--debug\0")
    write(tmp_path, "proc/8/cmdline", "dockerd\0--config-file=/third.json\0--init\0")
    assert keys(tmp_path) == {}
    assert keys(tmp_path, Path("/second.json")) == {"debug": "--debug"}
    assert keys(tmp_path, Path("/third.json")) == {"init": "--init"}


def test_a_dockerd_in_a_container_is_another_one(tmp_path):
    """A dockerd in another mount namespace is ignored because it reads other files."""
    for pid, space in (("self", "mnt:[1]"), ("9", "mnt:[2]")):
        (tmp_path / f"proc/{pid}/ns").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/ns/mnt").symlink_to(space)
    write(tmp_path, "proc/9/cmdline", "dockerd\0--debug\0")
    assert keys(tmp_path) == {}


def test_without_a_unit_and_a_process_there_are_no_flags(tmp_path):
    """A missing unit has no flags, and a unit with an unclosed quote is still read."""
    assert keys(tmp_path) == {}
    write(tmp_path, UNIT, "[Service]\nExecStart=/usr/bin/dockerd --label 'open\n")
    assert keys(tmp_path) == {"labels": "--label"}


@pytest.mark.parametrize(
    ("flag", "option"),
    [
        ("--host", "hosts"),
        ("-Hfd://", "hosts"),
        ("--log-opt=max-size=1m", "log-opts"),
        ("--add-runtime", "runtimes"),
        ("--live-restore", "live-restore"),
        ("--config-file", None),
        ("--no-such-flag", None),
        ("-x", None),
        ("fd://", None),
    ],
)
def test_a_flag_stands_for_an_option(flag, option):
    """A flag is mapped to its option; repeatable flags have an option in the plural."""
    assert name_option(flag) == option
