"""The loop: look, write, wait for the next beat."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainvitals.allocator import give_back_free_memory
from trainvitals.record.beat import Beat, Ending
from trainvitals.record.logfile import Console, LogFile
from trainvitals.record.snapshot import Snapshot
from trainvitals.record.text import write_end, write_text
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


class _Scribe:
    """Writes pieces, and goes on after those that cannot be written."""

    def __init__(self, file: Console | LogFile, complain: Callable[[str], None]) -> None:
        self._file = file
        self._complain = complain
        self._said: int | None = None
        self.written = 0
        self.unwritten = 0
        self.is_over = False

    def write(self, snapshot: Snapshot) -> None:
        if self._append(write_text(snapshot)):
            self.written += 1
            self.unwritten = 0
        else:
            self.unwritten += 1

    def end(self, now: float) -> None:
        self._append(write_end(now, self.written))
        self._file.close()

    def _append(self, text: str) -> bool:
        try:
            self._file.append(text)
        except BrokenPipeError:  # who read along has had enough
            self.is_over = True
            return False
        except OSError as error:
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
    complain: Callable[[str], None] = _complain,
) -> int:
    """Record until the count is reached, or SIGTERM, SIGINT or SIGHUP; SIGUSR1 lets go of drivers.

    Args:
        watcher: Looks at the machine; it is closed at the end.
        file: Where to write; it is closed at the end.
        options: How.
        complain: Takes what a person should hear of.

    Returns:
        How many snapshots were written.
    """
    scribe = _Scribe(file, complain)
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
