"""The settings of NVIDIA GPUs that an administrator chose, and properties that do not change.

It is read once, so it is not among the readings; and by a child process, which loads the
library as it is on disk now and can be killed when the driver hangs.

The process prints lines, each a JSON array:
    ["absent", reason]                      the driver is absent
    ["gone", reason]                        the driver refuses
    ["driver", version, cuda]               the CUDA version as major * 1000 + minor * 10, or null
    ["device", uuid, index, model, {…}]     a GPU, with the numbers of `_QUESTIONS`, null unknown
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
# The C function, the number of values it returns, and their names.
_QUESTIONS = (
    ("nvmlDeviceGetCudaComputeCapability", ("capability_major", "capability_minor")),
    ("nvmlDeviceGetPersistenceMode", ("persistence",)),
    ("nvmlDeviceGetEccMode", ("ecc", "ecc_pending")),
    ("nvmlDeviceGetPowerManagementDefaultLimit", ("power_default_milliwatts",)),
    ("nvmlDeviceGetComputeMode", ("compute_mode",)),
)


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """The settings of one GPU; None is "not reported".

    Attributes:
        uuid: The GPU's own name.
        index: The driver's index.
        model: The product name.
        capability: Its compute capability, as 9 and 0.
        has_persistence: Whether the driver stays loaded while no process uses it.
        has_ecc: Whether its memory has error correction switched on.
        will_have_ecc: Whether it is enabled from the next reset on.
        power_default_watts: The power limit set at the factory.
        compute_mode: 0 any process, 2 prohibited, 3 one process at a time.
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
    """The versions of the driver, and the settings of every GPU.

    Attributes:
        driver: The version of the driver; empty if it did not open.
        cuda: The newest supported CUDA version, as 12 and 8; None if unknown.
        gpus: The GPUs that answered, by index.
        absent: Why there is no driver; empty if there is one.
        trouble: Why it refuses, or that it does not answer; empty if it answers.
    """

    driver: str = ""
    cuda: tuple[int, int] | None = None
    gpus: tuple[GpuSettings, ...] = ()
    absent: str = ""
    trouble: str = ""


def read_settings(
    *, timeout_seconds: float, environ: Mapping[str, str] | None = None
) -> NvidiaSettings:
    """Read the settings of the GPUs from the driver.

    Args:
        timeout_seconds: How long to wait; of a driver that hangs, the values returned until then
            are kept.
        environ: The environment of the child process; that of this process when None.
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
    """Run as the child process that reads the settings."""
    try:
        session = open_nvidia()
    except DriverAbsentError as error:
        _say("absent", str(error))
    except DriverGoneError as error:
        _say("gone", str(error))
    else:
        _report_session(session)
    os._exit(0)  # a call that hangs must not hold it


def _report_session(session: NvidiaSession) -> None:
    library = session._library  # noqa: SLF001 - the session has no other use for it to show
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
    os.write(1, (json.dumps(words) + "\n").encode())  # one call: threads do not mix their lines


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
        if line.startswith(b"[") and line.endswith(b"\n"):  # vendors' libraries print, too
            try:
                yield json.loads(line)
            except ValueError:
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
