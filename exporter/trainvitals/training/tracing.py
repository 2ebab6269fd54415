"""Traces on request, taken on the training thread at the end of steps.

Once a second, the monitor checks one word of the mapped run file for a request. After a request,
`Tracing.step_over` is called at the end of each step until the trace is complete. The number of
events in the first traced step determines how many steps fit into a trace. The trace itself begins
after this step. The trace ends early if it lasts too long. It also ends early when an activity
other than training begins, because such an activity can last arbitrarily long. The files of the
trace are written on a separate thread.
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from functools import partial
from threading import Thread

from trainvitals.runfile import TRACE_ANSWER_AT
from trainvitals.runfile.traces import (
    TraceAnswer,
    TraceRequest,
    TraceStage,
    decode_trace_request,
    encode_trace_answer,
)
from trainvitals.training.guard import Errors, guard
from trainvitals.training.recorder import Recorder
from trainvitals.training.torchtrace import TorchTrace, TraceError, TracePlace, write_trace
from trainvitals.units import format_duration

MOST_STEPS, MOST_SECONDS, MOST_EVENTS = 100, 60.0, 100_000
_TOO_LONG = f"a trace lasts {format_duration(MOST_SECONDS)} at most"
_EXIT_SECONDS = 10.0
_BUSY = frozenset({TraceStage.WAITING, TraceStage.TRACING, TraceStage.WRITING})
_log = logging.getLogger("trainvitals")


class Tracing:
    """A tracer of a run's steps on request.

    Args:
        recorder: The recorder of the run file, which contains the trace request and the answer.
        find_place: A function that returns the location of a trace; it is called when the trace
            ends.
        run: The name of the run.
        rank: The rank of this process.

    Attributes:
        is_active: Whether `step_over` must be called at the end of each step.
        errors: The counter of the tracer's internal errors.
    """

    def __init__(
        self, recorder: Recorder, find_place: Callable[[], TracePlace], *, run: str, rank: int
    ) -> None:
        self._recorder = recorder
        self._find_place = find_place
        self._head = f"Run {run}, rank {rank}"
        self.is_active = False
        self.errors = Errors("the trace", self._give_up)
        self._request = TraceRequest(0, 0)
        self._seen = 0
        self._stage = TraceStage.READY
        self._trace: TorchTrace | None = None
        self._is_probe = False
        self._began = 0.0
        self._steps = self._wanted = 0
        self._note = ""
        # Set while files are being written, so that the answer can be written after the run has
        # ended.
        self._region: memoryview | None = None
        self._answer("")

    def check_request(self, now: float) -> None:
        """Check for a new or withdrawn trace request, and end a trace that lasts too long."""
        if self._trace is not None and now - self._began > MOST_SECONDS:
            self.interrupt(_TOO_LONG)
        number = int.from_bytes(self._recorder.trace[:8], "little")
        if number == self._seen:
            return
        if not number and self._stage is TraceStage.WAITING:
            self._seen = 0
            self._fail("the request was withdrawn")
        elif self._stage not in _BUSY:
            request = decode_trace_request(bytes(self._recorder.trace), 0)
            if request is not None or not number:  # a partial request is read again a second later
                self._seen = number
            if request is not None:
                self.ask(request)

    def ask(self, request: TraceRequest) -> bool:
        """Accept a trace request; return False if another request is in progress."""
        if self._stage in _BUSY:
            return False
        self._request = request
        self._note = ""
        self._wanted = min(max(1, request.steps), MOST_STEPS)
        self._steps = 0
        if "torch" not in sys.modules:
            self._fail("PyTorch is not loaded in this process, and only its steps can be traced")
            return True
        self.is_active = True
        self._set_stage(TraceStage.WAITING)
        return True

    def step_over(self, now: float, step_seconds: float) -> None:
        """Start, continue or end a trace at the end of a step; called while `is_active` is true."""
        self._attempt(partial(self._advance, now, step_seconds))

    def interrupt(self, why: str) -> None:
        """End the current trace; if it contains no complete step, it restarts at the next step."""
        if self._trace is None:
            return
        if self._steps:
            self._attempt(partial(self._finish, why))
        else:
            self._attempt(self._start_over)

    def end(self) -> None:
        """End a trace because the run ends, and write the steps that were traced so far."""
        if self._trace is not None:
            self._attempt(partial(self._finish, "the run ended"))
        elif self._stage is TraceStage.WAITING:
            self._fail("the run ended before its next step")

    def _attempt(self, act: Callable[[], None]) -> None:
        is_well = False
        try:
            act()
            is_well = True
        except (TraceError, RuntimeError, OSError) as error:
            self._fail(_describe(error))
            is_well = True
        finally:  # the guard counts any other error
            if not is_well:
                self._give_up()

    def _advance(self, now: float, step_seconds: float) -> None:
        if self._trace is None:
            if step_seconds > MOST_SECONDS:
                raise TraceError(f"a step takes {format_duration(step_seconds)}, and {_TOO_LONG}")
            self._start(now, is_probe=True)
        elif self._trace.is_over:  # the program started its own profiler session
            self._finish("the program began a torch.profiler of its own")
        elif self._is_probe:
            self._measure(now, step_seconds)
        else:
            self._trace.end_step()
            self._steps += 1
            if self._steps >= self._wanted:
                self._finish("")
            elif now - self._began + step_seconds > MOST_SECONDS:
                self._finish(_TOO_LONG)
            else:
                self._set_stage(TraceStage.TRACING)
                self._trace.begin_step()

    def _start(self, now: float, *, is_probe: bool) -> None:
        self._trace = TorchTrace(sys.modules["torch"], self._request)
        self._is_probe = is_probe
        self._began = now
        self._set_stage(TraceStage.TRACING)

    def _measure(self, now: float, step_seconds: float) -> None:
        """Trace as many steps as fit; if only one step fits, use the trace of the measured step."""
        if self._trace is None:
            return
        self._trace.stop()
        fitting = MOST_EVENTS // max(1, self._trace.count_events())
        if fitting <= 1 or 2 * step_seconds > MOST_SECONDS:
            self._steps = 1
            self._finish("one step is all that fits" if self._wanted > 1 else "")
            return
        if fitting < self._wanted:
            self._wanted = fitting
            self._note = f"no more fit into {MOST_EVENTS} events"
        self._trace = None
        self._start(now, is_probe=False)

    def _start_over(self) -> None:
        trace, self._trace = self._trace, None
        if trace is not None:
            trace.stop()
        self._set_stage(TraceStage.WAITING)

    def _finish(self, note: str) -> None:
        """End the profiler session, and start writing the trace's files."""
        trace, self._trace = self._trace, None
        self.is_active = False
        if trace is None:
            return
        trace.stop()
        if not self._steps or trace.is_lost:
            raise TraceError(f"{note} before a step was traced")
        self._set_stage(TraceStage.WRITING)
        self._region = self._recorder.trace
        writer = _Writer(self, trace, self._find_place(), note or self._note)
        atexit.register(writer.join, _EXIT_SECONDS)
        writer.start()

    def write(self, trace: TorchTrace, place: TracePlace, note: str) -> None:
        """Write the files of a trace and answer with their path; called on the writer thread."""
        asked = self._request.steps
        head = [f"{self._head}: {self._steps} steps" + (f" of {asked}: {note}" if note else "")]
        try:
            path = write_trace(trace, place, head)
            self._stage = TraceStage.DONE
        except (TraceError, RuntimeError) as error:
            self._fail(_describe(error))
        except OSError as error:
            self._fail(
                f"cannot write to {place.directory}: {error.strerror}; make room, or set "
                "TRAINVITALS_PROFILE_DIR to a directory that the run may write"
            )
        else:
            self._answer(f"{path}\t{note}" if note else str(path))
            _log.info("%s: %d steps are traced in %s", self._head, self._steps, path)
        finally:
            if self._stage is TraceStage.WRITING:
                self._give_up()
            self._region = None

    def _set_stage(self, stage: TraceStage) -> None:
        self._stage = stage
        self._answer("")

    def _fail(self, why: str) -> None:
        self.is_active = False
        trace, self._trace = self._trace, None
        self._stage = TraceStage.FAILED
        self._answer(why)
        _log.warning("%s: no trace: %s", self._head, why)
        if trace is not None:
            trace.stop()

    def _give_up(self) -> None:
        """Stop tracing after an internal error."""
        self.is_active = False
        trace, self._trace = self._trace, None
        self._stage = TraceStage.FAILED
        self._answer("an error inside the training monitor, which the run's log has")
        if trace is not None:
            trace.stop()

    def _answer(self, text: str) -> None:
        answer = TraceAnswer(self._request.number, self._stage, self._steps, text)
        data = encode_trace_answer(answer)
        region = self._recorder.trace if self._region is None else self._region
        region[TRACE_ANSWER_AT : TRACE_ANSWER_AT + len(data)] = data


class _Writer(Thread):
    """A thread that writes a trace while the run continues."""

    def __init__(self, tracing: Tracing, trace: TorchTrace, place: TracePlace, note: str) -> None:
        super().__init__(name="trainvitals-trace", daemon=True)
        self._tracing, self._trace = tracing, trace
        self._place, self._note = place, note
        self.errors = tracing.errors

    @guard
    def run(self) -> None:
        """Write the files of the trace."""
        self._tracing.write(self._trace, self._place, self._note)


def _describe(error: Exception) -> str:
    text = str(error).partition("\n")[0]
    return text if isinstance(error, TraceError) else f"{type(error).__name__}: {text}"
