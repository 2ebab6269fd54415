"""The start of every Python below `trainvitals run`: silent, harmless, and beside the user's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.runner.command import STARTUP, make_environment

OTHER = "print('mine', __name__)"


def start(code, *, path=(), environ=None, flags=()):
    """Run Python as `trainvitals run` does, with more directories on its path."""
    more = {"PYTHONPATH": os.pathsep.join(map(str, path))} if path else {}
    given = {
        **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        **more,
        **(environ or {}),
    }
    return subprocess.run(
        (sys.executable, *flags, "-c", code),
        env=make_environment(given),
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_is_printed_and_nothing_large_is_imported():
    """A program that reads the output of Python gets what it gets without it."""
    done = start(
        "import sys; print(sorted({'json', 'logging', 'pathlib', 'trainvitals'} & set(sys.modules)))"
    )
    plain = subprocess.run(
        (
            sys.executable,
            "-c",
            "import sys; print(sorted({'json', 'logging', 'pathlib', 'trainvitals'} & set(sys.modules)))",
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (plain.stdout, "")


@pytest.mark.parametrize("switch", ["1", "0"])
def test_the_users_module_runs_once_and_has_its_name(tmp_path, switch):
    """Whether the observation is on or off."""
    (tmp_path / "sitecustomize.py").write_text(OTHER)
    code = "import sys; print(sys.modules['sitecustomize'].__file__)"
    done = start(code, path=[tmp_path], environ={"TRAINVITALS_AUTOLOG": switch})
    assert done.stdout.splitlines() == ["mine sitecustomize", str(tmp_path / "sitecustomize.py")]
    assert done.stderr == ""


def test_what_the_users_module_raises_is_reported_as_by_python(tmp_path):
    """With the program going on."""
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('mine')")
    done = start("print(7)", path=[tmp_path])
    plain = start("print(7)", path=[tmp_path], environ={"TRAINVITALS_AUTOLOG": "0"})
    assert (done.returncode, done.stdout) == (0, "7\n")
    assert done.stderr == plain.stderr
    assert "mine" in done.stderr


def test_a_failure_of_the_observation_is_silent(tmp_path):
    """The start is copied to where the package is not."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/sitecustomize.py").write_text((STARTUP / "sitecustomize.py").read_text())
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "a/b"), "TRAINVITALS_AUTOLOG": "1"}
    done = subprocess.run(
        (sys.executable, "-c", "print(7)"), env=environ, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_the_path_has_no_empty_part():
    """An empty part is the working directory."""
    for before in ("", os.pathsep, f"/a{os.pathsep}"):
        path = make_environment({"PYTHONPATH": before})["PYTHONPATH"].split(os.pathsep)
        assert all(path)
        assert path[0] == str(STARTUP)
    assert "PYTHONPATH" not in make_environment({"TRAINVITALS_AUTOLOG": "0"})


def test_a_watched_module_keeps_its_own_loader(tmp_path):
    """Its import is observed once, and a failing one is watched further."""
    (tmp_path / "torch.py").write_text(
        "import os\nif 'FAIL' in os.environ: raise ImportError('no')\n"
    )
    code = (
        "import os, sys\n"
        "os.environ['FAIL'] = '1'\n"
        "try: import torch\n"
        "except ImportError: print('failed')\n"
        "del os.environ['FAIL']\n"
        "import torch\n"
        "print(type(torch.__loader__).__name__, torch.__spec__.loader is torch.__loader__)\n"
        "print('trainvitals.runner.watchers' in sys.modules)\n"
    )
    done = start(code, path=[tmp_path])
    assert done.stdout.splitlines() == ["failed", "SourceFileLoader True", "True"]
    assert done.stderr == ""


def test_the_startup_directory_has_one_module():
    """Whatever else is there could be imported by every program."""
    assert [path.name for path in Path(STARTUP).iterdir() if path.name != "__pycache__"] == [
        "sitecustomize.py"
    ]
