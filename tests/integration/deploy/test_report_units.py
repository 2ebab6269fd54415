"""The timer and service of systemd and the lines of cron that make reports."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UNITS = ROOT / "deploy/systemd"
CRON = ROOT / "deploy/cron/trainvitals-report"
SERVICE, TIMER = "trainvitals-report.service", "trainvitals-report.timer"
PROGRAM = "/opt/trainvitals/bin/trainvitals"
FLAGS = "--date=yesterday --send --price=0.3 --currency=EUR"


@pytest.fixture
def stand_in(tmp_path):
    """Return a stand-in for the program that records its calls, beside a stand-in for `date`."""
    program, date = tmp_path / "trainvitals", tmp_path / "date"
    program.write_text('#!/bin/sh\necho "$*" >> "$CALLS"\n[ "$2" != "$FAILS" ] || exit 1\n')
    date.write_text("#!/bin/sh\necho $WEEKDAY\n")
    for each in (program, date):
        each.chmod(0o755)
    return program


def run(command, stand_in, *, weekday="3", fails=""):
    """Run a command with the stand-in for the program, and return its exit code and the calls."""
    calls = stand_in.parent / "calls"
    calls.unlink(missing_ok=True)
    environ = {
        "PATH": f"{stand_in.parent}:{os.environ['PATH']}",
        "REPORT_FLAGS": "--price=0.3 --currency=EUR",
        "CALLS": str(calls),
        "WEEKDAY": weekday,
        "FAILS": fails,
    }
    told = command.replace(PROGRAM, str(stand_in)).replace("/etc/trainvitals", str(stand_in.parent))
    code = subprocess.run(["/bin/sh", "-c", told], env=environ, check=False, timeout=30).returncode
    return code, calls.read_text(encoding="utf-8").splitlines()


def read_script():
    """Return the command line that the service passes to the shell."""
    unit = (UNITS / SERVICE).read_text(encoding="utf-8").replace("\\\n", "")
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    shell, flag, script = shlex.split(line)
    assert (shell, flag) == ("/bin/sh", "-c")
    return script.replace("$$", "$").replace("%%", "%")


def test_each_day_has_its_report_and_monday_that_of_the_week(stand_in):
    """On Wednesday a daily report is made, on Monday also a weekly one, with REPORT_FLAGS."""
    assert run(read_script(), stand_in) == (0, [f"report daily {FLAGS}"])
    both = [f"report daily {FLAGS}", f"report weekly {FLAGS}"]
    assert run(read_script(), stand_in, weekday="1") == (0, both)


@pytest.mark.parametrize("kind", ["daily", "weekly"])
def test_a_report_that_fails_does_not_keep_the_other_back(stand_in, kind):
    """If one of Monday's reports fails, the other is made, too, and the service fails."""
    code, calls = run(read_script(), stand_in, weekday="1", fails=kind)
    assert code == 1
    assert len(calls) == 2


def test_cron_has_a_line_for_each(stand_in):
    """Each line of cron has valid fields, a user, and a command without `%`, special in cron."""
    assert "." not in CRON.name  # cron ignores files with a dot in their name
    text = CRON.read_text(encoding="utf-8")
    assert text.endswith("\n")
    lines = [line for line in text.splitlines() if re.match(r"[0-9*]", line)]
    assert [line.split()[:6] for line in lines] == [
        ["15", "6", "*", "*", "*", "trainvitals"],
        ["25", "6", "*", "*", "1", "trainvitals"],
    ]
    for line, kind in zip(lines, ("daily", "weekly"), strict=True):
        command = line.split(maxsplit=6)[6]
        assert "%" not in command
        assert run(command, stand_in) == (0, [f"report {kind} {FLAGS}"])


def test_systemd_understands_the_units(tmp_path):
    """`systemd-analyze verify` reports nothing about the units."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze: apt-get install systemd")
    for name in (SERVICE, TIMER):
        shutil.copy(UNITS / name, tmp_path)
    answer = subprocess.run(
        [analyze, "verify", tmp_path / SERVICE, tmp_path / TIMER],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_the_service_may_do_nothing_but_talk():
    """The service has no capabilities, no access to devices or homes, and a read-only system."""
    unit = (UNITS / SERVICE).read_text(encoding="utf-8")
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert settings["CapabilityBoundingSet"] == ""
    for name in ("DynamicUser", "NoNewPrivileges", "PrivateDevices", "PrivateTmp", "ProtectHome"):
        assert settings[name] == "yes"
    assert settings["ProtectSystem"] == "strict"


def test_the_timer_makes_up_for_what_was_missed():
    """The timer runs every morning, or later if the machine was off."""
    timer = (UNITS / TIMER).read_text(encoding="utf-8")
    assert "OnCalendar=*-*-* 06:15:00" in timer
    assert "Persistent=yes" in timer
