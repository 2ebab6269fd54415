"""The loop: look, write, wait for the next beat."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainvitals.allocator import give_back_free_memory
from trainvitals.errors import TrainvitalsError
from trainvitals.record.beat import Beat, Ending
from trainvitals.record.formats import Format, Piece, TextFormat
from trainvitals.record.logfile import Console, LogFile
from trainvitals.record.snapshot import Snapshot
from trainvitals.record.watcher import Watcher

_PREPARE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How to record.

    Attributes:
        interval_seconds: How far snapshots are apart.
        count: How many to take; None for no end.
        prepare_seconds: How long the machine is watched before the first.
    """

    interval_seconds: float = 30.0
    count: int | None = None
    prepare_seconds: float = _PREPARE_SECONDS


def _complain(text: str) -> None:
    sys.stderr.write(f"trainvitals: {text}\n")
    sys.stderr.flush()


def _keep_quiet(_: str) -> None:
    """Leave it to the error at the end."""


class _Scribe:
    """Writes pieces, and goes on after those that cannot be written."""

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
        except BrokenPipeError:  # who read along has had enough
            self.is_over = True
            return False
        except OSError as error:
            self.trouble = error.strerror or str(error)
            if error.errno != self._said:
                self._said = error.errno
                self._complain(
                    f"cannot write {self._file.path}: {error.strerror}; "
                    "the recording goes on when that is over"
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
    complain: Callable[[str], None] = _complain,
) -> int:
    """Record until the count is reached, or SIGTERM, SIGINT or SIGHUP; SIGUSR1 lets go of drivers.

    Args:
        watcher: Looks at the machine; it is closed at the end.
        file: Where to write; it is closed at the end.
        options: How.
        format_: What a snapshot looks like; text for people when None.
        complain: Takes what a person should hear of.

    Returns:
        How many snapshots were written.

    Raises:
        TrainvitalsError: The last snapshots of a count could not be written.
    """
    # Where nothing comes after the first there is nothing to say before the end.
    tell = _keep_quiet if options.count == 1 else complain
    scribe = _Scribe(file, format_ or TextFormat(), tell)
    ending = Ending(watcher.machine.let_go)
    try:
        watcher.prepare()
        gc.collect()
        gc.freeze()  # what is here now stays; the collector need not look at it again
        give_back_free_memory()
        if not ending.wait(options.prepare_seconds):
            _go_on(watcher, scribe, options, ending)
        scribe.end(time.time())
    finally:
        ending.close()
        watcher.close()
        file.close()
    if options.count is not None and scribe.unwritten and not scribe.is_over:
        raise TrainvitalsError(
            f"cannot write {file.path}: {scribe.trouble}; the last snapshots are missing "
            f"({scribe.unwritten}); make room, or choose another place with --output"
        )
    return scribe.written


def _go_on(watcher: Watcher, scribe: _Scribe, options: RecordOptions, ending: Ending) -> None:
    beat = Beat(options.interval_seconds)
    number = skipped = 0
    while True:
        number += 1
        scribe.write(watcher.look(number, skipped=skipped, unwritten=scribe.unwritten))
        if scribe.is_over or (options.count is not None and number >= options.count):
            return
        wait_seconds, skipped = beat.advance()
        if ending.wait(wait_seconds):
            return
