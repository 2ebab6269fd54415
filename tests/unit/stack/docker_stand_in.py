"""A stand-in for the `docker` command that prints the output that a test has specified."""

import json
import os
import sys
from pathlib import Path

STAND_IN = Path(__file__).parent / "stand_ins/docker.py"

WORKING = {
    "context inspect": "unix:///run/docker.sock\n",
    "^version": "26.1.5\n",
    "compose version": "2.26.1-4\n",
    "^info": "io.containerd.runc.v2 nvidia runc \n",
}


def install_docker(directory, answers, *, failures=(), slow=()):
    """Install the stand-in for `docker`, and return an environment in which it is found.

    Args:
        directory: The directory in which `docker` is installed.
        answers: The output for each pattern that the arguments of a call may match.
        failures: The patterns for which the output goes to standard error and the call fails.
        slow: The patterns for which the call ends only after ten seconds.
    """
    lines = [
        [
            pattern,
            1 if pattern in failures else 0,
            "" if pattern in failures else text,
            text if pattern in failures else "",
            10 if pattern in slow else 0,
        ]
        for pattern, text in answers.items()
    ]
    (directory / "answers.json").write_text(json.dumps(lines))
    program = directory / "docker"
    program.write_text(f"#!{sys.executable}\n{STAND_IN.read_text()}")
    program.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{directory}:{os.environ['PATH']}",
        "STAND_IN_DOCKER": str(directory / "answers.json"),
    }
