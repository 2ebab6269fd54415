"""NVIDIA GPUs through NVML, by the binding nvidia-ml-py.

The binding finds, loads and opens the library, and has its structures and constants; a lost card is
a `DeviceError`, a driver that is gone a `DriverGoneError`.
"""

from __future__ import annotations

import ctypes
import threading
from functools import partial

from trainvitals.crew import Crew
from trainvitals.sources.accelerators.nvidia_device import NvidiaDevice
from trainvitals.sources.accelerators.nvml import (
    DEVICE_STATES,
    GONE,
    NOT_SUPPORTED,
    SUCCESS,
    TIMEOUT,
    U32,
)
from trainvitals.sources.accelerators.row import DeviceError, DriverAbsentError, DriverGoneError

TYPE_CHECKING = False
if TYPE_CHECKING:  # each megabyte is paid for by every reader process
    from collections.abc import Callable, Sequence

    from trainvitals.sources.accelerators.row import IdentityFields

_ABSENT = {9: "driver not loaded", 12: "library not found"}
_LONGEST_WAIT_MS = 15_000
_DEAF_WAIT_MS = 5_000
_OPENING_SECONDS = 2.5


def open_nvidia() -> NvidiaSession:
    """Open the driver.

    Raises:
        DriverAbsentError: There is no library, or no driver under it.
        DriverGoneError: There is one and it refuses.
    """
    import pynvml  # noqa: PLC0415 - heavy, and only this process needs it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        code = error.value
        if code in _ABSENT:
            raise DriverAbsentError(_ABSENT[code]) from error
        raise DriverGoneError(GONE.get(code, f"nvmlInit failed: {error}")) from error
    return NvidiaSession(pynvml.nvmlLib)


class NvidiaSession:
    """The open driver; see `Session`.

    Args:
        library: The initialised library.
    """

    parallel = 64

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._stopping = threading.Event()
        self._driver = _read_text(library.nvmlSystemGetDriverVersion)
        self._shown = self._count()
        self.devices: list[NvidiaDevice] = []
        self.unreadable: list[tuple[IdentityFields, str]] = []
        self._open_devices()

    def is_current(self) -> bool:
        """Tell whether the driver still shows the same number of GPUs."""
        return self._count() == self._shown

    def watch(self, report: Callable[[str, int], None]) -> None:
        """Report every Xid of every GPU, until the driver is gone."""
        before: set[str] | None = None
        while self.devices and not self._stopping.is_set():
            events = ctypes.c_void_p()
            if self._library.nvmlEventSetCreate(ctypes.byref(events)) != SUCCESS:
                return
            listener = _Listener(self._library, events, self.devices)
            code = listener.listen(report, self._stopping)
            self._library.nvmlEventSetFree(events)
            if code in GONE or code == NOT_SUPPORTED:
                return
            # A lost GPU spoils the set that it is in, so one without it follows at once.
            if listener.heard == before:
                self._stopping.wait(_DEAF_WAIT_MS / 1000)
            before = listener.heard

    def stop_watching(self) -> None:
        """Have `watch` return within `_LONGEST_WAIT_MS`."""
        self._stopping.set()

    def close(self) -> None:
        """Shut the library down."""
        self._library.nvmlShutdown()

    def _count(self) -> int:
        count = U32()
        code = self._library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        if code != SUCCESS:
            raise DriverGoneError(GONE.get(code, f"nvmlDeviceGetCount failed with code {code}"))
        return count.value

    def _open_devices(self) -> None:
        """Open all GPUs beside each other, so that one that hangs does not keep the others."""
        crew = Crew(name="open", limit=self._shown)
        tasks = {str(index): partial(self._open_device, index) for index in range(self._shown)}
        outcomes = crew.gather(tasks, _OPENING_SECONDS)
        crew.close()
        for index, outcome in enumerate(outcomes[key] for key in tasks):
            if outcome.value is not None:
                self.devices.append(outcome.value)
            elif outcome.late or isinstance(outcome.error, DeviceError):
                state = outcome.error.state if isinstance(outcome.error, DeviceError) else "hung"
                unknown = ("gpu", index, f"unknown-{index}", "", "", self._driver, None)
                self.unreadable.append((unknown, state))
            elif outcome.error is not None:
                raise outcome.error

    def _open_device(self, index: int) -> NvidiaDevice:
        handle = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByIndex_v2(U32(index), ctypes.byref(handle))
        if code in GONE:
            raise DriverGoneError(GONE[code])
        if code != SUCCESS:
            raise DeviceError(DEVICE_STATES.get(code, "unsupported"))
        uuid = _read_text(self._library.nvmlDeviceGetUUID, handle)
        if not uuid:
            raise DeviceError("lost")
        identity = (
            "gpu",
            index,
            uuid,
            _read_text(self._library.nvmlDeviceGetName, handle),
            _read_bus_id(self._library, handle),
            self._driver,
            _read_text(self._library.nvmlDeviceGetVbiosVersion, handle) or None,
        )
        return NvidiaDevice(self._library, handle, identity)


class _Listener:
    """Waits for the Xids of all GPUs, with one of the driver's event sets.

    Attributes:
        heard: UUIDs of the GPUs whose Xids it gets.
    """

    def __init__(
        self, library: ctypes.CDLL, events: ctypes.c_void_p, devices: Sequence[NvidiaDevice]
    ) -> None:
        self.heard: set[str] = set()
        self._library = library
        self._events = events
        self._deaf = list(devices)
        self._uuids: dict[int | None, str] = {}

    def listen(self, report: Callable[[str, int], None], stopping: threading.Event) -> int:
        """Report Xids until told to stop or the driver says an error, which is returned."""
        from pynvml import c_nvmlEventData_t, nvmlEventTypeXidCriticalError  # noqa: PLC0415

        data = c_nvmlEventData_t()
        while not stopping.is_set():
            self._register_deaf()
            if not self.heard and not self._deaf:
                return NOT_SUPPORTED
            if not self.heard:
                stopping.wait(_DEAF_WAIT_MS / 1000)
                continue
            wait = U32(_DEAF_WAIT_MS if self._deaf else _LONGEST_WAIT_MS)
            code: int = self._library.nvmlEventSetWait_v2(self._events, ctypes.byref(data), wait)
            if code == SUCCESS and data.eventType == nvmlEventTypeXidCriticalError:
                uuid = self._uuids.get(ctypes.cast(data.device, ctypes.c_void_p).value)
                if uuid is not None:
                    report(uuid, data.eventData)
            elif code not in (SUCCESS, TIMEOUT):
                return code
        return NOT_SUPPORTED

    def _register_deaf(self) -> None:
        """Register the GPUs that are not; a lost one refuses, and is asked again later."""
        deaf = []
        for device in self._deaf:
            code = device.register(self._events)
            if code == SUCCESS:
                self.heard.add(device.identity[2])
                self._uuids[device.handle.value] = device.identity[2]
            elif code != NOT_SUPPORTED:
                deaf.append(device)
        self._deaf = deaf


def _read_text(function: Callable[..., int], *handle: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(96)
    if function(*handle, buffer, U32(len(buffer))) != SUCCESS:
        return ""
    return buffer.value.decode(errors="replace")


def _read_bus_id(library: ctypes.CDLL, handle: ctypes.c_void_p) -> str:
    from pynvml import nvmlPciInfo_t  # noqa: PLC0415

    info = nvmlPciInfo_t()
    if library.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(info)) != SUCCESS:
        return ""
    return (
        bytes(info.busId).decode(errors="replace")
        if isinstance(info.busId, bytes)
        else str(info.busId)
    )
