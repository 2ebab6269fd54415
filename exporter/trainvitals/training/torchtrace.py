"""A session of PyTorch's profiler, which gives way to the program's own.

Kineto records for one session in a process. Where a second one begins, the first is lost, and
asking it for its events ends the process. So no session is begun while the program has a profiler,
and while ours lasts, the two functions of `torch.autograd.profiler` that begin one end ours first.

Source: torch 2.13, `torch/autograd/profiler.py`, `torch/profiler/profiler.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trainvitals.errors import TrainvitalsError
from trainvitals.runfile import TraceRequest

if TYPE_CHECKING:
    from torch.profiler import profile

_BEGINNINGS = ("_prepare_profiler", "_enable_profiler")
_DEVICES = ("cuda", "xpu", "hpu")
_ROWS, _NAME_WIDTH = 30, 70


class TraceError(TrainvitalsError):
    """There is no trace; the text says why."""


class TorchTrace:
    """One session, of the thread that makes it.

    Args:
        torch: The module, as the program has loaded it.
        request: What to record.

    Attributes:
        is_over: It records nothing any more.
        is_lost: Another thread's session took its place, and nothing of it may be asked for.

    Raises:
        TraceError: Another profiler is there, or this PyTorch cannot be traced.
        RuntimeError: PyTorch's profiler does not begin.
    """

    def __init__(self, torch: ModuleType, request: TraceRequest) -> None:
        self._module: ModuleType = torch.autograd.profiler
        self._begin_functions: dict[str, Callable[..., object]] = {}
        self._thread = get_ident()
        self.is_over = self.is_lost = False
        self._check(torch)
        activities, self._device = _find_activities(torch)
        self._profile: profile = torch.profiler.profile(
            activities=activities,
            record_shapes=request.record_shapes,
            profile_memory=request.profile_memory,
            with_stack=request.with_stack,
        )
        self._profile.__enter__()
        self._make_mark: Callable[[str], AbstractContextManager[object]]
        self._make_mark = torch.profiler.record_function
        self._mark: AbstractContextManager[object] | None = None
        self._steps = 0
        for name in _BEGINNINGS:
            self._begin_functions[name] = getattr(self._module, name)
            setattr(self._module, name, partial(self._give_way, name))
        self.begin_step()

    def begin_step(self) -> None:
        """Say that a step begins, under the name by which viewers know steps."""
        self._mark = self._make_mark(f"ProfilerStep#{self._steps}")
        self._mark.__enter__()
        self._steps += 1

    def end_step(self) -> None:
        """Say that the step is over."""
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.__exit__(None, None, None)

    def stop(self) -> None:
        """Record nothing more; what was recorded is kept.

        Raises:
            RuntimeError: PyTorch's profiler does not end well.
        """
        if not self.is_over:
            self._release()
            self.end_step()
            self._profile.__exit__(None, None, None)  # type: ignore[no-untyped-call] # PyTorch's

    def count_events(self) -> int:
        """Count what was recorded, after the end."""
        results: Any = self._profile.profiler
        return len(results.kineto_results.events())

    def export(self, path: Path) -> None:
        """Write the trace as Chrome reads it, after the end.

        Raises:
            RuntimeError: It cannot be written.
        """
        self._profile.export_chrome_trace(str(path))

    def write_tables(self) -> str:
        """Write what took the most time and memory, after the end."""
        averages = self._profile.key_averages()
        orders = [("CPU time", "self_cpu_time_total"), ("CPU memory", "self_cpu_memory_usage")]
        if self._device is not None:
            orders.insert(0, (f"{self._device.upper()} time", f"self_{self._device}_time_total"))
            memory = f"self_{self._device}_memory_usage"
            orders.append((f"{self._device.upper()} memory", memory))
        return "\n".join(
            f"By {name} of its own\n{self._write_table(averages, order)}" for name, order in orders
        )

    def _write_table(self, averages: Any, order: str) -> str:  # noqa: ANN401 - a list of PyTorch's
        try:
            table: str = averages.table(
                sort_by=order, row_limit=_ROWS, max_name_column_width=_NAME_WIDTH
            )
        except (AttributeError, ValueError) as error:  # names change from version to version
            return f"PyTorch cannot sort by {order}: {error}\n"
        return table

    def _check(self, torch: ModuleType) -> None:
        module = self._module
        if not all(hasattr(module, name) for name in _BEGINNINGS):
            raise TraceError(f"PyTorch {torch.__version__} has another profiler than we know")
        tracker = getattr(module, "KinetoStepTracker", None)
        steps = getattr(tracker, "_step_dict", {})
        if getattr(module, "_is_profiler_enabled", False) or "ProfilerStep" in steps:
            raise TraceError(
                "the program has a torch.profiler of its own, and PyTorch allows one: take its "
                "trace, or start the run without it"
            )

    def _give_way(self, name: str, *args: object, **named: object) -> object:
        """Begin the program's own session in place of ours."""
        if get_ident() == self._thread:
            try:
                self.stop()
            except RuntimeError:  # which is ours, and not the program's
                self.is_lost = True
        else:  # only our thread can end ours, and the other one wins
            self.is_lost = True
            self._release()
        return self._begin_functions[name](*args, **named)

    def _release(self) -> None:
        self.is_over = True
        for name, function in self._begin_functions.items():
            setattr(self._module, name, function)


def _find_activities(torch: ModuleType) -> tuple[list[Any], str | None]:
    """Give what can be recorded, and the kind of device that the program uses."""
    known = torch.profiler.ProfilerActivity
    activities = [known.CPU]
    for kind in _DEVICES:
        device = getattr(torch, kind, None)
        is_used = getattr(device, "is_initialized", lambda: False)()
        if is_used and hasattr(known, kind.upper()):
            return [*activities, getattr(known, kind.upper())], kind
    return activities, None
