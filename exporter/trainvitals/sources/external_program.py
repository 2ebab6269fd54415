"""Run and stop external programs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# A major and a minor version number.
Version = tuple[int, int]

_VERSION_SECONDS = 30.0


def run(
    command: Sequence[str],
    *,
    timeout_seconds: float,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program with empty standard input, and return its exit code and its text output.

    Args:
        command: The program and the program's arguments.
        timeout_seconds: The time after which the program is killed, in seconds.
        environ: The program's environment; None for the environment of this process.
        directory: The program's working directory; None for the current directory.

    Raises:
        OSError: The program cannot be started.
        TimeoutExpired: The program did not end within `timeout_seconds`.
    """
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_seconds,
        env=None if environ is None else dict(environ),
        cwd=directory,
        check=False,
    )


def stop(process: subprocess.Popen[Any], *, timeout_seconds: float) -> int:
    """Terminate a program, and return its exit code; kill the program after the timeout."""
    process.terminate()
    try:
        return process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def read_version(program: Path, arguments: Sequence[str] = ("--version",)) -> Version | None:
    """Return the version that a program prints.

    The result is None if the program cannot be run or prints no version.
    """
    try:
        answer = run((str(program), *arguments), timeout_seconds=_VERSION_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stdout + answer.stderr)


def parse_version(text: str) -> Version | None:
    """Return the version in a text such as `v0.25.0`; None if the text contains no version."""
    found = re.search(r"(?<![\d.])(\d{1,9})\.(\d{1,9})", text)
    return (int(found[1]), int(found[2])) if found else None
