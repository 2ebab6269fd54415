"""The GPUs of a training process, read through NVML in the same process.

`gpu_0` is the process's `cuda:0`: `CUDA_VISIBLE_DEVICES` selects and orders the GPUs by index, UUID
or UUID prefix. When torch has initialised CUDA, the UUIDs reported by torch are used instead,
because CUDA may order GPUs differently from NVML.

The driver is queried on a separate thread. `GPUSampler.read` waits for the driver for at most 0.2 s
(3 s in the first call). If a driver call hangs, values are missing, but the run is not blocked.
While a driver call hangs, later reads do not wait. If no NVIDIA library is installed, no thread is
started.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from trainvitals.workers import WorkerPool

_OPENING_SECONDS = 3.0
_PATIENCE_SECONDS = 0.2
_MIB = 1 << 20
_TASK = "gpus"

Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


class GPUSampler:
    """A sampler of the GPUs of this process.

    Args:
        environ: The environment variables; only `CUDA_VISIBLE_DEVICES` is read.
    """

    def __init__(self, *, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._pool: WorkerPool | None = None
        self._reader: _Reader | None = None
        self._wanted: Sequence[int] | None = None
        self._is_absent = False
        self._has_warned = False

    def follow(self, ordinals: Sequence[int] | None) -> None:
        """Limit later calls of `read` to the specified GPUs.

        Args:
            ordinals: Device numbers, such as 1 for `cuda:1`; None for all GPUs that the process can
                use.
        """
        self._wanted = ordinals
        self._reader = None

    def read(self) -> dict[str, float]:
        """Return the current values of every GPU.

        Returns:
            For each GPU, such as GPU 0: `gpu_0_util` (percent), `gpu_0_memory_used_mb`,
            `gpu_0_memory_total_mb`, `gpu_0_memory_pct`, `gpu_0_temp_c` and `gpu_0_power_w`. A value
            that the driver does not return is omitted. The first reason for missing values is
            logged.
        """
        if self._pool is None:
            if self._is_absent or not _has_library():
                self._is_absent = True
                return {}
            self._pool = WorkerPool(name="trainvitals-gpus", limit=1)
        if self._reader is None:
            self._reader = _Reader(self._environ, self._wanted, _list_cuda_uuids())
        reader = self._reader
        patience = _PATIENCE_SECONDS if reader.is_open else _OPENING_SECONDS
        outcome = self._pool.gather({_TASK: reader.read}, patience)[_TASK]
        if outcome.late:
            self._warn("the driver does not answer")
        elif outcome.error is not None:
            self._warn(f"{type(outcome.error).__name__}: {outcome.error}")
        elif reader.complaint is not None:
            self._warn(reader.complaint)
        return outcome.value or {}

    def close(self) -> None:
        """End the thread that queries the driver."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "GPU values are missing: %s; training goes on, `nvidia-smi` may show why", reason
            )


class _Reader:
    """A reader of the GPUs, which runs on the separate thread.

    Attributes:
        is_open: Whether the NVML library has been initialised and the GPUs have been found.
        complaint: The last driver error of the latest reading, other than an unsupported feature;
            None if no such error occurred.
    """

    def __init__(
        self, environ: Mapping[str, str], wanted: Sequence[int] | None, cuda_uuids: Sequence[str]
    ) -> None:
        self._environ = environ
        self._wanted = wanted
        self._cuda_uuids = cuda_uuids
        self._handles: dict[int, object] = {}
        self.is_open = False
        self.complaint: str | None = None

    def read(self) -> dict[str, float]:
        import pynvml  # noqa: PLC0415 - only where there is a library

        self.complaint = None
        if not self.is_open:
            self._ask(pynvml.nvmlInit)
            if self.complaint is None:
                self._handles = self._open()
                self.is_open = True
        values: dict[str, float] = {}
        for ordinal, handle in self._handles.items():
            values.update(
                (f"gpu_{ordinal}_{name}", value) for name, value in self._read_gpu(handle).items()
            )
        return values

    def _read_gpu(self, handle: object) -> dict[str, float]:
        import pynvml  # noqa: PLC0415

        values: dict[str, float] = {}
        rates = self._ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        if rates is not None:
            values["util"] = float(rates.gpu)
        memory = self._ask(
            pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2
        ) or self._ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is not None and memory.total:
            values["memory_used_mb"] = memory.used / _MIB
            values["memory_total_mb"] = memory.total / _MIB
            values["memory_pct"] = 100 * memory.used / memory.total
        celsius = self._ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
        if celsius is not None:
            values["temp_c"] = float(celsius)
        milliwatts = self._ask(pynvml.nvmlDeviceGetPowerUsage, handle)
        if milliwatts is not None:
            values["power_w"] = milliwatts / 1000
        return values

    def _open(self) -> dict[int, object]:
        import pynvml  # noqa: PLC0415

        every = [
            self._ask(pynvml.nvmlDeviceGetHandleByIndex, index)
            for index in range(self._ask(pynvml.nvmlDeviceGetCount) or 0)
        ]
        visible = self._open_by_cuda() or self._open_by_environment(every)
        if self._wanted is None:
            return visible
        return {ordinal: visible[ordinal] for ordinal in self._wanted if ordinal in visible}

    def _open_by_cuda(self) -> dict[int, object]:
        handles = {}
        for ordinal, uuid in enumerate(self._cuda_uuids):
            handle = self._find_uuid(f"GPU-{uuid}") or self._find_uuid(f"MIG-{uuid}")
            if handle is None:
                return {}
            handles[ordinal] = handle
        return handles

    def _open_by_environment(self, every: Sequence[object]) -> dict[int, object]:
        named = self._environ.get("CUDA_VISIBLE_DEVICES")
        if named is None:
            found: Sequence[object] = every
        else:
            found = self._open_named(named, every)
        return {ordinal: handle for ordinal, handle in enumerate(found) if handle is not None}

    def _open_named(self, named: str, every: Sequence[object]) -> list[object]:
        """Return the GPUs in `CUDA_VISIBLE_DEVICES` up to the first unknown GPU, as CUDA does."""
        found: list[object] = []
        for name in (part.strip() for part in named.split(",")):
            handle: object = None
            if name.isdecimal():
                handle = every[int(name)] if int(name) < len(every) else None
            elif name:
                handle = self._find_uuid(name) or self._find_beginning(name, every)
            if handle is None:
                break
            found.append(handle)
        return found

    def _find_beginning(self, name: str, every: Sequence[object]) -> object:
        import pynvml  # noqa: PLC0415

        for handle in every:
            uuid = self._ask(pynvml.nvmlDeviceGetUUID, handle) if handle is not None else None
            if isinstance(uuid, str) and uuid.startswith(name):
                return handle
        return None

    def _find_uuid(self, uuid: str) -> object:
        import pynvml  # noqa: PLC0415

        try:
            handle: object = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError:
            return None
        return handle

    def _ask(self, function: Callable[..., Answer], *arguments: object) -> Answer | None:
        """Return the result of a driver call, or None after an error; record unexpected errors."""
        import pynvml  # noqa: PLC0415

        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            lacking = (
                pynvml.NVML_ERROR_NOT_SUPPORTED,
                pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            )
            if error.value not in lacking:
                self.complaint = str(error)
            return None


def _has_library() -> bool:
    """Return whether the NVML library is installed; without the library, no thread is started."""
    if sys.platform == "win32":  # pynvml finds the library
        return True
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _list_cuda_uuids() -> list[str]:
    """Return the GPU UUIDs in CUDA order; the list is empty until torch has initialised CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    properties = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [uuid for each in properties if (uuid := str(getattr(each, "uuid", "")))]
