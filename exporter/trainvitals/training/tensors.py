"""Reading a value that may be on a device, without ever waiting for the device.

`tensor.item()` waits until the device has done all work queued before; in a training loop that
costs more than all other work of this package. Therefore a device tensor is copied into pinned host
memory in stream order, after the work that computes it, and read once an event shows that the copy
is complete, usually a step later. Tensors of devices without such events are not read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from numbers import Real
from types import ModuleType
from typing import Protocol, cast

_COPY_INTERVAL_SECONDS = 0.05
# The kinds of device whose events can be asked whether they are over, without waiting.
_ASKABLE_KINDS = ("cuda", "xpu", "hpu", "npu")


class Device(Protocol):
    """The part of `torch.device` that is used: equality, its text, and its type."""

    @property
    def type(self) -> str:
        """The kind of device, such as "cuda"."""
        ...


class Tensor(Protocol):
    """The part of `torch.Tensor` that is used."""

    @property
    def is_cpu(self) -> bool:
        """Whether the values are in host memory."""
        ...

    @property
    def device(self) -> Device:
        """device: The device with the values."""
        ...

    @property
    def dtype(self) -> object:
        """The type of each value."""
        ...

    def numel(self) -> int:
        """Count the values."""
        ...

    def detach(self) -> Tensor:
        """Return the same values outside of the autograd graph."""
        ...

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        """Return the same values in another shape."""
        ...

    def copy_(self, source: Tensor, *, non_blocking: bool) -> object:
        """Copy the values of another tensor."""
        ...

    def is_pinned(self) -> bool:
        """Return whether a device can write to this memory on its own."""
        ...

    def item(self) -> object:
        """Return the only value; waits if it is on a device."""
        ...


class Event(Protocol):
    """The part of a device's event that is used, such as `torch.cuda.Event`."""

    def record(self, stream: object) -> None:
        """Mark the current end of a stream's work."""
        ...

    def query(self) -> bool:
        """Return whether the work up to the mark is done; never waits."""
        ...


class Values:
    """The values of one quantity, such as the loss.

    Args:
        delayed: Reads values that are on a device.
    """

    __slots__ = ("_delayed",)

    def __init__(self, delayed: DelayedScalar | None = None) -> None:
        self._delayed = DelayedScalar() if delayed is None else delayed

    @property
    def unreadable(self) -> str | None:
        """Why values on this device are not read, in one line; None if they are."""
        return self._delayed.unreadable

    def read(self, value: object) -> float | None:
        """Read a value without waiting for a device.

        Numbers, NumPy scalars and tensors of one value in host memory are read at once. A tensor
        of one value on a device is copied, at most every 50 ms, and the copy that has arrived
        since the last call is returned, which is from an earlier step.

        Returns:
            The number, which may be NaN; None if it is unknown yet or not a real number.
        """
        if type(value) is float:
            return value
        if isinstance(value, (int, float)):
            return _as_float(value)
        is_on_host = getattr(value, "is_cpu", None)
        if is_on_host is None:
            return _read_number(value)
        tensor = cast("Tensor", value)
        if hasattr(type(tensor), "to_local"):
            local = _local_part(tensor)
            if local is None:
                return None
            tensor, is_on_host = local, local.is_cpu
        if is_on_host:
            return _read_on_host(tensor)
        arrived = self._delayed.poll()
        self._delayed.offer(tensor)
        return arrived

    def poll(self) -> float | None:
        """Return the value of a device tensor that has arrived since the last call; None without one."""
        return self._delayed.poll()


class DelayedScalar:
    """Reads tensors of one value on a device, one at a time and with a delay.

    Args:
        interval_seconds: At most one copy is started in this time.
        clock: A monotonic clock, seconds.
        modules: The loaded modules; torch is never imported.

    Attributes:
        unreadable: Why tensors are no longer read, in one line; None if they are.
    """

    __slots__ = (
        "_buffer",
        "_clock",
        "_device",
        "_dtype",
        "_event",
        "_interval_seconds",
        "_modules",
        "_next_copy",
        "_source",
        "unreadable",
    )

    def __init__(
        self,
        *,
        interval_seconds: float = _COPY_INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        modules: Mapping[str, ModuleType] = sys.modules,
    ) -> None:
        self.unreadable: str | None = None
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._modules = modules
        self._next_copy = float("-inf")
        self._device: Device | None = None
        self._dtype: object = None
        self._buffer: Tensor | None = None
        self._event: Event | None = None
        # Kept while its copy is under way: otherwise another stream might reuse its memory.
        self._source: Tensor | None = None

    def offer(self, tensor: Tensor) -> None:
        """Start to copy the value, unless a copy is in progress, too recent, or impossible.

        A tensor of more than one value is left alone, and so is any while a CUDA graph is captured.
        """
        if self._source is not None or self.unreadable is not None:
            return
        now = self._clock()
        if now < self._next_copy:
            return
        self._next_copy = now + self._interval_seconds
        if tensor.numel() != 1:
            return
        try:
            self._copy(tensor)
        except RuntimeError as error:
            self._give_up(tensor.device, error)

    def poll(self) -> float | None:
        """Return the value of the copy once it has arrived, and only once; never waits."""
        source, event, buffer = self._source, self._event, self._buffer
        if source is None or event is None or buffer is None:
            return None
        try:
            if self._is_capturing(source.device) or not event.query():
                return None
            self._source = None
            return _as_float(buffer.item())
        except RuntimeError as error:
            self._give_up(source.device, error)
            return None

    def _copy(self, tensor: Tensor) -> None:
        if self._is_capturing(tensor.device):
            return
        torch = self._modules.get("torch")
        accelerator = getattr(torch, tensor.device.type, None)
        if (
            torch is None
            or accelerator is None
            or tensor.device.type not in _ASKABLE_KINDS
            or not hasattr(accelerator, "Event")
            or not hasattr(accelerator, "current_stream")
        ):
            self._give_up(tensor.device, "it has no events to query")
            return
        if tensor.device != self._device or tensor.dtype != self._dtype or self._buffer is None:
            self._buffer = _pinned_buffer(torch, tensor.dtype)
            self._event = accelerator.Event()
            self._device, self._dtype = tensor.device, tensor.dtype
        if self._buffer is None or self._event is None:
            self._give_up(tensor.device, "there is no pinned memory for it")
            return
        source = tensor.detach().reshape(())
        self._buffer.copy_(source, non_blocking=True)
        self._event.record(accelerator.current_stream(tensor.device))
        self._source = source

    def _is_capturing(self, device: Device) -> bool:
        """Return whether a graph is being captured, which querying an event would break."""
        accelerator = getattr(self._modules.get("torch"), device.type, None)
        capturing = getattr(accelerator, "is_current_stream_capturing", None)
        return capturing is not None and bool(capturing())

    def _give_up(self, device: Device, reason: object) -> None:
        self._source = None
        text = " ".join(str(reason).split()) or type(reason).__name__
        self.unreadable = (
            f"cannot read a tensor on {device} without waiting for the device: {text[:200]}; "
            "pass numbers, such as loss.item(), where the loop has them anyway"
        )


def _pinned_buffer(torch: ModuleType, dtype: object) -> Tensor | None:
    """Return one value of pinned host memory; None if a copy into it would wait."""
    # A buffer born in inference mode could not be written to outside of it. The type is the
    # tensor's own, since a copy that converts goes through unpinned memory.
    with torch.inference_mode(mode=False):
        buffer: Tensor = torch.empty((), dtype=dtype, device="cpu", pin_memory=True)
    return buffer if buffer.is_pinned() else None


def _local_part(tensor: Tensor) -> Tensor | None:
    """Return this rank's copy of a distributed tensor; None if ranks hold different parts.

    Reading the complete tensor would be a collective operation, in which a single rank would wait
    forever.
    """
    placements = getattr(tensor, "placements", None)
    if placements is not None and not all(placement.is_replicate() for placement in placements):
        return None
    detached = cast("_Distributed", tensor.detach())
    return detached.to_local()


class _Distributed(Protocol):
    def to_local(self) -> Tensor: ...


def _read_on_host(tensor: Tensor) -> float | None:
    try:
        return _as_float(tensor.item())
    except (RuntimeError, ValueError):  # more than one value, none, sparse, or no real tensor
        return None


def _read_number(value: object) -> float | None:
    """Read a Python number, a NumPy scalar or a NumPy array of one value."""
    if isinstance(value, Real):
        return _as_float(value)
    if type(value).__module__ == "numpy" and getattr(value, "size", 0) == 1:
        return _as_float(cast("Tensor", value).item())
    return None


def _as_float(number: object) -> float | None:
    try:
        return float(number) if isinstance(number, Real) else None
    except OverflowError:  # an integer beyond the range of a float
        return None
