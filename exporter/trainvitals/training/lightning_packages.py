"""Base classes for callbacks and loggers that work with both Lightning distributions.

The distributions `lightning` and `pytorch-lightning` each define the same classes. Each class in
this module is therefore derived from the corresponding class of every installed distribution.
"""

# ruff: noqa: ARG002 - Lightning defines the parameters of the methods

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.pytorch import Callback as Callback  # noqa: PLC0414 - imported from here
    from lightning.pytorch import Trainer
    from lightning.pytorch.loggers.logger import DummyLogger

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def _import_packages() -> list[ModuleType]:
    found = [package for name in _NAMES if (package := _import_package(name)) is not None]
    if not found:
        raise ImportError("trainvitals.lightning needs Lightning: run `pip install lightning`")
    return found


def _import_package(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, name.partition(".")[0]):
            raise  # the package is installed, but one of its dependencies is missing
        return None


_PACKAGES = _import_packages()

if not TYPE_CHECKING:

    class Callback(*(package.Callback for package in _PACKAGES)):
        """A base class derived from the callback class of each installed distribution."""

    class DummyLogger(*(package.loggers.logger.DummyLogger for package in _PACKAGES)):
        """A base class derived from the logger class of each installed distribution."""


class ValuesLogger(DummyLogger):
    """A logger that passes Lightning's logged values to a function, and ignores other calls.

    If this logger is the Trainer's only logger, checkpoints are written to the same directory as
    without a logger.
    """

    def __init__(
        self,
        take: Callable[[Mapping[str, object]], object],
        end_saving: Callable[[], object],
        save_dir: str,
    ) -> None:
        super().__init__()
        self._take = take
        self._end_saving = end_saving
        self._save_dir = save_dir

    @property
    def name(self) -> str:
        """The logger's name, which is empty so that it does not appear in checkpoint paths."""
        return ""

    @property
    def version(self) -> str:
        """The logger's version, which is empty so that it does not appear in checkpoint paths."""
        return ""

    @property
    def save_dir(self) -> str:
        """The directory for checkpoints, which is the Trainer's own directory."""
        return self._save_dir

    def log_metrics(self, metrics: Mapping[str, object], step: int | None = None) -> None:
        """Pass the values that Lightning logs to the function `take`."""
        self._take(metrics)

    def after_save_checkpoint(self, checkpoint_callback: object) -> None:
        """Report that Lightning has written a checkpoint."""
        self._end_saving()


def find_version(trainer: Trainer) -> str:
    """Return the version of the Lightning distribution that a Trainer belongs to."""
    used = (package for package in _PACKAGES if isinstance(trainer, package.Trainer))
    return str(next(used, _PACKAGES[0]).__version__)
