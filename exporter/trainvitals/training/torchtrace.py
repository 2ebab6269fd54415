"""A session of the PyTorch profiler, and the files that contain its trace.

Kineto supports one session per process. If a second session begins, the first session is lost, and
reading its events aborts the process. Therefore no session is started while the program uses a
profiler. While a session of trainvitals is active, the two functions of `torch.autograd.profiler`
that start a session are replaced, so that they end the session of trainvitals first. Source: torch
2.13, `torch/autograd/profiler.py`, `torch/profiler/profiler.py`.

The files are `trace.json.gz` and `summary.txt` in the directory `RUN-RANK-TIME`. Either both files
are written or neither, because they are written to a hidden directory that is then renamed. Only
the owner can read the files. `trace.json.gz` is in Chrome's trace event format, as written by
PyTorch, for `chrome://tracing` or Perfetto. `summary.txt` contains tables of the operators that
took the most time and memory.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trainvitals.errors import TrainvitalsError
from trainvitals.foreign_text import clean_file_name
from trainvitals.runfile.traces import TraceRequest
from trainvitals.units import format_bytes, format_stamp

if TYPE_CHECKING:
    from torch.profiler import profile

_BEGINNINGS = ("_prepare_profiler", "_enable_profiler")
_DEVICES = ("cuda", "xpu", "hpu")
_ROWS, _NAME_WIDTH = 30, 70


class TraceError(TrainvitalsError):
    """A trace cannot be taken; the message contains the reason."""


class TorchTrace:
    """A session of the profiler on the thread that creates it.

    Args:
        torch: The module `torch`, as loaded by the program.
        request: The trace request, which sets the options of the profiler.

    Attributes:
        is_over: Whether the profiler session has ended.
        is_lost: Whether the events of this session must not be read, because another session has
            replaced it.

    Raises:
        TraceError: Another profiler is active, or this version of PyTorch is not supported.
        RuntimeError: The PyTorch profiler does not start.
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
        """Record the start of a step in the trace, under a name that trace viewers recognize."""
        self._mark = self._make_mark(f"ProfilerStep#{self._steps}")
        self._mark.__enter__()
        self._steps += 1

    def end_step(self) -> None:
        """Record the end of the current step in the trace."""
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.__exit__(None, None, None)

    def stop(self) -> None:
        """End the profiler session; the recorded events are kept.

        Raises:
            RuntimeError: The PyTorch profiler does not stop.
        """
        if not self.is_over:
            self._release()
            self.end_step()
            self._profile.__exit__(None, None, None)  # type: ignore[no-untyped-call] # PyTorch's

    def count_events(self) -> int:
        """Return the number of recorded events; the session must have ended."""
        results: Any = self._profile.profiler
        return len(results.kineto_results.events())

    def export(self, path: Path) -> None:
        """Write the trace in Chrome's format; the session must have ended.

        Raises:
            RuntimeError: The trace cannot be written.
        """
        self._profile.export_chrome_trace(str(path))

    def write_tables(self) -> str:
        """Return tables of the most expensive operators; the session must have ended."""
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
        except (AttributeError, ValueError) as error:  # names differ between versions
            return f"PyTorch cannot sort by {order}: {error}\n"
        return table

    def _check(self, torch: ModuleType) -> None:
        module = self._module
        if not all(hasattr(module, name) for name in _BEGINNINGS):
            raise TraceError(f"PyTorch {torch.__version__} has an unknown profiler")
        tracker = getattr(module, "KinetoStepTracker", None)
        steps = getattr(tracker, "_step_dict", {})
        if getattr(module, "_is_profiler_enabled", False) or "ProfilerStep" in steps:
            raise TraceError(
                "the program has a torch.profiler of its own, and PyTorch allows one: take its "
                "trace, or start the run without it"
            )

    def _give_way(self, name: str, *args: object, **named: object) -> object:
        """End this session and start the program's own session."""
        if get_ident() == self._thread:
            try:
                self.stop()
            except RuntimeError:  # only this session is affected
                self.is_lost = True
        else:  # only the session's thread can end it
            self.is_lost = True
            self._release()
        return self._begin_functions[name](*args, **named)

    def _release(self) -> None:
        self.is_over = True
        for name, function in self._begin_functions.items():
            setattr(self._module, name, function)


def _find_activities(torch: ModuleType) -> tuple[list[Any], str | None]:
    """Return the activities to record, and the device type in use; None if there is none."""
    known = torch.profiler.ProfilerActivity
    activities = [known.CPU]
    for kind in _DEVICES:
        device = getattr(torch, kind, None)
        is_used = getattr(device, "is_initialized", lambda: False)()
        if is_used and hasattr(known, kind.upper()):
            return [*activities, getattr(known, kind.upper())], kind
    return activities, None


TRACE, SUMMARY = "trace.json.gz", "summary.txt"
MOST_BYTES = 256 << 20
_TAIL_BYTES = 8192
_MOST_NAMES = 100
_PRIVATE = 0o600


def write_trace(trace: TorchTrace, place: TracePlace, head: Sequence[str]) -> Path:
    """Write the files of a trace whose profiler session has ended.

    Args:
        trace: The trace, whose profiler session has ended.
        place: The location of the trace's directory.
        head: The first lines of the file `summary.txt`.

    Returns:
        The path of the trace's directory.

    Raises:
        OSError: A file cannot be written.
        RuntimeError: PyTorch cannot write the trace.
        TraceError: The trace is incomplete or too large.
    """
    import shutil  # noqa: PLC0415 - imports three compressors

    place.directory.mkdir(parents=True, exist_ok=True)
    name = f"{place.stem}-{format_stamp(time.time(), None)}"
    partial = place.directory / f".{name}.{os.getpid()}.partial"
    partial.mkdir(mode=0o700)
    try:
        _write_events(trace, partial)
        text = "\n".join([*head, "", trace.write_tables()])
        with os.fdopen(_create(partial / SUMMARY), "wb") as file:
            file.write(text.encode(errors="replace"))
        return _name(partial, place.directory, name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_events(trace: TorchTrace, folder: Path) -> None:
    import gzip  # noqa: PLC0415 - only where a trace is written
    import shutil  # noqa: PLC0415

    raw = folder / "trace.json"
    trace.export(raw)
    size = raw.stat().st_size
    if size > MOST_BYTES:
        raise TraceError(
            f"the trace has {format_bytes(size)}, and {format_bytes(MOST_BYTES)} is the most: trace fewer steps"
        )
    if not _is_whole(raw, size):
        raise TraceError(
            f"the trace was cut off after {size} bytes: make room in {folder.parent}, or set "
            "TRAINVITALS_PROFILE_DIR"
        )
    with (
        raw.open("rb") as source,
        os.fdopen(_create(folder / TRACE), "wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=5) as packed,
    ):
        shutil.copyfileobj(source, packed, 1 << 20)
    raw.unlink()


def _is_whole(path: Path, size: int) -> bool:
    """Return whether a trace file is complete; PyTorch does not report that a disk is full."""
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL_BYTES))
        if b'"traceName"' in file.read():  # the last member
            return True
        file.seek(0)
        try:
            json.load(file)
        except ValueError:
            return False
    return True


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)


def _name(partial: Path, directory: Path, name: str) -> Path:
    for number in range(1, _MOST_NAMES):
        path = directory / (name if number == 1 else f"{name}-{number}")
        if not path.exists():
            return partial.rename(path)
    raise TraceError(f"{directory} has a hundred traces of this second")


@dataclass(frozen=True, slots=True)
class TracePlace:
    """The location of a trace's directory.

    Attributes:
        directory: The directory of all traces, which is created if missing.
        stem: The name of the trace's directory without the time.
    """

    directory: Path
    stem: str


def find_trace_place(directory: str, run: str, rank: int) -> TracePlace:
    """Return the location of a rank's trace.

    Args:
        directory: The configured directory; a relative path is relative to the working directory.
        run: The name of the run.
        rank: The rank whose steps are traced.

    Raises:
        OSError: The working directory no longer exists, or the home directory is unknown.
    """
    try:
        place = Path(directory).expanduser().absolute()
    except RuntimeError as error:  # $HOME is not set, and the user has no passwd entry
        raise OSError(errno.ENOENT, "there is no home directory", str(directory)) from error
    return TracePlace(place, f"{clean_file_name(run)[:48]}-{rank}")
