"""The `docker` command: asked for something, or followed while it works."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

_ASK_SECONDS = 60.0
_END_SECONDS = 10.0
_KEPT_LINES = 200
_NOT_THERE = 127
_TOO_SLOW = 124


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command gave.

    Attributes:
        code: Its exit code; 127 where there is no such command, 124 where it did not end in time.
        output: Its standard output.
        complaint: Its standard error.
    """

    code: int
    output: str
    complaint: str


@dataclass(frozen=True, slots=True)
class Docker:
    """The command `docker` with an environment.

    Attributes:
        environment: All variables that it gets.
        directory: Where it runs; None for the present directory.
    """

    # Secrets are among them.
    environment: Mapping[str, str] = field(repr=False)
    directory: Path | None = None

    def ask(self, *words: str, patience_seconds: float = _ASK_SECONDS) -> Answer:
        """Run it to its end and give what it said."""
        try:
            said = subprocess.run(
                _command(words),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=dict(self.environment),
                cwd=self.directory,
                timeout=patience_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            late = f"docker {words[0]} does not answer within {patience_seconds:.0f} s"
            return Answer(_TOO_SLOW, "", late)
        except OSError as error:
            return Answer(_NOT_THERE, "", f"cannot run docker: {error.strerror}")
        return Answer(said.returncode, said.stdout, said.stderr)

    def show(self, *words: str) -> int:
        """Run it with our own output, until it ends or is interrupted; give its exit code."""
        try:
            said = subprocess.run(
                _command(words), env=dict(self.environment), cwd=self.directory, check=False
            )
        except OSError:
            return _NOT_THERE
        return said.returncode

    def follow(
        self,
        *words: str,
        heard: Callable[[str], None],
        idle: Callable[[], None] = lambda: None,
        idle_seconds: float = 2.0,
    ) -> Answer:
        """Run it and tell each line as it comes; it ends with this call, whatever happens.

        Args:
            words: Its arguments.
            heard: Told each line of its standard output and error.
            idle: Called when nothing came for a while; may raise, which ends the command.
            idle_seconds: How long that while is.

        Returns:
            Its exit code and, as the complaint, its last lines.
        """
        kept: deque[str] = deque(maxlen=_KEPT_LINES)
        try:
            process = subprocess.Popen(
                _command(words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=dict(self.environment),
                cwd=self.directory,
            )
        except OSError as error:
            return Answer(_NOT_THERE, "", f"cannot run docker: {error.strerror}")
        with process:
            try:
                stream = cast("IO[str]", process.stdout)
                for line in _Lines(stream, idle, idle_seconds):
                    kept.append(line)
                    heard(line)
            finally:
                code = _end(process)
        return Answer(code, "", "\n".join(kept))


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    return ("docker", *words)


class _Lines:
    """The lines of a stream, with something to do while none comes."""

    def __init__(self, stream: IO[str], idle: Callable[[], None], idle_seconds: float) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._idle = idle
        self._idle_seconds = idle_seconds
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.rstrip())
        self._lines.put(None)

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        while True:
            try:
                line = self._lines.get(timeout=self._idle_seconds)
            except queue.Empty:
                self._idle()
                continue
            if line is None:
                raise StopIteration
            return line


def _end(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(0.5) if process.poll() is None else process.returncode
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        return process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
