"""Tests for the arguments, the output and the exit codes of `trainvitals doctor`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.doctor.cases import TOKEN
from trainvitals.cli import main
from trainvitals.doctor import CHECKS

PACKAGE = Path(__file__).parents[3] / "exporter"


@pytest.fixture
def doctor(capsys, tmp_path, monkeypatch):
    """Return a function that runs the command and returns its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        code = main(["doctor", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def test_this_machine_is_examined_as_it_is(doctor, tmp_path):
    """On the real machine, every check has a line, and no check raises an exception."""
    code, out, err = doctor("--all", "--engine=none", f"--checkpoints={tmp_path}")
    assert err == ""
    assert code in {0, 1}
    for check in CHECKS:
        assert f" {check.name} " in out
    assert "could not be checked" not in out
    assert " not applicable; " in out.splitlines()[-1]


def test_json_is_for_programs(doctor):
    """`--json` prints the overall status, and for each check the finding, reason and command."""
    code, out, _ = doctor("--json", "--checks=needed-variables,swap", "--need=NO_SUCH_VARIABLE")
    told = json.loads(out)
    assert (code, told["status"], told["problems"]) == (1, "problem", 1)
    first = told["checks"][0]
    assert first["name"] == "needed-variables"
    assert first["what"] == "not set: NO_SUCH_VARIABLE"
    assert first["mend"] == "read -rs NO_SUCH_VARIABLE && export NO_SUCH_VARIABLE"
    assert set(first) == {
        "name",
        "subject",
        "status",
        "what",
        "why",
        "mend",
        "advice",
        "details",
        "seconds",
    }


def test_a_problem_is_told_with_why_and_a_command_to_copy(doctor):
    """A problem is printed with its reason and, on a separate line, the complete command."""
    code, out, _ = doctor("--checks", "needed-variables", "--need", "NO_SUCH_VARIABLE")
    assert code == 1
    lines = [line.strip() for line in out.splitlines()]
    assert lines[0] == "✗ problem needed-variables  not set: NO_SUCH_VARIABLE"
    assert lines[1].startswith("why: the run fails when it reads it")
    assert "$ read -rs NO_SUCH_VARIABLE && export NO_SUCH_VARIABLE" in lines
    assert lines[-1].startswith("1 problem, 0 warnings, 0 ok, 0 not applicable; ")


def test_no_problem_exits_with_0(doctor):
    """Without a problem, the exit code is 0, and a passed check has one line."""
    code, out, _ = doctor("--checks=memory,needed-variables", "--need=PATH")
    assert code == 0
    assert "✓ ok      needed-variables  set: PATH" in out


def test_checks_without_names_lists_them(doctor):
    """`--checks` without names lists all checks below their subjects."""
    code, out, _ = doctor("--checks")
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "] == [
        check.name for check in CHECKS
    ]
    assert lines[0] == CHECKS[0].subject
    assert max(map(len, lines)) <= 100


def test_quick_is_the_health_of_the_infrastructure(doctor):
    """`--quick` runs only the checks of accelerators, containers, disks and the network."""
    _, out, _ = doctor("--quick", "--engine=none", "--json")
    assert {check["name"] for check in json.loads(out)["checks"]} == {
        "accelerator-states",
        "container-states",
        "disk-space",
        "route",
        "reach",
    }


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("--checks=weather", "there is no such check"),
        ("--checks=,", "separate names by commas"),
        ("--checks=", "separate names by commas"),
        ("--engine=podman", "write unix:///PATH, tcp://HOST:PORT"),
        ("--python=/dev/shm", "no program that can be run"),
        ("--requirements=/dev/shm", "no file that can be read"),
        ("--checkpoints=~nobody-of-that-name/x", "write an absolute path"),
        ("--reach=gpu-07", "write HOST:PORT"),
        ("--reach=:80", "write HOST:PORT"),
        ("--port=0", "from 1 to 65535"),
        ("--port=99999", "from 1 to 65535"),
        ("--checkpoint-size=big", "write a size"),
        (f"--need=HF_TOKEN={TOKEN}", "without its value"),
    ],
)
def test_wrong_usage_is_one_line(doctor, argument, says):
    """An invalid argument exits with 2 and a one-line hint that does not repeat the token."""
    code, out, err = doctor(argument)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    assert TOKEN not in err


def test_a_folder_that_was_removed_is_no_place_to_start_from(doctor, tmp_path, monkeypatch):
    """In a removed working directory, an absolute path for the checkpoints is required."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, _, err = doctor("--checks=checkpoint-access")
    assert (code, err.count("\n")) == (2, 1)
    assert "write an absolute path" in err
    assert doctor("--checks=checkpoint-access", f"--checkpoints={tmp_path}")[0] == 0


def test_torch_is_not_imported(tmp_path):
    """The process of the command imports neither PyTorch nor the bindings of the drivers."""
    script = (
        "import sys; from trainvitals.cli import main; code = main(['doctor', '--engine=none']);"
        "print(sorted({'torch', 'pynvml', 'pyhlml'} & set(sys.modules)), file=sys.stderr)"
    )
    said = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stderr == "[]\n"


def test_a_terminal_that_knows_ascii_alone_gets_ascii(tmp_path):
    """If the terminal supports only ASCII, the status marks are ASCII letters."""
    said = subprocess.run(
        [
            sys.executable,
            "-m",
            "trainvitals",
            "doctor",
            "--checks=needed-variables",
            "--need=NO_SUCH",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert said.returncode == 1
    assert said.stdout.startswith(b"x problem needed-variables  not set: NO_SUCH\n")


def test_a_user_without_a_home_has_no_saved_token(doctor, monkeypatch):
    """For a user without a home directory, missing saved tokens are not a problem."""
    for name in (
        "HF_TOKEN",
        "HF_HOME",
        "HF_TOKEN_PATH",
        "XDG_CACHE_HOME",
        "WANDB_API_KEY",
        "NETRC",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "~nobody-of-that-name")
    code, out, _ = doctor("--all", "--checks=huggingface-token,wandb-key")
    assert (code, "could not be checked" in out) == (0, False)
