"""The units for systemd and the script that installs them.

The real programs of systemd check the units if they are installed. The script runs with stand-ins
that record their calls.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UNITS = ROOT / "deploy/systemd"
INSTALL = UNITS / "install"
BOTH = ["trainvitals.service", "runner-monitor.service"]

STAND_INS = {
    "id": "echo ${FAKE_UID:-0}",
    "getent": "grep -q made $LOG.users 2>/dev/null",
    "useradd": 'echo made >> $LOG.users; echo "useradd" >> $LOG',
    "runuser": 'shift 3; exec "$@"',
    "systemd-analyze": '[ -z "$FAKE_COMPLAINT" ] || { echo "$FAKE_COMPLAINT"; exit 1; }',
    "docker": '[ "$1" = ps ] && { echo $FAKE_CONTAINERS; exit; }\necho "/bert nvidia null"',
    "systemctl": """\
echo "systemctl $*" >> $LOG
case "$1" in
    is-active) [ -z "$FAKE_DEAD" ] ;;
    is-enabled) [ -e $LOG.enabled ] ;;
    --no-reload) touch $LOG.enabled ;;
esac""",
}


@pytest.fixture
def machine(tmp_path):
    """A directory with a root that has systemd and the program, and with the stand-ins."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, script in STAND_INS.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (bin_ / name).chmod(0o755)
    root = tmp_path / "root"
    (root / "run/systemd/system").mkdir(parents=True)
    program = root / "opt/trainvitals/bin"
    program.mkdir(parents=True)
    (program / "python").write_text('#!/bin/sh\necho "python $*" >> $LOG\n', encoding="utf-8")
    (program / "trainvitals").write_text("#!/bin/sh\necho trainvitals 1.2.3\n", encoding="utf-8")
    for path in program.iterdir():
        path.chmod(0o755)
    return tmp_path


def run(machine, what="install", **environ):
    """Run the script, and return its exit code, its output and the recorded calls."""
    log = machine / "calls"
    log.unlink(missing_ok=True)
    answer = subprocess.run(
        [INSTALL, what],
        env={
            **os.environ,
            "PATH": f"{machine / 'bin'}:{os.environ['PATH']}",
            "DESTDIR": str(machine / "root"),
            "LOG": str(log),
            "SETTLE_SECONDS": "0",
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    calls = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return answer.returncode, answer.stdout + answer.stderr, calls


def units_of(machine):
    """Return the names of the installed units."""
    folder = machine / "root/etc/systemd/system"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_the_exporter_is_installed_and_started(machine):
    """`install` installs the package and the unit, enables and starts the service, and says so."""
    code, said, calls = run(machine)
    locks = " ".join(f"--requirement {ROOT}/requirements{each}.lock" for each in ("", "-build"))
    offline = "--no-deps --no-build-isolation --no-index"
    assert code == 0, said
    assert units_of(machine) == ["trainvitals.service"]
    assert calls == [
        "useradd",
        f"python -m pip install --quiet --require-hashes {locks}",
        f"python -m pip install --quiet {offline} --force-reinstall {ROOT}",
        "systemctl daemon-reload",
        "systemctl is-enabled --quiet trainvitals.service",
        "systemctl --no-reload enable --quiet trainvitals.service",
        "systemctl restart trainvitals.service",
        "systemctl is-active --quiet trainvitals.service",
    ]
    assert "made the user trainvitals" in said
    assert "installed trainvitals 1.2.3 in /opt/trainvitals" in said
    assert "trainvitals.service runs" in said


def test_a_second_time_changes_nothing(machine):
    """A second `install` does not reload systemd, and keeps settings that were changed."""
    run(machine)
    settings = machine / "root/etc/default/trainvitals"
    settings.write_text("SERVE_FLAGS=--log.level=debug\n", encoding="utf-8")
    code, said, calls = run(machine, FAKE_CONTAINERS="4f66ad9a0b2e")
    assert code == 0, said
    assert "systemctl daemon-reload" not in calls
    assert "useradd" not in calls
    assert settings.read_text(encoding="utf-8") == "SERVE_FLAGS=--log.level=debug\n"


def test_the_recorder_comes_when_it_is_asked_for(machine):
    """With `RECORDER=1`, both units are installed, and `uninstall` removes both."""
    run(machine, RECORDER="1")
    assert units_of(machine) == sorted(BOTH)
    code, said, calls = run(machine, "uninstall")
    assert code == 0, said
    assert units_of(machine) == []
    assert "systemctl stop runner-monitor.service" in calls
    assert calls[-1] == "systemctl daemon-reload"
    assert "left: /opt/trainvitals, " in said
    assert run(machine, "uninstall")[1] == "no service of trainvitals is installed\n"


def test_the_journal_of_the_recorder_is_found_by_its_name(machine):
    """`runner-monitor.service` is a unit, not an alias, as `journalctl -u` follows no aliases."""
    _, _, calls = run(machine, RECORDER="1")
    assert "systemctl restart runner-monitor.service" in calls
    unit = machine / "root/etc/systemd/system/runner-monitor.service"
    assert unit.is_file()
    assert not unit.is_symlink()
    assert "Alias=" not in unit.read_text(encoding="utf-8")


@pytest.mark.parametrize("what", ["install", "uninstall"])
def test_containers_with_gpus_are_not_cut_off_unasked(machine, what):
    """Without `CONFIRM=1`, no unit is installed or removed while containers use GPUs."""
    if what == "uninstall":
        run(machine)
    before = units_of(machine)
    code, said, calls = run(machine, what, FAKE_CONTAINERS="4f66ad9a0b2e")
    assert code == 2
    assert "can cut containers off their GPUs: bert" in said
    assert f"make {what}-service CONFIRM=1" in said
    assert calls == []
    assert units_of(machine) == before
    assert run(machine, what, FAKE_CONTAINERS="4f66ad9a0b2e", CONFIRM="1")[0] == 0
    assert units_of(machine) != before


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"FAKE_UID": "1000"}, "services are installed by root: sudo make install-service"),
        ({"DESTDIR": "/nonexistent"}, "systemd does not run here"),
        (
            {"FAKE_COMPLAINT": "Unknown key"},
            "systemd-analyze verify trainvitals.service: Unknown key",
        ),
        ({"FAKE_DEAD": "1"}, "trainvitals.service does not run: journalctl --unit"),
    ],
)
def test_what_is_wrong_is_said(machine, environ, words):
    """If the installation is impossible or fails, the script exits with 2 and prints the reason."""
    code, said, _ = run(machine, **environ)
    assert code == 2
    assert words in said


def test_another_place_for_the_program(machine):
    """With `PREFIX`, the unit starts the program in that directory."""
    shutil.move(machine / "root/opt/trainvitals", machine / "root/opt/other")
    assert run(machine, PREFIX="/opt/other")[0] == 0
    unit = (machine / "root/etc/systemd/system/trainvitals.service").read_text(encoding="utf-8")
    assert "ExecStart=/opt/other/bin/trainvitals serve " in unit
    assert "/opt/trainvitals" not in unit


@pytest.mark.parametrize("name", BOTH)
def test_systemd_understands_the_units(tmp_path, name):
    """`systemd-analyze verify` reports nothing about a unit."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze: apt-get install systemd")
    unit = (UNITS / name).read_text(encoding="utf-8")
    # The program is not installed here.
    (tmp_path / name).write_text(unit.replace("/opt/trainvitals/bin/trainvitals", "/bin/true"))
    answer = subprocess.run(
        [analyze, "verify", tmp_path / name],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("name", BOTH)
def test_the_units_are_hardened(name):
    """The units have no new privileges, a read-only system, and only one capability."""
    unit = (UNITS / name).read_text(encoding="utf-8")
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert settings["NoNewPrivileges"] == "yes"
    assert settings["ProtectSystem"] == "strict"
    assert settings["CapabilityBoundingSet"] == "CAP_SYSLOG"
    assert settings["AmbientCapabilities"] == "CAP_SYSLOG"
    assert settings["User"] == "trainvitals"
    assert "docker" not in settings.get("SupplementaryGroups", "")
    # These settings would hide files that the exporter reads.
    assert not {"PrivateDevices", "PrivateTmp", "ProtectProc", "ProtectKernelLogs"} & set(settings)
    assert "ExecStart=/opt/trainvitals/bin/trainvitals" in unit
