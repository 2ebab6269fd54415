"""The outer edge of the training client: nothing that goes wrong inside reaches the training loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate, ParamSpec, Protocol, TypeVar

MOST_ERRORS = 10

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_log = logging.getLogger("trainvitals")


class Hears(Protocol):
    """Who is told of errors."""

    def note(self, error: Exception) -> object:
        """Learn of an error."""
        ...


class Guarded(Protocol):
    """An object whose public methods are guarded."""

    @property
    def errors(self) -> Hears:
        """Who is told what went wrong in them."""
        ...


Owner = TypeVar("Owner", bound=Guarded)


def guard(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result | None]:
    """Make a method swallow and count its own errors, giving None instead.

    Interruptions (KeyboardInterrupt, SystemExit) pass: they are not errors of the method.
    """

    def guarded(self: Owner, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the outer edge: training must go on
            self.errors.note(error)
            return None

    return update_wrapper(guarded, method)  # type: ignore[return-value] # its `self` has a name


class Errors:
    """Counts the errors of one object, logs the first, and switches the object off after ten.

    Args:
        subject: What the object is, for the log.
        switch_off: Makes the object do nothing from now on.

    Attributes:
        count: How many there were.
        errors: Is told what goes wrong in telling, as in a filter of the program's own log.
    """

    __slots__ = ("_subject", "_switch_off", "count", "errors")

    def __init__(self, subject: str, switch_off: Callable[[], None]) -> None:
        self._subject = subject
        self._switch_off = switch_off
        self.count = 0
        self.errors: Hears = _Nobody()

    @guard
    def note(self, error: Exception) -> None:
        """Count an error."""
        self.count += 1
        if self.count == 1:
            _log.warning(
                "%s: %s: %s; training goes on", self._subject, type(error).__name__, error,
                exc_info=error,
            )  # fmt: skip
        if self.count == MOST_ERRORS:
            self._switch_off()
            _log.warning("%s switches itself off after %d errors", self._subject, self.count)


class _Nobody:
    """Hears of errors when there is nobody left to tell."""

    def note(self, error: Exception) -> None:
        """Leave it at that."""
