"""HLML, the library of Gaudi cards, by the binding habana-pyhlml.

The binding is optional. It prints when it does not find the library, warns when it is imported, and
loads the library only from Intel's directory; this module finds it like any other library.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable

from trainvitals.sources.accelerators.row import DeviceError, DriverAbsentError, DriverGoneError

TYPE_CHECKING = False
if TYPE_CHECKING:  # each megabyte is paid for by every reader process
    from types import ModuleType
    from typing import Any

LIBRARIES = ("libhlml.so", "/usr/lib/habanalabs/libhlml.so")
UNSUPPORTED = (2, 3)  # the binding returns "invalid argument" where the library lacks the function

_DRIVER_NOT_LOADED = 9
_LOST = 15
_GONE = {
    1: "the driver was unloaded or restarted (HLML_ERROR_UNINITIALIZED)",
    _DRIVER_NOT_LOADED: "the driver is not loaded (HLML_ERROR_DRIVER_NOT_LOADED)",
}


def find_library() -> str | None:
    """Return a name by which the loader finds the library; None if it finds none."""
    for path in LIBRARIES:
        try:
            ctypes.CDLL(path)
        except OSError:
            continue
        return path
    return None


def is_binding_installed() -> bool:
    """Return whether habana-pyhlml is installed; its predecessor pyhlml 1.9 has the same name.

    The predecessor's buffers are smaller than the values that current libraries write into them.
    """
    try:
        module = _import_binding()
    except ImportError:
        return False
    return hasattr(module, "hlmlDeviceGetOperationStatus")


def _import_binding() -> ModuleType:
    import warnings  # noqa: PLC0415 - the binding imports it, too

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its own modules use each other
        import pyhlml  # noqa: PLC0415 - optional
    module: ModuleType = pyhlml
    return module


class Hlml:
    """The opened binding; its errors are raised as `DeviceError` and `DriverGoneError`.

    Args:
        path: The library, by any name that the loader finds.

    Raises:
        DriverAbsentError: No driver is loaded.
        DriverGoneError: The driver refuses.
    """

    def __init__(self, path: str) -> None:
        self._module = _import_binding()
        from pyhlml import main  # noqa: PLC0415 - optional
        from pyhlml.hlml_error import HLMLError  # noqa: PLC0415 - optional
        from pyhlml.hlml_lib import LibHLML  # noqa: PLC0415 - optional

        # Subclasses are made again with each hlmlInit; this one stays.
        self._error: type[Exception] = HLMLError
        # hlmlInit makes a LibHLML of the installed path alone, though LibHLML takes any.
        main.LibHLML = lambda: LibHLML(path)
        try:
            self._module.hlmlInit()
        except HLMLError as error:
            if error.value == _DRIVER_NOT_LOADED:
                raise DriverAbsentError("driver not loaded") from error
            raise DriverGoneError(f"hlmlInit failed with code {error.value}") from error

    def ask(self, function: str, *arguments: object) -> tuple[Any, int]:
        """Call a function of the binding.

        Returns:
            The result and 0, or None and HLML's error code.

        Raises:
            DeviceError: The card is lost.
            DriverGoneError: The driver is gone.
        """
        call: Callable[..., Any] | None = getattr(self._module, function, None)
        if call is None:  # an older binding
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
        """Call a function that returns text; empty if it returns none."""
        return decode(self.ask(function, *arguments)[0])

    def close(self) -> None:
        """Shut the library down."""
        with contextlib.suppress(self._error):
            self._module.hlmlShutdown()


def decode(text: object) -> str:
    """Return the bytes that the binding returned; empty for anything else."""
    return text.decode(errors="replace") if isinstance(text, bytes) else ""
