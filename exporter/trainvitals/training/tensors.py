"""Reading a loss that may live on a device, without ever waiting for the device.

`tensor.item()` waits until the device has done all that was asked of it before; in a training loop
that costs more than everything else here together. So a device tensor is copied into pinned host
memory in the device's own order, behind what computes it, and read once an event says that the copy
is done, usually a step later. Where a device has no such events, its tensors are left unread.
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
    """What is used of a `torch.device`: equality, its text, and its kind."""

    @property
    def type(self) -> str:
        """The kind of device, such as "cuda"."""
        ...


class Tensor(Protocol):
    """What is used of a `torch.Tensor`."""

    @property
    def is_cpu(self) -> bool:
        """Whether the values are in host memory."""
        ...

    @property
    def device(self) -> Device:
        """Where the values are."""
        ...

    @property
    def dtype(self) -> object:
        """The type of each value."""
        ...

    def numel(self) -> int:
        """Count the values."""
        ...

    def detach(self) -> Tensor:
        """Give the same values outside of the autograd graph."""
        ...

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        """Give the same values in another shape."""
        ...

    def copy_(self, source: Tensor, *, non_blocking: bool) -> object:
        """Take over the values of another tensor."""
        ...

    def is_pinned(self) -> bool:
        """Tell whether a device can write here on its own."""
        ...

    def item(self) -> object:
        """Give the only value; waits where it is on a device."""
        ...


class Event(Protocol):
    """What is used of a device's event, such as `torch.cuda.Event`."""

    def record(self, stream: object) -> None:
        """Mark the present end of a stream's work."""
        ...

    def query(self) -> bool:
        """Tell whether the work up to the mark is done; never waits."""
        ...


class Values:
    """Reads what a training loop gives for one quantity, such as its loss.

    Args:
        delayed: Reads the values that are on a device.
    """

    __slots__ = ("_delayed",)

    def __init__(self, delayed: DelayedScalar | None = None) -> None:
        self._delayed = DelayedScalar() if delayed is None else delayed

    @property
    def unreadable(self) -> str | None:
        """Why values on this device stay unread, in one line; None while nothing is wrong."""
        return self._delayed.unreadable

    def read(self, value: object) -> float | None:
        """Read a value without waiting for a device.

        Numbers, NumPy scalars and tensors of one value in host memory are read at once. A tensor
        of one value on a device is copied for later, at most every 50 ms, and what is given is
        the copy that has arrived since the last call, of an earlier step.

        Returns:
            The number, which may be NaN; None where it is not known now, or is no real number.
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
        """Give the copy of a device tensor that has arrived since the last call, if one has."""
        return self._delayed.poll()


class DelayedScalar:
    """Reads tensors of one value on a device, one at a time and some time later.

    Args:
        interval_seconds: At most one copy is started in this time.
        clock: Seconds that never go back.
        modules: The modules that are loaded; torch is never imported here.

    Attributes:
        unreadable: Why no more tensors are read, in one line; None while nothing is wrong.
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
        # Kept while its copy is under way: another stream might be given its memory otherwise.
        self._source: Tensor | None = None

    def offer(self, tensor: Tensor) -> None:
        """Start to copy the value, unless a copy is under way, was started just now, or cannot be.

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
        """Give the value of the copy once it has arrived, and only once; never waits."""
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
            self._give_up(tensor.device, "it has no events to ask")
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
        """Tell whether a graph is being captured, which asking an event would break."""
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
    """Give one value of pinned host memory; None where a copy into it would wait."""
    # A buffer born in inference mode could not be written to outside of it. The type is the
    # tensor's own, since a copy that converts goes through unpinned memory.
    with torch.inference_mode(mode=False):
        buffer: Tensor = torch.empty((), dtype=dtype, device="cpu", pin_memory=True)
    return buffer if buffer.is_pinned() else None


def _local_part(tensor: Tensor) -> Tensor | None:
    """Give this rank's copy of a distributed tensor; None where ranks hold different parts.

    Reading it whole would be a collective, in which a rank alone waits for ever.
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
