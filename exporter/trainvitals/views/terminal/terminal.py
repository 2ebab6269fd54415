"""Controls the terminal: chooses colours and characters, reads keys, and restores the state."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import TextIOBase
from typing import IO, Literal, TextIO, cast

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console

from trainvitals.errors import TrainvitalsError

ColorChoice = Literal["auto", "always", "never"]
_DUMB = {"", "dumb", "unknown"}
_ASCII = str.maketrans(
    {
        "█": "#", "░": ".", "…": "~", "▸": ">", "▲": "^", "▼": "v", "°": " ", "↑": "^", "↓": "v",
        "▁": "_", "▂": ".", "▃": ":", "▄": "-", "▅": "=", "▆": "+", "▇": "*",
    }
)  # fmt: skip
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"  # no colour, a visible cursor, the main screen
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS = (
    *ENDING,
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGCONT,
)


class TerminalGoneError(TrainvitalsError):
    """The terminal was closed."""


class StuckError(TrainvitalsError):
    """A signal ended the program during a write that was blocked, for example by Ctrl-S."""


class Terminal(TextIOBase):
    """A terminal, from which keys are read and to which Rich writes as if to a file.

    Args:
        keyboard: The descriptor of the terminal from which keys are read.
        screen: The descriptor of the terminal on which the screen is drawn.
        is_ascii: Whether the terminal can show only ASCII.
    """

    def __init__(self, keyboard: int, screen: int, *, is_ascii: bool = False) -> None:
        self.keyboard = keyboard
        self._screen = screen
        self._is_ascii = is_ascii
        self._before: list[int | list[bytes | int]] | None = None
        self._is_writing = False
        self._is_stuck = False

    @property
    def size(self) -> tuple[int, int]:
        """The number of columns and lines of the terminal."""
        columns, lines = os.get_terminal_size(self._screen)
        return columns or 80, lines or 24

    def isatty(self) -> bool:
        """Return True, because the screen is a terminal."""
        return True

    def enter(self) -> None:
        """Save the terminal's state, and start to read keys one by one and without echo."""
        self._before = termios.tcgetattr(self.keyboard)
        self.retake()

    def retake(self) -> None:
        """Turn echo and line buffering off again after another program has used the terminal."""
        now = termios.tcgetattr(self.keyboard)
        now[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self.keyboard, termios.TCSANOW, now)

    def drop_output(self) -> None:
        """Discard unsent output, because sending the output would only delay the exit."""
        with suppress(termios.error):
            termios.tcflush(self._screen, termios.TCOFLUSH)

    def leave(self) -> None:
        """Restore the state of the terminal; further calls have no effect.

        Raises:
            TerminalGoneError: The terminal was closed.
        """
        before, self._before = self._before, None
        if before is None:
            return
        try:
            if self._is_stuck:
                self._unblock()
            termios.tcsetattr(self.keyboard, termios.TCSANOW, before)
        except termios.error as error:
            raise TerminalGoneError from error

    def write(self, text: str) -> int:
        """Write the whole text; after a signal has interrupted a blocked write, write nothing.

        Raises:
            TerminalGoneError: The terminal was closed.
        """
        if not self._is_stuck:
            self._write_all(to_ascii(text) if self._is_ascii else text)
        return len(text)

    def read_keys(self) -> str:
        """Return the characters that were typed; an empty string if the terminal was closed."""
        try:
            return os.read(self.keyboard, 1024).decode(errors="replace")
        except OSError:
            return ""

    def suspend(self) -> None:
        """Restore the terminal and stop the process, as Ctrl-Z does."""
        self.leave()
        own = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        try:
            os.kill(os.getpid(), signal.SIGTSTP)
        finally:
            signal.signal(signal.SIGTSTP, own)
            self.enter()

    def end_if_stuck(self, *_: object) -> None:
        """Handle a signal that ends the program; if a write is blocked, exit immediately.

        Raises:
            StuckError: A write to the terminal is blocked.
        """
        if self._is_writing:
            self._is_stuck = True
            raise StuckError

    def _write_all(self, text: str) -> None:
        left = memoryview(text.encode(errors="replace"))
        self._is_writing = True
        try:
            while left:
                left = left[os.write(self._screen, left) :]
        except OSError as error:
            raise TerminalGoneError from error
        finally:
            self._is_writing = False

    def _unblock(self) -> None:
        """Resume output that Ctrl-S stopped, and switch back to the main screen."""
        for act in (termios.TCOOFF, termios.TCOON):  # TCOON alone does not undo Ctrl-S
            termios.tcflow(self._screen, act)
        self._write_all(_LEAVE)


def make_console(file: IO[str] | Terminal, colors: ColorSystem | None, *, width: int) -> Console:
    """Return a console; its capabilities do not depend on the environment or on the file.

    Args:
        file: The file to which the console writes.
        colors: The colours that the console uses; if None, the output has no colours.
        width: The width of the console, in columns.
    """
    return Console(
        file=cast("IO[str]", file),
        force_terminal=True,
        color_system=None if colors is None else "standard",
        no_color=colors is None,
        width=width,
        height=1,
        legacy_windows=False,
    )


def to_ascii(text: str) -> str:
    """Return a text in ASCII with the same width; `?` replaces characters without an equivalent."""
    if text.isascii():
        return text
    translated = text.translate(_ASCII)
    return "".join(
        letter if letter.isascii() else "?".ljust(cell_len(letter)) if cell_len(letter) else ""
        for letter in translated
    )


def choose_colors(
    choice: ColorChoice, stream: TextIO, environ: Mapping[str, str]
) -> ColorSystem | None:
    """Return the colours to use on a stream; None if the output must not have colours.

    Args:
        choice: The value of `--color`.
        stream: The stream to which the output is written.
        environ: The environment variables, which may include `NO_COLOR` and `TERM`.
    """
    if choice == "never":
        return None
    if choice == "auto":
        is_plain = environ.get("NO_COLOR") or is_dumb(environ) or not stream.isatty()
        return None if is_plain else ColorSystem.STANDARD
    return ColorSystem.STANDARD


def is_dumb(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal supports only plain lines."""
    return environ.get("TERM", "") in _DUMB


def is_ascii(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether the terminal can show only ASCII."""
    if (stream.encoding or "").lower().replace("-", "") != "utf8":
        return True
    # Python itself sets LC_CTYPE to C.UTF-8 if the locale is C or not set.
    own = environ.get("LC_CTYPE", "")
    names = (environ.get("LC_ALL"), "" if own == "C.UTF-8" else own, environ.get("LANG"))
    chosen = next((name for name in names if name), "UTF-8")
    return "utf8" not in chosen.lower().replace("-", "")


@contextmanager
def catch_signals(wake: int, terminal: Terminal) -> Iterator[None]:
    """Write the numbers of received signals to a descriptor that the main loop reads.

    Args:
        wake: The non-blocking descriptor to which the signal numbers are written.
        terminal: The terminal. A write to the terminal may be blocked when a signal arrives.
    """
    own = {number: signal.signal(number, _ignore) for number in SIGNALS}
    for number in ENDING:
        signal.signal(number, terminal.end_if_stuck)
    before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in own.items():
            signal.signal(number, handler)


def _ignore(*_: object) -> None:
    """Do nothing; a handler is needed because Python writes only the numbers of handled signals."""
