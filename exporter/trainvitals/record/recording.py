"""The main loop, the schedule and the termination signals of `trainvitals record`."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

from trainvitals.errors import TrainvitalsError
from trainvitals.metrics.malloc import trim_heap
from trainvitals.record.formats import Format, Piece, TextFormat
from trainvitals.record.logfile import Console, LogFile
from trainvitals.record.snapshot import Snapshot
from trainvitals.record.watcher import Watcher

_PREPARE_SECONDS = 1.0
_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The options of a recording.

    Attributes:
        interval_seconds: The interval between snapshots, in seconds.
        count: The number of snapshots; None means that the number is not limited.
        prepare_seconds: The time between the first readings and the first snapshot, in seconds.
            Rates require two readings.
    """

    interval_seconds: float = 30.0
    count: int | None = None
    prepare_seconds: float = _PREPARE_SECONDS


class Schedule:
    """A fixed-rate schedule: a slow snapshot skips intervals but does not shift later snapshots.

    Args:
        interval_seconds: The interval between snapshots.
        clock: A function that returns the time of a monotonic clock, in seconds.
    """

    def __init__(
        self, interval_seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._start = clock()
        self._number = 0

    def advance(self) -> tuple[float, int]:
        """Return the seconds until the next snapshot, and the number of skipped intervals."""
        passed = (self._clock() - self._start) / self._interval_seconds
        number = max(self._number + 1, -int(-passed // 1))
        missed = number - self._number - 1
        self._number = number
        return max(0.0, self._start + number * self._interval_seconds - self._clock()), missed


class EndSignals:
    """Handlers for SIGTERM, SIGINT and SIGHUP, which end a recording between two snapshots.

    The handlers stay installed until `close`; only the main thread can install them.

    Args:
        on_user_signal: A function that is called on SIGUSR1.
    """

    def __init__(self, on_user_signal: Callable[[], None] = lambda: None) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before = [(number, signal.signal(number, self._end)) for number in _ENDINGS]
        before = signal.signal(signal.SIGUSR1, lambda *_: on_user_signal())
        self._before.append((signal.SIGUSR1, before))

    def close(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._before:
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, seconds: float) -> bool:
        """Wait for SIGTERM, SIGINT, SIGHUP or the timeout; return whether a signal has arrived."""
        ready, _, _ = select.select([self._reader], [], [], max(0.0, seconds))
        return bool(ready)

    def _end(self, number: int, _: FrameType | None) -> None:
        # If the pipe is full of earlier signals, the reader wakes up anyway.
        with suppress(BlockingIOError):
            os.write(self._writer, bytes([number]))


def _complain(text: str) -> None:
    sys.stderr.write(f"trainvitals: {text}\n")
    sys.stderr.flush()


def _keep_quiet(_: str) -> None:
    """Ignore a warning, because the error that `record` raises contains the same message."""


class _Scribe:
    """A writer that appends pieces to a recording and continues after a failed write."""

    def __init__(
        self, file: Console | LogFile, format_: Format, complain: Callable[[str], None]
    ) -> None:
        self._file = file
        self._format = format_
        self._complain = complain
        self._said: int | None = None
        self.trouble = ""
        self.written = 0
        self.unwritten = 0
        self.is_over = False

    def write(self, snapshot: Snapshot) -> None:
        if self._append(self._format.write(snapshot)):
            self.written += 1
            self.unwritten = 0
        else:
            self.unwritten += 1

    def end(self, now: float) -> None:
        last = self._format.write_end(now, self.written)
        if last is not None:
            self._append(last)
        self._file.close()

    def _append(self, piece: Piece) -> bool:
        try:
            self._file.append(piece.text, piece.head)
        except BrokenPipeError:  # The reader of the pipe, such as head, has exited.
            self.is_over = True
            return False
        except OSError as error:
            self.trouble = error.strerror or str(error)
            if error.errno != self._said:
                self._said = error.errno
                self._complain(
                    f"cannot write {self._file.path}: {error.strerror}; "
                    "the recording continues when that is over"
                )
            return False
        if self._said is not None:
            self._said = None
            self._complain(f"{self._file.path} is written again")
        return True


def record(
    watcher: Watcher,
    file: Console | LogFile,
    options: RecordOptions,
    *,
    format_: Format | None = None,
) -> int:
    """Record snapshots until the count is reached or SIGTERM, SIGINT or SIGHUP arrives.

    Args:
        watcher: The source of snapshots, which is closed at the end; SIGUSR1 makes the watcher
            release the accelerator drivers.
        file: The destination of the recording, which is closed at the end.
        options: The interval, the count and the preparation time.
        format_: The format of the recording; None means the text format.

    Returns:
        The number of snapshots that were written.

    Raises:
        TrainvitalsError: The number of snapshots is limited, and the last snapshot could not be
            written.
    """
    # With --once, the error at the end is the only message.
    warn = _keep_quiet if options.count == 1 else _complain
    scribe = _Scribe(file, format_ or TextFormat(), warn)
    signals = EndSignals(watcher.machine.release)
    try:
        watcher.prepare()
        gc.collect()
        # The objects created so far exist until the end; exclude them from garbage collection.
        gc.freeze()
        trim_heap()
        if not signals.wait(options.prepare_seconds):
            _take_snapshots(watcher, scribe, options, signals)
        scribe.end(time.time())
    finally:
        signals.close()
        watcher.close()
        file.close()
    if options.count is not None and scribe.unwritten and not scribe.is_over:
        raise TrainvitalsError(
            f"cannot write {file.path}: {scribe.trouble}; the last snapshots are missing "
            f"({scribe.unwritten}); make room, or choose another place with --output"
        )
    return scribe.written


def _take_snapshots(
    watcher: Watcher, scribe: _Scribe, options: RecordOptions, signals: EndSignals
) -> None:
    schedule = Schedule(options.interval_seconds)
    number = skipped = 0
    while True:
        number += 1
        scribe.write(watcher.take_snapshot(number, skipped=skipped, unwritten=scribe.unwritten))
        if scribe.is_over or (options.count is not None and number >= options.count):
            return
        wait_seconds, skipped = schedule.advance()
        if signals.wait(wait_seconds):
            return
