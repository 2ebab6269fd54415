"""Files that a log names, and their paths on the host."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from trainvitals.sources.containers.evidence import Disk
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.parsed_log import parse_log

_OF_ERROR = re.compile(r": '([^'\n]{1,300})'(?: -> '([^'\n]{1,300})')?")
# TensorFlow writes the path before the error text of the errno.
_OF_TENSORFLOW = re.compile(r": (/[^;:\n]{1,300}); ")
_SAVED = re.compile(
    r"(?:[Ss]aving|[Ww]riting|[Ss]ave) (?:[^\n/]{0,40}?[ '\"=:(`])?([\w.-]{0,40}/[\w./=+-]{1,200})"
)
_LOADED = re.compile(
    r"(?<![\w./=+-])([\w./=+-]{1,200}\.(?:pt|pth|ckpt|bin|safetensors|pkl))(?![\w.])"
)
_LOOK_BACK_LINES = 40
_CONTAINERS_OWN = "/var/lib/docker"


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a file that a program used.

    Attributes:
        path: The path of the file as the program named it; an empty string if the program named no
            path.
        host_path: The path of the file on the host; None if no mount contains the file, in which
            case the file is in the container's writable layer.
        disk: The state of the file's file system at the end of the program; None if the state is
            unknown.
    """

    path: str
    host_path: str | None
    disk: Disk | None

    @property
    def folder(self) -> str:
        """The host directory to examine, which may exist even if the file was never created."""
        path = self.host_path or _CONTAINERS_OWN
        head, _, name = path.rpartition("/")
        return head if head and "." in name.lstrip(".") else path


def find_place(case: Case, text: str, line: int) -> Place:
    """Return the location of the file that an error message or a preceding log line names."""
    path = _find_path(text) or _search_back(case, _SAVED, line)
    host_path = find_host_path(case, path) if case.is_container else path or "."
    return Place(path, host_path, _find_disk(case, host_path))


def find_loaded(case: Case, text: str, line: int) -> str:
    """Return the path of the checkpoint that the program was reading.

    The result is an empty string if no log line names the path.
    """
    found = _LOADED.search(text)
    return found[1] if found else _search_back(case, _LOADED, line)


def find_host_path(case: Case, path: str) -> str | None:
    """Return the host path of a path in the container; None if no mount contains the path.

    If the source of the mount is not an absolute path, the result is the source itself.
    """
    settings = case.evidence.settings
    mounts = settings.mounts if settings is not None else ()
    holding = [(source, target) for source, target in mounts if _is_in(path, target)]
    if not holding:
        return None
    source, target = max(holding, key=lambda mount: len(mount[1]))
    rest = path[len(target.rstrip("/")) :]
    return f"{source.rstrip('/')}{rest}" if source.startswith("/") else source


def _find_path(text: str) -> str:
    found = _OF_ERROR.search(text)
    if found is not None:
        return found[2] or found[1]
    found = _OF_TENSORFLOW.search(text)
    return "" if found is None else found[1]


def _search_back(case: Case, pattern: re.Pattern[str], line: int) -> str:
    reported = parse_log(case).reported
    for index in range(line, max(-1, line - _LOOK_BACK_LINES), -1):
        if reported[index] and index != line:  # a name in source code is not a file
            continue
        found = pattern.search(case.lines[index])
        if found is not None:
            return found[1].rstrip(".")  # the period at the end of a sentence
    return ""


def _find_disk(case: Case, host_path: str | None) -> Disk | None:
    host = case.evidence.host
    disks: Iterable[Disk] = host.disks if host is not None else ()
    wanted = host_path or _CONTAINERS_OWN
    holding = [disk for disk in disks if _is_in(wanted, disk.path)]
    return max(holding, key=lambda disk: len(disk.path), default=None)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
