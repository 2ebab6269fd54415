"""Observes the framework functions that a training loop calls.

The observation never changes what a function receives, returns or raises. Compiled code does not
contain the observation, because each observing function first checks whether the call is being
compiled, and the compiler replaces this check with a constant.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any

from trainvitals.training.guard import guard

_log = logging.getLogger("trainvitals")

# A function that receives the positional and the keyword arguments of a call.
Before = Callable[[tuple[Any, ...], dict[str, Any]], object]
# A function that receives a call's positional arguments, its result (None if the call failed) and
# its exception (None if the call succeeded).
After = Callable[[tuple[Any, ...], Any, BaseException | None], object]


def leave_uncompiled(function: Any, *, with_calls: bool = False) -> None:  # noqa: ANN401 - a function
    """Exclude a function from PyTorch's compiler.

    Without this exclusion, the compiler would compile a function on its own if the function is
    called at a graph break.

    Args:
        function: The function.
        with_calls: Whether the functions that `function` calls are excluded as well.
    """
    compiler = getattr(getattr(sys.modules.get("torch"), "_C", None), "_dynamo", None)
    frames: Any = getattr(compiler, "eval_frame", None)
    mark = getattr(frames, "set_code_exec_strategy", None)
    if mark is not None:  # missing in older versions
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT  # noqa: SLF001
        strategy = frames._FrameExecStrategy(skip, skip if with_calls else default)  # noqa: SLF001
        mark(function.__code__, strategy)


class TrainingThread:
    """The thread that runs the training loop.

    Attributes:
        ident: The identifier of the thread; 0 if no thread has begun to train.
    """

    __slots__ = ("ident",)

    def __init__(self) -> None:
        self.ident = 0


class Seam:
    """Observes one kind of event in a training loop by wrapping one or more functions.

    If the observing code raises an exception, the exception is logged, the original functions are
    restored, and the observation ends. The exception never reaches the training program.

    Args:
        name: The name of the events, which is used in log messages.
        is_compiling: A function that returns whether the current call is being compiled.
        thread: The training thread; calls on other threads are not observed.
        failed: A function that is called after the observation has failed.

    Attributes:
        is_off: Whether the observation has ended.
        is_inside: Whether a call is being observed; calls inside that call are not observed.
        is_idle: Whether calls of the functions are currently not observed; hooks are still called.
    """

    __slots__ = (
        "_failed",
        "_is_compiling",
        "_name",
        "_replaced",
        "_thread",
        "is_idle",
        "is_inside",
        "is_off",
    )

    def __init__(
        self,
        name: str,
        *,
        is_compiling: Callable[[], bool],
        thread: TrainingThread,
        failed: Callable[[], object] | None = None,
    ) -> None:
        self.is_off = self.is_inside = self.is_idle = False
        self._name = name
        self._is_compiling = is_compiling
        self._thread = thread
        self._failed = failed
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def hook(self, function: Callable[..., object]) -> Callable[..., None]:
        """Return a hook that calls a function, except while the hook's call is being compiled."""
        is_compiling, attempt = self._is_compiling, self._guard(function)

        def call(*args: object) -> None:
            if is_compiling() or self.is_off:
                return
            attempt(*args)

        leave_uncompiled(call, with_calls=True)
        return call

    def wrap(
        self,
        owner: Any,  # noqa: ANN401 - a class or a module
        attribute: str,
        *,
        before: Before | None = None,
        after: After | None = None,
    ) -> None:
        """Observe a function of a class or a module.

        Args:
            owner: The class or the module.
            attribute: The name of the function.
            before: A function that is called before each call.
            after: A function that is called after each call, even if the call raised an exception.
        """
        original = getattr(owner, attribute)
        is_compiling, thread = self._is_compiling, self._thread
        begin = None if before is None else self._guard(before)
        end = None if after is None else self._guard(after)

        # Each additional function call here costs microseconds, because between two steps a model
        # displaces this code from the processor caches.
        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - of the program
            if (
                is_compiling()
                or self.is_off
                or self.is_inside
                or self.is_idle
                or thread.ident not in (0, get_ident())
            ):
                return original(*args, **kwargs)
            self.is_inside, has_returned, result = True, False, None
            try:
                if begin is not None:
                    begin(args, kwargs)
                result = original(*args, **kwargs)
                has_returned = True
            finally:
                self.is_inside = False
                if end is not None:
                    end(args, result, None if has_returned else sys.exc_info()[1])
            return result

        leave_uncompiled(call)
        # A function is pickled by its name, so every name of the function must lead to the wrapper.
        home = sys.modules.get(getattr(original, "__module__", None) or "")
        for place in (owner, home):
            if place is not None and getattr(place, attribute, None) is original:
                setattr(place, attribute, call)
                self._replaced.append((place, attribute, call, original))

    def restore(self) -> None:
        """End the observation, and restore the functions that the program has not replaced since.

        The hooks remain registered but do nothing: a hook cannot be removed while it is called.
        """
        self.is_off = True
        for owner, attribute, own, original in self._replaced:
            if getattr(owner, attribute, None) is own:
                setattr(owner, attribute, original)
        self._replaced.clear()

    @property
    def errors(self) -> Seam:
        """The object whose `note` method receives errors from the observation."""
        return self

    def _guard(self, function: Callable[..., object]) -> Callable[..., object]:
        """Return a function whose first exception ends the observation."""
        guarded = guard(function, owner=self)
        leave_uncompiled(guarded, with_calls=True)
        return guarded

    def note(self, error: Exception) -> None:
        """End the observation and log the error; later errors are ignored."""
        if self.is_off:
            return
        self.restore()
        _log.warning(
            "the observation of %s is off: %s: %s; training goes on",
            self._name, type(error).__name__, error,
            exc_info=error,
        )  # fmt: skip
        if self._failed is not None:
            self._failed()
