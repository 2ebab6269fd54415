"""A callback for the Trainer of Hugging Face transformers.

    from trainvitals.huggingface import TrainvitalsCallback

    trainer = Trainer(..., callbacks=[TrainvitalsCallback()])

The Trainer calls its callbacks on every rank, in the training thread. It passes them neither the
loss of a step nor the start and end of the forward and backward passes. Two hooks on the model
obtain these values:

- The forward phase lasts from the model's call to its return, and the backward phase lasts from
  this return to the optimizer step, including gradient clipping. A forward pass without gradients
  (generation, a reference model) is not a separate phase.
- The loss is the value that the model returns, before the Trainer's NaN filter. The losses of a
  step's micro-batches are summed or averaged as in the Trainer. If the Trainer itself computes the
  loss (label smoothing, `compute_loss_func`), the loss is known only when the Trainer logs it.
- The number of samples is the number of rows in the first input of each micro-batch. The number of
  tokens is the number of elements of `input_ids`, including padding. Both numbers are read from the
  shapes of the inputs, without waiting for a device.

In code compiled by `torch.compile` and in the replicas of `DataParallel`, the hooks do nothing. The
number of samples is then derived from the batch size, and the loss is read from the Trainer's log.
The number of tokens and the durations of the forward and backward phases are unknown.

Source: transformers 5.23, `Trainer._run_epoch`, `_maybe_log_save_evaluate` and `evaluation_loop`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainvitals.training.frameworks import ForwardPasses
from trainvitals.training.guard import Errors, guard
from trainvitals.training.monitor import TrainingMonitor

try:
    import transformers
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise ImportError(
        f"trainvitals.huggingface needs {(error.name or 'transformers').partition('.')[0]}, "
        "which is not installed: pip install 'transformers[torch]'"
    ) from error

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

_log = logging.getLogger("trainvitals")

# These keys describe the training and not the model, so their values are not metrics.
_OWN_KEYS = frozenset(
    ("epoch", "step", "loss", "grad_norm", "learning_rate", "total_flos", "num_input_tokens_seen")
)
_OWN_ENDINGS = ("_runtime", "_per_second", "_preparation_time", "_jit_compilation_time")
_OWN_BEGINNINGS = ("train_", "eval_", "init_mem_")
_MOST_EPOCHS = 1_000_000_000  # the Trainer uses sys.maxsize for "until max_steps"


class TrainvitalsCallback(TrainerCallback):
    """A callback that reports a Trainer's run to the exporter.

    Args:
        run: The run name. If None, `TrainingMonitor` derives the name from the environment.
        monitor: An existing monitor of the run, which the caller finishes. If None, each call of
            `train()` creates a monitor and finishes it.
        flops_per_token: The number of floating-point operations that the forward and backward
            passes need for one token. The model FLOPs utilization (MFU) is calculated from this
            number. The argument is ignored if `monitor` is passed.
        count_tokens: Whether the elements of `input_ids` are tokens.

    Attributes:
        monitor: The monitor of the current run. If no monitor was passed, the attribute is None
            before and after training.
        errors: The counter of internal errors, which are logged once and never raised in the
            Trainer.
    """

    def __init__(
        self,
        run: str | None = None,
        *,
        monitor: TrainingMonitor | None = None,
        flops_per_token: float | None = None,
        count_tokens: bool = True,
    ) -> None:
        self.monitor = monitor
        self.errors = (
            Errors("trainvitals' Hugging Face callback", self._switch_off)
            if monitor is None
            else monitor.errors
        )
        self._run = run
        self._is_own = monitor is None
        self._flops_per_token = flops_per_token
        self._count_tokens = count_tokens
        self._forwards: ForwardPasses | None = None
        self._is_off = False

    @guard
    def on_train_begin(
        self, /, args: TrainingArguments, state: TrainerState, *_: object, **kwargs: object
    ) -> None:
        """Begin the run, and record its totals and the step from which the run resumes."""
        if self._is_off:
            return
        self._release()
        if self._is_own and self.monitor is not None:
            self.monitor.fail()  # the previous run was interrupted, for example in a notebook
            self.monitor = None
        if self.monitor is None:
            self.monitor = TrainingMonitor(
                self._run,
                rank=args.process_index if args.world_size > 1 else None,
                world_size=args.world_size if args.world_size > 1 else None,
                framework="transformers",
                framework_version=transformers.__version__,
                flops_per_token=self._flops_per_token,
            )
            self.errors = self.monitor.errors
        monitor = self.monitor
        if state.global_step:
            monitor.resume(state.global_step)
        monitor.set_totals(
            epochs=state.num_train_epochs if state.num_train_epochs < _MOST_EPOCHS else None,
            steps=state.max_steps,
            epoch_steps=_count_epoch_steps(args, kwargs.get("train_dataloader")),
        )
        self._report_filter(args, state)
        self._forwards = ForwardPasses(
            monitor,
            batch_size=args.train_batch_size,
            ranks=args.world_size if args.average_tokens_across_devices else 1,
            count_tokens=self._count_tokens,
        )
        self._forwards.watch(kwargs.get("model"))
        monitor.mark("validation" if args.eval_on_start else "init")

    @guard
    def on_epoch_begin(
        self, /, args: TrainingArguments, state: TrainerState, *_: object, **kwargs: object
    ) -> None:
        """Begin an epoch, and the phase `data_wait` for its first micro-batches."""
        if self.monitor is not None:
            epoch = int((state.epoch or 0.0) + 1e-6)
            steps = _count_epoch_steps(args, kwargs.get("train_dataloader"))
            self.monitor.start_epoch(epoch, steps=steps)
            self.monitor.mark("data_wait")

    @guard
    def on_step_begin(self, /, *_: object, **__: object) -> None:
        """End the phase `data_wait`, because all micro-batches of this step have been loaded."""
        if self.monitor is not None and self._forwards is not None:
            self._forwards.start_step()
            self.monitor.mark("other")

    @guard
    def on_substep_end(self, /, *_: object, **__: object) -> None:
        """End a micro-batch that is not the last micro-batch of a step."""
        if self.monitor is not None and self._forwards is not None:
            self._forwards.end_micro_batch()
            self.monitor.mark("other")

    @guard
    def on_pre_optimizer_step(self, /, *_: object, **__: object) -> None:
        """Record that the optimizer step begins."""
        if self.monitor is not None:
            self.monitor.mark("optimizer")

    @guard
    def on_optimizer_step(self, /, *_: object, **__: object) -> None:
        """Record that the optimizer step has ended."""
        if self.monitor is not None:
            self.monitor.mark("other")

    @guard
    def on_step_end(
        self,
        /,
        args: TrainingArguments,  # noqa: ARG002 - the Trainer's order
        state: TrainerState,
        control: TrainerControl,
        **_: object,
    ) -> None:
        """End a step, and record the loss and the numbers of samples and tokens of the step."""
        forwards = self._forwards
        if self.monitor is not None and forwards is not None:
            forwards.end_step()
            self.monitor.update_batch(
                forwards.samples,
                tokens=forwards.tokens,
                loss=forwards.loss,
                global_step=state.global_step,
            )
            self._mark_what_follows(control)

    @guard
    def on_epoch_end(
        self,
        /,
        args: TrainingArguments,  # noqa: ARG002 - the Trainer's order
        state: TrainerState,  # noqa: ARG002 - likewise
        control: TrainerControl,
        **_: object,
    ) -> None:
        """End an epoch, and mark the phase that follows, such as an evaluation or a checkpoint."""
        self._mark_what_follows(control)

    @guard
    def on_log(self, /, *_: object, logs: Mapping[str, object] | None = None, **__: object) -> None:
        """Record the values that the Trainer logs during training, except evaluation results."""
        monitor, forwards = self.monitor, self._forwards
        if monitor is None or forwards is None or logs is None:
            return
        values = _numbers(logs)
        known = {
            "loss": values.get("loss") if forwards.loss is None else None,
            "gradient_norm": values.get("grad_norm"),
            "learning_rate": values.get("learning_rate"),
        }
        monitor.log({name: value for name, value in known.items() if value is not None})
        monitor.log({name: value for name, value in values.items() if _is_metric(name)})

    @guard
    def on_prediction_step(self, /, *_: object, **__: object) -> None:
        """Mark the validation phase when an evaluation processes a batch."""
        if self.monitor is not None and self._forwards is not None:
            self._forwards.mark_validation()

    @guard
    def on_evaluate(
        self,
        /,
        args: TrainingArguments,
        state: TrainerState,  # noqa: ARG002 - the Trainer's order
        control: TrainerControl,
        *,
        metrics: Mapping[str, object] | None = None,
        **_: object,
    ) -> None:
        """End an evaluation, and record its metrics under names without the prefix `eval_`."""
        if self.monitor is None or self._forwards is None:
            return
        values = {
            name.removeprefix("eval_"): value
            for name, value in _numbers(metrics or {}).items()
            if name != "epoch" and not name.endswith(_OWN_ENDINGS)
        }
        self._forwards.is_in_validation = False
        self.monitor.log_validation(**values)
        self._mark_what_follows(control, is_evaluated=True)
        if args.save_strategy == "best" and not control.should_save:
            self.monitor.mark("other")  # the Trainer decides later whether a checkpoint follows

    @guard
    def on_save(self, /, *_: object, **__: object) -> None:
        """Record that a checkpoint has been written."""
        if self.monitor is not None:
            self.monitor.checkpoint_saved()
            self.monitor.mark("data_wait")

    @guard
    def on_train_end(self, /, *_: object, **__: object) -> None:
        """End the run; an evaluation after the training is not part of the run."""
        self._release()
        if self.monitor is None:
            return
        if self._is_own:
            self.monitor.finish()
            self.monitor = None
        else:
            self.monitor.mark("idle")

    def _mark_what_follows(self, control: TrainerControl, *, is_evaluated: bool = False) -> None:
        if self.monitor is None:
            return
        if control.should_evaluate and not is_evaluated:
            self.monitor.mark("validation")
        elif control.should_save:
            self.monitor.mark("checkpoint")
        else:
            self.monitor.mark("data_wait")

    def _report_filter(self, args: TrainingArguments, state: TrainerState) -> None:
        if self.monitor is None:
            return
        self.monitor.set_nan_filter(active=args.logging_nan_inf_filter)
        if args.logging_nan_inf_filter and state.is_world_process_zero:
            _log.warning(
                "the Trainer hides NaN losses in its log (logging_nan_inf_filter=True); "
                "trainvitals counts them as the model returns them"
            )

    def _release(self) -> None:
        if self._forwards is not None:
            self._forwards.close()
            self._forwards = None

    def _switch_off(self) -> None:
        self._is_off = True


def _count_epoch_steps(args: TrainingArguments, loader: object) -> int | None:
    """Return the number of optimizer steps in an epoch; None if the loader has no length."""
    try:
        batches = len(loader)  # type: ignore[arg-type] # without a length it raises TypeError
    except TypeError:
        return None
    return max(1, -(-batches // args.gradient_accumulation_steps))


def _numbers(values: Mapping[str, object]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def _is_metric(name: str) -> bool:
    return not (
        name in _OWN_KEYS or name.startswith(_OWN_BEGINNINGS) or name.endswith(_OWN_ENDINGS)
    )
