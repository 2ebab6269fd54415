"""NVIDIA GPUs, read with NVML and its binding nvidia-ml-py.

The binding finds, loads and opens the library, and defines the library's structures and constants.
`DeviceError` is raised if a card is lost. `DriverGoneError` is raised if the driver is no longer
available.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from functools import partial

from trainvitals.sources.accelerators.nvidia_device import NvidiaDevice
from trainvitals.sources.accelerators.nvidia_events import XidListener
from trainvitals.sources.accelerators.nvml import (
    DEVICE_STATES,
    GONE,
    SUCCESS,
    U32,
    Library,
    check,
)
from trainvitals.sources.accelerators.row import (
    MOST_DEVICES,
    DeviceError,
    DriverAbsentError,
    DriverGoneError,
)
from trainvitals.workers import WorkerPool

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from collections.abc import Callable

    from trainvitals.sources.accelerators.row import IdentityFields

_ABSENT = {9: "driver not loaded", 12: "library not found"}
_OPENING_SECONDS = 2.5


def open_nvidia() -> NvidiaSession:
    """Open the NVIDIA driver with NVML.

    Raises:
        DriverAbsentError: NVML is not installed, or the driver is not loaded.
        DriverGoneError: The driver refuses to open.
    """
    import pynvml  # noqa: PLC0415 - heavy, and only this process needs it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        code = error.value
        if code in _ABSENT:
            raise DriverAbsentError(_ABSENT[code]) from error
        raise DriverGoneError(GONE.get(code, f"nvmlInit failed: {error}")) from error
    return NvidiaSession(Library(pynvml.nvmlLib))


class NvidiaSession:
    """An NVIDIA driver that was opened with NVML; see `Session`.

    Args:
        library: The initialized NVML library.
    """

    parallel = 64
    troubles: tuple[str, ...] = ()

    def __init__(self, library: Library) -> None:
        self._library = library
        self._stopping = threading.Event()
        self._driver = _ask_text(library.nvmlSystemGetDriverVersion)[1]
        code, self._shown = self._count()
        if code != SUCCESS:
            raise DriverGoneError(GONE.get(code, f"nvmlDeviceGetCount failed with code {code}"))
        self.devices: list[NvidiaDevice] = []
        self.unreadable: list[tuple[IdentityFields, str]] = []
        self._open_devices()

    def is_current(self) -> bool:
        """Return whether the driver still lists the same number of GPUs, or the count failed.

        Raises:
            DriverGoneError: The driver was unloaded, restarted or replaced.
        """
        code, shown = self._count()
        if code in GONE:
            raise DriverGoneError(GONE[code])
        return code != SUCCESS or shown == self._shown

    def watch(self, report: Callable[[str, int], None]) -> None:
        """Report every Xid of every GPU until the driver is gone or `stop_watching` is called."""
        listeners = [
            XidListener(self._library, device, report, self._stopping) for device in self.devices
        ]
        threads = [
            threading.Thread(target=listener.listen, name="xid", daemon=True)
            for listener in listeners
        ]
        for act in (threading.Thread.start, threading.Thread.join):
            for thread in threads:
                with suppress(RuntimeError):  # the system cannot start another thread
                    act(thread)

    def stop_watching(self) -> None:
        """Make `watch` return within 15 s."""
        self._stopping.set()

    def close(self) -> None:
        """Shut down NVML."""
        self._library.nvmlShutdown()

    def _count(self) -> tuple[int, int]:
        """Return NVML's return code and the number of GPUs."""
        count = U32()
        code = self._library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return code, min(count.value, MOST_DEVICES)

    def _open_devices(self) -> None:
        """Open all GPUs in parallel, so that a hung GPU does not delay the other GPUs."""
        pool = WorkerPool(name="open", limit=self._shown)
        tasks = {str(index): partial(self._open_device, index) for index in range(self._shown)}
        outcomes = pool.gather(tasks, _OPENING_SECONDS)
        pool.close()
        for index, outcome in enumerate(outcomes[key] for key in tasks):
            if outcome.value is not None:
                self.devices.append(outcome.value)
                continue
            state = "hung" if outcome.late else getattr(outcome.error, "state", "unsupported")
            unknown = ("gpu", index, f"unknown-{index}", "", "", self._driver, None)
            self.unreadable.append((unknown, state))
        if any(isinstance(outcome.error, DriverGoneError) for outcome in outcomes.values()):
            self.is_current()  # raises if the driver is gone; one GPU's answer is no proof

    def _open_device(self, index: int) -> NvidiaDevice:
        handle = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByIndex_v2(U32(index), ctypes.byref(handle))
        if code in GONE:
            raise DriverGoneError(GONE[code])
        if code != SUCCESS:
            raise DeviceError(DEVICE_STATES.get(code, "unsupported"))
        code, uuid = _ask_text(self._library.nvmlDeviceGetUUID, handle)
        check(code)
        bus_id = _read_bus_id(self._library, handle)
        if not uuid and not bus_id:
            raise DeviceError("unsupported")
        identity = (
            "gpu",
            index,
            uuid or bus_id,
            _ask_text(self._library.nvmlDeviceGetName, handle)[1],
            bus_id,
            self._driver,
            _ask_text(self._library.nvmlDeviceGetVbiosVersion, handle)[1] or None,
        )
        return NvidiaDevice(self._library, handle, identity)


def _ask_text(function: Callable[..., int], *handle: ctypes.c_void_p) -> tuple[int, str]:
    """Call an NVML function that provides a text.

    Returns:
        NVML's return code, and the text; the text is empty if the call fails.
    """
    buffer = ctypes.create_string_buffer(96)
    code = function(*handle, buffer, U32(len(buffer)))
    return code, buffer.value.decode(errors="replace") if code == SUCCESS else ""


def _read_bus_id(library: Library, handle: ctypes.c_void_p) -> str:
    from pynvml import nvmlPciInfo_t  # noqa: PLC0415

    info = nvmlPciInfo_t()
    if library.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(info)) != SUCCESS:
        return ""
    return (
        bytes(info.busId).decode(errors="replace")
        if isinstance(info.busId, bytes)
        else str(info.busId)
    )
