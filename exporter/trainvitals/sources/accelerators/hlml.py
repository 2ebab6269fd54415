"""Access to HLML, the library for Gaudi cards, through the binding habana-pyhlml.

The binding is optional. Without this module, the binding prints a message if it cannot find the
library, issues a warning when it is imported, and loads the library only from Intel's directory.
This module suppresses the warning, and also finds the library on the loader's search path.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable

from trainvitals.sources.accelerators.row import DeviceError, DriverAbsentError, DriverGoneError

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from types import ModuleType
    from typing import Any

LIBRARIES = ("libhlml.so", "/usr/lib/habanalabs/libhlml.so")
UNSUPPORTED = (2, 3)  # the binding returns "invalid argument" if the library lacks the function

_DRIVER_NOT_LOADED = 9
_LOST = 15
_GONE = {
    1: "the driver was unloaded or restarted (HLML_ERROR_UNINITIALIZED)",
    _DRIVER_NOT_LOADED: "the driver is not loaded (HLML_ERROR_DRIVER_NOT_LOADED)",
}


def find_library() -> str | None:
    """Return the name or path from which the loader can load HLML; None if HLML is not found."""
    for path in LIBRARIES:
        try:
            ctypes.CDLL(path)
        except OSError:
            continue
        return path
    return None


def is_binding_installed() -> bool:
    """Return whether habana-pyhlml is installed.

    The module of the binding's predecessor, pyhlml 1.9, has the same name but is not accepted. Its
    buffers are smaller than the values that current versions of HLML write.
    """
    try:
        module = _import_binding()
    except ImportError:
        return False
    return hasattr(module, "hlmlDeviceGetOperationStatus")


def _import_binding() -> ModuleType:
    import warnings  # noqa: PLC0415 - the binding imports it as well

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # caused by the binding
        import pyhlml  # noqa: PLC0415 - optional
    module: ModuleType = pyhlml
    return module


class Hlml:
    """The opened HLML binding; fatal errors are raised as `DeviceError` or `DriverGoneError`.

    Args:
        path: The library's path, or the name from which the loader can load the library.

    Raises:
        DriverAbsentError: No driver is loaded.
        DriverGoneError: The driver refuses to open.
    """

    def __init__(self, path: str) -> None:
        self._module = _import_binding()
        from pyhlml import main  # noqa: PLC0415 - optional
        from pyhlml.hlml_error import HLMLError  # noqa: PLC0415 - optional
        from pyhlml.hlml_lib import LibHLML  # noqa: PLC0415 - optional

        # Each hlmlInit creates the subclasses again; the base class remains the same.
        self._error: type[Exception] = HLMLError
        # hlmlInit creates LibHLML only with the default path, although LibHLML accepts any path.
        main.LibHLML = lambda: LibHLML(path)
        try:
            self._module.hlmlInit()
        except HLMLError as error:
            if error.value == _DRIVER_NOT_LOADED:
                raise DriverAbsentError("driver not loaded") from error
            raise DriverGoneError(f"hlmlInit failed with code {error.value}") from error

    def ask(self, function: str, *arguments: object) -> tuple[Any, int]:
        """Call one of the binding's functions.

        Returns:
            The function's result and 0. If the call fails, None and HLML's error code.

        Raises:
            DeviceError: The card is lost.
            DriverGoneError: The driver was unloaded or restarted.
        """
        call: Callable[..., Any] | None = getattr(self._module, function, None)
        if call is None:  # an older binding lacks the function
            return None, UNSUPPORTED[0]
        try:
            return call(*arguments), 0
        except self._error as error:
            code = int(getattr(error, "value", 0))
        if code == _LOST:
            raise DeviceError("lost")
        if code in _GONE:
            raise DriverGoneError(_GONE[code])
        return None, code

    def ask_text(self, function: str, *arguments: object) -> str:
        """Call one of the binding's functions and return its text; empty if there is no text."""
        return decode(self.ask(function, *arguments)[0])

    def close(self) -> None:
        """Shut down HLML."""
        with contextlib.suppress(self._error):
            self._module.hlmlShutdown()


def decode(text: object) -> str:
    """Decode a text from the binding; return an empty string if the value is not bytes."""
    return text.decode(errors="replace") if isinstance(text, bytes) else ""
