"""The Xids that NVML reports of one NVIDIA GPU, as soon as it reports them.

Each GPU has an event set of its own, because the loss of a GPU spoils the set that it is in: the
driver then answers every wait with the loss, before or instead of the errors that are in the set.
"""

from __future__ import annotations

import ctypes

from trainvitals.sources.accelerators.nvml import (
    FUNCTION_NOT_FOUND,
    GONE,
    NOT_SUPPORTED,
    SUCCESS,
    TIMEOUT,
    U32,
    U64,
    Library,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # each megabyte is paid for by every reader process
    import threading
    from collections.abc import Callable

    from trainvitals.sources.accelerators.nvidia_device import NvidiaDevice

# Nothing interrupts nvmlEventSetWait, so the end of a reader waits as long.
_LONGEST_WAIT_MS = 15_000
# How often a GPU that refuses to be registered, or a wait that failed, is tried again.
_RETRY_WAIT_MS = 5_000
_DRAINING_TRIES = 3
_MOST_DRAINED = 256
_UNKNOWN = 999


class XidListener:
    """Waits for the Xids of one GPU.

    Args:
        library: The initialised library.
        device: The GPU.
        report: Called with its UUID and the code of each error.
        stopping: Set to make `listen` return within `_LONGEST_WAIT_MS`.
    """

    def __init__(
        self,
        library: Library,
        device: NvidiaDevice,
        report: Callable[[str, int], None],
        stopping: threading.Event,
    ) -> None:
        from pynvml import c_nvmlEventData_t, nvmlEventTypeXidCriticalError  # noqa: PLC0415

        self._library = library
        self._device = device
        self._report = report
        self._stopping = stopping
        self._data = c_nvmlEventData_t()
        self._wanted = nvmlEventTypeXidCriticalError

    def listen(self) -> None:
        """Report errors until stopped, the driver is gone, or it reports none of this GPU."""
        code = SUCCESS
        while not self._stopping.is_set() and not self._is_final(code):
            code = self._listen_once()

    def _listen_once(self) -> int:
        """Wait with a new event set until that fails, and return the driver's code."""
        events = ctypes.c_void_p()
        code = self._library.nvmlEventSetCreate(ctypes.byref(events))
        if code != SUCCESS:
            self._pause_after(code)
            return code
        code = self._library.nvmlDeviceRegisterEvents(
            self._device.handle, U64(self._wanted), events
        )
        is_registered = code == SUCCESS
        if is_registered:
            code = self._wait_for_failure(events)
            self._drain(events)
        self._pause_after(code)
        if is_registered:
            self._drain(events)  # what came in meanwhile
        self._library.nvmlEventSetFree(events)
        return code

    def _wait_for_failure(self, events: ctypes.c_void_p) -> int:
        """Report errors until stopped or until a wait fails; return the driver's code."""
        code = SUCCESS
        while code in (SUCCESS, TIMEOUT) and not self._stopping.is_set():
            code = self._wait(events, _LONGEST_WAIT_MS)
        return code

    def _drain(self, events: ctypes.c_void_p) -> None:
        """Report the errors that are in the set, past failures that the driver names first."""
        failures = 0
        for _ in range(_MOST_DRAINED):
            code = self._wait(events, 0)
            failures += code != SUCCESS
            if code == TIMEOUT or failures == _DRAINING_TRIES:
                return

    def _wait(self, events: ctypes.c_void_p, milliseconds: int) -> int:
        arguments = events, ctypes.byref(self._data), U32(milliseconds)
        code = self._library.nvmlEventSetWait_v2(*arguments)
        if code == FUNCTION_NOT_FOUND:  # the first version, whose data ends earlier
            code = self._library.nvmlEventSetWait(*arguments)
        if code == SUCCESS and self._data.eventType != self._wanted:
            return _UNKNOWN  # without a pause it might go on like that
        if code == SUCCESS:
            self._report(self._device.identity[2], self._data.eventData)
        return code

    def _pause_after(self, code: int) -> None:
        if not self._is_final(code):
            self._stopping.wait(_RETRY_WAIT_MS / 1000)

    def _is_final(self, code: int) -> bool:
        """Return whether to give up: events are not supported, or the driver is really gone."""
        if code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            return True
        count = U32()  # one GPU's answer is no proof that the driver is gone
        return code in GONE and self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)) in GONE
