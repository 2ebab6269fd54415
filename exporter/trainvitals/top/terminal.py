"""The terminal: another screen, keys without echo, and everything as before at the end."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from trainvitals.errors import TrainvitalsError

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # the other screen, no cursor, no wrapping
_LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS = (
    *ENDING,
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGCONT,
)


class TerminalGoneError(TrainvitalsError):
    """The window was closed."""


class StuckError(TrainvitalsError):
    """The program is to end and waits for a line that takes nothing."""


class Terminal:
    """A terminal that is drawn on.

    Args:
        keyboard: Where keys come from, a descriptor of a terminal.
        screen: Where to draw, a descriptor of a terminal.
    """

    def __init__(self, keyboard: int, screen: int) -> None:
        self.keyboard = keyboard
        self._screen = screen
        self._before: list[int | list[bytes | int]] | None = None
        self._is_writing = False

    @property
    def size(self) -> tuple[int, int]:
        """How many columns and lines it has."""
        columns, lines = os.get_terminal_size(self._screen)
        return columns or 80, lines or 24

    def enter(self) -> None:
        """Take it."""
        self._before = termios.tcgetattr(self.keyboard)
        self.retake()

    def retake(self) -> None:
        """Take it again, after somebody else had it."""
        now = termios.tcgetattr(self.keyboard)
        now[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self.keyboard, termios.TCSANOW, now)
        self.write(_ENTER)

    def leave(self) -> None:
        """Give it back as it was; a second time does nothing.

        Raises:
            TerminalGoneError: There is none any more.
        """
        before, self._before = self._before, None
        if before is None:
            return
        try:
            termios.tcflush(self._screen, termios.TCOFLUSH)  # nobody waits for what is wiped anyway
            if self._is_writing:
                for act in (termios.TCOOFF, termios.TCOON):  # on alone does not undo a Ctrl-S
                    termios.tcflow(self._screen, act)
            self.write(_LEAVE)
            termios.tcsetattr(self.keyboard, termios.TCSANOW, before)
        except termios.error as error:
            raise TerminalGoneError from error

    def write(self, text: str) -> None:
        """Write, however slow it is.

        Raises:
            TerminalGoneError: There is none any more.
        """
        left = memoryview(text.encode(errors="replace"))
        self._is_writing = True
        try:
            while left:
                left = left[os.write(self._screen, left) :]
        except OSError as error:
            raise TerminalGoneError from error
        self._is_writing = False

    def read(self) -> str:
        """Give what was typed; empty when it is gone."""
        try:
            return os.read(self.keyboard, 1024).decode(errors="replace")
        except OSError:
            return ""

    def suspend(self) -> None:
        """Give the terminal back, stop as Ctrl-Z has it, and take it again when told to go on."""
        self.leave()
        own = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        try:
            os.kill(os.getpid(), signal.SIGTSTP)
        finally:
            signal.signal(signal.SIGTSTP, own)
            self.enter()

    def end_if_stuck(self, *_: object) -> None:
        """Handle a signal that is to end the program: at once, where it waits for a slow line.

        Raises:
            StuckError: It waits.
        """
        if self._is_writing:
            raise StuckError


@contextmanager
def catch_signals(wake: int, terminal: Terminal) -> Iterator[None]:
    """Have the numbers of signals written to a descriptor, for a loop that reads them.

    Args:
        wake: A descriptor that does not block.
        terminal: What those that end the program may find stuck.
    """
    own = {number: signal.signal(number, _leave_it_to_the_loop) for number in SIGNALS}
    for number in ENDING:
        signal.signal(number, terminal.end_if_stuck)
    before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in own.items():
            signal.signal(number, handler)


def _leave_it_to_the_loop(*_: object) -> None:
    """Have a handler, so that the number of the signal is written."""
