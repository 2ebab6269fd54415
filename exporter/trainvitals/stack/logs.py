"""The logs of the stack's programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.stack.settings import Settings


def follow_logs(settings: Settings, *, lines: int = 40) -> None:
    """Show the end of every log on standard output and follow them until interrupted.

    Raises:
        StackError: There are no logs yet, or they cannot be shown.
    """
    directory = settings.state_dir / "logs"
    files = sorted(map(str, directory.glob("*.log")))
    if not files:
        raise StackError(f"no logs in {directory}: start the stack with `trainvitals up`")
    try:
        # -F goes on with the new file after a log was rotated.
        command = ("tail", "-n", str(lines), "-F", *files)
        subprocess.run(command, check=False)
    except OSError as error:
        raise StackError(f"cannot run tail: {error.strerror}; read {directory}") from error


def last_lines(path: Path, count: int) -> list[str]:
    """Give the last lines of a log; empty where there is none."""
    try:
        return path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return []
