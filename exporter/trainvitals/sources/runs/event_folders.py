"""Finds directories that contain event files, and the runs to which the directories belong."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from trainvitals.sources.runs.discovery import FoundFile, Search
from trainvitals.sources.runs.vocabulary import find_split

_PATTERN = "events.out.tfevents.*"
# `add_scalars` creates a directory with an event file for each line in the chart.
_MOST_FOLDERS = 64
_HALVES = ("train", "validation", "val", "eval", "test")


@dataclass(frozen=True, slots=True)
class EventFolder:
    """A directory that contains event files.

    Attributes:
        path: The path of the directory.
        logdir: The configured directory to which the directory belongs.
        newest: The newest event file in the directory.
    """

    path: str
    logdir: str
    newest: FoundFile


def find_folders(search: Search, logdir: str) -> list[EventFolder]:
    """Return the directories below a configured directory that contain event files."""
    newest: dict[str, FoundFile] = {}
    for file in search.find(f"{logdir}/**/{_PATTERN}"):
        folder, name = os.path.split(file.path)
        if name.endswith(".profile-empty"):
            continue
        other = newest.get(folder)
        if other is None or _creation_key(file) > _creation_key(other):
            newest[folder] = file
    return [EventFolder(path, logdir, file) for path, file in newest.items()]


def add_held_folders(folders: dict[str, EventFolder], held: Iterable[FoundFile]) -> None:
    """Add the directories of the event files that processes write.

    A directory that is already known is kept, and the processes that write to it are added.

    Args:
        folders: The directories by path, which are updated.
        held: The event files that processes write.
    """
    newest: dict[str, FoundFile] = {}
    for file in held:
        folder = os.path.dirname(file.path)  # noqa: PTH120 - hot
        other = newest.get(folder)
        if other is None or _creation_key(file) > _creation_key(other):
            newest[folder] = file
    for path, file in newest.items():
        known = folders.get(path)
        if known is None:
            # A run in the working folder itself is named after the working folder.
            is_inside = f"{path}/".startswith(f"{file.place}/")
            around = os.path.dirname(file.place if is_inside else path)  # noqa: PTH120
            folders[path] = EventFolder(path, around, file)
        else:
            seen = replace(known.newest, holders=file.holders, place=file.place)
            folders[path] = replace(known, newest=seen)


def _creation_key(file: FoundFile) -> tuple[int, float, str]:
    """Return an event file's sort key: the second in the file name, then the modification time."""
    name = os.path.basename(file.path).split(".")  # noqa: PTH119 - hot
    second = name[3] if len(name) > 3 else ""  # noqa: PLR2004 - events.out.tfevents.SECOND
    created = int(second) if second.isascii() and second.isdigit() and len(second) < 12 else 0  # noqa: PLR2004
    return created, file.modified_time, file.path


def find_run_folder(folder: EventFolder, with_files: set[str]) -> str:
    """Return the directory of the run to which a directory belongs."""
    around, name = os.path.split(folder.path)
    if folder.path == folder.logdir or not find_split(name):
        return folder.path
    beside = {os.path.join(around, half) for half in _HALVES}  # noqa: PTH118 - paths are strings
    has_other_half = folder.path in beside and len(beside & with_files) > 1
    return around if around in with_files or has_other_half else folder.path


def cut_folders(run_path: str, folders: list[EventFolder]) -> int:
    """Remove a run's oldest directories beyond the limit; return the number of removed directories.

    The run's own directory is always kept.
    """
    folders.sort(key=lambda f: (f.path == run_path, f.newest.modified_time), reverse=True)
    left_out = len(folders[_MOST_FOLDERS:])
    del folders[_MOST_FOLDERS:]
    return left_out


def age_key(folders: list[EventFolder]) -> float:
    """Return the time when a run's event files were last written to, in Unix seconds."""
    return max(folder.newest.modified_time for folder in folders)


def find_owner(folders: list[EventFolder]) -> int:
    """Return the user ID of the owner of a run's newest event file."""
    return max(folders, key=lambda folder: folder.newest.modified_time).newest.owner
