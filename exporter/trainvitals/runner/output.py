"""Copies the output of a command to a log, as `tee` does.

The command keeps its standard input and its controlling terminal, so that prompts, `pdb`, Ctrl-C
and Ctrl-Z do not pass through this process. An output stream that would go to a terminal is
redirected to a pseudo-terminal of the same size and modes, so that the command uses colors and
progress bars. Any other output stream is redirected to a pipe. The output is forwarded unchanged.
If both streams have the same destination, they share one pseudo-terminal or pipe, which preserves
the order of the output.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import stat
import termios
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from trainvitals.errors import ConfigurationError
from trainvitals.sources.runs.processes import Exit

_STREAMS = (1, 2)
_CHUNK_BYTES = 65536
_SIZE_BYTES = 8
_OUTPUT_MODES = 1
# The wait for more output after the command has ended, and the maximum number of reads: a
# descendant that is still running may write to the stream without end.
_QUIET_SECONDS = 0.1
_MOST_READS = 100


@dataclass(slots=True)
class _Channel:
    """A pseudo-terminal or pipe that replaces an output stream.

    Attributes:
        target: The stream of this process to which the output is written; -1 after a write error.
        source: The descriptor from which this process reads the output.
        inner: The descriptor that the command inherits; -1 after the command has started.
        is_terminal: Whether the channel is a pseudo-terminal.
    """

    target: int
    source: int
    inner: int
    is_terminal: bool


class OutputLog:
    """A log of a command's output.

    Args:
        path: The path of the log, to which the output is appended.
        report: A function that is called once with a message if the log cannot be written.

    Attributes:
        path: The absolute path of the log.
        start: The size of the log before the command starts, in bytes.

    Raises:
        ConfigurationError: The log or a pseudo-terminal cannot be opened.
    """

    def __init__(self, path: Path, report: Callable[[str], object]) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - resolves no links
        self._report = report
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
            self._log = os.open(path, flags, 0o666)
            self.start = os.fstat(self._log).st_size
            self._channels, self.streams = _open_channels()
        except OSError as error:
            raise ConfigurationError(
                f"--log {path}: {error.strerror}; name a file that this user may write"
            ) from error
        self._stop, self._stopper = os.pipe()
        self._threads: list[Thread] = []
        self._pid = 0

    def begin(self, pid: int) -> None:
        """Start to copy the output of the command, which was started with `streams`."""
        self._pid = pid
        for channel in self._channels:
            os.close(channel.inner)
            channel.inner = -1
            thread = Thread(target=self._copy, args=(channel,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def note_exit(self, pid: int, start_ticks: int, exit_: Exit) -> None:
        """Ignore the exit of a process."""

    def resize(self) -> None:
        """Copy the terminal's size to the pseudo-terminals, and send SIGWINCH to the command.

        The terminal's own SIGWINCH may have reached the command before the size was copied.
        """
        for channel in self._channels:
            if channel.is_terminal:
                with suppress(OSError):
                    _copy_size(channel.target, channel.source)
                    os.kill(self._pid, signal.SIGWINCH)

    def end(self) -> None:
        """Copy the remaining output after the command has ended."""
        os.close(self._stopper)
        for thread in self._threads:
            thread.join()

    def _copy(self, channel: _Channel) -> None:
        poll = select.poll()
        poll.register(channel.source, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        reads_left: int | None = None
        while reads_left is None or reads_left:
            ready = dict(poll.poll(None if reads_left is None else _QUIET_SECONDS * 1000))
            if reads_left is None and self._stop in ready:
                poll.unregister(self._stop)
                reads_left = _MOST_READS
            elif channel.source not in ready:
                break
            if channel.source in ready and not self._pass_on(channel):
                break
            reads_left = None if reads_left is None else reads_left - 1
        os.close(channel.source)

    def _pass_on(self, channel: _Channel) -> bool:
        """Copy the available output; return False if the output or the target is closed."""
        try:
            data = os.read(channel.source, _CHUNK_BYTES)
        except OSError:  # all processes have closed the pseudo-terminal
            return False
        self._write_log(data)
        if channel.target >= 0:
            try:
                _write_all(channel.target, data)
            except BrokenPipeError:  # the command gets the same error at its next write
                return False
            except OSError:  # the terminal is gone
                channel.target = -1
        return bool(data)

    def _write_log(self, data: bytes) -> None:
        if self._log < 0:
            return
        try:
            _write_all(self._log, data)
        except OSError as error:
            self._log = -1
            self._report(f"cannot write {self.path}: {error.strerror}; the command goes on")


def _open_channels() -> tuple[list[_Channel], dict[int, int]]:
    """Open the channels that replace the output streams.

    Returns:
        The channels, and the descriptors that the command inherits, by stream number.

    Raises:
        OSError: A pseudo-terminal or pipe cannot be opened.
    """
    channels: dict[tuple[int, int, int], _Channel] = {}
    streams: dict[int, int] = {}
    for stream in _STREAMS:
        try:
            status = os.fstat(stream)
        except OSError:  # the stream is closed
            continue
        place = (status.st_dev, status.st_ino, status.st_rdev)
        if place not in channels:
            channels[place] = _open_channel(stream, is_terminal=_is_terminal(stream, status))
        streams[stream] = channels[place].inner
    return list(channels.values()), streams


def _is_terminal(stream: int, status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and os.isatty(stream)


def _open_channel(stream: int, *, is_terminal: bool) -> _Channel:
    if not is_terminal:
        source, inner = os.pipe()
        return _Channel(stream, source, inner, is_terminal=False)
    source, inner = os.openpty()
    modes = termios.tcgetattr(stream)
    modes[_OUTPUT_MODES] &= ~termios.OPOST  # the real terminal processes the output
    termios.tcsetattr(inner, termios.TCSANOW, modes)
    _copy_size(stream, inner)
    return _Channel(stream, source, inner, is_terminal=True)


def _copy_size(terminal: int, other: int) -> None:
    size = fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(_SIZE_BYTES))
    fcntl.ioctl(other, termios.TIOCSWINSZ, size)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        select.select((), (descriptor,), ())  # a terminal may have been set to non-blocking mode
        with suppress(BlockingIOError):
            data = data[os.write(descriptor, data) :]
