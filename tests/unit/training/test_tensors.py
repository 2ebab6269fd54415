"""Reading losses without waiting for a device."""

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
    """Stands for a `torch.device`."""

    type: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"


@dataclass
class Accelerator:
    """Stands for `torch.cuda`; what a stream is asked to do is done when the test says so."""

    capturing: bool = False
    failure: str = ""
    queue: list[object] = field(default_factory=list)
    queries: int = 0

    def run(self) -> None:
        """Do all that the stream was asked to do."""
        while self.queue:
            self.queue.pop(0)()

    def is_current_stream_capturing(self) -> bool:
        """Return whether a graph is being captured."""
        return self.capturing

    def current_stream(self, device: Place) -> str:
        """Name the stream."""
        return f"stream of {device}"

    def Event(self) -> Mark:  # noqa: N802 - torch's name
        """Make an event."""
        return Mark(self)


class Mark:
    """Stands for a `torch.cuda.Event`."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.done = True

    def record(self, stream: str) -> None:
        """Be done when the stream gets here."""
        assert stream.startswith("stream of ")
        self.done = False
        self.accelerator.queue.append(lambda: setattr(self, "done", True))

    def query(self) -> bool:
        """Return whether the stream got here; an illegal question during a capture."""
        assert not self.accelerator.capturing
        self.accelerator.queries += 1
        if self.accelerator.failure:
            raise RuntimeError(self.accelerator.failure)
        return self.done


class DeviceTensor:
    """Stands for a tensor on a device: to read it there would be to wait."""

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
        """Count the values."""
        return self.count

    def detach(self) -> DeviceTensor:
        """Return the same tensor."""
        return self

    def reshape(self, shape: tuple[int, ...]) -> DeviceTensor:
        """Return the same tensor."""
        assert shape == ()
        return self

    def item(self) -> float:
        """Fail: this is what must never happen."""
        raise AssertionError("waited for the device")


class HostBuffer:
    """Stands for pinned memory of the host."""

    def __init__(self, dtype: str, *, pinned: bool) -> None:
        self.dtype = dtype
        self.pinned = pinned
        self.value = -1.0

    def is_pinned(self) -> bool:
        """Return whether a device can write here on its own."""
        return self.pinned

    def copy_(self, source: DeviceTensor, *, non_blocking: bool) -> None:
        """Take the value when the stream gets here."""
        assert non_blocking
        assert source.dtype == self.dtype, "a copy that converts would wait"
        source.accelerator.queue.append(lambda: setattr(self, "value", source.value))

    def item(self) -> float:
        """Return what has arrived."""
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
    """A clock that stands until it is set."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands."""
    return Clock()


@pytest.fixture
def cuda() -> Accelerator:
    """Return a device that does nothing until it is told to."""
    return Accelerator()


@pytest.fixture
def scalar(clock: Clock, cuda: Accelerator) -> DelayedScalar:
    """Return a reader of that device."""
    return DelayedScalar(clock=clock, modules={"torch": torch_of(cuda)})


@pytest.mark.parametrize(
    ("value", "number"),
    [(1.5, 1.5), (3, 3.0), (True, 1.0), (Fraction(1, 4), 0.25), (math.inf, math.inf)],
)
def test_a_number_is_read_at_once(value: object, number: float):
    """Python's own numbers are what they are."""
    assert Values().read(value) == number


def test_nan_is_a_value():
    """A loss that is NaN is not a loss that is unknown."""
    number = Values().read(math.nan)
    assert number is not None
    assert math.isnan(number)


@pytest.mark.parametrize("value", [None, "0.5", 1j, [0.5], object(), 10**400])
def test_what_is_no_real_number_is_unknown(value: object):
    """Text, complex numbers, lists and what no float can hold are None."""
    assert Values().read(value) is None


def test_numpy_scalars_and_arrays_of_one_value_are_read():
    """Larger arrays and complex scalars are unknown."""
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
    """Nothing is known until the device has done its work, and a value is given once."""
    scalar.offer(DeviceTensor(cuda, 0.75))
    assert scalar.poll() is None
    cuda.run()
    assert scalar.poll() == 0.75
    assert scalar.poll() is None
    assert scalar.unreadable is None


def test_at_most_one_copy_is_under_way(scalar: DelayedScalar, cuda: Accelerator, clock: Clock):
    """What is offered meanwhile is let go, however long the device takes."""
    scalar.offer(DeviceTensor(cuda, 1.0))
    clock.now += 60
    scalar.offer(DeviceTensor(cuda, 2.0))
    cuda.run()
    assert scalar.poll() == 1.0


def test_copies_are_fifty_milliseconds_apart(
    scalar: DelayedScalar, cuda: Accelerator, clock: Clock
):
    """A faster loop has only some of its losses read."""
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
    """Pinned memory is asked for once, and again when the type or the device changes."""
    for dtype, index in (("float32", 0), ("float32", 0), ("bfloat16", 0), ("bfloat16", 1)):
        scalar.offer(DeviceTensor(cuda, 1.0, dtype=dtype, device=Place("cuda", index)))
        cuda.run()
        assert scalar.poll() == 1.0
        clock.now += 1
    assert scalar._modules["torch"].buffers == ["float32", "bfloat16", "bfloat16"]


def test_a_tensor_of_several_values_is_let_go(scalar: DelayedScalar, cuda: Accelerator):
    """It is not copied, and the next loss may be."""
    scalar.offer(DeviceTensor(cuda, 1.0, count=2))
    assert cuda.queue == []
    assert scalar.unreadable is None


def test_a_graph_capture_is_not_disturbed(scalar: DelayedScalar, cuda: Accelerator, clock: Clock):
    """While a graph is captured nothing is copied into it and no event is asked."""
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
    """The error is the training's own to meet; it is told here in one line."""
    scalar.offer(DeviceTensor(cuda, 1.0))
    cuda.failure = "CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`"
    assert scalar.poll() is None
    assert scalar.unreadable is not None
    assert "device-side assert triggered Compile with" in scalar.unreadable
    assert scalar.poll() is None
    assert cuda.queries == 1


@pytest.mark.parametrize("kind", ["cuda", "xpu", "hpu", "npu"])
def test_every_device_with_events_is_read(kind: str, clock: Clock, cuda: Accelerator):
    """The module of the device has the name of its kind."""
    scalar = DelayedScalar(clock=clock, modules={"torch": torch_of(cuda, kind)})
    scalar.offer(DeviceTensor(cuda, 0.5, device=Place(kind)))
    cuda.run()
    assert scalar.poll() == 0.5


@pytest.mark.parametrize("kind", ["mps", "xla"])
def test_a_device_that_cannot_be_asked_is_never_read(kind: str, clock: Clock, cuda: Accelerator):
    """It stays unread, and the reason names it."""
    torch = torch_of(SimpleNamespace(Event=object), kind)
    scalar = DelayedScalar(clock=clock, modules={"torch": torch})
    scalar.offer(DeviceTensor(cuda, 0.5, device=Place(kind)))
    assert scalar.unreadable is not None
    assert scalar.unreadable.startswith(f"cannot read a tensor on {kind}:0 without waiting")
    assert cuda.queue == []


def test_without_pinned_memory_nothing_is_copied(clock: Clock, cuda: Accelerator):
    """A copy into other memory would wait."""
    scalar = DelayedScalar(clock=clock, modules={"torch": torch_of(cuda, pinned=False)})
    scalar.offer(DeviceTensor(cuda, 0.5))
    assert cuda.queue == []
    assert scalar.unreadable is not None
    assert "no pinned memory" in scalar.unreadable


def test_values_of_a_device_come_with_later_reads(scalar: DelayedScalar, cuda: Accelerator):
    """A read gives what has arrived since the last one, and the last value is polled for."""
    values = Values(scalar)
    assert values.read(DeviceTensor(cuda, 0.5)) is None
    cuda.run()
    assert values.read(DeviceTensor(cuda, 0.4)) == 0.5
    assert values.read(0.3) == 0.3
    assert values.poll() is None


class Replicated:
    """Stands for a distributed tensor in host memory."""

    is_cpu = True

    def __init__(self, *, replicated: bool) -> None:
        self.placements = (SimpleNamespace(is_replicate=lambda: replicated),)

    def detach(self) -> Replicated:
        """Return the same tensor."""
        return self

    def to_local(self) -> SimpleNamespace:
        """Return this rank's part."""
        return SimpleNamespace(is_cpu=True, item=lambda: 0.5)

    def item(self) -> float:
        """Fail: this would be a collective."""
        raise AssertionError("waited for the other ranks")


def test_a_distributed_tensor_is_read_without_a_collective():
    """Each rank's own copy is read; what is spread over ranks is unknown."""
    assert Values().read(Replicated(replicated=True)) == 0.5
    assert Values().read(Replicated(replicated=False)) is None
