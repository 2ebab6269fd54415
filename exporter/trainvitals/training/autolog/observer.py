"""Reports the training of this process without a line in the program, below `trainvitals run`.

`Autolog` observes stable functions that every PyTorch training loop calls: the global optimizer
hooks, the iterator of `DataLoader`, `autograd.backward`, `GradScaler`, `zero_grad`, `Module.train`
and `torch.save`. The objects of Accelerate and DeepSpeed take precedence over these functions.

No file, thread or socket is created before the steps prove that the process trains. The proof is a
training step after a fetched batch, or two training steps at least a second apart. Loader workers
and helper programs therefore never report. If the program or a callback creates a
`TrainingMonitor`, the observation ends, so that no step is counted twice.

A training step is counted at the end of an optimizer's step. Optimizer steps without a backward
pass or a fetched batch in between, such as the steps of parameter groups, are one training step. If
several optimizers have backward passes of their own, `StepCounter` counts the most active
optimizer. Optimizer steps inside a backward pass, one for each parameter, are one training step at
the end of the pass. If a `GradScaler` skips a step because gradients were infinite or NaN, such
gradients are counted instead of the step. If a CUDA graph contains an optimizer's step, each replay
of the graph is a training step.

The loss is the sum of the values on which `backward` was called in a step, before a `GradScaler`
multiplied them. The loss is read about once a second, without waiting for the device.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar

from trainvitals.training.autolog.checkpoints import Checkpoints
from trainvitals.training.autolog.counting import Batches, StepCounter
from trainvitals.training.autolog.evaluations import Evaluations
from trainvitals.training.autolog.losses import LossSampler
from trainvitals.training.autolog.nesting import StepNesting
from trainvitals.training.autolog.seams import Seam, TrainingThread
from trainvitals.training.autolog.shapes import ShapeReader
from trainvitals.training.monitor import TrainingMonitor

if TYPE_CHECKING:
    from types import ModuleType

_PROOF_SECONDS = 1.0


class Autolog:
    """An observer of the training loop in this process.

    Args:
        torch: The module `torch`, as loaded by the program.
        monotonic: A function that returns the time of a monotonic clock, in seconds.

    Attributes:
        monitor: The monitor of the training loop; None until the steps prove that the process
            trains, and after the observation has ended.
    """

    # The observer of this process, to which later imports of frameworks add functions.
    active: ClassVar[Autolog | None] = None

    def __init__(
        self, torch: ModuleType, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.monitor: TrainingMonitor | None = None
        self._torch: Any = torch
        self._monotonic = monotonic
        self._is_opening = False
        self._thread = TrainingThread()
        self._mark: Callable[[str], object] = _ignore_phase
        self._steps, self._batches = StepCounter(), Batches()
        self._nesting, self._evaluations = StepNesting(), Evaluations()
        self._losses = LossSampler(torch, monotonic=monotonic)
        self._shapes = ShapeReader(monotonic=monotonic)
        self._first_step: float | None = None
        # Between two steps.
        self._fetches = self._backwards = 0
        self._captured: weakref.ref[Any] | None = None
        self._stepped_in_backward = self._is_micro_step = self._is_capturing = False
        # Since the start.
        self._has_fetched = False
        self._unhooked_steps = self._all_backwards = self._hooked_steps = self._hooked_before = (
            self._skipped_steps
        ) = 0
        self._graphs: dict[int, weakref.ref[Any]] = {}  # with the optimizer in each graph
        self._saved_after = -1
        self._seams: list[Seam] = []
        self._stepper = self._make_seam("steps", self._switch_off)
        self._engine = self._make_seam("steps of DeepSpeed")
        self._backward = self._make_seam("backward passes", self._switch_off)
        self._fetching = self._make_seam("batches")
        self._scaler = self._make_seam("scaled losses")
        self._discarding = self._make_seam("discarded gradients")
        self._evaluation = self._make_seam("evaluations")
        self._checkpoints = Checkpoints(
            self._make_seam("checkpoints"),
            mark=lambda phase: self._mark(phase),  # noqa: PLW0108 - replaced later
            saved=self._note_checkpoint,
        )
        self._graphing = self._make_seam("CUDA graphs")

    def install(self) -> None:
        """Observe PyTorch in this process."""
        torch = self._torch
        optimizer: Any = sys.modules["torch.optim.optimizer"]  # no attribute of `torch.optim`
        optimizer.register_optimizer_step_pre_hook(self._stepper.hook(self._before_step))
        optimizer.register_optimizer_step_post_hook(self._stepper.hook(self._after_step))
        self.watch_loader(torch.utils.data.dataloader._BaseDataLoaderIter)  # noqa: SLF001 - no public one
        self.watch_backward(torch.autograd, value_at=0)  # called by `Tensor.backward`
        self.watch_scaler(torch.amp.GradScaler)
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            self._discarding.wrap(owner, "zero_grad", after=self._after_zero_grad)
        self._evaluation.wrap(torch.nn.Module, "train", after=self._after_train)
        self.watch_saving(torch, "save", file_at=1)
        self.watch_graph(torch.cuda.CUDAGraph)
        TrainingMonitor.opened = self._give_way
        Autolog.active = self

    # The functions of PyTorch and of frameworks to observe.

    def watch_loader(self, iterator: Any) -> None:  # noqa: ANN401 - a class
        """Observe the batches that the iterators of a class return."""
        self._fetching.wrap(
            iterator, "__next__", before=self._before_fetch, after=self._after_fetch
        )

    def watch_scaler(self, scaler: Any) -> None:  # noqa: ANN401 - a class
        """Observe the losses and the skipped steps of a class of gradient scalers."""

        def scale(args: tuple[Any, ...], scaled: object, error: BaseException | None) -> None:
            if error is None and len(args) > 1:
                self._losses.scale(scaled, args[1])

        self._scaler.wrap(scaler, "scale", after=scale)
        self._scaler.wrap(scaler, "step", before=self._before_scaler, after=self._after_scaler)

    def watch_backward(
        self,
        owner: Any,  # noqa: ANN401 - a class or a module
        *,
        value_at: int,
        count_parts: Callable[[Any], float] | None = None,
    ) -> None:
        """Observe a function named `backward`.

        Args:
            owner: The class or the module that contains the function.
            value_at: The position of the loss among the arguments.
            count_parts: A function that receives the first argument, which is a framework object,
                and returns the number by which the object divides the loss; None if the loss is
                not divided.
        """
        before = partial(self._before_backward, value_at, count_parts)
        self._backward.wrap(owner, "backward", before=before, after=self._after_backward)

    def watch_engine(self, engine: Any) -> None:  # noqa: ANN401 - a class
        """Observe the steps of DeepSpeed's engine, in which several optimizers may take a step."""

        def after(args: tuple[Any, ...], _: object, error: BaseException | None) -> None:
            if error is None:
                self._after_engine(args[0])

        def before(args: tuple[Any, ...], _: object) -> None:
            self._is_micro_step = not args[0].is_gradient_accumulation_boundary()
            self._mark("other" if self._is_micro_step else "optimizer")

        self._engine.wrap(engine, "step", before=before, after=after)

    def watch_graph(self, graph: Any) -> None:  # noqa: ANN401 - a class
        """Observe the captures and replays of a class of CUDA graphs."""
        self._graphing.wrap(graph, "capture_begin", after=self._after_capture_begin)
        self._graphing.wrap(graph, "capture_end", after=self._after_capture_end)
        self._graphing.wrap(graph, "replay", after=self._after_replay)

    def watch_saving(self, owner: Any, attribute: str, *, file_at: int | None = None) -> None:  # noqa: ANN401 - a module
        """Observe a function that saves checkpoints; see `Checkpoints`."""
        self._checkpoints.watch(owner, attribute, file_at=file_at)

    def _note_checkpoint(self) -> None:
        """Record a checkpoint; all files saved after the same step count as one checkpoint."""
        if self.monitor is not None and self._saved_after != self._steps.steps:
            self._saved_after = self._steps.steps
            self.monitor.checkpoint_saved()

    # The end of the observation.

    def _make_seam(self, name: str, failed: Callable[[], object] | None = None) -> Seam:
        compiler = self._torch.compiler
        seam = Seam(
            name,
            is_compiling=getattr(compiler, "is_dynamo_compiling", compiler.is_compiling),
            thread=self._thread,
            failed=failed,
        )
        self._seams.append(seam)
        return seam

    def _give_way(self, monitor: TrainingMonitor) -> None:
        """Stop the observation if the program has created a monitor."""
        if self._is_opening or monitor is self.monitor:
            return
        if self.monitor is not None:
            self.monitor.end()
        self._stop()

    def _switch_off(self) -> None:
        """Stop the observation after a failure, and switch off the monitor."""
        if self.monitor is not None:
            self.monitor._switch_off()  # noqa: SLF001 - its own
        self._stop()

    def _stop(self) -> None:
        self.monitor, self._mark = None, _ignore_phase
        for seam in self._seams:
            seam.restore()

    # Steps.

    def _before_step(self, optimizer: object, *_: object) -> None:
        if self._backward.is_inside or self._thread.ident not in (0, get_ident()):
            return
        if self._nesting.begin(optimizer, self._all_backwards):
            self._mark("optimizer")

    def _after_step(self, optimizer: object, *_: object) -> None:
        if self._backward.is_inside:  # also in a hook that an autograd thread calls
            self._stepped_in_backward = True
            return
        if self._thread.ident not in (0, get_ident()):
            return
        self._hooked_steps += 1
        if not self._nesting.end() or self._engine.is_inside:
            return
        if self._is_capturing:
            self._captured = weakref.ref(optimizer)
        elif getattr(optimizer, "found_inf", None) is not None and _found_infinite(optimizer):
            self._skip_step()
        elif self._backwards or self._fetches or self._is_lone(optimizer):
            self._end_step(optimizer)

    def _is_lone(self, optimizer: object) -> bool:
        """Return whether an optimizer takes a training step without observed passes or batches."""
        seen = self._all_backwards or self._has_fetched
        return not seen and self._nesting.repeats(optimizer)

    def _after_engine(self, engine: Any) -> None:  # noqa: ANN401 - of DeepSpeed
        if self._is_micro_step:
            return
        before, self._skipped_steps = self._skipped_steps, engine.skipped_steps
        if self._skipped_steps > before:
            self._skip_step()
        else:
            self._end_step(engine)

    def _before_scaler(self, _args: object, _kwargs: object) -> None:
        self._hooked_before = self._hooked_steps

    def _after_scaler(self, args: tuple[Any, ...], _: object, error: BaseException | None) -> None:
        is_skipped = error is None and self._hooked_steps == self._hooked_before
        if is_skipped and isinstance(args[1], self._torch.optim.Optimizer):
            self._skip_step()

    def _skip_step(self) -> None:
        """Record that a step was skipped because its gradients were infinite or NaN."""
        self._fetches = self._backwards = 0
        self._discarding.is_idle = True
        self._losses.end_step(is_counted=False)
        if self.monitor is not None:
            self.monitor.count_nonfinite("gradient")
            self.monitor.mark("other")

    def _end_step(self, owner: object) -> None:
        self._thread.ident = self._thread.ident or get_ident()
        self._fetches = self._backwards = 0
        self._discarding.is_idle = True
        if self._nesting.lone:
            self._nesting.lone.clear()
        is_counted = self._steps.count(owner)
        loss = self._losses.end_step(is_counted=is_counted) if self._losses.holds_any else None
        if is_counted:
            if self.monitor is None:
                self._wake()
            samples, tokens = self._batches.take()
            if self.monitor is not None:
                self.monitor.update_batch(samples, loss=loss, tokens=tokens)
        self._mark("other")

    def _after_zero_grad(self, args: tuple[Any, ...], *_: object) -> None:
        """Record that gradients were discarded, and end the step if its optimizer calls no hook.

        Compiled steps and optimizers of other classes call no hook.
        """
        if self._backwards and not self._hooked_steps and not self._nesting.in_progress:
            self._unhooked_steps += 1
            # The first such call may be followed by a step that calls a hook.
            if self._unhooked_steps > 1:
                self._end_step(args[0])
        self._losses.is_stale = True

    def _wake(self) -> None:
        """Open a monitor if the steps so far prove that this process trains."""
        now = self._monotonic()
        if self._first_step is None:
            self._first_step = now
        if not self._has_fetched and now - self._first_step < _PROOF_SECONDS:
            return
        self._is_opening = True
        monitor = TrainingMonitor(global_step=self._steps.steps - 1)
        self._is_opening = False
        if monitor.path is None:
            self._stop()
        else:
            self.monitor, self._mark = monitor, monitor.mark

    def _after_capture_begin(
        self, _args: object, _result: object, error: BaseException | None
    ) -> None:
        self._is_capturing = error is None

    def _after_capture_end(self, args: tuple[Any, ...], *_: object) -> None:
        self._is_capturing = False
        if self._captured is not None:
            self._graphs[id(args[0])] = self._captured
        self._captured = None

    def _after_replay(self, args: tuple[Any, ...], *_: object) -> None:
        optimizer = self._graphs.get(id(args[0]))
        if optimizer is not None:
            self._evaluations.use_batch()
            self._batches.use()
            self._end_step(optimizer() or self)

    # Batches and evaluations.

    def _before_fetch(self, _args: object, _kwargs: object) -> None:
        if self._nesting.in_progress:  # after a step that raised an exception
            self._nesting.in_progress.clear()
        is_validating = self._evaluations.begin_fetch(
            self._torch.is_grad_enabled(), self._all_backwards > 0
        )
        self._mark("validation" if is_validating else "data_wait")

    def _after_fetch(self, _args: object, batch: object, error: BaseException | None) -> None:
        if error is not None:  # the epoch is over, or the loader failed
            if self.monitor is not None and not isinstance(
                error, StopIteration | KeyboardInterrupt
            ):
                self.monitor.count_data_error()
            self._mark("other")
            return
        if not self._evaluations.end_fetch():
            return
        is_certain = not self._evaluations.is_fetching
        self._batches.fetch(batch, is_certain=is_certain)
        if is_certain:
            self._has_fetched = True
            self._fetches += 1
            self._mark("forward")

    def _after_train(self, args: tuple[Any, ...], *_: object) -> None:
        phase = self._evaluations.set_mode(args[0])
        if phase is not None:
            self._mark(phase)

    # Backward passes.

    def _before_backward(
        self,
        value_at: int,
        count_parts: Callable[[Any], float] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        if self._evaluations.use_batch():
            self._batches.confirm()
        self._mark("backward")
        value = args[value_at] if len(args) > value_at else kwargs.get("loss")
        losses, is_inside_step = self._losses, bool(self._nesting.in_progress)
        if losses.holds_any or self._monotonic() >= losses.due:
            parts = 1 if count_parts is None else count_parts(args[0])
            losses.take(value, parts=parts, is_repeated=is_inside_step)
        if not self._has_fetched and not (is_inside_step and self._backwards):
            self._batches.add(*self._shapes.read(value))

    def _after_backward(self, *_: object) -> None:
        self._thread.ident = self._thread.ident or get_ident()
        self._backwards += 1
        self._discarding.is_idle = False
        self._all_backwards += 1
        self._batches.use()
        if self._stepped_in_backward:
            self._stepped_in_backward = False
            self._end_step(self)


def _ignore_phase(_: str) -> None:
    """Ignore a phase before the first counted step or after the observation has ended."""


def _found_infinite(optimizer: object) -> bool:
    """Return whether an optimizer skipped its step because a `GradScaler` found infinite gradients.

    Only optimizers that themselves skip steps have the value `found_inf`. The value is read only if
    it is on the CPU, because reading it from another device would block.
    """
    found = getattr(optimizer, "found_inf", None)
    return found is not None and found.device.type == "cpu" and bool(found.item())
