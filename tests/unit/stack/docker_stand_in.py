"""A `docker` command that says what a test has written down."""

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
    """Put a `docker` into a directory and give an environment that finds it.

    Args:
        directory: Where it goes.
        answers: What it prints for arguments that match a pattern.
        failures: The patterns for which it prints that to standard error and fails.
        slow: The patterns after which it takes ten seconds to end.
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
