"""A real process that writes a run file, for tests of those who read it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

WRITER = Path(__file__).with_name("writer.py")
SOURCE_ROOT = Path(__file__).parents[3] / "exporter"


class Trainer:
    """A process that writes a run file and does as it is told; see `writer.py`.

    Args:
        directory: The run directory.
        rank: Its rank.
        wrapper: A command that runs the writer, such as `unshare`.

    Attributes:
        process: The process, or its wrapper.
        path: The run file.
    """

    def __init__(self, directory: Path, *, rank: int = 0, wrapper: Sequence[str] = ()) -> None:
        command = [*wrapper, sys.executable, "-S", "-E", WRITER, SOURCE_ROOT, directory, str(rank)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.path = Path(self.process.stdout.readline().strip())

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    def do(self, command: str) -> str:
        """Give a command and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self, number: int = 9) -> None:
        """Send a signal and collect the process."""
        os.kill(self.pid, number)
        self.process.wait()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def kernel_tells_exits() -> bool:
    """Tell whether the kernel tells how a process ended after it was collected (6.15 and newer)."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int(minor)) >= (6, 15)


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something is so; fail when it never is."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)
