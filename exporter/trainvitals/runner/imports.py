"""Calls an observer after the import of a framework, in processes below `trainvitals run`.

This file is loaded by its path, and also in interpreters that do not have the package
`trainvitals`. Therefore, it imports only the standard library, and nothing but `sys` at load time.
The import watcher makes the package `trainvitals` importable in such an interpreter. It does not
add an entry to `sys.path`, because the program could then also import the other packages in the
same directory.

A finder at the front of `sys.meta_path` handles a few exact module names. The finder delegates the
search to the other finders, and calls the module's observer after the module has been executed.
This module holds no lock during the call. An observer's exception is discarded, and the observer is
not called again. If the import of a module fails, the module is still watched.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_OWN = "trainvitals"
_ENTRY = "trainvitals.runner.watchers"
# The watched modules, each with the function in `_ENTRY` that is called after the module's import.
_WATCHED = {
    "torch": "watch_torch",
    "torch.distributed.checkpoint": "watch_sharded_checkpoints",
    "torch.distributed.fsdp.sharded_grad_scaler": "watch_sharded_scaler",
    "torchdata.stateful_dataloader.stateful_dataloader": "watch_stateful_loader",
    "safetensors.torch": "watch_safetensors",
    "accelerate.accelerator": "watch_accelerate",
    "deepspeed.runtime.engine": "watch_deepspeed",
    "transformers.trainer_callback": "watch_transformers",
    "lightning.pytorch.trainer.trainer": "watch_lightning",
    "pytorch_lightning.trainer.trainer": "watch_lightning",
    "keras.src.trainers.epoch_iterator": "watch_keras_data",
    "keras.src.callbacks.callback_list": "watch_keras",
}


class ImportWatcher:
    """A finder that calls a function after the import of a watched module.

    Args:
        package: The directory of the package `trainvitals`.
        watched: The function that is called with the imported module, by the name of the module.
    """

    def __init__(self, package: str, watched: dict[str, Callable[[ModuleType], object]]) -> None:
        self._package = package
        self._watched = watched
        self._finding: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a watched module or of `trainvitals`; None for all other modules."""
        if name == _OWN:
            return self._find_own()
        if name not in self._watched or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = self._find(name, path, target)
        finally:
            self._finding.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self._take)  # type: ignore[assignment]
        return spec

    def _find_own(self) -> ModuleSpec | None:
        from importlib.util import spec_from_file_location  # noqa: PLC0415 - see above

        return spec_from_file_location(
            _OWN, f"{self._package}/__init__.py", submodule_search_locations=[self._package]
        )

    def _find(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None
            if finder is not self and find is not None:
                spec = find(name, path, target)
            if spec is not None:
                return spec
        return None

    def _take(self, module: ModuleType) -> None:
        observe = self._watched.pop(module.__name__, None)
        if observe is not None:
            observe(module)


class _Loader:
    """A loader that calls a function after its inner loader has executed the module."""

    def __init__(self, inner: object, take: Callable[[ModuleType], None]) -> None:
        self._inner = inner
        self._take = take

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module with the inner loader."""
        module: ModuleType | None = self._inner.create_module(spec)  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own loader, execute the module, and call the function."""
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._inner  # type: ignore[assignment]
        module.__loader__ = self._inner  # type: ignore[assignment]
        self._inner.exec_module(module)  # type: ignore[attr-defined]
        self._take(module)

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the inner loader, such as `get_data`."""
        return getattr(self._inner, name)


def watch_imports(package: str, own: dict[str, Callable[[ModuleType], object]]) -> None:
    """Watch the imports of this process; later calls have no effect.

    Args:
        package: The directory of the package `trainvitals`.
        own: The functions for additional modules, by module name; such a function is called at once
            if the module has already been imported. The functions must raise no exceptions and must
            not need the package `trainvitals`.
    """
    if any(type(finder).__name__ == ImportWatcher.__name__ for finder in sys.meta_path):
        return

    def make(function: str) -> Callable[[ModuleType], object]:
        def observe(module: ModuleType) -> None:
            from importlib import import_module  # noqa: PLC0415 - see above

            try:
                attempt = import_module("trainvitals.workers").attempt
                call = getattr(import_module(_ENTRY), function)
            except ImportError:  # the program has another `trainvitals`
                return
            attempt(module.__name__, lambda: call(module))

        return observe

    for name in own.keys() & sys.modules.keys():
        own.pop(name)(sys.modules[name])
    watched = {name: make(function) for name, function in _WATCHED.items()} | own
    sys.meta_path.insert(0, ImportWatcher(package, watched))
