"""Reports the training of this process without a line in the program, below `trainvitals run`.

`Autolog` observes public and long-lived places that every training loop of PyTorch passes: the
global hooks of optimizers, the iterator of `DataLoader`, `Tensor.backward`, `GradScaler.scale` and
`torch.save`.

The process stays dormant until it proves that it trains: no file, thread or socket exists before a
training step has ended after a batch was fetched, or two steps more than a second apart. Loader
workers and helper programs therefore never report. A `TrainingMonitor` that the program or a
callback creates replaces the observation, so that nothing is counted twice.

A step is the end of an optimizer's step. Optimizer steps without a backward pass or a fetched batch
in between, such as those of parameter groups, are one step. If several optimizers have backward
passes of their own, the number of steps is that of the optimizer that has taken the most. Steps
inside a backward pass, one for each parameter, are one step at its end.

The loss is the value on which `backward` was called, before a `GradScaler` multiplied it, summed
over the backward passes of a step; it is read about once a second and never waited for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from os import PathLike
from threading import get_ident
from typing import TYPE_CHECKING, Any

from trainvitals.training.frameworks import count_samples
from trainvitals.training.guard import Errors, guard
from trainvitals.training.monitor import TrainingMonitor

if TYPE_CHECKING:
    from types import ModuleType

_LOSS_SECONDS = 1.0
_PROOF_SECONDS = 1.0


class Autolog:
    """An observer of the training loop in this process.

    Args:
        torch: The module `torch`, as loaded by the program.
        monotonic: A clock that never jumps, in seconds.

    Attributes:
        errors: The counter of internal errors; ten errors end the observation.
    """

    def __init__(
        self, torch: ModuleType, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.errors = Errors("the observation of the training loop", self._stop)
        self._torch: Any = torch
        self._monotonic = monotonic
        self._monitor: TrainingMonitor | None = None
        self._is_over = self._is_opening = False
        self._thread = 0
        self._depth = self._backward_depth = 0
        self._is_fetching = self._is_saving = self._stepped_in_backward = False
        self._fetches = self._backwards = 0
        self._has_fetched = False
        self._pending = self._samples = 0
        self._counts: dict[int, int] = {}
        self._steps = 0
        self._first_step: float | None = None
        self._losses: list[Any] = []
        self._is_sampling = False
        self._loss_due = 0.0
        self._scaled: tuple[int, Any] = (0, None)

    def install(self) -> None:
        """Observe PyTorch in this process."""
        torch = self._torch
        optimizer: Any = sys.modules["torch.optim.optimizer"]  # no attribute of `torch.optim`
        optimizer.register_optimizer_step_pre_hook(self.before_step)
        optimizer.register_optimizer_step_post_hook(self.after_step)
        iterators = torch.utils.data.dataloader._BaseDataLoaderIter  # noqa: SLF001 - no public one
        iterators.__next__ = self._wrap_next(iterators.__next__)
        torch.Tensor.backward = self._wrap_backward(torch.Tensor.backward)
        torch.autograd.backward = self._wrap_backward(torch.autograd.backward)
        torch.amp.GradScaler.scale = self._wrap_scale(torch.amp.GradScaler.scale)
        torch.save = self._wrap_save(torch.save)
        TrainingMonitor.opened = self._give_way

    def _give_way(self, monitor: TrainingMonitor) -> None:
        """Stop if the program reports by itself."""
        if self._is_opening or monitor is self._monitor:
            return
        if self._monitor is not None:
            self._monitor.end()
        self._stop()

    def _stop(self) -> None:
        self._is_over = True
        self._monitor = None

    def _is_off(self) -> bool:
        """Return whether a call is not of the observed training loop, or is being compiled."""
        if self._is_over or self._torch.compiler.is_compiling():
            return True
        return self._thread not in {0, get_ident()}

    def _mark(self, phase: str) -> None:
        if self._monitor is not None:
            self._monitor.mark(phase)

    # The hooks of optimizers.

    def before_step(self, _optimizer: object, _args: object, _kwargs: object) -> None:
        """Observe the start of an optimizer's step."""
        if self._is_off():
            return
        self._depth += 1
        if self._depth == 1 and not self._backward_depth:
            self._mark("optimizer")

    def after_step(self, optimizer: object, _args: object, _kwargs: object) -> None:
        """Observe the end of an optimizer's step."""
        if self._is_off():
            return
        self._depth = max(0, self._depth - 1)
        if self._depth:
            return
        if self._backward_depth:
            self._stepped_in_backward = True
        elif self._backwards or self._fetches:
            self._end_step(id(optimizer))

    @guard
    def _end_step(self, owner: int) -> None:
        self._thread = self._thread or get_ident()
        self._fetches = self._backwards = 0
        count = self._counts[owner] = self._counts.get(owner, 0) + 1
        if count <= self._steps:
            self._mark("other")
            return
        self._steps = count
        if self._monitor is None:
            self._wake()
        if self._monitor is not None:
            loss = sum(self._losses[1:], self._losses[0]) if self._losses else None
            self._monitor.update_batch(self._samples, loss=loss)
            self._monitor.mark("other")
        self._samples = 0
        self._losses.clear()
        self._is_sampling = False

    def _wake(self) -> None:
        """Open a monitor if the steps so far prove that this process trains."""
        now = self._monotonic()
        if self._first_step is None:
            self._first_step = now
        if not self._has_fetched and now - self._first_step < _PROOF_SECONDS:
            return
        self._is_opening = True
        monitor = TrainingMonitor(global_step=self._steps - 1)
        self._is_opening = False
        if monitor.path is None:
            self._stop()
        else:
            self._monitor = monitor

    # Batches.

    def _wrap_next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @wraps(original)
        def fetch(iterator: Any) -> Any:  # noqa: ANN401 - of the program
            if self._is_fetching or self._is_off():
                return original(iterator)
            self._is_fetching, batch = True, None
            is_training = self._torch.is_grad_enabled()
            self._mark("data_wait" if is_training else "validation")
            try:
                batch = original(iterator)
            finally:
                self._is_fetching = False
                if is_training or batch is None:
                    self._take_batch(batch)
            return batch

        return fetch

    @guard
    def _take_batch(self, batch: object) -> None:
        if batch is None:  # the epoch is over, or the loader raised an exception
            self._mark("other")
            return
        self._has_fetched = True
        self._fetches += 1
        self._pending = count_samples(batch) or 0
        self._mark("forward")

    # Backward passes.

    def _wrap_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - of the program
            if self._backward_depth or self._is_off():
                return original(*args, **kwargs)
            self._backward_depth = 1
            self._mark("backward")
            self._take_loss(args[0] if args else None)
            try:
                return original(*args, **kwargs)
            finally:
                self._backward_depth = 0
                self._end_backward()

        return backward

    @guard
    def _end_backward(self) -> None:
        self._thread = self._thread or get_ident()
        self._backwards += 1
        self._samples += self._pending
        self._pending = 0
        if self._stepped_in_backward:
            self._stepped_in_backward = False
            self._end_step(0)
        elif not self._depth:
            self._mark("other")

    @guard
    def _take_loss(self, value: Any) -> None:  # noqa: ANN401 - any tensor of the program
        if not self._losses:
            now = self._monotonic()
            self._is_sampling = now >= self._loss_due
            if self._is_sampling:
                self._loss_due = now + _LOSS_SECONDS
        if not self._is_sampling:
            return
        if self._scaled[0] == id(value):
            value = self._scaled[1]
        # A subclass may need a collective operation to give its value.
        if type(value) is not self._torch.Tensor or value.numel() != 1 or self._is_capturing():
            return
        self._losses.append(value.detach())

    def _is_capturing(self) -> bool:
        cuda = self._torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def _wrap_scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:  # noqa: ANN401 - of the program
            scaled = original(scaler, outputs)
            self._scaled = (id(scaled), outputs)
            return scaled

        return scale

    # Checkpoints.

    def _wrap_save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - of the program
            if self._is_saving or self._is_off() or not isinstance(f, str | PathLike):
                return original(obj, f, *args, **kwargs)
            self._is_saving = True
            self._mark("checkpoint")
            try:
                result = original(obj, f, *args, **kwargs)
            finally:
                self._is_saving = False
                self._mark("other")
            if self._monitor is not None:
                self._monitor.checkpoint_saved()
            return result

        return save
