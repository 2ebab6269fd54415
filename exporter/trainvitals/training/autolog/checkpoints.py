"""Observes the functions that save checkpoints."""

from __future__ import annotations

import io
from collections.abc import Callable
from os import PathLike
from typing import Any

from trainvitals.training.autolog.seams import Seam

# Data that is saved to memory is not a checkpoint.
_FILES = (str, PathLike, io.BufferedWriter, io.BufferedRandom, io.FileIO)


class Checkpoints:
    """An observer of functions that save checkpoints.

    Args:
        seam: The seam with which the functions are wrapped.
        mark: A function that is called with the name of a phase when the phase begins.
        saved: A function that is called after a checkpoint has been saved.
    """

    __slots__ = ("_is_saving", "_mark", "_saved", "_seam")

    def __init__(
        self, seam: Seam, *, mark: Callable[[str], object], saved: Callable[[], object]
    ) -> None:
        self._seam = seam
        self._mark = mark
        self._saved = saved
        self._is_saving = False

    def watch(self, owner: Any, attribute: str, *, file_at: int | None) -> None:  # noqa: ANN401 - a module
        """Observe a function that saves checkpoints.

        Args:
            owner: The module that contains the function.
            attribute: The name of the function.
            file_at: The position of the argument `f`, which is a path or a file; None if every call
                saves a checkpoint.
        """

        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            file = args[file_at] if file_at and len(args) > file_at else kwargs.get("f")
            self._is_saving = file_at is None or isinstance(file, _FILES)
            if self._is_saving:
                self._mark("checkpoint")

        self._seam.wrap(owner, attribute, before=before, after=self._after)

    def _after(self, _args: object, _result: object, error: BaseException | None) -> None:
        if not self._is_saving:
            return
        self._mark("other")
        if error is None:
            self._saved()
