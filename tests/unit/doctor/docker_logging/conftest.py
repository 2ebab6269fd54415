"""Fixtures for tests of `trainvitals docker-logging`."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.cli import main

PACKAGE = Path(__file__).parents[4] / "exporter"


@pytest.fixture
def run(capsys):
    """Return a function that runs `trainvitals docker-logging` in this process."""

    def run(*words):
        try:
            code = main(("docker-logging", *map(str, words)))
        except SystemExit as left:
            code = left.code
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, out, err)

    return run


@pytest.fixture
def run_as_nobody():
    """Return a function that runs `trainvitals docker-logging` as an unprivileged user."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user, by setpriv")
    before = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable)

    def run(*words):
        return subprocess.run(
            (*before, "-m", "trainvitals", "docker-logging", *map(str, words)),
            # That user cannot write coverage data.
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")},
                "PYTHONPATH": str(PACKAGE),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def dockerd(tmp_path):
    """Return a function that writes a fake `dockerd` and returns the `PATH` to find it."""

    def make(version, code=0, words="configuration OK"):
        program = tmp_path / "bin/dockerd"
        program.parent.mkdir()
        program.write_text(
            "#!/bin/sh\n"
            f'[ "$1" = --version ] && {{ echo "Docker version {version}, build 411e817"; exit 0; }}\n'
            '[ "$1 $2" = "--validate --config-file" ] || exit 99\n'
            f"""printf '%s\\n' '{words}' | sed "s#FILE#$3#" >&2\nexit {code}\n"""
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return f"{program.parent}:{os.environ['PATH']}"

    return make
