"""Which files there are that match a pattern, found with a bounded amount of work.

A pattern is a path whose components may hold `*`, `?` and `[...]`; the component `**` stands for
any number of folders, none included. A leading dot must be written out. Folders below `**` are
entered only when they are no symbolic links, so a loop of links cannot catch the search.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

_MOST_ENTRIES = 20_000
_DEEPEST = 12
_MAGIC = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file that matched.

    Attributes:
        path: Its path, beginning as the pattern does.
        modified_time: When it was last written to, in Unix seconds.
        size: In bytes.
        identity: Device and inode: the same for every name of one file.
    """

    path: str
    modified_time: float
    size: int
    identity: tuple[int, int]


class Search:
    """One search for files; it may be asked for several patterns, whose work adds up.

    Args:
        most_entries: How many names of folders it looks at in all.

    Attributes:
        complaint: What could not be looked at, with what to do; None when everything could.
    """

    def __init__(self, *, most_entries: int = _MOST_ENTRIES) -> None:
        self._left = most_entries
        self._most_entries = most_entries
        self.complaint: str | None = None

    def find(self, pattern: str) -> list[FoundFile]:
        """Give the regular files that match; none where a folder of the pattern does not exist."""
        path = Path(os.path.expanduser(pattern))  # noqa: PTH111 - leaves an unknown user alone
        found: dict[str, FoundFile] = {}
        for match in self._expand(path.anchor, path.parts[1 if path.anchor else 0 :], 0):
            file = self._look_at(match)
            if file is not None:
                found[match] = file
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
        if not stat.S_ISREG(status.st_mode):
            return None
        return FoundFile(path, status.st_mtime, status.st_size, (status.st_dev, status.st_ino))

    def _complain(self, path: str, error: OSError | ValueError) -> None:
        if self.complaint is None:
            self.complaint = explain_unreadable(path, error)


def _join(folder: str, name: str) -> str:
    return os.path.join(folder, name)  # noqa: PTH118 - no `./` is put in front


def explain_unreadable(path: str, error: OSError | ValueError) -> str:
    """Say in one line why a file or folder could not be read, and what to do."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"cannot read {path}: {reason}; run as a user that may read it"


def split_path(path: str) -> tuple[str, ...]:
    """Give the components of a path from the root on, with no symbolic link resolved."""
    return Path(os.path.abspath(path)).parts  # noqa: PTH100 - `resolve` would follow links


def name_runs(paths: Iterable[tuple[str, ...]], fewest: Iterable[int]) -> list[str]:
    """Give each run the shortest name that no other has.

    Args:
        paths: For each run, the components of its path.
        fewest: For each run, how many of the last components its name must have.

    Returns:
        The last components, as few as tell the runs apart, with slashes between.
    """
    components = list(paths)
    counts = list(fewest)
    while True:
        names = ["/".join(parts[-count:]) for parts, count in zip(components, counts, strict=True)]
        longer = [
            names.count(name) > 1 and count < len(parts)
            for name, count, parts in zip(names, counts, components, strict=True)
        ]
        if not any(longer):
            return names
        counts = [count + more for count, more in zip(counts, longer, strict=True)]
