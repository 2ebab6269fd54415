"""What a training loop calls: three lines that cost a few microseconds a step.

Nothing here raises into the loop, waits for a device, takes a lock or makes a system call on a
step. Times are those of the host's clock.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Literal, SupportsFloat, TypeVar

from trainvitals.runfile import PHASE_NAMES, STEP, Identity, State, TraceRequest
from trainvitals.training.identity import identify
from trainvitals.training.interpreter import InterpreterHooks
from trainvitals.training.journal import Journal, Nonfinite
from trainvitals.training.launch import Launch, read_launch
from trainvitals.training.notices import Notices, open_notices
from trainvitals.training.outer import Errors, guard
from trainvitals.training.recorder import (
    OpenFile,
    Recorder,
    RunFileUnavailableError,
    create_run_file,
)
from trainvitals.training.steps import PUBLISH_ON_DISK_SECONDS, PUBLISH_SECONDS, StepRecorder
from trainvitals.training.traceplace import find_trace_place
from trainvitals.training.tracing import Tracing
from trainvitals.training.upkeep import Upkeep
from trainvitals.training.waits import Batches, PhaseContext

if TYPE_CHECKING:  # who tells nobody does not load it
    from trainvitals.courier import Destination

DEFAULT_RUN_DIR = "/dev/shm/trainvitals"  # noqa: S108 - a sticky directory, and the documented default

DEFAULT_TRACE_DIR = "trainvitals-profiles"

Item = TypeVar("Item")
Value = SupportsFloat

_log = logging.getLogger("trainvitals")
_EPOCH_STEP, _GLOBAL_STEP = STEP["epoch_step"], STEP["global_step"]
_NONFINITE = STEP["nonfinite_losses"]
# What does nothing any more once the monitor is silent.
_RECORDING = (
    "mark",
    "update_batch",
    "start_epoch",
    "log",
    "log_validation",
    "checkpoint_saved",
    "count_data_error",
    "count_nonfinite",
    "set_nan_filter",
    "set_totals",
    "resume",
    "raise_alert",
    "clear_alert",
    "profile",
    "set_baseline",
    "end",
    "finish",
    "fail",
)


class TrainingMonitor(StepRecorder):
    """Tells how a training run is doing, at a few microseconds a step.

    What it tells is written to a small file in the run directory, where the exporter finds it.
    No method raises, waits for a device or talks to another process. After ten errors of its own
    it switches itself off. It belongs to the thread that made it; `log` may be called from any.

    A run is over when it is finished or fails, when its context or the interpreter ends, and when
    nobody holds its monitor any more.

    Args:
        run: The run's name; from TRAINVITALS_RUN, the launcher's or the tracker's environment
            when None.
        total_epochs: How many epochs there will be; for progress and the time of arrival.
        total_steps: How many steps there will be, likewise.
        epoch_steps: How many steps an epoch has, likewise.
        global_step: The step from which a resumed run goes on.
        rank: This process's rank; from the launcher's environment when None.
        world_size: How many ranks there are, likewise.
        attempt: How often the run was restarted, likewise.
        framework: What trains; found where PyTorch, JAX or TensorFlow is loaded.
        framework_version: Its version.
        flops_per_sample: Floating point operations of the model for one sample, forward and
            backward; for the utilisation of the device's peak.
        flops_per_token: The same for one token.
        peak_flops: The device's peak in operations a second; looked up by the device's name when
            None.
        watch: The value by which an evaluation is better than another.
        watch_mode: Whether smaller or larger is better.
        checkpoint_max_age_seconds: An older last checkpoint is worth an alert.
        notify: Whom to tell of alerts, a loss that is no number and a failure: destinations of
            `trainvitals.courier`, or True for those that the environment names; None does so where
            TRAINVITALS_NOTIFY is 1.
        run_dir: Where the file is made; TRAINVITALS_RUN_DIR or /dev/shm/trainvitals when None.
        enabled: False makes every method do nothing.
        environ: The environment, for what the launcher says; the process's own when None.
        monotonic: Tells seconds on a clock that never jumps.
        clock: Tells Unix seconds.
        publish_seconds: Steps that follow each other faster are published together; 1 ms when
            None, 0.5 s where the run directory is on a disk.

    Attributes:
        run: The run's name.
        rank: This process's rank.
        world_size: How many ranks there are; 0 unknown.
        path: The run file; None where none could be made.
        start_time: When the current epoch began, Unix seconds; None before the first.
        errors: What went wrong inside.
    """

    def __init__(
        self,
        run: str | None = None,
        *,
        total_epochs: int | None = None,
        total_steps: int | None = None,
        epoch_steps: int | None = None,
        global_step: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        attempt: int | None = None,
        framework: str | None = None,
        framework_version: str | None = None,
        flops_per_sample: float | None = None,
        flops_per_token: float | None = None,
        peak_flops: float | None = None,
        watch: str = "validation_loss",
        watch_mode: Literal["min", "max"] = "min",
        checkpoint_max_age_seconds: float | None = None,
        notify: bool | Sequence[Destination] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        enabled: bool = True,
        environ: Mapping[str, str] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
        publish_seconds: float | None = None,
    ) -> None:
        self.run = "" if run is None else str(run)
        self.rank = rank or 0
        self.world_size = world_size or 0
        self.path: Path | None = None
        self.start_time: float | None = None
        self.errors = Errors("the training monitor", partial(_switch_off, weakref.ref(self)))
        if environ is None:
            environ = os.environ  # as a default it would be shown, secrets and all, by help()
        self._is_open = self._is_over = False
        self._thread = get_ident()
        self._stack: list[str] = []
        if enabled and (rank is not None or not _is_loader_worker()):
            self._open(
                partial(
                    read_launch,
                    run=run,
                    rank=rank,
                    world_size=world_size,
                    attempt=attempt,
                    environ=environ,
                ),
                framework=(framework, framework_version),
                directory=run_dir or environ.get("TRAINVITALS_RUN_DIR") or DEFAULT_RUN_DIR,
                watch=(watch, watch_mode),
                open_notices=partial(open_notices, notify, environ, clock=clock),
                trace_directory=environ.get("TRAINVITALS_PROFILE_DIR") or DEFAULT_TRACE_DIR,
                publish_seconds=publish_seconds,
                needs_peak=peak_flops is None and bool(flops_per_sample or flops_per_token),
                clocks=(monotonic, clock),
            )
        if not self._is_open:
            self._silence()
            return
        self.set_totals(epochs=total_epochs, steps=total_steps, epoch_steps=epoch_steps)
        self._describe(
            flops_per_sample=flops_per_sample,
            flops_per_token=flops_per_token,
            peak_flops=peak_flops,
            checkpoint_max_age_seconds=checkpoint_max_age_seconds,
        )
        self.resume(global_step)

    @guard
    def _open(
        self,
        find_launch: Callable[[], Launch],
        *,
        framework: tuple[str | None, str | None],
        directory: str | os.PathLike[str],
        watch: tuple[str, Literal["min", "max"]],
        open_notices: Callable[[Launch], Notices | None],
        trace_directory: str,
        publish_seconds: float | None,
        needs_peak: bool,
        clocks: tuple[Callable[[], float], Callable[[], float]],
    ) -> None:
        launch = find_launch()
        self.run, self.rank, self.world_size = launch.run, launch.rank, launch.world_size
        name, version = framework
        identity = identify(launch, framework=name, framework_version=version)
        recorder = Recorder(_find_file(identity, Path(directory)))
        journal = Journal(recorder, clock=clocks[1], watch=watch[0], watch_mode=watch[1])
        interval = PUBLISH_SECONDS if recorder.is_on_tmpfs else PUBLISH_ON_DISK_SECONDS
        self._begin(
            recorder,
            journal,
            Upkeep(journal, needs_peak=needs_peak),
            notices=open_notices(launch),
            tracing=Tracing(
                recorder,
                partial(find_trace_place, trace_directory, launch.run, launch.rank),
                run=launch.run,
                rank=launch.rank,
            ),
            publish_seconds=interval if publish_seconds is None else publish_seconds,
            monotonic=clocks[0],
            clock=clocks[1],
        )
        self.path = recorder.path
        self._is_open = True
        journal.note("start")
        # A child must never write, not even by a method that somebody has kept.
        self._hooks = InterpreterHooks(self, self._close)

    @guard
    def _describe(self, /, **words: float | None) -> None:
        for name, value in words.items():
            self._journal.set(name, value)

    # Around the loop.

    @guard
    def start_epoch(self, epoch: int | None = None, *, steps: int | None = None) -> None:
        """Say that an epoch begins.

        Args:
            epoch: Its number; one more than the last when None, 0 for the first.
            steps: How many steps it has; as the last when None.
        """
        now = self._monotonic()
        self._thread = get_ident()
        self.start_time = self._clock()
        journal = self._journal
        last = journal.get("epoch")
        number = float(epoch) if epoch is not None else (0.0 if last is None else last + 1.0)
        self._epoch_counts = (self._step_count, self._samples, self._tokens)
        self._words[_EPOCH_STEP] = 0.0
        journal.set("epoch", number)
        journal.set("epoch_start_time", self.start_time)
        if steps is not None:
            journal.set("epoch_steps", float(steps))
        journal.note("epoch", number)
        self._change_phase(now, PHASE_NAMES[self._after_step])
        self._publish_all(now)

    @guard
    def get_throughput(self) -> dict[str, float] | None:
        """Give the throughput of the current epoch.

        Returns:
            `samples_per_second`, `tokens_per_second` and `elapsed_time` in seconds since
            `start_epoch`; None before the first epoch.
        """
        if self.start_time is None:
            return None
        elapsed = max(self._clock() - self.start_time, 1e-9)
        _, samples, tokens = self._epoch_counts
        return {
            "samples_per_second": (self._samples - samples) / elapsed,
            "tokens_per_second": (self._tokens - tokens) / elapsed,
            "elapsed_time": elapsed,
        }

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Give a context in which a phase lasts; afterwards the one before it goes on.

        Args:
            name: As for `mark`.
        """
        return PhaseContext(self, name)

    def batches(self, iterable: Iterable[Item]) -> Iterator[Item]:
        """Go through a data loader, and time how long each batch is waited for.

        An exception of the loader is counted and passes; who catches it may ask for more.
        """
        return Batches(self, iterable)

    @guard
    def log(
        self,
        values: Mapping[str, Value] | None = None,
        /,
        *,
        split: str | None = None,
        **named: Value,
    ) -> None:
        """Record named values, such as `val_iou`; any thread may do so.

        `loss`, `accuracy`, `learning_rate` (or `lr`), `gradient_norm` (or `grad_norm`),
        `val_loss` and `val_accuracy` are the metrics of those names; all others are free.

        Args:
            values: The values by name.
            split: `train`, `validation` or `test`; found in the name's beginning when None.
            named: Further values.
        """
        everything: Mapping[str, object] = {**(values or {}), **named}
        if get_ident() != self._thread:
            # What waits must not keep the memory of a whole graph.
            kept = {name: _detach(value) for name, value in everything.items()}
            self._inbox.append((kept, split))
            return
        self._log(everything, split)
        self._publish_all(self._monotonic(), at_least_seconds=self._publish_seconds)

    @guard
    def log_validation(
        self, /, loss: Value | None = None, accuracy: Value | None = None, **metrics: Value
    ) -> None:
        """Say that an evaluation is over, and what it gave.

        Args:
            loss: The validation loss.
            accuracy: The validation accuracy.
            metrics: Further values, such as `iou`.
        """
        values = {"loss": loss, "accuracy": accuracy, **metrics}
        known = [
            pair
            for name, value in values.items()
            if value is not None
            for pair in self._read_named(name, value, "validation")
        ]
        self._journal.log_evaluation(known)
        self._publish_all(self._monotonic())

    @guard
    def checkpoint_saved(self) -> None:
        """Say that a checkpoint is safe."""
        self._journal.add("checkpoints")
        self._journal.set("last_checkpoint_time", self._clock())
        self._journal.note("checkpoint", self._global_before + self._step_count)
        self._publish_all(self._monotonic())

    @guard
    def count_data_error(self) -> None:
        """Count an exception of the data loader."""
        self._journal.add("data_errors")
        self._journal.note("data_error")
        self._publish_all(self._monotonic())

    @guard
    def count_nonfinite(self, what: Nonfinite) -> None:
        """Count a NaN or an infinity that nobody else sees."""
        if what == "loss":
            self._words[_NONFINITE] += 1.0
        self._journal.count_nonfinite(what)

    @guard
    def set_nan_filter(self, active: bool) -> None:  # noqa: FBT001 - the name says it
        """Say whether the framework replaces NaN losses before anybody sees them."""
        self._journal.set("nan_filter_active", float(active))

    @guard
    def set_totals(
        self, *, epochs: int | None = None, steps: int | None = None, epoch_steps: int | None = None
    ) -> None:
        """Say how much there is to do; None leaves what was said before."""
        names = ("total_epochs", "total_steps", "epoch_steps")
        for name, value in zip(names, (epochs, steps, epoch_steps), strict=True):
            if value is not None:
                self._journal.set(name, float(value))

    @guard
    def resume(self, global_step: int) -> None:
        """Say from which step a run goes on; what was done before counts as progress only."""
        done = self._read_count(global_step)
        self._global_before = done - self._step_count
        self._words[_GLOBAL_STEP] = done
        self._journal.set("first_global_step", float(done))
        if done:
            self._journal.note("resume", float(done))
        self._publish_all(self._monotonic())

    @guard
    def raise_alert(self, name: str, text: str | None = None) -> None:
        """Raise one of `runfile.ALERTS`, until it is cleared.

        Args:
            name: Which.
            text: What to tell people beside its name; None for nothing more. The empty text keeps
                it from them.
        """
        is_new = self._journal.set_alert(name, is_active=True)
        if is_new and self._notices is not None and text != "":
            self._notices.tell_alert(name, text or "")
        self._publish_all(self._monotonic())

    @guard
    def clear_alert(self, name: str, text: str | None = None) -> None:
        """Clear an alert; what people are told is as for `raise_alert`."""
        is_new = self._journal.set_alert(name, is_active=False)
        if is_new and self._notices is not None and text != "":
            self._notices.tell_alert(name, text or "", is_over=True)

    @guard
    def profile(
        self,
        steps: int = 5,
        *,
        record_shapes: bool = False,
        profile_memory: bool = True,
        with_stack: bool = False,
    ) -> None:
        """Have PyTorch's profiler trace the next steps; `trainvitals profile` asks for the same.

        Where the files are is logged. They go into TRAINVITALS_PROFILE_DIR, or
        `trainvitals-profiles` in the working directory.

        Args:
            steps: How many, 100 at most; fewer where they last longer than 60 s together or have
                more than 100000 events.
            record_shapes: With the shapes of operators' inputs.
            profile_memory: With what operators allocate.
            with_stack: With the source lines that called them.
        """
        if self._tracing is None:
            return
        number = int.from_bytes(os.urandom(7), "little") + 1
        request = TraceRequest(number, steps, record_shapes, profile_memory, with_stack)
        if not self._tracing.ask(request):
            self._tell_once("a trace is being taken already; ask again when it is written")
        if self._tracing.is_active:
            self._review_due = min(self._review_due, self._step_count)

    @guard
    def set_baseline(
        self,
        *,
        step_seconds: float | None = None,
        samples_per_second: float | None = None,
        utilization_ratio: float | None = None,
        deviations: int = 0,
    ) -> None:
        """Tell the run's own baseline; None where it is not known yet.

        Args:
            step_seconds: The usual duration of a step.
            samples_per_second: The usual throughput.
            utilization_ratio: The usual utilisation of the accelerators, 0 to 1.
            deviations: What is far from it now: 1 step time, 2 throughput, 4 utilisation, added up.
        """
        journal = self._journal
        journal.set("baseline_step_seconds", step_seconds)
        journal.set("baseline_samples_per_second", samples_per_second)
        journal.set("baseline_utilization_ratio", utilization_ratio)
        journal.set("deviations", float(deviations))

    @guard
    def finish(self) -> None:
        """Say that the run is over and well; afterwards nothing is recorded any more."""
        self._end(State.FINISHED, "finish")

    @guard
    def end(self) -> None:
        """Say that the process ends, by itself; its exit code tells how well."""
        self._end(State.ENDED, "finish")

    @guard
    def fail(self, exception: BaseException | None = None) -> None:
        """Say that the run is over by an error; its class is kept, its message is not."""
        if exception is not None:
            kind = type(exception)
            module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
            self._recorder.leave_last_words(module + kind.__qualname__)
            # Python's own MemoryError is about the host's memory, which is not what is noted.
            if kind.__name__ == "OutOfMemoryError":
                self._journal.note_oom()
        if self._notices is not None:
            self._notices.tell_failure(exception)
        self._end(State.FAILED, "fail")

    def __reduce__(self) -> tuple[Callable[[str], TrainingMonitor], tuple[str]]:
        """Give, to be copied or sent to another process, a monitor of the same run that is silent."""
        return (_make_silent, (self.run,))

    def __enter__(self) -> TrainingMonitor:  # noqa: PYI034 - typing.Self is of 3.11
        if self._is_over:
            _log.warning("run %s is over; what follows needs a monitor of its own", self.run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if exception is None or (isinstance(exception, SystemExit) and not exception.code):
            self.finish()
        else:
            self.fail(exception)

    def __del__(self) -> None:
        if self.__dict__.get("_is_open"):
            self.finish()

    @property
    def current_phase(self) -> str:
        """What the run is doing, by the last mark."""
        return PHASE_NAMES[self._phase_code] if self._is_open else "idle"

    @property
    def samples_processed(self) -> int:
        """How many samples were trained on since the monitor was made."""
        return self._samples if self._is_open else 0

    @property
    def tokens_processed(self) -> int:
        """How many tokens were trained on since the monitor was made."""
        return self._tokens if self._is_open else 0

    @property
    def last_step_seconds(self) -> float | None:
        """How long the last step took; None before the second."""
        return (self._step_seconds or None) if self._is_open else None

    def _end(self, state: State, event: str) -> None:
        while self._inbox:
            self._log(*self._inbox.popleft())
        self._take_late()
        if self._tracing is not None:
            self._tracing.end()
        self._journal.note(event)
        self._journal.set_state(state)
        self._publish_all(self._monotonic())
        self._is_over = True
        self._hooks.remove()
        is_deleted = self._recorder.is_deleted
        self._close()
        if is_deleted:
            _log.warning(
                "the run file of run %s was deleted under it: an exporter that starts now will not "
                "know of it; clean %s up between runs only",
                self.run,
                self.path.parent if self.path else "the run directory",
            )

    def _close(self) -> None:
        """Record nothing more, and let the file go."""
        self._silence()
        if self._notices is not None:
            self._notices.close()
        self._recorder.close()
        self._live = self._recorder.live

    def _switch_off(self) -> None:
        """Stop recording after too many errors of our own, and say so in the last record."""
        if self._is_open:
            self._journal.note("switched_off")
            self._journal.set_state(State.SWITCHED_OFF)
            self._journal.publish(self._monotonic(), self._clock())
        self._silence()

    def _silence(self) -> None:
        """Make every method that records do nothing, at no cost."""
        self.__dict__.update(dict.fromkeys(_RECORDING, _do_nothing))
        self.__dict__["phase"] = _give_null_context
        self.__dict__["batches"] = iter


def _find_file(identity: Identity, directory: Path) -> OpenFile | None:
    try:
        return create_run_file(identity, directory)
    except RunFileUnavailableError as error:
        _log.warning("the exporter cannot see run %s: %s", identity.run, error)
        return None


def _is_loader_worker() -> bool:
    """Tell whether this is a daemonic child of multiprocessing, as workers of data loaders are.

    One that is spawned runs the script's module first, and does not know yet that it is daemonic.
    """
    processes = sys.modules.get("multiprocessing.process")
    if processes is None:
        return False
    process = processes.current_process()
    return bool(process.daemon or getattr(process, "_inheriting", False))


def _switch_off(reference: weakref.ref[TrainingMonitor]) -> None:
    monitor = reference()
    if monitor is not None:
        monitor._switch_off()  # noqa: SLF001 - its own


def _detach(value: object) -> object:
    detach = getattr(value, "detach", None)
    return value if detach is None else detach()


def _make_silent(run: str) -> TrainingMonitor:
    return TrainingMonitor(run, enabled=False)


def _do_nothing(*_: object, **__: object) -> None:
    """Take the place of a method that records."""


def _give_null_context(_: str) -> AbstractContextManager[None]:
    return nullcontext()
