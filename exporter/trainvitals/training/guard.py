"""The guard of the training client, which keeps internal errors out of the training loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate, ParamSpec, Protocol, TypeVar

MOST_ERRORS = 10

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_log = logging.getLogger("trainvitals")


class ErrorCounter(Protocol):
    """An object that counts errors."""

    def note(self, error: Exception) -> object:
        """Count an error."""
        ...


class Guarded(Protocol):
    """An object whose public methods are guarded."""

    @property
    def errors(self) -> ErrorCounter:
        """The counter of their errors."""
        ...


Owner = TypeVar("Owner", bound=Guarded)


def guard(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result | None]:
    """Return a method that catches and counts its own errors, and then returns None.

    KeyboardInterrupt and SystemExit pass: they are not errors of the method.
    """

    def guarded(self: Owner, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the outer edge: training must go on
            self.errors.note(error)
            return None

    return update_wrapper(guarded, method)  # type: ignore[return-value] # its `self` has a name


class Errors:
    """The errors of one object: the first is logged, and the tenth disables the object.

    Args:
        subject: A name of the object for the log.
        switch_off: Disables the object.

    Attributes:
        count: The number of errors.
        errors: Ignores errors of the counter itself, such as those in a log filter of the program.
    """

    __slots__ = ("_subject", "_switch_off", "count", "errors")

    def __init__(self, subject: str, switch_off: Callable[[], None]) -> None:
        self._subject = subject
        self._switch_off = switch_off
        self.count = 0
        self.errors: ErrorCounter = _Ignored()

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


class _Ignored:
    """A counter that ignores errors."""

    def note(self, error: Exception) -> None:
        """Ignore an error."""
