"""Chooses runs from the files that were found through the processes that write to the files.

The files of such a run are in the working folder of a process that holds an accelerator, or the
process holds the files open. A process often writes several files about the same run, such as a
log, a CSV file and event files. Therefore, all files in a working folder describe one run if one
process writes them. Otherwise, files describe the same run only if they are in the same folder or
in nested folders. The run is read from the file whose kind comes first in `_RANKS`, and from the
latest file of this kind. Files that a flag names come first and are always read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from trainvitals.sources.runs.discovery import FoundFile, split_path
from trainvitals.sources.runs.scalars import FoundRun

# The state file of the Hugging Face Trainer ranks last: it is written only with checkpoints.
_RANKS: Mapping[str, int] = {"tensorboard": 1, "mlflow": 2, "csv": 3, "json": 3, "log": 4}
_STATE, _STATE_RANK = "trainer_state.json", 5


def add_held(found: dict[str, FoundFile], held: Iterable[FoundFile]) -> None:
    """Add the files of processes to the files that flags name.

    If a flag also names the file of a process, the path in the entry is kept, and the processes
    that write to the file are added to the entry.

    Args:
        found: The files that flags name, by path.
        held: The files of processes.
    """
    paths = {file.identity: path for path, file in found.items()}
    for file in held:
        path = paths.get(file.identity)
        if path is None:
            found[file.path] = file
        else:
            found[path] = replace(found[path], holders=file.holders, place=file.place)


def count_below(components: tuple[str, ...], place: str) -> int:
    """Return the number of trailing path components that form the run name for a process's file.

    These components are the name of the working folder and the components below this folder.

    Args:
        components: The components of the path.
        place: The working folder of the process.
    """
    folder = split_path(place)
    is_below = components[: len(folder)] == folder
    return max(1, len(components) - len(folder) + 1) if is_below else 1


def mark_held(run: FoundRun, file: FoundFile) -> FoundRun:
    """Return a run to which the processes that write to the run's file are added."""
    return replace(run, is_named=file.is_named, holders=file.holders, place=file.place)


def choose_held(runs: Iterable[FoundRun], instrumented: Iterable[int] = ()) -> list[FoundRun]:
    """Return the runs, except the runs that another file or a run file describes.

    Args:
        runs: The runs that were found in files.
        instrumented: The PIDs of the processes for which a run file exists.
    """
    left_out = frozenset(instrumented)
    places: dict[str, list[FoundRun]] = {}
    for run in sorted(runs, key=_rank):
        if run.is_named or not left_out.intersection(run.holders):
            places.setdefault(run.place, []).append(run)
    chosen: list[FoundRun] = []
    for place, of_place in places.items():
        chosen += _choose(of_place) if place else of_place
    return _name_apart(chosen)


def _rank(run: FoundRun) -> tuple[int, float]:
    rank = _STATE_RANK if os.path.basename(run.path) == _STATE else _RANKS[run.source]  # noqa: PTH119
    return (0 if run.is_named else rank), -run.last_time


def _choose(runs: list[FoundRun]) -> list[FoundRun]:
    is_alone = len({pid for run in runs for pid in run.holders}) == 1
    chosen: list[FoundRun] = []
    for run in runs:
        folder = os.path.dirname(run.path)  # noqa: PTH120 - hot
        others = [os.path.dirname(other.path) for other in chosen]  # noqa: PTH120
        is_described = bool(chosen) and (is_alone or any(_is_nested(folder, o) for o in others))
        if run.is_named or not is_described:
            chosen.append(run)
    return chosen


def _is_nested(one: str, other: str) -> bool:
    inner, outer = f"{one}/", f"{other}/"
    return inner.startswith(outer) or outer.startswith(inner)


def _name_apart(runs: list[FoundRun]) -> list[FoundRun]:
    """Return the runs with unique names: a PID is added if another run has the same name."""
    names: set[str] = set()
    named: list[FoundRun] = []
    for run in sorted(runs, key=lambda run: not run.is_named):
        if run.run in names and not run.is_named:
            run = replace(run, run=f"{run.run} (pid {min(run.holders)})")  # noqa: PLW2901
        names.add(run.run)
        named.append(run)
    return named
