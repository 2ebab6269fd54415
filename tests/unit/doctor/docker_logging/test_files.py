"""Tests that inspect, change and restore many kinds of `daemon.json`."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainvitals.doctor.docker_logging import LogSettings, apply, inspect, restore
from trainvitals.doctor.docker_logging.dockerd import validate
from trainvitals.errors import ConfigurationError

NOON = 1_790_000_000.0  # 2026-09-21T14:13:20Z
OURS = {
    "log-driver": "json-file",
    "log-opts": {"max-size": "100m", "max-file": "5", "compress": "true"},
    "live-restore": True,
}
NOWHERE = {"PATH": "/nowhere"}


@pytest.fixture
def file(tmp_path):
    """Return the path of a `daemon.json` that does not exist yet, in an empty directory."""
    (tmp_path / "docker").mkdir()
    return tmp_path / "docker/daemon.json"


def look_at(file, root=Path("/nowhere"), **wanted):
    """Inspect a file on a machine without a container engine and without a systemd unit."""
    return inspect(file, LogSettings(**wanted), engine="none", environ=NOWHERE, root=root)


def effects(findings):
    """Return the place and the effect of each problem."""
    return [(problem.place, problem.effect) for problem in findings.problems]


GROWS, ENDS = ("log-opts", "logs"), ("live-restore", "logs")
NVIDIA = {
    "default-runtime": "nvidia",
    "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},
    "data-root": "/data/docker",
    "exec-opts": ["native.cgroupdriver=cgroupfs"],
}


@pytest.mark.parametrize(
    ("data", "expected", "says"),
    [
        (None, [GROWS, ENDS], OURS),
        (b"", [("", "daemon"), GROWS, ENDS], OURS),
        (b"\n \n", [("", "daemon"), GROWS, ENDS], OURS),
        (b"{}", [GROWS, ENDS], OURS),
        (json.dumps(NVIDIA).encode(), [GROWS, ENDS], {**NVIDIA, **OURS}),
        (b'\xef\xbb\xbf{"debug": true}\n', [("", "daemon"), GROWS, ENDS], {"debug": True, **OURS}),
        (b'{\r\n  "debug": true\r\n}\r\n', [GROWS, ENDS], {"debug": True, **OURS}),
        (
            b'{"log-opts": {"max-file": 5, "max-size": 1000, "labels": "job"}}',
            [("log-opts.max-file", "daemon"), ("log-opts.max-size", "daemon"), ENDS],
            {**OURS, "log-opts": {**OURS["log-opts"], "labels": "job"}},
        ),
        (
            b'{"log-opts": {"compress": "true"}}',
            [("log-opts.compress", "containers"), GROWS, ENDS],
            OURS,
        ),
        (b'{"log-opts": {"max-size": "lots"}}', [("log-opts.max-size", "containers"), ENDS], OURS),
        (b'{"log-opts": {"max-file": "3"}}', [GROWS, ENDS], OURS),
        (b'{"log-opts": []}', [("log-opts", "daemon"), GROWS, ENDS], OURS),
        (b'{"live-restore": "true"}', [("live-restore", "daemon"), GROWS], OURS),
        (b'{"log-opts": {"max-size": "10m"}, "live-restore": true}', [], OURS),
        (
            b'{"log-driver": "journald", "log-opts": {"tag": "t"}}',
            [ENDS],
            {"log-driver": "journald", "log-opts": {"tag": "t"}, "live-restore": True},
        ),
        (
            b'{"log-driver": "local", "log-opts": {"max-size": "1g"}}',
            [ENDS],
            {"log-driver": "local", "log-opts": {"max-size": "1g"}, "live-restore": True},
        ),
        (
            b'{"log-driver": "fluentd", "log-opts": {"fluentd-address": "a:1"}}',
            [ENDS],
            {
                "log-driver": "fluentd",
                "log-opts": {"fluentd-address": "a:1"},
                "live-restore": True,
            },
        ),
        (
            b'{"new-in-docker-40": 1, "debug": true, "debug": false}',
            [GROWS, ENDS],
            {"new-in-docker-40": 1, "debug": False, **OURS},
        ),
    ],
)
def test_a_file_is_put_right_and_back(file, data, expected, says):
    """Problems are found and corrected once, and restoring returns the original file."""
    if data is not None:
        file.write_bytes(data)
    findings = look_at(file)
    assert [each for each in effects(findings) if each[1] != "note"] == expected
    assert not findings.is_correct
    assert findings.diff
    backup = apply(findings, time=NOON)
    assert backup is not None
    written = file.read_bytes()
    assert json.loads(written) == says
    again = look_at(file)
    assert again.is_correct
    assert apply(again, time=NOON + 60) is None
    assert file.read_bytes() == written
    assert len(list(file.parent.iterdir())) == 2
    used, kept = restore(file, time=NOON + 120)
    assert used == backup
    assert (file.read_bytes() if file.exists() else None) == data
    assert kept is not None
    assert kept.read_bytes() == written


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(OURS).encode(),
        (
            b'{"live-restore":true,"log-opts":{"compress":"1","max-file":"5","max-size":"100MB"},'
            b'"log-driver":"json-file"}'
        ),
        json.dumps({**NVIDIA, **OURS}, indent=8).encode(),
    ],
)
def test_what_is_right_is_left_alone(file, data):
    """A correct file is not written, whatever its formatting."""
    file.write_bytes(data)
    findings = look_at(file)
    assert findings.is_correct
    assert apply(findings, time=NOON) is None
    assert [path.read_bytes() for path in file.parent.iterdir()] == [data]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{\n  "debug": true,\n}', "{file}:2:16: JSON allows no comma"),
        (b'{\n  // rotation\n  "debug": true\n}', "{file}:2:3: JSON has no comments"),
        (b'{"debug": tru', "{file}:1:11: expecting value"),
        (b'["debug"]', "{file}:1:1: not an object"),
        (b'{"group": "\xff"}', "{file}:1:12: not UTF-8"),
        (b'{"log-opts": {"max-sise": "10m"}}', "{file}: log-opts.max-sise: "),
        (b'{"log-opts": {"env": 5}}', "{file}: log-opts.env: must be a string"),
        (
            b'{"livve-restore": true}',
            "{file}: livve-restore: unknown option (did you mean live-restore?)",
        ),
        (b'{"mtu": "1400"}', "{file}: mtu: must be a whole number"),
        (b'{"log-opts": {}, "log-opts": {}}', "{file}: log-opts: set more than once"),
        (
            b'{"log-opts": {"max-size": "1m", "max-size": "2m"}}',
            "{file}: log-opts.max-size: set more than once",
        ),
        (b'{"log-driver": "journal", "debug": true}', "{file}: log-driver: Docker has no driver"),
    ],
)
def test_what_stays_broken_is_refused(file, data, complaint):
    """If a file would still be invalid, the error names the location and no file is changed."""
    file.write_bytes(data)
    findings = look_at(file)
    assert not findings.is_correct
    with pytest.raises(ConfigurationError) as raised:
        apply(findings, time=NOON)
    assert str(raised.value).startswith(complaint.format(file=file))
    assert str(raised.value).endswith("correct it first; nothing was changed")
    assert [(path, path.read_bytes()) for path in file.parent.iterdir()] == [(file, data)]


def test_a_foreign_driver_is_replaced_where_that_is_wanted(file):
    """A replaced driver loses the options that json-file rejects and keeps the common options."""
    file.write_text('{"log-driver": "fluentd", "log-opts": {"fluentd-address": "a", "tag": "t"}}')
    apply(look_at(file, replaces_driver=True), time=NOON)
    assert json.loads(file.read_text()) == {
        "log-driver": "json-file",
        "log-opts": {"tag": "t", **OURS["log-opts"]},
        "live-restore": True,
    }


def test_other_sizes_can_be_wanted(file):
    """The log size and the number of files can be chosen, and live-restore can be left out."""
    apply(look_at(file, max_size="1m", max_file=3, has_live_restore=False), time=NOON)
    assert json.loads(file.read_text()) == {
        "log-driver": "json-file",
        "log-opts": {"max-size": "1m", "max-file": "3", "compress": "true"},
    }


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--log-opt max-size=10m", {"live-restore": True}),
        ("--log-driver=journald", {"live-restore": True}),
        ("--live-restore", {k: OURS[k] for k in ("log-driver", "log-opts")}),
        ("-H fd://", OURS),
    ],
)
def test_what_is_a_flag_is_not_written(file, tmp_path, flags, says):
    """An option that is a flag of dockerd is not written, as Docker would not start with both."""
    process = tmp_path / "proc/1"
    process.mkdir(parents=True)
    words = ["dockerd", f"--config-file={file}", *flags.split()]
    (process / "cmdline").write_text("\0".join(words) + "\0")
    findings = look_at(file, tmp_path)
    apply(findings, time=NOON)
    assert json.loads(file.read_text()) == says


def test_hosts_in_the_file_and_in_the_unit_are_refused(file, tmp_path):
    """A file with `hosts` is refused if the systemd unit passes `-H` to dockerd."""
    file.write_text('{"hosts": ["unix:///var/run/docker.sock"]}')
    unit = tmp_path / "etc/systemd/system/docker.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(f"[Service]\nExecStart=dockerd -H fd:// --config-file={file}\n")
    findings = look_at(file, tmp_path)
    assert effects(findings)[0] == ("hosts", "daemon")
    with pytest.raises(ConfigurationError, match=r"hosts: .* also passes -H to dockerd"):
        apply(findings, time=NOON)


def test_a_node_of_a_swarm_gets_no_live_restore(file, tmp_path):
    """On a swarm node, live-restore is not written because Docker would not start with it."""
    state = tmp_path / "var/lib/docker/swarm/docker-state.json"
    state.parent.mkdir(parents=True)
    state.write_text("{}")
    findings = look_at(file, tmp_path)
    assert findings.plan is not None
    assert findings.plan.untouched == ("live-restore: a swarm node does not support it",)
    apply(findings, time=NOON)
    assert "live-restore" not in json.loads(file.read_text())


def test_a_link_stays_and_its_target_is_written(file, tmp_path):
    """A symbolic link is kept, its target is written, and the backup is beside the target."""
    target = tmp_path / "real.json"
    target.write_text("{}")
    file.symlink_to(target)
    backup = apply(look_at(file), time=NOON)
    assert file.is_symlink()
    assert json.loads(target.read_text()) == OURS
    assert backup is not None
    assert backup.path == tmp_path / "real.json.trainvitals-20260921T141320Z"
    restore(file, time=NOON + 1)
    assert file.is_symlink()
    assert target.read_text() == "{}"


def test_a_link_to_itself_is_refused(file):
    """A symbolic link to itself is refused because it cannot be read."""
    file.symlink_to(file)
    with pytest.raises(ConfigurationError, match=r"^cannot read .*; check what it is$"):
        look_at(file)


def test_owner_and_mode_are_kept(file):
    """The file and its backup keep the owner and the mode of the original file."""
    file.write_text("{}")
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 1234, 4321)
    owner = (file.stat().st_uid, file.stat().st_gid)
    backup = apply(look_at(file), time=NOON)
    assert backup is not None
    for path in (file, backup.path):
        assert (path.stat().st_uid, path.stat().st_gid) == owner
        assert path.stat().st_mode & 0o777 == 0o640


def test_a_new_file_is_for_all_to_read(tmp_path):
    """A new file is readable by all users, and a missing directory is created."""
    file = tmp_path / "etc/docker/daemon.json"
    backup = apply(look_at(file), time=NOON)
    assert file.stat().st_mode & 0o777 == 0o644
    assert backup is not None
    assert backup.path.name == "daemon.json.trainvitals-20260921T141320Z.absent"
    restore(file, time=NOON + 1)
    assert not file.exists()


def test_backups_are_taken_back_one_after_the_other(file):
    """Backups are restored from the newest to the oldest, also those of the same second."""
    texts = ["{}", '{"debug": true}', '{"init": true}']
    for text in texts:
        file.write_text(text)
        apply(look_at(file), time=NOON)
    for text in reversed(texts):
        restore(file, time=NOON + 1)
        assert file.read_text() == text
    with pytest.raises(ConfigurationError, match=r"^cannot revert: there is no backup .*-… of an"):
        restore(file, time=NOON + 2)


def test_a_file_that_was_changed_meanwhile_is_not_overwritten(file):
    """A file that another program changed after the inspection is not overwritten."""
    file.write_text("{}")
    findings = look_at(file)
    file.write_text('{"debug": true}')
    with pytest.raises(ConfigurationError, match="was changed by another program meanwhile"):
        apply(findings, time=NOON)
    assert [path.read_text() for path in file.parent.iterdir()] == ['{"debug": true}']


def test_a_folder_in_its_place_is_told(file):
    """A directory at the path of the file is reported as an error."""
    file.mkdir()
    with pytest.raises(ConfigurationError, match=r"^cannot read .*: Is a directory; "):
        look_at(file)


SIMPLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SIMPLE, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
NAMES = st.text() | st.sampled_from(["log-opts", "log-driver", "live-restore", "runtimes"])


@settings(max_examples=60)  # each writes files
@given(
    options=st.dictionaries(NAMES, VALUES),
    indent=st.sampled_from([None, 0, 1, 4, "\t"]),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :  ")]),
    is_ascii=st.booleans(),
    end=st.sampled_from(["", "\n", "\r\n \n"]),
)
def test_any_object_survives(options, indent, separators, is_ascii, end):
    """Options of other subjects are kept, and restoring returns the same bytes."""
    text = json.dumps(options, indent=indent, separators=separators, ensure_ascii=is_ascii) + end
    data = text.encode("utf-8", "surrogatepass")
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        file = Path(directory) / "daemon.json"
        file.write_bytes(data)
        findings = look_at(file)
        if findings.plan is None or findings.plan.text is None:
            return
        written = json.loads(findings.plan.text)
        ours = {"log-driver", "log-opts", "live-restore"}
        assert {k: v for k, v in written.items() if k not in ours} == {
            k: v for k, v in options.items() if k not in ours
        }
        if findings.plan.remaining:
            return
        apply(findings, time=NOON)
        assert json.loads(file.read_bytes()) == written
        restore(file, time=NOON + 1)
        assert file.read_bytes() == data


def test_dockerd_checks_what_would_be_written(file, dockerd):
    """A dockerd from 23.0 validates the file before the file is replaced."""
    environ = {"PATH": dockerd("26.1.5+dfsg1")}
    findings = inspect(file, LogSettings(), engine="none", environ=environ, root=Path("/nowhere"))
    assert findings.validation.by == "by dockerd 26.1.5 and by built-in rules"
    assert apply(findings, time=NOON) is not None


def test_what_dockerd_refuses_is_not_written(file, dockerd):
    """A file that dockerd rejects is not written, and the error contains dockerd's message."""
    words = (
        "unable to configure the Docker daemon with file FILE: the following directives do not "
        "match any configuration option: new-in-docker-40"
    )
    file.write_text('{"new-in-docker-40": 1}')
    environ = {"PATH": dockerd("26.1.5+dfsg1", 1, words)}
    findings = inspect(file, LogSettings(), engine="none", environ=environ, root=Path("/nowhere"))
    with pytest.raises(ConfigurationError) as raised:
        apply(findings, time=NOON)
    assert str(raised.value) == (
        "dockerd would not start: unable to configure the Docker daemon: the following directives "
        f"do not match any configuration option: new-in-docker-40; correct {file} first; nothing "
        "was changed"
    )
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    ("version", "by"),
    [
        (
            "20.10.24+dfsg1",
            "by built-in rules only: dockerd 20.10.24 cannot validate a file, 23.0 and newer can",
        ),
        ("unknown-version", "by dockerd and by built-in rules"),
    ],
)
def test_an_old_dockerd_is_not_asked(dockerd, version, by):
    """A dockerd before 23.0 cannot validate the file, and the result says so."""
    assert validate(b"{}", environ={"PATH": dockerd(version)}).by == by


def test_without_dockerd_our_own_rules_must_do():
    """If dockerd is not installed, only the built-in rules check the file."""
    check = validate(b"{}", environ=NOWHERE, root=Path("/nowhere"))
    assert check.by == "by built-in rules only: dockerd is not installed"
