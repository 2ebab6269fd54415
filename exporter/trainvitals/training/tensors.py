"""Reads values that may be on a device, without waiting for the device.

`tensor.item()` waits until the device has finished all previously queued work. In a training loop,
this wait would cost more than all other work of this package. Therefore a device tensor is copied
to pinned host memory in stream order, after the work that produces the tensor. It is read when an
event shows that the copy is complete, usually one step later. Tensors on devices without such
events are not read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from numbers import Real
from types import ModuleType
from typing import Protocol, cast

_COPY_INTERVAL_SECONDS = 0.05
# The device types whose events can be queried for completion without waiting.
_ASKABLE_KINDS = ("cuda", "xpu", "hpu", "npu")


class Device(Protocol):
    """The part of `torch.device` that this module uses: equality, string form and type."""

    @property
    def type(self) -> str:
        """The type of the device, such as "cuda"."""
        ...


class Tensor(Protocol):
    """The part of `torch.Tensor` that this module uses."""

    @property
    def is_cpu(self) -> bool:
        """Whether the values of the tensor are in host memory."""
        ...

    @property
    def device(self) -> Device:
        """The device on which the values of the tensor are stored."""
        ...

    @property
    def dtype(self) -> object:
        """The dtype of the tensor's values."""
        ...

    def numel(self) -> int:
        """Return the number of values in the tensor."""
        ...

    def detach(self) -> Tensor:
        """Return a tensor with the same values, detached from the autograd graph."""
        ...

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor with the same values in another shape."""
        ...

    def copy_(self, source: Tensor, *, non_blocking: bool) -> object:
        """Copy the values of another tensor into this tensor."""
        ...

    def is_pinned(self) -> bool:
        """Return whether the tensor is in pinned memory, which devices can write asynchronously."""
        ...

    def item(self) -> object:
        """Return the tensor's only value; the call blocks if the value is on a device."""
        ...


class Event(Protocol):
    """The part of a device's event, such as `torch.cuda.Event`, that this module uses."""

    def record(self, stream: object) -> None:
        """Record this event after the work that is currently queued in a stream."""
        ...

    def query(self) -> bool:
        """Return whether the work queued before this event is complete; the call never blocks."""
        ...


class Values:
    """A reader of the values of one quantity, such as the loss.

    Args:
        delayed: The reader of values that are on a device; None for a new reader.
    """

    __slots__ = ("_delayed",)

    def __init__(self, delayed: DelayedScalar | None = None) -> None:
        self._delayed = DelayedScalar() if delayed is None else delayed

    @property
    def unreadable(self) -> str | None:
        """One line that states why values on the device are not read; None if they are read."""
        return self._delayed.unreadable

    def read(self, value: object) -> float | None:
        """Return a value of the quantity without waiting for a device.

        Numbers, NumPy scalars and single-value tensors in host memory are read immediately. For a
        single-value tensor on a device, a copy is started at most every 50 ms. The method returns
        the value of the copy that was completed since the last call, which is from an earlier step.

        Returns:
            The number, which may be NaN; None if the number is not known yet or the value is not a
            real number.
        """
        if type(value) is float:
            return value
        if isinstance(value, (int, float)):
            return _as_float(value)
        is_on_host = getattr(value, "is_cpu", None)
        if is_on_host is None:
            return _read_number(value)
        tensor: Tensor = value  # type: ignore[assignment] # a call of `cast` fewer on every step
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
        """Return the value that was copied from a device since the last call; None if none was."""
        return self._delayed.poll()


class DelayedScalar:
    """A reader of single-value tensors on a device, one tensor at a time and with a delay.

    Args:
        interval_seconds: The minimum time between the starts of two copies.
        clock: A function that returns the time of a monotonic clock, in seconds.
        modules: The loaded modules; torch is never imported.

    Attributes:
        unreadable: One line that states why tensors are no longer read; None if they are read.
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
        # The tensor is kept while it is being copied; otherwise another stream might reuse its
        # memory.
        self._source: Tensor | None = None

    def offer(self, tensor: Tensor) -> None:
        """Start to copy the value of a tensor, unless a copy is in progress, recent or impossible.

        A tensor with more than one value is not copied. No tensor is copied while a CUDA graph is
        being captured.
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
        """Return the copied value once when the copy is complete, otherwise None; never block."""
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
        """Return whether a CUDA graph is being captured, which an event query would break."""
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
    """Return a pinned host buffer for one value; None if copying into the buffer would block."""
    # A buffer created in inference mode could not be written to outside this mode. The buffer has
    # the tensor's dtype, because a copy with conversion goes through unpinned memory.
    with torch.inference_mode(mode=False):
        buffer: Tensor = torch.empty((), dtype=dtype, device="cpu", pin_memory=True)
    return buffer if buffer.is_pinned() else None


def _local_part(tensor: Tensor) -> Tensor | None:
    """Return this rank's copy of a distributed tensor; None if the ranks have different parts.

    Reading the complete tensor is a collective operation. A single rank would wait in it forever.
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
        number = tensor.item()
    except (RuntimeError, ValueError):  # the tensor has several values or is sparse
        return None
    return number if type(number) is float else _as_float(number)


def _read_number(value: object) -> float | None:
    """Return the value of a Python number, NumPy scalar or one-value array; otherwise None."""
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
