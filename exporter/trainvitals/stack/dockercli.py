"""Runs the command `docker`."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from trainvitals.sources import external_program
from trainvitals.units import format_duration

_CALL_SECONDS = 60.0
_END_SECONDS = 10.0
_KEPT_LINES = 200
_NOT_FOUND = 127
_TIMED_OUT = 124


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of running the command `docker`.

    Attributes:
        code: The exit code of the command; 127 if the command does not exist, 124 after a timeout.
        output: The command's standard output.
        error: The command's standard error.
    """

    code: int
    output: str
    error: str


@dataclass(frozen=True, slots=True)
class Docker:
    """The command `docker` with an environment and a working directory.

    Attributes:
        environment: The complete environment of the command.
        directory: The working directory; None for the current directory.
    """

    # The repr omits the environment, because the environment contains secrets.
    environment: Mapping[str, str] = field(repr=False)
    directory: Path | None = None

    def call(self, *words: str, timeout_seconds: float = _CALL_SECONDS) -> CommandResult:
        """Run the command `docker` and return the result."""
        try:
            ran = external_program.run(
                _command(words),
                timeout_seconds=timeout_seconds,
                environ=self.environment,
                directory=self.directory,
            )
        except subprocess.TimeoutExpired:
            late = f"docker {words[0]} did not end within {format_duration(timeout_seconds)}"
            return CommandResult(_TIMED_OUT, "", late)
        except OSError as error:
            return CommandResult(_NOT_FOUND, "", f"cannot run docker: {error.strerror}")
        return CommandResult(ran.returncode, ran.stdout, ran.stderr)

    def show(self, *words: str) -> int:
        """Run the command with inherited output, and return its exit code.

        The call returns when the command ends or is interrupted.
        """
        try:
            ran = subprocess.run(
                _command(words), env=dict(self.environment), cwd=self.directory, check=False
            )
        except OSError:
            return _NOT_FOUND
        return ran.returncode

    def follow(
        self,
        *words: str,
        on_line: Callable[[str], None],
        on_idle: Callable[[], None] = lambda: None,
        idle_seconds: float = 2.0,
    ) -> CommandResult:
        """Run the command until it exits, and call a function with each line of output.

        Args:
            words: The command's arguments.
            on_line: Called with each line of standard output and standard error.
            on_idle: Called after each `idle_seconds` without output; an exception terminates the
                command.
            idle_seconds: The number of seconds without output after which `on_idle` is called.

        Returns:
            The exit code and, in `error`, the last lines of the output.
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
            return CommandResult(_NOT_FOUND, "", f"cannot run docker: {error.strerror}")
        with process:
            try:
                stream = cast("IO[str]", process.stdout)
                for line in _Lines(stream, on_idle, idle_seconds):
                    kept.append(line)
                    on_line(line)
            finally:
                code = _end(process)
        return CommandResult(code, "", "\n".join(kept))


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    return ("docker", *words)


class _Lines:
    """Iterates over the lines of a stream, and calls a function at intervals without a line."""

    def __init__(self, stream: IO[str], on_idle: Callable[[], None], idle_seconds: float) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._idle = on_idle
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
        # The command has closed its output, so it is about to exit unless the caller has abandoned
        # it.
        return process.wait(0.5)
    except subprocess.TimeoutExpired:
        return external_program.stop(process, timeout_seconds=_END_SECONDS)
