"""A pseudo-terminal that runs a program interactively."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

PATIENCE_SECONDS = 60.0


class Terminal:
    """A terminal whose foreground process is a program.

    Args:
        command: The program and its arguments.
        cwd: The working directory of the program.
        rows: The height of the terminal.
        columns: The width of the terminal.

    Attributes:
        process: The program.
        output: Everything that was written to the terminal.
    """

    def __init__(
        self, command: Sequence[str], *, cwd: Path, rows: int = 24, columns: int = 80
    ) -> None:
        self._master, slave = os.openpty()
        self.resize(rows, columns)
        self.output = b""
        self.process = subprocess.Popen(
            ("setsid", "--ctty", "--wait", *command),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm", "PS1": "$ "},
        )
        os.close(slave)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal."""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def type(self, text: str) -> None:
        """Send keys: Ctrl-C is the character 3, and Ctrl-Z is the character 26."""
        os.write(self._master, text.encode())

    def expect(self, pattern: str, *, since: int = 0) -> int:
        """Read until the output matches a pattern, and return the end of the match.

        Args:
            pattern: A regular expression.
            since: The position in the output at which the search begins.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = re.compile(pattern.encode()).search(self.output, since)
            if found:
                return found.end()
            assert time.monotonic() < deadline, self.output
            if not self._read():
                raise AssertionError(self.output)

    def wait(self) -> int:
        """Read until the program has ended, and return its exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """Kill the program and close the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def __enter__(self) -> Terminal:  # noqa: PYI034 - Self is newer than Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> bool:
        ready, _, _ = select.select((self._master,), (), (), PATIENCE_SECONDS)
        assert ready, self.output
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the program has closed the terminal
            return False
        self.output += data
        return bool(data)
