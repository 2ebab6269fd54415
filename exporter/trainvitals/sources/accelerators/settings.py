"""NVIDIA GPU settings that an administrator can change, and GPU properties that never change.

The settings are read only once, so they are not part of the readings. A child process reads the
settings, because a child process loads the library that is currently on disk, and can be killed if
the driver hangs.

The child process prints one JSON array per line:
    ["absent", reason]                      the driver is absent
    ["gone", reason]                        the driver refuses to open
    ["driver", version, cuda]               the CUDA version as major * 1000 + minor * 10, or null
    ["device", uuid, index, model, {…}]     a GPU, with the known values of `_QUESTIONS`
    ["unreadable", uuid, index, state]      a GPU that cannot be opened
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainvitals.sources.accelerators.nvidia import NvidiaSession, open_nvidia
from trainvitals.sources.accelerators.nvidia_device import NvidiaDevice
from trainvitals.sources.accelerators.nvml import SUCCESS, U32, Library
from trainvitals.sources.accelerators.row import DriverAbsentError, DriverGoneError
from trainvitals.units import format_duration

_CHILD = (
    "import sys;sys.path[:]={path!r};"
    "from trainvitals.sources.accelerators.settings import report;report()"
)
# The C functions, and the names of the values that each function returns.
_QUESTIONS = (
    ("nvmlDeviceGetCudaComputeCapability", ("capability_major", "capability_minor")),
    ("nvmlDeviceGetPersistenceMode", ("persistence",)),
    ("nvmlDeviceGetEccMode", ("ecc", "ecc_pending")),
    ("nvmlDeviceGetPowerManagementDefaultLimit", ("power_default_milliwatts",)),
    ("nvmlDeviceGetComputeMode", ("compute_mode",)),
)


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """The settings of one GPU; a setting that the driver does not report is None.

    Attributes:
        uuid: The GPU's UUID.
        index: The driver's index for the GPU.
        model: The GPU's product name.
        capability: The GPU's compute capability, as a major and a minor number, such as 9 and 0.
        has_persistence: Whether the driver stays loaded while no process uses the GPU.
        has_ecc: Whether error correction is enabled for the GPU memory.
        will_have_ecc: Whether error correction for the GPU memory will be enabled after the next
            reset.
        power_default_watts: The default power limit, which was set at the factory.
        compute_mode: The compute mode: 0 if any process may compute, 2 if no process may compute, 3
            if only one process at a time may compute.
    """

    uuid: str
    index: int
    model: str
    capability: tuple[int, int] | None = None
    has_persistence: bool | None = None
    has_ecc: bool | None = None
    will_have_ecc: bool | None = None
    power_default_watts: float | None = None
    compute_mode: int | None = None


@dataclass(frozen=True, slots=True)
class NvidiaSettings:
    """The driver's version, the supported CUDA version, and the settings of every GPU.

    Attributes:
        driver: The driver version; empty if the driver could not be opened.
        cuda: The newest CUDA version that the driver supports, as a major and a minor number, such
            as 12 and 8; None if the version is unknown.
        gpus: The settings of the GPUs that responded, sorted by index.
        absent: The reason why the driver is absent; empty if the driver is present.
        trouble: The reason why the driver could not be read completely; empty if the driver was
            read or is absent.
    """

    driver: str = ""
    cuda: tuple[int, int] | None = None
    gpus: tuple[GpuSettings, ...] = ()
    absent: str = ""
    trouble: str = ""


def read_settings(
    *, timeout_seconds: float, environ: Mapping[str, str] | None = None
) -> NvidiaSettings:
    """Read the GPU settings from the driver.

    Args:
        timeout_seconds: The maximum time to wait for the child process, in seconds. If the driver
            hangs, the settings that were received before the timeout are returned.
        environ: The child process's environment variables; None if the child inherits this
            process's environment.
    """
    command = [sys.executable, "-I", "-S", "-c", _CHILD.format(path=sys.path)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_seconds,
            env=None if environ is None else dict(environ),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return _understand(
            late.stdout or b"", f"does not answer within {format_duration(timeout_seconds)}"
        )
    except OSError as error:
        return NvidiaSettings(trouble=f"cannot start the process that asks it: {error.strerror}")
    return _understand(done.stdout, "" if done.returncode == 0 else "its library crashed")


def report() -> None:
    """Read and print the GPU settings, then exit; the child process calls this function."""
    try:
        session = open_nvidia()
    except DriverAbsentError as error:
        _say("absent", str(error))
    except DriverGoneError as error:
        _say("gone", str(error))
    else:
        _report_session(session)
    os._exit(0)  # a call that hangs must not prevent the process from exiting


def _report_session(session: NvidiaSession) -> None:
    library = session._library  # noqa: SLF001 - needed only here, so the session does not expose it
    cuda = ctypes.c_int()
    code = library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda))
    _say("driver", session._driver, cuda.value if code == SUCCESS else None)  # noqa: SLF001
    for identity, state in session.unreadable:
        _say("unreadable", identity[2], identity[1], state)
    threads = [
        threading.Thread(target=_report_device, args=(library, device), daemon=True)
        for device in session.devices
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _report_device(library: Library, device: NvidiaDevice) -> None:
    numbers: dict[str, int] = {}
    for symbol, names in _QUESTIONS:
        places = [U32() for _ in names]
        if getattr(library, symbol)(device.handle, *map(ctypes.byref, places)) == SUCCESS:
            numbers |= {name: place.value for name, place in zip(names, places, strict=True)}
    _, index, uuid, model, *_ = device.identity
    _say("device", uuid, index, model, numbers)


def _say(*words: object) -> None:
    os.write(1, (json.dumps(words) + "\n").encode())  # one call, so that threads do not mix lines


def _understand(data: bytes, trouble: str) -> NvidiaSettings:
    driver, cuda, absent, gpus = "", None, "", []
    for message in _parse(data):
        match message:
            case ["absent", str(reason)]:
                absent = reason
            case ["gone", str(reason)]:
                trouble = reason
            case ["driver", str(version), number]:
                driver = version
                cuda = (number // 1000, number % 1000 // 10) if isinstance(number, int) else None
            case ["device", str(uuid), int(index), str(model), dict(numbers)]:
                gpus.append(_understand_device(uuid, index, model, numbers))
    gpus.sort(key=lambda gpu: gpu.index)
    return NvidiaSettings(driver, cuda, tuple(gpus), absent, trouble)


def _parse(data: bytes) -> Iterable[object]:
    for line in data.splitlines(keepends=True):
        if line.startswith(b"[") and line.endswith(b"\n"):  # the vendors' libraries print as well
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                continue


def _understand_device(
    uuid: str, index: int, model: str, numbers: Mapping[str, int]
) -> GpuSettings:
    major, minor = numbers.get("capability_major"), numbers.get("capability_minor")
    milliwatts = numbers.get("power_default_milliwatts")
    return GpuSettings(
        uuid=uuid,
        index=index,
        model=model,
        capability=None if major is None or minor is None else (major, minor),
        has_persistence=_to_truth(numbers.get("persistence")),
        has_ecc=_to_truth(numbers.get("ecc")),
        will_have_ecc=_to_truth(numbers.get("ecc_pending")),
        power_default_watts=None if milliwatts is None else milliwatts / 1000,
        compute_mode=numbers.get("compute_mode"),
    )


def _to_truth(number: int | None) -> bool | None:
    return None if number is None else number != 0
