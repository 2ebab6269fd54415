"""Read a run file repeatedly, and keep the file open; its contents are not trusted."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainvitals.foreign_files import open_regular
from trainvitals.runfile import (
    EMPTY_STATE,
    EMPTY_STEP,
    FILE_BYTES,
    LAST_WORDS_AT,
    LIVE_AT,
    NAMES_AT,
    STATE,
    STATE_AT,
    STATE_SLOT_BYTES,
    STEP,
    STEP_AT,
    STEP_SLOT_BYTES,
    Identity,
    Record,
    RunFileError,
    State,
)
from trainvitals.runfile.codec import (
    decode_header,
    decode_last_words,
    decode_live,
    decode_names,
    decode_state,
    decode_step,
)
from trainvitals.sources.runs.descriptors import require_room
from trainvitals.sources.runs.liveness import Host, Liveness, LivenessCheck, query_lock
from trainvitals.sources.runs.oomkills import OomKills

try:
    import fcntl
except ImportError:  # Windows has no run files
    fcntl = None  # type: ignore[assignment]

_TAIL_BYTES = FILE_BYTES - STEP_AT
# The trainer may write a record during a read, so the record is read up to this many times.
_TRIES = 4
_NO_SEQUENCE = bytes(8)
# The positions of the sequence words in the part that is read repeatedly, relative to STEP_AT.
_STEP_A, _STEP_B = 0, STEP_SLOT_BYTES
_STATE_A = STATE_AT - STEP_AT
_STATE_B = _STATE_A + STATE_SLOT_BYTES
_LIVE_IN_TAIL = LIVE_AT - STEP_AT
_STATE_WORD, _STATE_TIME, _NAMES = STATE["state"], STATE["state_time"], STATE["names"]
_STEP_WALL, _STATE_WALL = STEP["wall_time"], STATE["wall_time"]
_ENDED = (float(State.FINISHED), float(State.FAILED), float(State.ENDED))
_SLACK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FileKey:
    """The identity of a file, regardless of its name.

    Attributes:
        device: The device number of the file system that contains the file.
        inode: The inode number of the file, which may be reused after the file is deleted.
    """

    device: int
    inode: int


class RankFile:
    """A rank's run file, which is read repeatedly.

    Args:
        path: The path of the file.
        key: The identity of the run file.
        descriptor: The descriptor of the open file.
        is_own: Whether this process itself writes the file through the descriptor. In this case,
            the descriptor is kept open, because closing it would release the lock that shows that
            this process is alive.
        made_time: The time when the file was created, in Unix seconds, from `read_made_time`.
        owner: The ID of the user who owns the file.
        identity: The identity of the process that wrote the file.
        check: The check whether the writer of the file is alive.

    Attributes:
        path: The path of the file, which may have been deleted.
        key: The identity of the run file.
        owner: The ID of the user who owns the file.
        made_time: The time when the file was created, in Unix seconds.
        identity: The identity of the process that wrote the file.
        record: The record in the file, or the last record that was read if the file cannot be read.
        liveness: The liveness of the file's writer, as of the last read.
        is_current: Whether the last read found complete records.
        is_listed: Whether the run directory still contains the file.
        ended_unlisted_time: The time when the writer was found dead after the file was deleted, in
            Unix seconds; None if the file was not deleted or the writer has not been found dead.
    """

    __slots__ = (
        "_check",
        "_descriptor",
        "_ended",
        "_is_own",
        "_names_key",
        "_state_key",
        "_tail",
        "ended_unlisted_time",
        "identity",
        "is_current",
        "is_listed",
        "key",
        "liveness",
        "made_time",
        "owner",
        "path",
        "record",
    )

    def __init__(
        self,
        path: Path,
        key: FileKey,
        descriptor: int,
        *,
        is_own: bool,
        made_time: float,
        owner: int,
        identity: Identity,
        check: LivenessCheck,
    ) -> None:
        self.path = path
        self.key = key
        self.owner = owner
        self.made_time = made_time
        self.identity = identity
        self.record = Record(identity=identity)
        self.liveness = Liveness(is_alive=True, evidence="pid")
        self.is_current = True
        self.is_listed = True
        self.ended_unlisted_time: float | None = None
        self._descriptor = descriptor
        self._is_own = is_own
        self._check = check
        self._ended = False
        self._tail = b""
        self._state_key: bytes | None = None
        self._names_key = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the file is still open; a file may be closed after its writer's end."""
        return self._descriptor >= 0

    @property
    def is_watching(self) -> bool:
        """Whether the process of the file's writer is followed."""
        return self._check.is_watching

    @property
    def is_held(self) -> bool:
        """Whether a process holds the lock on the open file, or the lock cannot be queried."""
        return self.is_open and self._is_locked()

    def read(self, now: float) -> None:
        """Read the record in the file, and the liveness of the file's writer.

        Args:
            now: The current time, in Unix seconds.
        """
        if self._descriptor >= 0:
            self._load()
        liveness = self._read_liveness(now)
        is_held = liveness.is_alive and liveness.evidence == "lock"
        if liveness is not self.liveness and not is_held:
            liveness = self._read_again(now, liveness)
        self.liveness = liveness
        if not liveness.is_alive and liveness.evidence != "age":
            self._release()

    def is_still_own(self) -> bool:
        """Return whether this process's descriptor of its own run file still refers to the file."""
        if not self._is_own or self._descriptor < 0:
            return True
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self.key.device, self.key.inode)

    def is_in(self, folder: int) -> bool:
        """Return whether an open directory still contains the run file under its name."""
        try:
            status = os.stat(self.path.name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self.key.device, self.key.inode)

    def ended_time(self, now: float) -> float:
        """Return the Unix time when the rank ended or, if it has not ended, last wrote a record.

        If that time is implausible, the file's creation time is returned.

        Args:
            now: The current time, in Unix seconds; a later end is implausible.
        """
        step, state = self.record.step, self.record.state
        recorded = state[_STATE_TIME] if self._ended else max(step[_STEP_WALL], state[_STATE_WALL])
        return recorded if 0 < recorded <= now + _SLACK_SECONDS else self.made_time

    def close(self) -> None:
        """Close the run file and stop following the file's writer."""
        self._release()
        self._check.close()

    def _read_again(self, now: float, liveness: Liveness) -> Liveness:
        """Read the records again, since the writer may have changed them before it ended."""
        had_ended = self._ended
        if self._descriptor >= 0:
            self._load()
        return liveness if self._ended == had_ended else self._read_liveness(now)

    def _read_liveness(self, now: float) -> Liveness:
        if self._is_own:
            return Liveness(
                is_alive=not self._ended, evidence="pid", host_pid=os.getpid(), state="R"
            )
        written = max(self.record.step[_STEP_WALL], self.record.state[_STATE_WALL])
        return self._check.read(has_ended=self._ended, age_seconds=now - written)

    def _is_locked(self) -> bool:
        if self._is_own:
            return True
        try:
            return query_lock(self._descriptor) is not None
        except OSError:
            return True

    def _load(self) -> None:
        """Read the records; keep the previous records if four reads find no complete records."""
        for _ in range(_TRIES):
            try:
                tail = os.pread(self._descriptor, _TAIL_BYTES, STEP_AT)
                is_cut = len(tail) < _TAIL_BYTES
                self.is_current = not is_cut and (tail == self._tail or self._take(tail))
            except OSError:
                self.is_current = False
                return
            if self.is_current:
                self._tail = tail
            if self.is_current or is_cut:
                return

    def _take(self, tail: bytes) -> bool:
        step: tuple[float, ...] | None = decode_step(tail, _STEP_A)
        if step is None:
            if not _is_unused(tail, _STEP_A, _STEP_B):
                return False
            step = EMPTY_STEP
        record = self.record
        state, metrics, last_words = record.state, record.metrics, record.last_words
        key = tail[_STATE_A : _STATE_A + 8] + tail[_STATE_B : _STATE_B + 8]
        if key != self._state_key:
            fresh = decode_state(tail, _STATE_A)
            if fresh is None:
                if not _is_unused(tail, _STATE_A, _STATE_B):
                    return False
                fresh = EMPTY_STATE
            state = fresh
            metrics, last_words = self._read_rest(state)
            # If the record with the highest sequence number is incomplete, the state is read again.
            newest = max(int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little"))
            self._state_key = key if state[0] == newest else None
            self._ended = state[_STATE_WORD] in _ENDED
        self.record = Record(
            step, state, decode_live(tail, _LIVE_IN_TAIL), metrics, self.identity, last_words
        )
        return True

    def _read_rest(self, state: tuple[float, ...]) -> tuple[tuple[tuple[str, str], ...], str]:
        """Return the names of the user-defined metrics, and the last words.

        The names are read again only if their number in the state record has changed. The last
        words are read only if the state is "failed".
        """
        metrics, last_words = tuple(self.record.metrics), self.record.last_words
        if state[_NAMES] != self._names_key:
            table = os.pread(self._descriptor, STEP_AT - NAMES_AT, NAMES_AT)
            metrics = decode_names(table, state[_NAMES])
            self._names_key = state[_NAMES]
        if state[_STATE_WORD] == State.FAILED:
            words = os.pread(self._descriptor, NAMES_AT - LAST_WORDS_AT, LAST_WORDS_AT)
            last_words = decode_last_words(words, 0)
        return metrics, last_words

    def _release(self) -> None:
        if self._descriptor >= 0 and not self._is_own:
            os.close(self._descriptor)
            self._descriptor = -1
            self._tail = b""


def open_rank_file(
    path: Path,
    *,
    folder: int,
    host: Host,
    oom_kills: OomKills,
    may_watch: Callable[[int], bool] = lambda _: True,
) -> RankFile:
    """Open a rank's run file for repeated reading.

    Args:
        path: The path of the file.
        folder: The open directory that contains the file; the file is opened by the last component
            of its path.
        host: The machine on which the trainers run.
        oom_kills: The OOM kill counts of control groups.
        may_watch: A function that returns whether one more process of a user may be followed, given
            the user ID; `LivenessCheck` describes when the function is called.

    Raises:
        RunFileError: The file is not a run file, or the version of the run file is not supported.
        OSError: The file cannot be opened, or too many files are open.
    """
    name = path.name
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    _require_run_file(status)
    own = _find_own_descriptor(name, status)
    descriptor = (
        require_room(open_regular(name, folder=folder, follows=False)) if own is None else own
    )
    try:
        status = os.fstat(descriptor)
        _require_run_file(status)
        identity = decode_header(os.pread(descriptor, NAMES_AT, 0))
    except (OSError, RunFileError):
        if own is None:
            os.close(descriptor)
        raise
    return RankFile(
        path,
        FileKey(status.st_dev, status.st_ino),
        descriptor,
        is_own=own is not None,
        made_time=read_made_time(status),
        owner=status.st_uid,
        identity=identity,
        check=LivenessCheck(
            descriptor,
            identity,
            host=host,
            oom_kills=oom_kills,
            may_watch=partial(may_watch, status.st_uid),
        ),
    )


def read_made_time(status: os.stat_result) -> float:
    """Return the time when a run file was created, in Unix seconds.

    Writing to the file's memory mapping does not change this time. The owner may set the mtime to
    any time, but not the ctime.
    """
    return min(status.st_mtime, status.st_ctime)


def _require_run_file(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise RunFileError("not_a_run_file", "it is no regular file")
    if status.st_size != FILE_BYTES:
        raise RunFileError(
            "too_short" if status.st_size < FILE_BYTES else "not_a_run_file",
            f"it has {status.st_size} bytes; a run file has {FILE_BYTES}",
        )


def _find_own_descriptor(name: str, status: os.stat_result) -> int | None:
    """Return the descriptor through which this process itself writes a run file.

    The result is None if this process does not write the file.

    Opening and closing the file would release the lock that shows that this process is alive.
    """
    is_ours = status.st_uid == os.geteuid() and f".{os.getpid()}." in name
    if sys.platform != "linux" or not is_ours:
        return None
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):
            found = os.fstat(int(entry))
            if (found.st_dev, found.st_ino) != (status.st_dev, status.st_ino):
                continue
            if fcntl.fcntl(int(entry), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                return int(entry)
    return None


def _is_unused(tail: bytes, *slots: int) -> bool:
    return all(tail[at : at + 8] == _NO_SEQUENCE for at in slots)
