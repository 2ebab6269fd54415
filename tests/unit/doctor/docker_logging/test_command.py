"""Tests for the output and the exit codes of `trainvitals docker-logging`."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.engine_stand_in import EngineStandIn
from trainvitals.doctor.docker_logging import (
    LogSettings,
    apply,
    format_findings,
    format_json,
    inspect,
)
from trainvitals.errors import ConfigurationError


@pytest.fixture
def file(tmp_path):
    """Return the path of a `daemon.json` that selects the NVIDIA runtime."""
    file = tmp_path / "docker/daemon.json"
    file.parent.mkdir()
    file.write_text('{\n    "default-runtime": "nvidia"\n}\n')
    return file


def test_without_a_flag_it_shows_and_changes_nothing(run, file):
    """Without a flag, the command prints problems, a diff and the next steps, and exits with 1."""
    before = file.read_bytes()
    said = run("--file", file)
    assert said.returncode == 1
    assert said.stdout.startswith(
        f"{file}: 2 problems\n"
        "  log-opts: json-file without max-size never rotates: logs grow until the disk is full\n"
        "  live-restore: off: containers end when dockerd ends\n"
    )
    assert '\n-    "default-runtime": "nvidia"\n+    "default-runtime": "nvidia",\n' in said.stdout
    assert '\n+        "max-size": "100m",\n+        "max-file": "5",\n' in said.stdout
    assert "1. `systemctl reload docker`" in said.stdout
    assert "docker info --format '{{.LiveRestoreEnabled}}'" in said.stdout
    assert "do not run `systemctl daemon-reload`" in said.stdout
    assert [path.read_bytes() for path in file.parent.iterdir()] == [before]


def test_it_applies_and_reverts(run, file):
    """`--apply` writes the file and a backup, then has nothing to do; `--revert` undoes it."""
    before = file.read_bytes()
    first = run("--file", file, "--apply")
    assert (first.returncode, first.stderr) == (0, "")
    (backup,) = file.parent.glob("daemon.json.trainvitals-*")
    assert first.stdout.startswith(f"wrote {file}, validated by ")
    assert f"; the backup is {backup}\n" in first.stdout
    assert "3. `systemctl restart docker`" in first.stdout
    written = file.read_bytes()
    second = run("--file", file, "--apply")
    assert (second.returncode, second.stdout) == (0, f"{file}: nothing to do\n")
    assert run("--file", file).stdout == f"{file}: correct, nothing to do\n"
    assert file.read_bytes() == written
    back = run("--file", file, "--revert")
    assert back.returncode == 0
    assert back.stdout.startswith(f"restored {file}; the file that was replaced is {backup.parent}")
    assert file.read_bytes() == before
    nothing = run("--file", file, "--revert")
    assert nothing.returncode == 2
    assert nothing.stderr.startswith("trainvitals: cannot revert: there is no backup ")


def test_a_program_gets_json(run, file):
    """`--json` prints the action, the problems, the changes, the steps and the backup."""
    look = json.loads(run("--file", file, "--json").stdout)
    assert (look["action"], look["right"], look["changed"]) == ("look", False, False)
    assert look["problems"][0] == {
        "place": "log-opts",
        "text": "json-file without max-size never rotates: logs grow until the disk is full",
        "effect": "logs",
    }
    assert look["changes"] == {
        "log-driver": "json-file",
        "log-opts": {"max-size": "100m", "max-file": "5", "compress": "true"},
        "live-restore": True,
    }
    done = json.loads(run("--file", file, "--apply", "--json").stdout)
    assert (done["action"], done["changed"], len(done["steps"])) == ("apply", True, 5)
    assert Path(done["backup"]).is_file()
    back = json.loads(run("--file", file, "--revert", "--json").stdout)
    assert (back["action"], back["changed"], len(back["steps"])) == ("revert", True, 3)
    assert back["kept"].endswith(".reverted")


def test_a_broken_file_is_shown_and_refused(run, file):
    """Invalid JSON is reported with its place, and `--apply` refuses it with exit code 2."""
    file.write_text('{\n  "debug": true,\n}\n')
    said = run("--file", file)
    assert said.returncode == 1
    assert said.stdout == (
        f"{file}:2:16: JSON allows no comma before a closing bracket; dockerd does not "
        "start with this file\n--apply refuses until this is corrected\n"
    )
    said = run("--file", file, "--apply")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.count("\n") == 1
    assert file.read_text() == '{\n  "debug": true,\n}\n'


def test_what_stays_broken_is_told_before(run, file):
    """Without a flag, the command names the problem because of which `--apply` would refuse."""
    file.write_text('{"mtu": "1400"}')
    said = run("--file", file)
    assert said.returncode == 1
    assert (
        "\n--apply refuses until this is corrected:\n  mtu: must be a whole number" in said.stdout
    )


def test_a_foreign_driver_is_respected(run, file):
    """The log driver `local` is left unchanged unless `--driver=json-file` is given."""
    file.write_text('{"log-driver": "local", "live-restore": true}')
    said = run("--file", file)
    assert said.returncode == 0
    assert said.stdout == (
        f"{file}: correct, nothing to do\n"
        "unchanged: the log driver local: it rotates and compresses logs itself, with 100 MB for each "
        "container by default; --driver json-file replaces it\n"
    )
    said = run("--file", file, "--driver=json-file", "--apply", "--max-size=1m", "--max-file=3")
    assert said.returncode == 0
    assert json.loads(file.read_text()) == {
        "log-driver": "json-file",
        "live-restore": True,
        "log-opts": {"max-size": "1m", "max-file": "3", "compress": "true"},
    }


def test_the_steps_of_a_rootless_docker_are_its_own(run, tmp_path):
    """The steps for a rootless Docker use `systemctl --user`."""
    file = tmp_path / ".config/docker/daemon.json"
    said = run("--file", file, "--apply")
    assert "1. `systemctl --user reload docker`" in said.stdout
    assert "; there was no file before\n" in said.stdout
    said = run("--file", file, "--revert")
    assert said.stdout.startswith(
        f"removed {file}, as there was none before; the file that was replaced is"
    )
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--max-size=lots",), "--max-size=lots: write a size such as 100m or 1g"),
        (("--max-file=1",), "--max-file=1: write 2 or more, as the current file is not "),
        (("--engine=ftp://x",), "cannot reach an engine at ftp://x: "),
    ],
)
def test_wrong_words_are_one_line(run, file, words, complaint):
    """An invalid argument is reported in one line that names the valid form."""
    said = run("--file", file, *words)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith(f"trainvitals: {complaint}")


def test_it_does_one_thing_at_a_time(run, file):
    """`--apply` and `--revert` cannot be combined."""
    assert "not allowed with" in run("--file", file, "--apply", "--revert").stderr


def test_whoever_may_not_write_is_told_so(run_as_nobody, workshop):
    """Without permission to read or write the file, the error suggests sudo and no file is left."""
    workshop.chmod(0o755)
    file = workshop / "daemon.json"
    file.write_text("{}")
    assert run_as_nobody("--file", file).returncode == 1
    said = run_as_nobody("--file", file, "--apply")
    assert said.returncode == 2
    assert (
        said.stderr == f"trainvitals: cannot write {file}: Permission denied; run this with sudo\n"
    )
    assert list(workshop.iterdir()) == [file]
    file.chmod(0o600)
    said = run_as_nobody("--file", file)
    assert (
        said.stderr == f"trainvitals: cannot read {file}: Permission denied; run this with sudo\n"
    )


@pytest.fixture
def stand_in(tmp_path):
    """Yield a container engine whose containers have different log drivers and options."""
    log = tmp_path / "a-json.log"
    log.write_bytes(b"x" * 1_230_000)
    containers = {
        "a": ("json-file", {}, str(log), True),
        "b": ("json-file", {"max-size": "1m"}, "", True),
        "c": ("json-file", {"max-file": "3"}, str(tmp_path / "gone"), False),
        "d": ("local", {}, "", True),
        "e": ("json-file", None, "", True),
    }
    with EngineStandIn(tmp_path / "docker.sock") as engine:
        engine.put(
            "/info",
            {
                "ServerVersion": "26.1.5",
                "LoggingDriver": "json-file",
                "LiveRestoreEnabled": False,
                "Swarm": {"LocalNodeState": "inactive"},
                "Plugins": {"Log": ["json-file", "local", "loki"]},
            },
        )
        engine.put("/containers/json", [{"Id": name * 64} for name in (*containers, "f")])
        for name, (driver, options, path, runs) in containers.items():
            engine.put(
                f"/containers/{name * 64}/json",
                {
                    "Id": name * 64,
                    "Name": f"/train-{name}",
                    "State": {"Running": runs},
                    "HostConfig": {"LogConfig": {"Type": driver, "Config": options}},
                    "LogPath": path,
                },
            )
        yield engine


def test_logs_that_never_rotate_are_told(file, stand_in, tmp_path):
    """The output lists logs that never rotate, with their sizes if known, and no others."""
    engine = f"unix://{tmp_path}/docker.sock"
    findings = inspect(file, LogSettings(), engine=engine, environ={}, root=tmp_path)
    text = format_findings(findings)
    assert "\nin effect: Docker 26.1.5, driver json-file, live-restore off\n" in text
    assert text.endswith(
        "\nlogs that never rotate until their containers are recreated:\n"
        "  train-a  running  1.2 MiB\n"
        "  train-c  stopped  size unknown\n"
        "  train-e  running  size unknown\n"
        "  run this with sudo to see the sizes"
    )
    told = json.loads(format_json(findings))
    assert told["endless_logs"][0] == {
        "name": "train-a",
        "id": "a" * 64,
        "running": True,
        "bytes": 1_230_000,
    }
    assert {request.method for request in stand_in.requests} == {"GET"}


def test_a_right_file_that_is_not_in_force_is_told(file, stand_in, tmp_path):
    """If the engine has not applied a correct file yet, the output asks for a reload."""
    engine = f"unix://{tmp_path}/docker.sock"
    file.write_text('{"log-driver": "loki", "live-restore": true}')
    findings = inspect(file, LogSettings(), engine=engine, environ={}, root=tmp_path)
    assert findings.problems == ()
    assert not findings.is_correct
    assert "\nnot applied yet; to apply it:\n1. `systemctl reload docker`" in format_findings(
        findings
    )


def test_an_engine_that_does_not_answer_is_no_obstacle(file, tmp_path):
    """If the engine does not respond, the file is still checked and the output names the reason."""
    engine = f"unix://{tmp_path}/none.sock"
    findings = inspect(file, LogSettings(), engine=engine, environ={}, root=tmp_path)
    assert findings.plan is not None
    assert "\nthe engine did not respond: cannot ask how the engine is set up: " in format_findings(
        findings
    )


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """If the disk is full, the old file stays and no partial file is left."""
    mount = tmp_path / "small"
    mount.mkdir()
    tried = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", mount), capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"cannot mount: {tried.stderr.decode().strip()}")
    try:
        file = mount / "daemon.json"
        file.write_text("{}")
        (mount / "rest").write_bytes(b"x" * 4096)
        with pytest.raises(
            ConfigurationError, match=r"No space left on device; free some space there$"
        ):
            apply(inspect(file, LogSettings(), engine="none", root=tmp_path), time=1_790_000_000.0)
        assert sorted(path.name for path in mount.iterdir()) == ["daemon.json", "rest"]
        assert file.read_text() == "{}"
    finally:
        subprocess.run(("umount", mount), check=True)
