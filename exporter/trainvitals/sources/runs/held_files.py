"""Find the files that processes on accelerators write, if no flag names the files.

For each process that holds an accelerator, only two sources are searched: the files that the
process holds open for writing, and the process's working folder. A file is read if it is a regular
file with a known name and was written to after the process started. Its owner must be a user of the
process, and a user whose run files are read.

The working folder is searched six levels deep, the nearest folders first, with at most 1,000 names
in each folder and 5,000 in total. Symbolic links, hidden folders and installed packages are
skipped. The root directory is not searched. A regular file to which standard output or standard
error is redirected is a log of the process, regardless of its name and of when it was last written.

A process in another mount namespace has other paths. The files of such a process are opened below
`/proc/PID/root`. Opening these files and reading `/proc/PID/cwd` require the permission to trace
the process. Symbolic links below `/proc/PID/root` are not followed, because their targets would be
resolved in the exporter's own namespace.

The files of a process that has ended are kept for an hour, so that the last lines are read.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainvitals.sources.files import read_small
from trainvitals.sources.runs.discovery import FoundFile, describe_file
from trainvitals.sources.runs.mlflow import META
from trainvitals.sources.runs.owners import Users
from trainvitals.sources.runs.processes import read_process_state, read_users

EVENT_FILE = "events.out.tfevents."
_SEARCH_SECONDS = 60.0
# The time limit of a search, and the delay before the next search continues with the remaining
# processes.
_LONGEST_SECONDS, _RESUME_SECONDS = 2.0, 5.0
_KEEP_SECONDS = 3600.0
_DEEPEST = 6
_MOST_IN_FOLDER, _MOST_IN_PLACE = 1000, 5000
_MOST_DESCRIPTORS = 1024
_MOST_PROCESSES = 64
_MOST_OF_PROCESS, _MOST_FILES = 32, 64
_MOST_PARENTS = 32
_CLOCK_SECONDS = 2.0
_ENDS = (".csv", ".tsv", ".jsonl", ".ndjson", ".log", ".out", ".err", ".txt", ".log.json")
_NAMES = frozenset({"trainer_state.json", "scalars.json", "metrics.json", "log.json"})
_LEFT_OUT = frozenset(
    {"__pycache__", "node_modules", "site-packages", "venv", "env", "proc", "sys"}
)
_OUTPUTS = ("1", "2")
_SPECIAL = re.compile(r"/(?:dev/(?!shm/)|proc/|sys/|memfd:)")  # `/dev/shm` holds regular files
_PARENT = 1  # the column of `/proc/PID/stat` after the state


@dataclass(slots=True)
class _Process:
    """A process that holds an accelerator, and the files that it writes.

    Attributes:
        start_ticks: The start time of the process in clock ticks since boot, which distinguishes
            the process from an earlier process with the same PID.
        place: The device and inode of the working folder; None if the folder cannot be accessed.
        seen: The time when the process was last seen, in Unix seconds.
        searched: The time when the process's files were last searched for, in Unix seconds.
        files: The files that the process writes.
        relatives: The PIDs of the process's ancestors.
    """

    start_ticks: int
    place: tuple[int, int] | None = None
    seen: float = 0.0
    searched: float = 0.0
    files: tuple[FoundFile, ...] = ()
    relatives: frozenset[int] = field(default_factory=frozenset)


class HeldFiles:
    """Finds the files that processes on accelerators write.

    Args:
        procfs: The path of `/proc`.
        users: The users whose files are read.
        search_seconds: The minimum time between two searches, in seconds.
        clock: A function that returns the current time, in Unix seconds.
        monotonic: A function that returns the time of the monotonic clock to which deadlines refer,
            in seconds.

    Attributes:
        files: The files of all processes; each file lists the processes that write to it.
        started_at: The monotonic time when the current search began; None if no search is running.
    """

    def __init__(
        self,
        *,
        procfs: Path = Path("/proc"),
        users: Users = Users(),  # noqa: B008 - immutable
        search_seconds: float = _SEARCH_SECONDS,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.files: tuple[FoundFile, ...] = ()
        self.started_at: float | None = None
        self._procfs = procfs
        self._users = users
        self._search_seconds = search_seconds
        self._clock = clock
        self._monotonic = monotonic
        self._next_search = float("-inf")
        self._processes: dict[int, _Process] = {}
        self._above: dict[int, frozenset[int]] = {}

    def is_due(self, holders: Iterable[int]) -> bool:
        """Return whether a search is due.

        Args:
            holders: The PIDs of the processes that hold accelerators.
        """
        return self._monotonic() >= self._next_search and bool({*holders} or self._processes)

    def search(self, holders: Iterable[int], instrumented: Iterable[int]) -> None:
        """Search for the files of processes, for at most two seconds.

        Args:
            holders: The PIDs of the processes that hold accelerators.
            instrumented: The PIDs of the processes that have a run file.
        """
        self.started_at = self._monotonic()
        self._next_search = self.started_at + self._search_seconds
        try:
            self._search(holders, instrumented, self.started_at + _LONGEST_SECONDS)
        finally:
            self.started_at = None

    def _search(self, holders: Iterable[int], instrumented: Iterable[int], until: float) -> None:
        now = self._clock()
        with_file = frozenset(instrumented)
        # Another thread may call `find_instrumented` at the same time.
        noted = dict(self._processes)
        for pid in sorted(holders)[:_MOST_PROCESSES]:
            self._note(noted, pid, now)
        self._processes = {
            pid: each for pid, each in noted.items() if now - each.seen < _KEEP_SECONDS
        }
        related = self.find_instrumented(with_file)
        known = {self._processes[pid].place for pid in related}
        searched: dict[tuple[int, int], tuple[FoundFile, ...]] = {}
        in_order = sorted(self._processes.items(), key=lambda item: item[1].searched)
        for pid, process in in_order:
            if process.seen != now or pid in related:
                continue
            if self._monotonic() >= until:
                self._next_search = until + min(_RESUME_SECONDS, self._search_seconds)
                break
            process.searched = now
            process.files = self._find(pid, process, known, searched, until)
        self.files = self._gather()

    def find_instrumented(self, with_file: frozenset[int]) -> frozenset[int]:
        """Return the processes on accelerators for which a run file exists.

        The run file may belong to the process itself, to an ancestor or to a descendant.

        Args:
            with_file: The PIDs of the processes that have a run file.
        """
        processes = self._processes
        if not processes:
            return frozenset()
        self._above = {
            pid: self._above.get(pid) or frozenset(self._list_ancestors(pid)) for pid in with_file
        }
        above: frozenset[int] = frozenset().union(*self._above.values())
        return frozenset(
            pid
            for pid, process in processes.items()
            if pid in with_file or pid in above or process.relatives & with_file
        )

    def _note(self, noted: dict[int, _Process], pid: int, now: float) -> None:
        state = read_process_state(pid, procfs=self._procfs)
        if state is None:
            return
        known = noted.get(pid)
        if known is None or known.start_ticks != state.start_ticks:
            known = noted[pid] = _Process(state.start_ticks)
            known.relatives = frozenset(self._list_ancestors(pid))
        known.seen = now
        known.place = _identify(f"{self._procfs}/{pid}/cwd")

    def _list_ancestors(self, pid: int) -> Iterator[int]:
        for _ in range(_MOST_PARENTS):
            text = read_small(self._procfs / str(pid) / "stat") or ""
            columns = text.rpartition(") ")[2].split()
            if len(columns) <= _PARENT or not columns[_PARENT].isdecimal():
                return
            pid = int(columns[_PARENT])
            if pid <= 1:
                return
            yield pid

    def _find(
        self,
        pid: int,
        process: _Process,
        known: set[tuple[int, int] | None],
        searched: dict[tuple[int, int], tuple[FoundFile, ...]],
        until: float,
    ) -> tuple[FoundFile, ...]:
        users = read_users(pid, procfs=self._procfs)
        own = f"{self._procfs}/{pid}"
        started = _date_start(process.start_ticks, self._clock())
        folder = _locate(self._procfs, pid, _read_link(f"{own}/cwd"), f"{own}/cwd")
        found = list(_list_open(self._procfs, pid))
        if folder is not None and process.place is not None and process.place not in known:
            if process.place not in searched:
                searched[process.place] = tuple(self._walk(*folder, until))
            found += searched[process.place]
        place = folder[0] if folder is not None else ""
        kept = [
            replace(file, is_named=False, holders=(pid,), place=place)
            for file in found
            if file.owner in self._users
            and file.owner in users
            and (file.is_log or file.modified_time >= started - _CLOCK_SECONDS)
        ]
        kept.sort(key=lambda file: (not file.is_log, -file.modified_time))
        return tuple(kept[:_MOST_OF_PROCESS])

    def _walk(self, folder: str, beneath: str, until: float) -> Iterator[FoundFile]:
        """Yield the files with known names below a folder; files in the nearest folders come first.

        Args:
            folder: The path of the folder.
            beneath: The directory below which the files will be opened.
            until: The monotonic time when the search ends.
        """
        left = _MOST_IN_PLACE
        folders = [] if folder in {"/", beneath} else [(folder, 0)]
        while folders and left > 0 and self._monotonic() < until:
            path, depth = folders.pop(0)
            entries = _list_folder(path, min(left, _MOST_IN_FOLDER))
            left -= len(entries)
            names = {entry.name for entry in entries}
            for entry in entries:
                if _is_folder(entry):
                    if depth < _DEEPEST and not _is_left_out(entry.name):
                        folders.append((f"{path}/{entry.name}", depth + 1))
                elif _is_known(entry.name, names):
                    yield from _describe(f"{path}/{entry.name}", beneath, follows=False)

    def _gather(self) -> tuple[FoundFile, ...]:
        """Return each file once, with all processes that write to the file."""
        files: dict[tuple[int, int], FoundFile] = {}
        for process in self._processes.values():
            for file in process.files:
                other = files.get(file.identity)
                if other is not None:
                    holders = tuple(sorted({*file.holders, *other.holders}))
                    file = replace(other, holders=holders, is_log=file.is_log or other.is_log)  # noqa: PLW2901
                files[file.identity] = file
        latest = sorted(files.values(), key=lambda file: (not file.is_log, -file.modified_time))
        return tuple(_choose_states(latest)[:_MOST_FILES])


def is_event_file(file: FoundFile) -> bool:
    """Return whether a file is a TensorBoard event file."""
    return EVENT_FILE in file.path


def is_mlflow(file: FoundFile) -> bool:
    """Return whether a file is the `meta.yaml` of an MLflow run."""
    return file.path.endswith(f"/{META}")


def _choose_states(files: Iterable[FoundFile]) -> list[FoundFile]:
    """Return the files, but only the latest `trainer_state.json` of each run.

    The Hugging Face Trainer writes this file to each checkpoint folder.

    Args:
        files: The files, the latest first.
    """
    states: set[str] = set()
    chosen: list[FoundFile] = []
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if name == "trainer_state.json":
            around, _, checkpoint = folder.rpartition("/")
            run = around if checkpoint.startswith("checkpoint-") else folder
            if run in states:
                continue
            states.add(run)
        chosen.append(file)
    return chosen


def _list_open(procfs: Path, pid: int) -> Iterator[FoundFile]:
    """Yield the files with known names that a process writes, and the logs of its output."""
    own = f"{procfs}/{pid}/fd"
    try:
        numbers = os.listdir(own)[:_MOST_DESCRIPTORS]  # noqa: PTH208 - numbers, not paths
    except OSError:
        return
    for number in numbers:
        target = _read_link(f"{own}/{number}")
        is_log = number in _OUTPUTS
        name = target.rpartition("/")[2]
        if not target.startswith("/") or _SPECIAL.match(target):
            continue
        if not (is_log or _is_known(name)) or not _is_written(f"{procfs}/{pid}/fdinfo/{number}"):
            continue
        located = _locate(procfs, pid, target, f"{own}/{number}")
        if located is not None:
            for file in _describe(*located):
                yield replace(file, is_log=is_log)


def _locate(procfs: Path, pid: int, path: str, link: str) -> tuple[str, str] | None:
    """Translate the path of a process's file or folder to this process's mount namespace.

    Args:
        procfs: The path of `/proc`.
        pid: The PID of the process.
        path: The path in the process's mount namespace.
        link: The path of the link in `/proc` that refers to the file or folder.

    Returns:
        The path in this mount namespace, and the directory below which the path is opened; None if
        the file or folder cannot be reached through a path.
    """
    identity = _identify(link)
    root = f"{procfs}/{pid}/root"
    for found, beneath in ((path, "/"), (f"{root}{path}", root)):
        if path.startswith("/") and identity is not None and _identify(found) == identity:
            return found.rstrip("/") or "/", beneath
    return None


def _list_folder(path: str, most: int) -> list[os.DirEntry[str]]:
    entries: list[os.DirEntry[str]] = []
    try:
        with os.scandir(path) as listing:
            for entry in listing:
                if len(entries) >= most:
                    break
                entries.append(entry)
    except OSError:
        pass
    return entries


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # the entry no longer exists
        return False


def _describe(path: str, beneath: str, *, follows: bool = True) -> Iterator[FoundFile]:
    """Yield the description of a file if the file is a regular file.

    Args:
        path: The path of the file.
        beneath: The directory below which the file will be opened.
        follows: Whether a symbolic link is followed.
    """
    status = _stat(path, follows=follows)
    if status is not None and stat.S_ISREG(status.st_mode):
        yield replace(describe_file(path, status), beneath=beneath)


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name in _LEFT_OUT


def _is_known(name: str, beside: Iterable[str] = ()) -> bool:
    """Return whether a file's name is that of a file about a training run.

    Args:
        name: The name of the file.
        beside: The names of the files and folders in the same folder.
    """
    if name == META:  # an experiment's folder also contains a `meta.yaml`, but no `metrics`
        return "metrics" in beside
    low = name.lower()
    return low.endswith(_ENDS) or low in _NAMES or name.startswith(EVENT_FILE)


def _is_written(path: str) -> bool:
    """Return whether a file descriptor is open for writing.

    Args:
        path: The path of the descriptor's file in `/proc/PID/fdinfo`.
    """
    fields = (read_small(Path(path)) or "").partition("flags:")[2].split()
    return bool(fields) and bool(int(fields[0], 8) & os.O_ACCMODE)


def _date_start(start_ticks: int, now: float) -> float:
    """Return the Unix time when a process started, given its start in clock ticks since boot."""
    since_boot = start_ticks / os.sysconf("SC_CLK_TCK")
    return now - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - hot
    except OSError:
        return ""


def _stat(path: str, *, follows: bool = True) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follows)  # noqa: PTH116 - hot
    except OSError:
        return None


def _identify(path: str) -> tuple[int, int] | None:
    status = _stat(path)
    return None if status is None else (status.st_dev, status.st_ino)
