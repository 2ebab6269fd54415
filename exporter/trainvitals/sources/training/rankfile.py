"""One run file, kept open and read again and again; believed in nothing."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    decode_header,
    decode_last_words,
    decode_live,
    decode_names,
    decode_state,
    decode_step,
)
from trainvitals.sources.files import open_regular
from trainvitals.sources.training.descriptors import require_room
from trainvitals.sources.training.liveness import Host, Liveness, Pulse, query_lock
from trainvitals.sources.training.oomkills import OomKills

try:
    import fcntl
except ImportError:  # Windows has no run files
    fcntl = None  # type: ignore[assignment]

_TAIL_BYTES = FILE_BYTES - STEP_AT
_TRIES = 4
_NO_SEQUENCE = bytes(8)
# Where each sequence word is in what is read again and again, the file from STEP_AT on.
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
    """A file, whatever its name.

    Attributes:
        device: The file system.
        inode: The file in it; a file that is gone may leave its number to another.
    """

    device: int
    inode: int


class RankFile:
    """A run file that is read again and again.

    Args:
        path: Where it is.
        key: Which file it is.
        descriptor: The open file.
        is_own: Whether the descriptor is the one that this very process writes through. It
            must stay open, or the lock that says that we live is dropped.
        modified_time: The file's mtime, Unix seconds; the mapped file leaves it as it was made.
        owner: The user who owns the file.
        identity: Who wrote it.
        pulse: Tells whether the writer lives.

    Attributes:
        path: Where it is, or was.
        key: Which file it is.
        owner: The user who owns it.
        identity: Who wrote it.
        record: What it says; while it cannot be read, what it said last.
        liveness: Whether its writer lives, as of the last read.
        is_current: Whether the last read found whole records.
        is_listed: Whether the directory still has it.
        ended_unlisted_time: When it was found dead after the directory had lost it, Unix seconds;
            None while that is not so.
    """

    __slots__ = (
        "_descriptor",
        "_ended",
        "_is_own",
        "_modified_time",
        "_names_key",
        "_pulse",
        "_state_key",
        "_tail",
        "ended_unlisted_time",
        "identity",
        "is_current",
        "is_listed",
        "key",
        "liveness",
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
        modified_time: float,
        owner: int,
        identity: Identity,
        pulse: Pulse,
    ) -> None:
        self.path = path
        self.key = key
        self.owner = owner
        self.identity = identity
        self.record = Record(identity=identity)
        self.liveness = Liveness(is_alive=True, evidence="pid")
        self.is_current = True
        self.is_listed = True
        self.ended_unlisted_time: float | None = None
        self._descriptor = descriptor
        self._is_own = is_own
        self._modified_time = modified_time
        self._pulse = pulse
        self._ended = False
        self._tail = b""
        self._state_key: bytes | None = None
        self._names_key = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it still holds the file; of one whose writer is dead it has the last copy."""
        return self._descriptor >= 0

    @property
    def is_watching(self) -> bool:
        """Whether it follows the writer's process."""
        return self._pulse.is_watching

    @property
    def standing(self) -> tuple[bool, float]:
        """Orders files by what they are worth: a living writer first, then the newest."""
        return (self._is_locked() if self.is_open else False, self._modified_time)

    def read(self, now: float) -> None:
        """Read what the file says and whether its writer lives.

        Args:
            now: Unix seconds.
        """
        if self._descriptor >= 0:
            self._load()
        liveness = self._read_liveness(now)
        is_held = liveness.is_alive and liveness.evidence == "lock"
        if liveness is not self.liveness and not is_held:
            liveness = self._look_again(now, liveness)
        self.liveness = liveness
        if not liveness.is_alive and liveness.evidence != "age":
            self._release()

    def is_still_own(self) -> bool:
        """Tell whether a file that this process writes is still open where we read it."""
        if not self._is_own or self._descriptor < 0:
            return True
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self.key.device, self.key.inode)

    def ended_time(self, now: float) -> float:
        """Give when the run ended or last spoke; when its file was made, where that is not credible.

        Args:
            now: Unix seconds; nothing ended later.
        """
        step, state = self.record.step, self.record.state
        told = state[_STATE_TIME] if self._ended else max(step[_STEP_WALL], state[_STATE_WALL])
        return told if 0 < told <= now + _SLACK_SECONDS else self._modified_time

    def close(self) -> None:
        """Close the file and stop following its writer."""
        self._release()
        self._pulse.close()

    def _look_again(self, now: float, liveness: Liveness) -> Liveness:
        """Read once more what was said between our reading and the writer's letting go."""
        had_ended = self._ended
        if self._descriptor >= 0:
            self._load()
        return liveness if self._ended == had_ended else self._read_liveness(now)

    def _read_liveness(self, now: float) -> Liveness:
        if self._is_own:
            return Liveness(
                is_alive=not self._ended, evidence="pid", host_pid=os.getpid(), state="R"
            )
        spoken = max(self.record.step[_STEP_WALL], self.record.state[_STATE_WALL])
        return self._pulse.read(has_ended=self._ended, age_seconds=now - spoken)

    def _is_locked(self) -> bool:
        if self._is_own:
            return True
        try:
            return query_lock(self._descriptor) is not None
        except OSError:
            return True

    def _load(self) -> None:
        """Read the records; what cannot be read whole in four tries stays as it was."""
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
            # Only a record that is the newest by its number was not being written as we read.
            newest = max(int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little"))
            self._state_key = key if state[0] == newest else None
            self._ended = state[_STATE_WORD] in _ENDED
        self.record = Record(
            step, state, decode_live(tail, _LIVE_IN_TAIL), metrics, self.identity, last_words
        )
        return True

    def _read_rest(self, state: tuple[float, ...]) -> tuple[tuple[tuple[str, str], ...], str]:
        """Read what the state record vouches for: the names of free metrics, the last words."""
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
    may_watch: Callable[[], bool] = lambda: True,
) -> RankFile:
    """Open a run file.

    Args:
        path: Where it is.
        folder: The open directory; the file is looked up there by its last name.
        host: The machine.
        oom_kills: The counts of OOM kills.
        may_watch: Tells whether one more process may be followed; see `Pulse`.

    Raises:
        RunFileError: It is no run file, or none that this version can read.
        OSError: It cannot be opened, or too many others are.
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
        modified_time=status.st_mtime,
        owner=status.st_uid,
        identity=identity,
        pulse=Pulse(descriptor, identity, host=host, oom_kills=oom_kills, may_watch=may_watch),
    )


def _require_run_file(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise RunFileError("not_a_run_file", "it is no regular file")
    if status.st_size != FILE_BYTES:
        raise RunFileError(
            "too_short" if status.st_size < FILE_BYTES else "not_a_run_file",
            f"it has {status.st_size} bytes; a run file has {FILE_BYTES}",
        )


def _find_own_descriptor(name: str, status: os.stat_result) -> int | None:
    """Find the descriptor through which this very process writes a run file.

    To open the file and close it again would drop the lock that tells others that we live.
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
