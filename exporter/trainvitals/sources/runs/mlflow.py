"""Follow training runs that MLflow records in a folder.

MLflow's file store contains a folder for each run, `mlruns/EXPERIMENT/RUN`, with these files:

================== ===============================================================================
file               contents
================== ===============================================================================
`meta.yaml`        one line for each key: `run_name`, `status` (1 running, 2 scheduled, 3 finished,
                   4 failed, 5 killed), `start_time` and `end_time` in milliseconds since 1970
`metrics/NAME`     one line for each value: the time in milliseconds since 1970, the value and the
                   step, separated by spaces; a name may contain slashes, which are folders
`params/NAME`      the value of a parameter, as text
================== ===============================================================================

Example of a line in `metrics/train_loss`::

    1764000000123 0.4821 1200

Files below `metrics/system`, which describe the machine, are not read. The parameters `max_steps`
and `total_steps` provide the total number of steps; `epochs`, `max_epochs`, `num_epochs` and
`num_train_epochs` provide the total number of epochs. A run without `run_name` is named after its
folder. Databases such as `mlflow.db` are not read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainvitals.foreign_files import open_beneath
from trainvitals.foreign_numbers import read_count, read_time
from trainvitals.sources.runs.discovery import (
    FileState,
    FollowedState,
    FoundFile,
    explain_unreadable,
)
from trainvitals.sources.runs.file_source import FileSource
from trainvitals.sources.runs.followed_file import FollowedFile
from trainvitals.sources.runs.held_runs import mark_held
from trainvitals.sources.runs.named_numbers import parse_number
from trainvitals.sources.runs.scalars import FoundRun, RunScalars

META = "meta.yaml"
_PIECE_BYTES = 1 << 16
_MOST_META_BYTES = 1 << 14
_MOST_FILES, _MOST_ENTRIES, _DEEPEST = 64, 512, 4
_RUNNING, _FINISHED = "1", "3"
_MILLISECONDS = 1000.0
_LINE_FIELDS = 3
_TOTALS: Mapping[str, str] = {
    "max_steps": "total_steps",
    "total_steps": "total_steps",
    "epochs": "total_epochs",
    "max_epochs": "total_epochs",
    "num_epochs": "total_epochs",
    "num_train_epochs": "total_epochs",
}


@dataclass(slots=True)
class _Run:
    """An MLflow run whose metrics are followed."""

    found: FoundFile
    name: str
    metrics: dict[str, FollowedFile] = field(default_factory=dict)
    scalars: RunScalars = field(default_factory=RunScalars)
    started_time: float | None = None
    last_time: float = 0.0
    complaint: str | None = None
    is_searched: bool = False


class MlflowSource(FileSource[_Run]):
    """Reads the metrics of the MLflow runs whose `meta.yaml` was found through a process."""

    def _find(self) -> None:
        found = {os.path.dirname(file.path): file for file in self._held()}  # noqa: PTH120
        latest = sorted(found, key=lambda folder: -found[folder].modified_time)
        self.omitted = len(latest[self.most_runs :])
        for folder in self._followed.keys() - set(latest[: self.most_runs]):
            self._close(self._followed.pop(folder))
        for folder in latest[: self.most_runs]:
            run = self._followed.setdefault(folder, _Run(found[folder], os.path.basename(folder)))  # noqa: PTH119
            run.found, run.is_searched = found[folder], False

    def _follow(self, run: _Run) -> None:
        run.complaint = None
        try:
            self._read_on(run)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                run.complaint = explain_unreadable(run.found.path, error)

    def _read_on(self, run: _Run) -> None:
        if not run.is_searched:
            run.is_searched = True
            _look_around(run)
        for name, file in run.metrics.items():
            _read_metric(run, name, file)
            file.close()
            if self._budget.is_over():
                return

    def _list_complaints(self) -> list[str | None]:
        return [run.complaint for run in self._followed.values()]

    def _describe(self) -> tuple[FoundRun, ...]:
        runs = self._followed.values()
        self.files = tuple(map(_judge, runs))
        return tuple(_describe(run) for run in runs if not run.scalars.is_empty)

    def _close(self, run: _Run) -> None:
        for file in run.metrics.values():
            file.close()


def parse_metric(line: str) -> tuple[float, float, int] | None:
    """Return the Unix time, value and step in a line of a metrics file.

    The time is 0 if it is invalid. The result is None if the line is malformed.
    """
    fields = line.split()
    if len(fields) != _LINE_FIELDS:
        return None
    moment = _read_milliseconds(fields[0])
    value, step = parse_number(fields[1]), read_count(parse_number(fields[2]))
    return None if value is None or step is None else (moment or 0.0, value, step)


def _look_around(run: _Run) -> None:
    """Read a run's `meta.yaml`, total numbers of steps and epochs, and metric names."""
    folder = os.path.dirname(run.found.path)  # noqa: PTH120
    meta = _read_meta(run.found.beneath, run.found.path)
    run.name = meta.get("run_name") or run.name
    run.started_time = _read_milliseconds(meta.get("start_time", ""))
    status = meta.get("status", _RUNNING)
    run.scalars.is_finished = True if status == _FINISHED else None
    for name in _list_names(folder, "metrics"):
        path = f"{folder}/metrics/{name}"
        run.metrics.setdefault(name, FollowedFile(path, beneath=run.found.beneath))
    for name in _TOTALS.keys() & set(_list_names(folder, "params")):
        text = _read_text(run.found.beneath, f"{folder}/params/{name}")
        total = read_count(parse_number(text.strip()))
        if total:
            run.scalars.set_word(_TOTALS[name], total)


def _read_metric(run: _Run, name: str, file: FollowedFile) -> None:
    data, restarted = file.peek(_PIECE_BYTES)
    if restarted:
        run.scalars.resume()
    complete = data[: data.rfind(b"\n") + 1]
    for line in complete.decode(errors="replace").splitlines():
        parsed = parse_metric(line)
        if parsed is not None:
            moment, value, step = parsed
            run.scalars.record_event(name, value, "", step, moment)
            run.last_time = max(run.last_time, moment)
    file.advance(complete)
    if not complete and len(data) == _PIECE_BYTES:
        file.advance(data)  # a line of this length is not a metric


def _list_names(folder: str, kind: str) -> list[str]:
    """Return the names of a run's metrics or parameters; the names may contain slashes.

    Args:
        folder: The path of the run's folder.
        kind: `metrics` or `params`.
    """
    names: list[str] = []
    left = _MOST_ENTRIES
    folders = [("", 0)]
    while folders and left > 0 and len(names) < _MOST_FILES:
        prefix, depth = folders.pop(0)
        try:
            with os.scandir(f"{folder}/{kind}/{prefix}") as listing:
                for entry in listing:
                    left -= 1
                    if left < 0 or len(names) >= _MOST_FILES:
                        break
                    if entry.is_file(follow_symlinks=False):
                        names.append(f"{prefix}{entry.name}")
                    elif entry.is_dir(follow_symlinks=False) and depth < _DEEPEST:
                        folders.append((f"{prefix}{entry.name}/", depth + 1))
        except OSError:
            continue
        folders = [each for each in folders if each[0] != "system/"]
    return names


def _read_meta(beneath: str, path: str) -> dict[str, str]:
    """Return the values in a `meta.yaml` by key, without quotes."""
    lines = (line.partition(":") for line in _read_text(beneath, path).splitlines())
    return {key.strip(): value.strip().strip("'\"") for key, _, value in lines}


def _read_text(beneath: str, path: str) -> str:
    descriptor = open_beneath(beneath, path)
    try:
        return os.pread(descriptor, _MOST_META_BYTES, 0).decode(errors="replace")
    finally:
        os.close(descriptor)


def _read_milliseconds(text: str) -> float | None:
    number = parse_number(text)
    return None if number is None else read_time(number / _MILLISECONDS)


def _describe(run: _Run) -> FoundRun:
    described = run.scalars.describe(
        run.name,
        "mlflow",
        run.found.path,
        started_time=run.started_time,
        last_time=run.last_time or run.found.modified_time,
    )
    return mark_held(described, run.found)


def _judge(run: _Run) -> FollowedState:
    state: FileState = "new" if run.scalars.is_empty else "understood"
    if run.complaint:
        state = "unreadable"
    return FollowedState(run.found.path, state, is_expected=True, place=run.found.place)
