"""The live screen: what came last, as the person wants it, drawn when something changed."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from rich.color import ColorSystem
from rich.console import Console

from trainvitals.overview.picture import Picture
from trainvitals.top.canvas import Canvas, make_canvas, write_changes
from trainvitals.top.frame import Source, draw_screen, list_sections
from trainvitals.top.keys import end_keys, read_keys
from trainvitals.top.origin import News, Origin, Watch
from trainvitals.top.terminal import ENDING, StuckError, Terminal, TerminalGoneError, catch_signals
from trainvitals.top.view import Key, View, press

_TICK_SECONDS = 1.0
_ESCAPE_SECONDS = 0.1
_LATE_INTERVALS, _LATE_SECONDS = 2.0, 3.0
_WAKE = b"\0"  # no signal has this number


@dataclass(frozen=True, slots=True)
class Look:
    """How the screen is drawn.

    Attributes:
        colors: Which colours the terminal has; None for none.
        is_ascii: It knows ASCII alone.
        interval_seconds: How long to wait between pictures.
    """

    colors: ColorSystem | None
    is_ascii: bool
    interval_seconds: float


class Screen:
    """Shows pictures until somebody has seen enough.

    Args:
        origin: Where they come from.
        first: The first one.
        view: What is shown of them.
        look: How.
        terminal: Where.
        clock: The time of day, in seconds since 1970.
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
        self._console = Console(color_system=None)
        self._ear, self._mouth = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watch = Watch(
            origin, first, interval_seconds=look.interval_seconds, wake=self._wake, clock=clock
        )
        self._shown: News = self._watch.news
        self._canvas: Canvas | None = None
        self._typed = ""

    def run(self) -> None:
        """Draw until the person quits, and leave the terminal as it was."""
        with catch_signals(self._mouth, self._terminal), suppress(TerminalGoneError, StuckError):
            try:
                self._terminal.enter()
                self._watch.start()
                self._draw()
                self._go_on()
            finally:
                self._watch.stop()
                self._terminal.leave()

    def _go_on(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ, self._hear)
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

    def _hear(self) -> bool:
        """Take signals and news; False to end."""
        numbers = set(os.read(self._ear, 4096))
        if numbers & set(ENDING):
            return False
        if signal.SIGTSTP in numbers:
            self._terminal.suspend()
            self._canvas = None
        elif signal.SIGCONT in numbers:
            self._terminal.retake()
            self._canvas = None
        return True

    def _type(self) -> bool:
        """Take keys; False to end."""
        typed = self._terminal.read()
        if not typed:
            return False
        keys, self._typed = read_keys(self._typed + typed)
        return self._press(keys)

    def _press(self, keys: list[Key]) -> bool:
        for key in keys:
            if key == "quit":
                return False
            if key == "redraw":
                self._canvas = None
                continue
            sections = list_sections(self._shown.picture, lists_all=self._view.is_alone)
            active = next(one for one in sections if one.number == self._view.active)
            self._view = press(self._view, key, active, page=max(1, self._terminal.size[1] // 2))
        return True

    def _draw(self) -> None:
        if not self._view.is_paused:
            self._shown = self._watch.news
        width, height = self._terminal.size
        lines = draw_screen(
            self._shown.picture, self._view, self._describe(), width=width, height=height
        )
        canvas = make_canvas(lines, self._console, is_ascii=self._look.is_ascii)
        if self._canvas is not None and _measure(self._canvas) != _measure(canvas):
            self._canvas = None
        self._terminal.write(write_changes(self._canvas, canvas, self._look.colors))
        self._canvas = canvas

    def _describe(self) -> Source:
        """Say where the picture is from, and since when there is no newer one."""
        news, now = self._watch.news, self._clock()
        source = Source(f"{self._origin.words}, every {self._look.interval_seconds:g} s", now=now)
        late = _LATE_INTERVALS * self._look.interval_seconds + _LATE_SECONDS
        if news.trouble:
            return replace(source, silent_since=news.heard, trouble=news.trouble)
        if now - news.heard > late:
            return replace(
                source, silent_since=news.heard, trouble=f"{self._origin.words} is silent"
            )
        return source

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # it will wake anyway
            os.write(self._mouth, _WAKE)


def _measure(canvas: Canvas) -> tuple[int, int]:
    return len(canvas), len(canvas[0]) if canvas else 0
