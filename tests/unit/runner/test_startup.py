"""Tests for the `sitecustomize` module that `trainvitals run` adds to every Python process."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.runner.command import STARTUP, make_environment

OLD = ("python2.7", "python3.6", "python3.7", "python3.8", "python3.9")
OTHER = "print('mine', __name__)"


def start(code, *, path=(), environ=None, flags=()):
    """Run Python in the environment of `trainvitals run`, with additional import paths."""
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
    """The start of Python prints nothing and imports no large module."""
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


def test_a_start_imports_few_modules():
    """The start of Python imports only a few small modules."""
    code = "import sys; print(*sys.modules)"
    one, other = (
        set(start(code, environ={"TRAINVITALS_AUTOLOG": switch}).stdout.split())
        for switch in ("1", "0")
    )
    small = {"__future__", "atexit", "contextlib", "sitecustomize", "types", "warnings"}
    helpers = {"collections", "functools", "itertools", "keyword", "operator", "reprlib"}
    more = {name for name in one - other if not name.startswith(("_", "importlib"))}
    assert more <= small | helpers


@pytest.mark.parametrize("switch", ["1", "0"])
def test_the_users_module_runs_once_and_has_its_name(tmp_path, switch):
    """A `sitecustomize` module of the user is executed once, under its own name."""
    (tmp_path / "sitecustomize.py").write_text(OTHER)
    code = "import sys; print(sys.modules['sitecustomize'].__file__)"
    done = start(code, path=[tmp_path], environ={"TRAINVITALS_AUTOLOG": switch})
    assert done.stdout.splitlines() == ["mine sitecustomize", str(tmp_path / "sitecustomize.py")]
    assert done.stderr == ""


def test_another_tool_s_module_that_leaves_out_itself_alone_ends(tmp_path):
    """Each `sitecustomize` module on the path is executed once, in the order of the path."""
    tool, own = tmp_path / "tool", tmp_path / "own"
    for folder in (tool, own):
        folder.mkdir()
    (own / "sitecustomize.py").write_text("print('own')")
    (tool / "sitecustomize.py").write_text(
        "import os, sys\n"
        "from importlib.machinery import PathFinder\n"
        "from importlib.util import module_from_spec\n"
        "print('tool')\n"
        "rest = [place for place in sys.path if place != os.path.dirname(__file__)]\n"
        "spec = PathFinder.find_spec('sitecustomize', rest)\n"
        "spec.loader.exec_module(module_from_spec(spec))\n"
    )
    done = start("print('program')", path=[tool, own])
    assert (done.stdout.split(), done.stderr) == (["tool", "own", "program"], "")


def test_what_the_users_module_raises_is_reported_as_by_python(tmp_path):
    """An exception in the user's module is printed as by Python, and the program continues."""
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('mine')")
    done = start("print(7)", path=[tmp_path])
    plain = start("print(7)", path=[tmp_path], environ={"TRAINVITALS_AUTOLOG": "0"})
    assert (done.returncode, done.stdout) == (0, "7\n")
    assert done.stderr == plain.stderr
    assert "mine" in done.stderr


@pytest.mark.parametrize(
    "fault", [None, "raise SystemExit(9)", "raise ImportError", "raise KeyboardInterrupt", "x ="]
)
def test_a_failure_of_the_observation_is_silent(tmp_path, fault):
    """If the package is missing or broken, the program runs without a message."""
    (tmp_path / "a/runner/startup").mkdir(parents=True)
    (tmp_path / "a/training").mkdir()
    start_file = tmp_path / "a/runner/startup/sitecustomize.py"
    start_file.write_text((STARTUP / "sitecustomize.py").read_text())
    if fault is not None:
        (tmp_path / "a/runner/imports.py").write_text(fault)
        (tmp_path / "a/training/failure.py").write_text(fault)
    environ = {
        **os.environ,
        "PYTHONPATH": str(start_file.parent),
        "TRAINVITALS_AUTOLOG": "1",
        "TRAINVITALS_FAILURES": str(tmp_path),
    }
    done = subprocess.run(
        (sys.executable, "-c", "print(7); raise ValueError('mine')"),
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "7\n")
    assert done.stderr.splitlines()[-1] == "ValueError: mine"
    assert done.stderr.count("Traceback") == 1


@pytest.mark.parametrize("before", [None, "", os.pathsep, f"/a{os.pathsep}", "/a"])
def test_the_path_has_no_further_part(before, tmp_path):
    """`sys.path` has only one additional entry, whatever `PYTHONPATH` contains."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    plain |= {} if before is None else {"PYTHONPATH": before}
    paths = []
    for environ in (plain, make_environment(plain)):
        done = subprocess.run(
            (sys.executable, "-c", "import json, sys; print(json.dumps(sys.path))"),
            env=environ,
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        paths.append(json.loads(done.stdout))
    assert [path for path in paths[1] if path != str(STARTUP)] == paths[0]
    assert "PYTHONPATH" not in make_environment({"TRAINVITALS_AUTOLOG": "0"})


def test_a_module_of_the_user_before_this_directory_runs_once(tmp_path):
    """A user's `sitecustomize` before that of `trainvitals run` is executed once."""
    (tmp_path / "sitecustomize.py").write_text(OTHER)
    environ = make_environment({k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    environ["PYTHONPATH"] = os.pathsep.join((str(tmp_path), environ["PYTHONPATH"]))
    code = "import sys; print(sys.modules['sitecustomize'].__file__)"
    done = subprocess.run(
        (sys.executable, "-c", code), env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["mine sitecustomize", str(tmp_path / "sitecustomize.py")]
    assert done.stderr == ""


def test_python_that_is_not_reached_works_and_is_named(tmp_path):
    """Python processes that ignore the environment work and are listed at the end."""
    sleep = "-c 'import time; time.sleep(4); print(1)'"
    python = sys.executable
    starts = (f"{python} -I", f"{python} -E", f"{python} -S", f"env -i {python}")
    script = " & ".join(f"{start} {sleep}" for start in starts) + " & wait"
    done = subprocess.run(
        (sys.executable, "-m", "trainvitals", "run", "--", "sh", "-c", script),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    name = Path(python).name
    assert done.stdout == "1\n1\n1\n1\n"
    assert done.stderr == (
        "trainvitals: 5 processes, none of which proved to train; not reached: "
        f"{name} -E, {name} -I, {name} -S, {name} without the environment of the command\n"
    )


def find_old_pythons():
    """Yield each installed Python that is older than 3.10."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    known = [*root.glob("versions/*/bin/python"), *map(Path, filter(None, map(shutil.which, OLD)))]
    code = "import sys; print(sys.version_info < (3, 10))"
    for path in known:
        done = subprocess.run((path, "-c", code), capture_output=True, text=True, check=False)
        if done.stdout == "True\n":
            yield path


def test_an_older_python_is_left_alone(tmp_path):
    """A Python older than 3.10 runs a program without a message."""
    pythons = list(find_old_pythons())
    if not pythons:
        pytest.skip("this machine has no Python older than 3.10")
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.stdout.write('mine ')")
    for python in pythons:
        given = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            (python, "-c", "print(7)"),
            env=make_environment(given),
            capture_output=True,
            text=True,
            check=False,
        )
        # From Python 3.4 on, the user's module is executed instead of that of `trainvitals run`.
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout in {"mine 7\n", "7\n"}


def test_read_only_places_are_no_obstacle():
    """Read-only directories for temporary and run files do not affect the command."""
    inside = ("unshare", "--mount")
    if subprocess.run((*inside, "true"), capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a mount namespace")
    python = shlex.quote(sys.executable)
    script = (
        "for place in /tmp /var/tmp /dev/shm; do mount --bind $place $place; "
        "mount -o remount,bind,ro $place; done; cd /proc; "
        f"exec {python} -m trainvitals run --name x -- {python} -c 'print(7); raise SystemExit(3)'"
    )
    done = subprocess.run(
        (*inside, "sh", "-c", script),
        env={**os.environ, "HOME": "/proc", "TRAINVITALS_RUN_DIR": "/dev/shm/runs"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "7\n")
    assert done.stderr == "trainvitals: 1 process, which did not prove to train\n"


def test_a_watched_module_keeps_its_own_loader(tmp_path):
    """A watched module keeps its loader, and an import that fails can be repeated."""
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
    """The directory on the path has only one module, as every program could import others."""
    modules = {path.stem for path in Path(STARTUP).iterdir() if path.name != "__pycache__"}
    assert modules == {"sitecustomize"}  # Python 2 writes its .pyc beside the source


THREADS = """
import sys, threading
def work(text):
    if text == "exit": sys.exit(3)
    raise ValueError(text)
def run(text):
    thread = threading.Thread(target=work, args=(text,), name="one"); thread.start(); thread.join()
print(threading.excepthook is threading.__excepthook__)
run("first"); run("exit")
threading.excepthook = lambda args: print(args.exc_type, args.exc_value, args.thread.name)
run("second")
"""


def test_the_exception_of_a_thread_is_left_and_goes_to_its_hook(tmp_path):
    """The exception of a thread is recorded without a change of its output and its hook."""
    with_it = start(THREADS, environ={"TRAINVITALS_FAILURES": str(tmp_path)})
    without = start(THREADS, environ={"TRAINVITALS_AUTOLOG": "0"})
    assert (with_it.stdout, with_it.stderr) == (without.stdout, without.stderr)
    assert "True\n<class 'ValueError'> second one\n" in with_it.stdout
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".thread.json")
    assert "ValueError: first" in json.loads(left.read_text())["text"]


def test_a_thread_that_fails_is_no_obstacle_where_nothing_can_be_left(tmp_path):
    """If the directory of failures does not exist, the output of the program is the same."""
    done = start(THREADS, environ={"TRAINVITALS_FAILURES": str(tmp_path / "gone")})
    assert done.stderr == start(THREADS, environ={"TRAINVITALS_AUTOLOG": "0"}).stderr
