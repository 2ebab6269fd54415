"""What the interpreter tells of a process: its end, an exception that nobody caught, a fork."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Protocol


class Run(Protocol):
    """What is told."""

    def end(self) -> None:
        """Learn that the interpreter ends."""
        ...

    def fail(self, exception: BaseException | None = None) -> None:
        """Learn that it ends by an exception."""
        ...


class InterpreterHooks:
    """Tells a run what the interpreter knows, and does not keep it alive.

    Several of these call one another, each the one that was there before it, and any of them can be
    taken out.

    Args:
        run: Whom to tell.
        silence: A method, called in each child that is forked.
    """

    __slots__ = ("_error_before", "_previous", "_run", "_silence")

    def __init__(self, run: Run, silence: Callable[[], None]) -> None:
        self._run = weakref.ref(run)
        self._silence = weakref.WeakMethod(silence)
        self._error_before = _find_uncaught()
        self._previous = sys.excepthook
        sys.excepthook = self
        atexit.register(self._tell_of_end)
        if hasattr(os, "register_at_fork"):  # which nothing takes back
            os.register_at_fork(after_in_child=self._tell_of_fork)

    def remove(self) -> None:
        """Tell nothing more."""
        atexit.unregister(self._tell_of_end)
        if sys.excepthook is self:
            sys.excepthook = self._previous
            return
        hook = sys.excepthook
        while isinstance(hook, InterpreterHooks):
            if hook._previous is self:  # noqa: SLF001 - another one of these
                hook._previous = self._previous  # noqa: SLF001
                return
            hook = hook._previous  # noqa: SLF001

    def __call__(
        self,
        kind: type[BaseException],
        exception: BaseException,
        trace: TracebackType | None,
    ) -> None:
        """Take the place of `sys.excepthook`."""
        run = self._run()
        if run is not None:
            run.fail(exception)
        self._previous(kind, exception, trace)

    def _tell_of_end(self) -> None:
        run = self._run()
        if run is None:
            return
        error = _find_uncaught()
        if error is None or error is self._error_before:
            run.end()
        else:  # another hook has taken our place, and did not call us
            run.fail(error)

    def _tell_of_fork(self) -> None:
        silence = self._silence()
        if silence is not None:
            silence()


def _find_uncaught() -> BaseException | None:
    """Give the exception that nobody caught; at a prompt that ends nothing."""
    error: BaseException | None = getattr(sys, "last_value", None)
    return None if hasattr(sys, "ps1") else error
