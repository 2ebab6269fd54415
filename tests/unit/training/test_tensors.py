"""Reading of losses without waiting for a device."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from types import ModuleType, SimpleNamespace

import pytest

from trainvitals.training.tensors import DelayedScalar, Values


@dataclass(frozen=True)
class Place:
    """A substitute for `torch.device`."""

    type: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"


@dataclass
class Accelerator:
    """A substitute for `torch.cuda` whose stream does its work when the test calls `run`."""

    capturing: bool = False
    failure: str = ""
    queue: list[object] = field(default_factory=list)
    queries: int = 0

    def run(self) -> None:
        """Do all queued work of the stream."""
        while self.queue:
            self.queue.pop(0)()

    def is_current_stream_capturing(self) -> bool:
        """Return whether a graph is being captured."""
        return self.capturing

    def current_stream(self, device: Place) -> str:
        """Return the name of the stream."""
        return f"stream of {device}"

    def Event(self) -> Mark:  # noqa: N802 - torch's name
        """Return a new event."""
        return Mark(self)


class Mark:
    """A substitute for `torch.cuda.Event`."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.done = True

    def record(self, stream: str) -> None:
        """Queue the completion of this event on the stream."""
        assert stream.startswith("stream of ")
        self.done = False
        self.accelerator.queue.append(lambda: setattr(self, "done", True))

    def query(self) -> bool:
        """Return whether the event is complete, which must not be called during a capture."""
        assert not self.accelerator.capturing
        self.accelerator.queries += 1
        if self.accelerator.failure:
            raise RuntimeError(self.accelerator.failure)
        return self.done


class DeviceTensor:
    """A substitute for a tensor on a device, which must not be read directly."""

    is_cpu = False

    def __init__(
        self,
        accelerator: Accelerator,
        value: float,
        *,
        device: Place = Place("cuda"),
        dtype: str = "float32",
        count: int = 1,
    ) -> None:
        self.accelerator = accelerator
        self.value = value
        self.device = device
        self.dtype = dtype
        self.count = count

    def numel(self) -> int:
        """Return the number of values."""
        return self.count

    def detach(self) -> DeviceTensor:
        """Return the same tensor."""
        return self

    def reshape(self, shape: tuple[int, ...]) -> DeviceTensor:
        """Return the same tensor."""
        assert shape == ()
        return self

    def item(self) -> float:
        """Raise, because this call would wait for the device."""
        raise AssertionError("waited for the device")


class HostBuffer:
    """A substitute for pinned host memory."""

    def __init__(self, dtype: str, *, pinned: bool) -> None:
        self.dtype = dtype
        self.pinned = pinned
        self.value = -1.0

    def is_pinned(self) -> bool:
        """Return whether the memory is pinned."""
        return self.pinned

    def copy_(self, source: DeviceTensor, *, non_blocking: bool) -> None:
        """Queue the copy of the value on the stream."""
        assert non_blocking
        assert source.dtype == self.dtype, "a copy that converts would wait"
        source.accelerator.queue.append(lambda: setattr(self, "value", source.value))

    def item(self) -> float:
        """Return the value that was copied last."""
        return self.value


def torch_of(accelerator: object, kind: str = "cuda", *, pinned: bool = True) -> ModuleType:
    """Return a module named torch with this device."""

    def empty(shape: tuple[int, ...], *, dtype: str, device: str, pin_memory: bool) -> HostBuffer:
        assert (shape, device, pin_memory) == ((), "cpu", True)
        torch.buffers.append(dtype)
        return HostBuffer(dtype, pinned=pinned)

    def outside_of_inference(*, mode: bool) -> nullcontext[None]:
        assert not mode, "such a buffer could not be written to later"
        return nullcontext()

    torch = ModuleType("torch")
    setattr(torch, kind, accelerator)
    torch.empty = empty
    torch.inference_mode = outside_of_inference
    torch.buffers = []
    return torch


class Clock:
    """A clock that stands still until the test sets it."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still."""
    return Clock()


@pytest.fixture
def cuda() -> Accelerator:
    """Return a device that does its work only when the test calls `run`."""
    return Accelerator()


@pytest.fixture
def scalar(clock: Clock, cuda: Accelerator) -> DelayedScalar:
    """Return a reader of the device `cuda`."""
    return DelayedScalar(clock=clock, modules={"torch": torch_of(cuda)})


@pytest.mark.parametrize(
    ("value", "number"),
    [(1.5, 1.5), (3, 3.0), (True, 1.0), (Fraction(1, 4), 0.25), (math.inf, math.inf)],
)
def test_a_number_is_read_at_once(value: object, number: float):
    """Python's own numbers are read without delay."""
    assert Values().read(value) == number


def test_nan_is_a_value():
    """A NaN is read as NaN and not as an unknown value."""
    number = Values().read(math.nan)
    assert number is not None
    assert math.isnan(number)


@pytest.mark.parametrize("value", [None, "0.5", 1j, [0.5], object(), 10**400])
def test_what_is_no_real_number_is_unknown(value: object):
    """Texts, complex numbers, lists and numbers too large for a float are read as None."""
    assert Values().read(value) is None


def test_numpy_scalars_and_arrays_of_one_value_are_read():
    """NumPy scalars and one-value arrays are read, larger arrays and complex scalars are not."""
    numpy = pytest.importorskip("numpy")
    values = Values()
    assert values.read(numpy.float32(0.5)) == 0.5
    assert values.read(numpy.float16(0.5)) == 0.5
    assert values.read(numpy.int64(7)) == 7.0
    assert values.read(numpy.array([2.5])) == 2.5
    assert values.read(numpy.array(2.5)) == 2.5
    assert values.read(numpy.array([1.0, 2.0])) is None
    assert values.read(numpy.complex64(1j)) is None


def test_a_device_tensor_arrives_later_and_once(scalar: DelayedScalar, cuda: Accelerator):
    """A value is available after the device has done its work, and is returned once."""
    scalar.offer(DeviceTensor(cuda, 0.75))
    assert scalar.poll() is None
    cuda.run()
    assert scalar.poll() == 0.75
    assert scalar.poll() is None
    assert scalar.unreadable is None


def test_at_most_one_copy_is_under_way(scalar: DelayedScalar, cuda: Accelerator, clock: Clock):
    """A tensor offered while a copy is pending is dropped."""
    scalar.offer(DeviceTensor(cuda, 1.0))
    clock.now += 60
    scalar.offer(DeviceTensor(cuda, 2.0))
    cuda.run()
    assert scalar.poll() == 1.0


def test_copies_are_fifty_milliseconds_apart(
    scalar: DelayedScalar, cuda: Accelerator, clock: Clock
):
    """Copies are at least 50 ms apart, so that a fast loop has only some losses read."""
    scalar.offer(DeviceTensor(cuda, 1.0))
    cuda.run()
    assert scalar.poll() == 1.0
    clock.now += 0.049
    scalar.offer(DeviceTensor(cuda, 2.0))
    cuda.run()
    assert scalar.poll() is None
    clock.now += 0.002
    scalar.offer(DeviceTensor(cuda, 3.0))
    cuda.run()
    assert scalar.poll() == 3.0


def test_the_buffer_is_kept(scalar: DelayedScalar, cuda: Accelerator, clock: Clock):
    """Pinned memory is reused until the data type or the device changes."""
    for dtype, index in (("float32", 0), ("float32", 0), ("bfloat16", 0), ("bfloat16", 1)):
        scalar.offer(DeviceTensor(cuda, 1.0, dtype=dtype, device=Place("cuda", index)))
        cuda.run()
        assert scalar.poll() == 1.0
        clock.now += 1
    assert scalar._modules["torch"].buffers == ["float32", "bfloat16", "bfloat16"]


def test_a_tensor_of_several_values_is_let_go(scalar: DelayedScalar, cuda: Accelerator):
    """A tensor of several values is not copied, and does not make the device unreadable."""
    scalar.offer(DeviceTensor(cuda, 1.0, count=2))
    assert cuda.queue == []
    assert scalar.unreadable is None


def test_a_graph_capture_is_not_disturbed(scalar: DelayedScalar, cuda: Accelerator, clock: Clock):
    """During a graph capture, no copy is queued and no event is queried."""
    cuda.capturing = True
    scalar.offer(DeviceTensor(cuda, 1.0))
    assert cuda.queue == []
    cuda.capturing = False
    clock.now += 1
    scalar.offer(DeviceTensor(cuda, 2.0))
    cuda.capturing = True
    assert scalar.poll() is None
    assert cuda.queries == 0
    cuda.capturing = False
    cuda.run()
    assert scalar.poll() == 2.0


def test_a_failing_device_is_asked_no_more(scalar: DelayedScalar, cuda: Accelerator):
    """After an error of the device, the reason is kept in one line and no event is queried."""
    scalar.offer(DeviceTensor(cuda, 1.0))
    cuda.failure = "CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`"
    assert scalar.poll() is None
    assert scalar.unreadable is not None
    assert "device-side assert triggered Compile with" in scalar.unreadable
    assert scalar.poll() is None
    assert cuda.queries == 1


@pytest.mark.parametrize("kind", ["cuda", "xpu", "hpu", "npu"])
def test_every_device_with_events_is_read(kind: str, clock: Clock, cuda: Accelerator):
    """Tensors of every device type that has events are read."""
    scalar = DelayedScalar(clock=clock, modules={"torch": torch_of(cuda, kind)})
    scalar.offer(DeviceTensor(cuda, 0.5, device=Place(kind)))
    cuda.run()
    assert scalar.poll() == 0.5


@pytest.mark.parametrize("kind", ["mps", "xla"])
def test_a_device_that_cannot_be_asked_is_never_read(kind: str, clock: Clock, cuda: Accelerator):
    """A tensor of a device without events is not read, and the reason names the device."""
    torch = torch_of(SimpleNamespace(Event=object), kind)
    scalar = DelayedScalar(clock=clock, modules={"torch": torch})
    scalar.offer(DeviceTensor(cuda, 0.5, device=Place(kind)))
    assert scalar.unreadable is not None
    assert scalar.unreadable.startswith(f"cannot read a tensor on {kind}:0 without waiting")
    assert cuda.queue == []


def test_without_pinned_memory_nothing_is_copied(clock: Clock, cuda: Accelerator):
    """Without pinned memory no copy is made, because the copy would wait."""
    scalar = DelayedScalar(clock=clock, modules={"torch": torch_of(cuda, pinned=False)})
    scalar.offer(DeviceTensor(cuda, 0.5))
    assert cuda.queue == []
    assert scalar.unreadable is not None
    assert "no pinned memory" in scalar.unreadable


def test_values_of_a_device_come_with_later_reads(scalar: DelayedScalar, cuda: Accelerator):
    """`read` returns the device value that has arrived since the previous call."""
    values = Values(scalar)
    assert values.read(DeviceTensor(cuda, 0.5)) is None
    cuda.run()
    assert values.read(DeviceTensor(cuda, 0.4)) == 0.5
    assert values.read(0.3) == 0.3
    assert values.poll() is None


class Replicated:
    """A substitute for a distributed tensor in host memory."""

    is_cpu = True

    def __init__(self, *, replicated: bool) -> None:
        self.placements = (SimpleNamespace(is_replicate=lambda: replicated),)

    def detach(self) -> Replicated:
        """Return the same tensor."""
        return self

    def to_local(self) -> SimpleNamespace:
        """Return the part of this rank."""
        return SimpleNamespace(is_cpu=True, item=lambda: 0.5)

    def item(self) -> float:
        """Raise, because this call would be a collective operation."""
        raise AssertionError("waited for the other ranks")


def test_a_distributed_tensor_is_read_without_a_collective():
    """Each rank reads its own copy of a replicated tensor, and a sharded tensor is unknown."""
    assert Values().read(Replicated(replicated=True)) == 0.5
    assert Values().read(Replicated(replicated=False)) is None
