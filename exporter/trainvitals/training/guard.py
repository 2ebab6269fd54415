"""The guard of the training client, which keeps internal errors away from the training loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

MOST_ERRORS = 10

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_log = logging.getLogger("trainvitals")


class ErrorCounter(Protocol):
    """A protocol for objects that count errors."""

    def note(self, error: Exception) -> object:
        """Count an error."""
        ...


class Guarded(Protocol):
    """A protocol for objects that count the errors of their guarded methods."""

    @property
    def errors(self) -> ErrorCounter:
        """The counter of errors in the object's guarded methods."""
        ...


Owner = TypeVar("Owner", bound=Guarded)


@overload
def guard(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result | None]: ...


@overload
def guard(
    method: Callable[Arguments, Result], *, owner: Guarded
) -> Callable[Arguments, Result | None]: ...


def guard(
    method: Callable[..., Result], *, owner: Guarded | None = None
) -> Callable[..., Result | None]:
    """Return a wrapper that counts an exception of a method as an error and then returns None.

    KeyboardInterrupt and SystemExit propagate, because they are not errors of the method.

    Args:
        method: The method or function.
        owner: The object that counts the errors; None for the first argument of the method, `self`.
    """

    def guarded(*args: Any, **kwargs: Any) -> Result | None:  # noqa: ANN401 - those of the method
        try:
            return method(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - training must continue
            (args[0] if owner is None else owner).errors.note(error)
            return None

    return update_wrapper(guarded, method)


class Errors:
    """An error counter for one object: the first error is logged, the tenth disables the object.

    Args:
        subject: The name of the object for log messages.
        switch_off: A function that disables the object.

    Attributes:
        count: The number of errors so far.
        errors: A counter that ignores errors raised inside this counter, such as those in a
            program's log filter.
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
