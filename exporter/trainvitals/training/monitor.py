"""The monitor of a training run: the public interface, and the start and end of a run.

No method of the monitor raises an exception in the training loop or waits for a device. Recording a
step acquires no lock and makes no system call. All times are read from the host's clock.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Literal

from trainvitals.runfile import Identity, State
from trainvitals.training.events import EventRecorder
from trainvitals.training.failure import leave_traceback
from trainvitals.training.guard import Errors, guard
from trainvitals.training.journal import Journal
from trainvitals.training.launch import Launch, read_launch
from trainvitals.training.memory import DeviceRecorder
from trainvitals.training.notices import Notices, open_notices
from trainvitals.training.process import InterpreterHooks, identify, is_loader_worker
from trainvitals.training.recorder import (
    OpenFile,
    Recorder,
    RunFileUnavailableError,
    create_run_file,
)
from trainvitals.training.steps import PUBLISH_ON_DISK_SECONDS, PUBLISH_SECONDS
from trainvitals.training.torchtrace import find_trace_place
from trainvitals.training.tracing import Tracing

if TYPE_CHECKING:  # the module is loaded only if messages are sent
    from trainvitals.alerting.channels import DirectChannel

DEFAULT_RUN_DIR = "/dev/shm/trainvitals"  # noqa: S108 - a sticky directory, and the documented default

DEFAULT_TRACE_DIR = "trainvitals-profiles"

_log = logging.getLogger("trainvitals")
# The methods that do nothing when the monitor is disabled.
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


class TrainingMonitor(EventRecorder):
    """A monitor for one training run.

    The monitor writes the state of the run to a small memory-mapped file in the run directory,
    which the exporter reads. A step costs a few microseconds.

    No method raises an exception, waits for a device or communicates with another process. After
    ten internal errors, the monitor disables itself. The method `log` may be called from any
    thread; all other methods may be called only on the thread that created the monitor.

    If the monitor is used as a context manager, the run ends when the context ends. The run also
    ends when `finish` or `fail` is called, when the interpreter ends, and when the monitor is
    garbage-collected.

    Args:
        run: The run name. If None, the name is taken from TRAINVITALS_RUN or from the environment
            of the launcher or experiment tracker.
        total_epochs: The number of epochs in the run, from which progress and the estimated end are
            derived.
        total_steps: The number of steps in the run, from which progress and the estimated end are
            derived.
        epoch_steps: The number of steps in an epoch, from which progress and the estimated end are
            derived.
        global_step: The step from which a resumed run continues.
        rank: The rank of this process. If None, the rank is read from the launcher's environment.
        world_size: The number of ranks in the run. If None, the number is read from the launcher's
            environment.
        attempt: The number of previous restarts of the run. If None, the number is read from the
            launcher's environment.
        framework: The name of the training framework. If None, the loaded framework is detected:
            PyTorch, JAX or TensorFlow.
        framework_version: The version of the training framework.
        flops_per_sample: The number of floating-point operations that the forward and backward
            passes need for one sample. The model FLOPs utilization is calculated from this number.
        flops_per_token: The same number for one token.
        peak_flops: The device's peak in floating-point operations per second. If None, the peak is
            looked up by the device name.
        watch: The name of the value by which evaluations are compared to find improvements.
        watch_mode: "min" if a smaller value of `watch` is better, "max" if a larger value is
            better.
        checkpoint_max_age_seconds: The age above which the last checkpoint is too old. If None,
            checkpoints have no maximum age.
        notify: Where to send messages about alerts, a NaN loss and a failure: channels of
            `trainvitals.alerting.notifier`, or True for the channels configured in the environment.
            None means True if TRAINVITALS_NOTIFY is 1.
        run_dir: The run directory. If None, the directory is TRAINVITALS_RUN_DIR, or
            /dev/shm/trainvitals if this variable is not set.
        enabled: Whether the monitor records anything; if False, every method does nothing.
        environ: The environment variables. If None, the process's own variables are used.
        monotonic: A function that returns the time of a monotonic clock, in seconds.
        clock: A clock that returns Unix time in seconds.
        publish_seconds: The minimum time between two publications; steps that end within this time
            are published together. If None, the time is 1 ms, or 0.5 s if the run directory is on a
            disk.

    Attributes:
        run: The run name.
        rank: The rank of this process.
        world_size: The number of ranks in the run; 0 if the number is unknown.
        path: The path of the run file; None if no file could be created.
        start_time: The time at which the current epoch began, in Unix seconds; None before the
            first epoch.
        errors: The counter of the monitor's internal errors.
    """

    # A function that is called with each new monitor, so that an automatic observer can give way.
    opened: ClassVar[Callable[[TrainingMonitor], None] | None] = None

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
        notify: bool | Sequence[DirectChannel] | None = None,
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
            environ = os.environ  # help() would show the secrets of a default value
        self._is_open = self._is_over = False
        self._thread = get_ident()
        self._stack: list[str] = []
        if enabled and (rank is not None or not is_loader_worker()):
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
            device=DeviceRecorder(journal, needs_peak=needs_peak),
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
        if TrainingMonitor.opened is not None:
            TrainingMonitor.opened(self)
        journal.note("start")
        # A forked child must never write, not even through a bound method obtained before the fork.
        self._hooks = InterpreterHooks(self, self._close)

    @guard
    def _describe(self, /, **words: float | None) -> None:
        for name, value in words.items():
            self._journal.set(name, value)

    # Methods called before and after the training loop.

    @guard
    def finish(self) -> None:
        """Record that the run finished successfully. Later calls of the monitor do nothing."""
        self._end(State.FINISHED, "finish")

    @guard
    def end(self) -> None:
        """Record that the process exits; the exporter derives the outcome from the exit code."""
        self._end(State.ENDED, "finish")

    @guard
    def fail(self, exception: BaseException | None = None) -> None:
        """Record that the run failed. Later calls of the monitor do nothing.

        Args:
            exception: The exception that ended the run. Its class is recorded in the run file.
                `trainvitals run` also keeps the traceback in a file that only the user can read.
        """
        if exception is not None:
            kind = type(exception)
            module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
            self._recorder.leave_last_words(module + kind.__qualname__)
            leave_traceback(exception)
            # Python's MemoryError concerns host memory; the recorded event concerns accelerator
            # memory.
            if kind.__name__ == "OutOfMemoryError":
                self._journal.note_oom()
        if self._notices is not None:
            self._notices.send_failure(exception)
        self._end(State.FAILED, "fail")

    def __reduce__(self) -> tuple[Callable[[str], TrainingMonitor], tuple[str]]:
        """Return a disabled monitor of the same run for copying and pickling."""
        return (_make_silent, (self.run,))

    def __enter__(self) -> TrainingMonitor:  # noqa: PYI034 - typing.Self requires 3.11
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
    def samples_processed(self) -> int:
        """The number of samples processed in training since the monitor was created."""
        return self._samples if self._is_open else 0

    @property
    def tokens_processed(self) -> int:
        """The number of tokens processed in training since the monitor was created."""
        return self._tokens if self._is_open else 0

    @property
    def last_step_seconds(self) -> float | None:
        """The duration of the last step in seconds; None until the second step has ended."""
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
        """Stop recording and release the run file."""
        self._silence()
        if self._notices is not None:
            self._notices.close()
        self._recorder.close()
        self._live = self._recorder.live

    def _switch_off(self) -> None:
        """Stop recording after too many internal errors, and record this stop in the run file."""
        if self._is_open:
            self._journal.note("switched_off")
            self._journal.set_state(State.SWITCHED_OFF)
            self._journal.publish(self._monotonic(), self._clock())
        self._silence()

    def _silence(self) -> None:
        """Replace every method that records with a function that does nothing."""
        self.__dict__.update(dict.fromkeys(_RECORDING, _do_nothing))
        self.__dict__["phase"] = _make_null_context
        self.__dict__["batches"] = iter


def _find_file(identity: Identity, directory: Path) -> OpenFile | None:
    try:
        return create_run_file(identity, directory)
    except RunFileUnavailableError as error:
        _log.warning("the exporter cannot see run %s: %s", identity.run, error)
        return None


def _switch_off(reference: weakref.ref[TrainingMonitor]) -> None:
    monitor = reference()
    if monitor is not None:
        monitor._switch_off()  # noqa: SLF001 - its own


def _make_silent(run: str) -> TrainingMonitor:
    return TrainingMonitor(run, enabled=False)


def _do_nothing(*_: object, **__: object) -> None:
    """Do nothing; this function replaces the recording methods of a disabled monitor."""


def _make_null_context(_: str) -> AbstractContextManager[None]:
    return nullcontext()
