"""Reports one NVIDIA GPU's Xid errors as soon as NVML delivers the events.

If a GPU is lost, the driver reports the loss in every wait for an event set that contains the GPU,
before or instead of the other errors in the set. Therefore, each GPU has a separate event set.
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
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    import threading
    from collections.abc import Callable

    from trainvitals.sources.accelerators.nvidia_device import NvidiaDevice

# nvmlEventSetWait cannot be interrupted, so a reader may need this time to end.
_LONGEST_WAIT_MS = 15_000
# The interval at which a failed registration or a failed wait is retried.
_RETRY_WAIT_MS = 5_000
_DRAINING_TRIES = 3
_MOST_DRAINED = 256
_UNKNOWN = 999


class XidListener:
    """Waits for one GPU's Xid errors and reports each error.

    Args:
        library: The initialized NVML library.
        device: The GPU whose errors are reported.
        report: A function that is called for each error with the GPU's UUID and the Xid code.
        stopping: An event that makes `listen` return within `_LONGEST_WAIT_MS` after it is set.
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
        """Report errors until `stopping` is set, the driver is gone, or events are unsupported."""
        code = SUCCESS
        while not self._stopping.is_set() and not self._is_final(code):
            code = self._listen_once()

    def _listen_once(self) -> int:
        """Report errors from a new event set until a call fails or `stopping` is set.

        Returns:
            NVML's return code for the last call.
        """
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
            self._drain(events)  # the errors that arrived during the pause
        self._library.nvmlEventSetFree(events)
        return code

    def _wait_for_failure(self, events: ctypes.c_void_p) -> int:
        """Report errors until `stopping` is set or a wait fails; return the last return code."""
        code = SUCCESS
        while code in (SUCCESS, TIMEOUT) and not self._stopping.is_set():
            code = self._wait(events, _LONGEST_WAIT_MS)
        return code

    def _drain(self, events: ctypes.c_void_p) -> None:
        """Report the remaining errors in an event set.

        The method returns when a wait times out or three waits have failed.
        """
        failures = 0
        for _ in range(_MOST_DRAINED):
            code = self._wait(events, 0)
            failures += code != SUCCESS
            if code == TIMEOUT or failures == _DRAINING_TRIES:
                return

    def _wait(self, events: ctypes.c_void_p, milliseconds: int) -> int:
        arguments = events, ctypes.byref(self._data), U32(milliseconds)
        code = self._library.nvmlEventSetWait_v2(*arguments)
        if code == FUNCTION_NOT_FOUND:  # version 1 fills fewer members of the data
            code = self._library.nvmlEventSetWait(*arguments)
        if code == SUCCESS and self._data.eventType != self._wanted:
            return _UNKNOWN  # causes a pause; further calls may return the same event
        if code == SUCCESS:
            self._report(self._device.identity[2], self._data.eventData)
        return code

    def _pause_after(self, code: int) -> None:
        if not self._is_final(code):
            self._stopping.wait(_RETRY_WAIT_MS / 1000)

    def _is_final(self, code: int) -> bool:
        """Return whether a return code means that events are unsupported or the driver is gone."""
        if code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            return True
        count = U32()  # one GPU's answer is no proof that the driver is gone
        return code in GONE and self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)) in GONE
