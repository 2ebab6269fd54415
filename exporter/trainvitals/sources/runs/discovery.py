"""Find files that match a path pattern, with a limited amount of work.

A pattern is a path whose components may contain `*`, `?` and `[...]`; the component `**` matches
zero or more directories. A pattern matches a leading dot only if the dot is written explicitly.
Below `**`, symbolic links to directories are not followed, so the search cannot loop.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from itertools import takewhile
from pathlib import Path
from typing import Literal

from trainvitals.sources.runs.owners import Users

_MOST_ENTRIES = 20_000
_DEEPEST = 12
_MAGIC = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file that matches a path pattern.

    Attributes:
        path: The file's path, which begins with the same directories as the pattern.
        modified_time: The time when the file was last written to, in Unix seconds: the earlier of
            the mtime, which the file's owner may set to any time, and the ctime, which only the
            kernel sets.
        size: The size of the file in bytes.
        identity: The device and inode numbers, which are the same for every name of the file.
        owner: The ID of the user who owns the file.
        is_named: Whether a flag names the file; otherwise, the file was found through a process.
        holders: The PIDs of the known processes that hold accelerators and write to the file.
        place: The working folder of these processes; empty if no such process is known.
        beneath: The directory below which symbolic links are not followed when the file is opened;
            empty if links are followed.
        is_log: Whether a process's standard output or standard error is redirected to the file.
    """

    path: str
    modified_time: float
    size: int
    identity: tuple[int, int]
    owner: int
    is_named: bool = True
    holders: tuple[int, ...] = ()
    place: str = ""
    beneath: str = ""
    is_log: bool = False


FileState = Literal["understood", "not_understood", "unreadable", "new"]


@dataclass(frozen=True, slots=True)
class FollowedState:
    """The state of a file that is followed.

    Attributes:
        path: The path of the file.
        state: Whether a line in the file was understood; `new` if too few lines have been read to
            decide.
        is_expected: Whether a flag names the file, or a process's output is redirected to the file.
            All other files were tried only because of their names.
        place: The working folder of the processes that write to the file; empty if no such process
            is known.
    """

    path: str
    state: FileState
    is_expected: bool
    place: str = ""


class Search:
    """A search for files that match one or more patterns, with one limit for all patterns.

    Args:
        most_entries: The maximum number of directory entries to examine.
        users: The users whose files are found; the files of other users are ignored.

    Attributes:
        complaint: The reason why the search is incomplete, with the remedy; None if the search is
            complete.
        matched: The patterns that match at least one file.
    """

    def __init__(
        self,
        *,
        most_entries: int = _MOST_ENTRIES,
        users: Users = Users(),  # noqa: B008 - immutable
    ) -> None:
        self._users = users
        self._left = most_entries
        self._most_entries = most_entries
        self.complaint: str | None = None
        self.matched: set[str] = set()

    def find(self, pattern: str) -> list[FoundFile]:
        """Return the regular files that match a pattern.

        The list is empty if a directory in the pattern does not exist.
        """
        path = Path(os.path.expanduser(pattern))  # noqa: PTH111 - leaves an unknown user alone
        found: dict[str, FoundFile] = {}
        for match in self._expand(path.anchor, path.parts[1 if path.anchor else 0 :], 0):
            file = self._look_at(match)
            if file is not None:
                found[match] = file
        if found:
            self.matched.add(pattern)
        if self._left < 0 and self.complaint is None:
            self.complaint = (
                f"{pattern} leads to more than {self._most_entries} names, of which the rest was not "
                "looked at; name a narrower place"
            )
        return list(found.values())

    def _expand(self, folder: str, parts: tuple[str, ...], depth: int) -> Iterator[str]:
        if not parts:
            yield folder
            return
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self._expand(folder, rest, depth)
            if depth < _DEEPEST:
                for entry in self._list(folder):
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                        yield from self._expand(_join(folder, entry.name), parts, depth + 1)
        elif _MAGIC.search(part):
            matches = re.compile(translate(part)).match
            for entry in self._list(folder):
                if matches(entry.name) and (part[0] == "." or entry.name[0] != "."):
                    yield from self._expand(_join(folder, entry.name), rest, depth)
        else:
            yield from self._expand(_join(folder, part), rest, depth)

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        entries: list[os.DirEntry[str]] = []
        try:
            with os.scandir(folder or ".") as listing:
                for entry in listing:
                    self._left -= 1
                    if self._left < 0:
                        break
                    entries.append(entry)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, ValueError) as error:
            self._complain(folder, error)
        return entries

    def _look_at(self, path: str) -> FoundFile | None:
        try:
            status = os.stat(path)  # noqa: PTH116 - hot
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            self._complain(path, error)
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in self._users:
            return None
        return describe_file(path, status)

    def _complain(self, path: str, error: OSError | ValueError) -> None:
        if self.complaint is None:
            self.complaint = explain_unreadable(path, error)


def describe_file(path: str, status: os.stat_result) -> FoundFile:
    """Return the description of a file that was found.

    Args:
        path: The path of the file.
        status: The result of `stat` for the file.
    """
    return FoundFile(
        path,
        min(status.st_mtime, status.st_ctime),
        status.st_size,
        (status.st_dev, status.st_ino),
        status.st_uid,
    )


def _join(folder: str, name: str) -> str:
    return os.path.join(folder, name)  # noqa: PTH118 - adds no `./` prefix


def explain_unreadable(path: str, error: OSError | ValueError) -> str:
    """Return one line with the reason why a file or directory could not be read, and the remedy."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"cannot read {path}: {reason}; run as a user that may read it"


def split_path(path: str) -> tuple[str, ...]:
    """Return a path's components from the root, without resolving symbolic links."""
    return Path(os.path.abspath(path)).parts  # noqa: PTH100 - `resolve` would follow links


def count_open(pattern: str, path: str) -> int:
    """Return how many components a path has after the pattern's wildcard-free part; at least 1."""
    named = Path(os.path.expanduser(pattern)).parts  # noqa: PTH111 - as in `find`
    fixed = list(takewhile(lambda part: not _MAGIC.search(part), named))
    return max(1, len(split_path(path)) - len(split_path(str(Path(*fixed)))))


def name_runs(
    paths: Iterable[tuple[str, ...]], fewest: Iterable[int], given: Iterable[str | None]
) -> list[str]:
    """Return the shortest unique name for each run.

    Args:
        paths: For each run, the components of the run's path.
        fewest: For each run, the minimum number of path components in the run's name.
        given: For each run, the existing name, which the run keeps; None if the run has no name
            yet.

    Returns:
        For each run, the existing name, or the fewest last components of the run's path that
        distinguish the run from the other runs, joined by slashes.
    """
    components, kept = list(paths), list(given)
    counts = list(fewest)
    while True:
        names = [
            name or "/".join(parts[-count:])
            for name, parts, count in zip(kept, components, counts, strict=True)
        ]
        longer = [
            before is None and names.count(name) > 1 and count < len(parts)
            for before, name, count, parts in zip(kept, names, counts, components, strict=True)
        ]
        if not any(longer):
            return names
        counts = [count + more for count, more in zip(counts, longer, strict=True)]
