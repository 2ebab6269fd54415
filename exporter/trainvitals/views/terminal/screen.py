"""The live screen, which draws the latest machine state when the state or the view changes."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from rich.color import ColorSystem
from rich.console import ConsoleDimensions
from rich.live import Live
from rich.segment import SegmentLines

from trainvitals.units import format_duration
from trainvitals.views.machine.faulty import draw_runs
from trainvitals.views.machine.picture import Picture
from trainvitals.views.terminal.frame import Source, draw_screen, list_sections
from trainvitals.views.terminal.origin import News, Origin, Watch
from trainvitals.views.terminal.table import Line
from trainvitals.views.terminal.terminal import (
    ENDING,
    StuckError,
    Terminal,
    TerminalGoneError,
    catch_signals,
    make_console,
)
from trainvitals.views.terminal.view import Key, View, end_keys, press, read_keys

_TICK_SECONDS = 1.0
_ESCAPE_SECONDS = 0.1
_LATE_INTERVALS, _LATE_SECONDS = 2.0, 3.0
_WAKE = b"\0"  # no signal has this number


@dataclass(frozen=True, slots=True)
class Look:
    """The settings of the screen.

    Attributes:
        colors: The colours of the terminal; if None, the screen is drawn without colours.
        interval_seconds: The pause between the readings of two machine states.
    """

    colors: ColorSystem | None
    interval_seconds: float


class Screen:
    """A screen that shows machine states until the user quits.

    Args:
        origin: The source of the machine states.
        first: The first machine state.
        view: The initial view.
        look: The colours and the interval of the screen.
        terminal: The terminal on which the screen is drawn.
        clock: A function that returns Unix seconds.
    """

    def __init__(
        self,
        origin: Origin,
        first: Picture,
        view: View,
        look: Look,
        *,
        terminal: Terminal,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._origin = origin
        self._view = view
        self._look = look
        self._terminal = terminal
        self._clock = clock
        self._console = make_console(terminal, look.colors, width=80)
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        # `select` can wait for keys and for this pipe, but not for threads and signals.
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watch = Watch(
            origin, first, interval_seconds=look.interval_seconds, wake=self._wake, clock=clock
        )
        self._shown: News = self._watch.news
        self._drawn: list[Line] = []
        self._typed = ""

    def run(self) -> None:
        """Draw the screen until the user quits, then restore the terminal."""
        with (
            catch_signals(self._wake_writer, self._terminal),
            suppress(TerminalGoneError, StuckError),
        ):
            try:
                self._enter()
                self._watch.start()
                self._draw()
                self._go_on()
            finally:
                self._watch.stop()
                self._leave()

    def _go_on(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_reader, selectors.EVENT_READ, self._receive)
            selector.register(self._terminal.keyboard, selectors.EVENT_READ, self._type)
            while True:
                ready = selector.select(_ESCAPE_SECONDS if self._typed else _TICK_SECONDS)
                if not ready and self._typed:
                    self._press(end_keys(self._typed))
                    self._typed = ""
                    self._draw()
                if not all(key.data() for key, _ in ready):
                    return
                if ready or self._describe().silent_since is not None:
                    self._draw()

    def _receive(self) -> bool:
        """Handle received signals and new machine states; return False if the program must end."""
        numbers = set(os.read(self._wake_reader, 4096))
        if numbers & set(ENDING):
            return False
        if signal.SIGTSTP in numbers:
            self._live.stop()
            self._terminal.suspend()
            self._start_live()
        elif signal.SIGCONT in numbers:
            self._terminal.retake()
            self._drawn = []
        return True

    def _type(self) -> bool:
        """Handle the typed keys; return False if the user quits or the terminal was closed."""
        typed = self._terminal.read_keys()
        if not typed:
            return False
        keys, self._typed = read_keys(self._typed + typed)
        return self._press(keys)

    def _press(self, keys: list[Key]) -> bool:
        for key in keys:
            if key == "quit":
                return False
            if key == "redraw":
                self._drawn = []
                continue
            sections = list_sections(self._shown.picture, lists_all=self._view.is_alone)
            active = next(one for one in sections if one.number == self._view.active)
            self._view = press(self._view, key, active, page=max(1, self._terminal.size[1] // 2))
        return True

    def _draw(self) -> None:
        if not self._view.is_paused:
            self._shown = self._watch.news
        width, height = self._terminal.size
        self._console.size = ConsoleDimensions(width, height)
        draw = partial(
            draw_screen,
            self._console,
            view=self._view,
            source=self._describe(),
            width=width,
            height=height,
        )
        lines = draw_runs(draw, self._shown.picture)
        if lines != self._drawn:
            self._live.update(SegmentLines(lines, new_lines=True), refresh=True)
            self._drawn = lines

    def _enter(self) -> None:
        self._terminal.enter()
        self._start_live()

    def _start_live(self) -> None:
        self._drawn = []
        self._live.start()

    def _leave(self) -> None:
        self._terminal.drop_output()
        self._live.stop()
        self._terminal.leave()

    def _describe(self) -> Source:
        """Return the source and, if it does not respond, the reason and the last response time."""
        news, now = self._watch.news, self._clock()
        source = Source(
            f"{self._origin.words}, every {format_duration(self._look.interval_seconds)}", now=now
        )
        late = _LATE_INTERVALS * self._look.interval_seconds + _LATE_SECONDS
        if news.trouble:
            return replace(source, silent_since=news.heard, trouble=news.trouble)
        if now - news.heard > late:
            return replace(
                source, silent_since=news.heard, trouble=f"{self._origin.words} is silent"
            )
        return source

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # the pipe is full, so the loop wakes up anyway
            os.write(self._wake_writer, _WAKE)
