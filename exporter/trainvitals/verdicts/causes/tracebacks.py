"""Reads the tracebacks in a log of one process, or of several ranks with interleaved lines.

Python prints a traceback as `Traceback (most recent call last):`, indented frames, and a line
`NAME: MESSAGE`; the message may have more lines. Chained exceptions are joined by `During handling
of the above exception, another exception occurred:` or `The above exception was the direct cause of
the following exception:`. For an exception that is not the last one, the log may contain only the
line `NAME: MESSAGE`. Tracebacks in torchrun's table are indented, and the box that the package Rich
draws around frames counts as indentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from trainvitals.verdicts.causes.frames import (
    FRAME,
    names_exception,
    read_frame,
    read_name_of_ipython,
)
from trainvitals.verdicts.causes.lines import simplify
from trainvitals.verdicts.causes.ranks import is_launcher_line, read_table_rank, split_rank
from trainvitals.verdicts.causes.words import is_progress

_START = "Traceback (most recent call last)"
_JOINTS = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
_IGNORED = "Exception ignored "
_ASIDE = (_IGNORED, "Exception in thread", "Error in ", "--- Logging error ---")
_OF_CPP = "C++ Traceback"
_NAME = re.compile(r"^[A-Za-z_][\w.]{0,200}(?=:|$)")
_BARE_NAME = re.compile(r"^(?:[A-Za-z_][\w.]{0,200}\.)?[A-Z]\w{0,80}(?=: |:?$)")
# Functions that run finalizers and exit handlers, whose exceptions Python prints and drops.
_FINALIZERS = frozenset(
    {
        "__del__",
        "_run_finalizers",
        "_exit_function",
        "_run_exitfuncs",
        "_exitfunc",
        "_remove_temp_dir",
    }
)
# The function that runs a thread. Its frame identifies the traceback of a thread, because another
# thread may have written the line before the traceback.
_OF_THREAD = "_bootstrap_inner"
# The outermost functions in tracebacks that Python itself printed. The program or a logger printed
# all other tracebacks.
_OUTERMOST = frozenset({"<module>", "_bootstrap", _OF_THREAD})
_WARNED = re.compile(r"\bWARN(?:ING)?\b")
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python3", "<frozen")
# The beginning of the next log record, which is recognized by its time or its level.
_RECORD = re.compile(
    r"\W{0,2}(?:[A-Z] )?(?:[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}|[0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"|(?:[0-9]{1,6}: )?\W{0,2}[WEIFC][0-9]{3,4} [0-9]{2}:[0-9]{2}"  # PyTorch's native code
    r"|\W{0,2}(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b(?! ?\()"
)
_LONGEST_MESSAGE, _LONGEST_HEAD = 14, 200
# The exceptions of programs that execute notebooks; the message contains the traceback of the cell.
_OF_CELLS = ("CellExecutionError", "PapermillExecutionError")
_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "ProcessExitedException")
# A script's exception about a program that the script started.
_OF_CHILD = re.compile(
    r"\b(?:exited|returned|failed|finished|terminated|died) with (?:a )?non-?zero (?:exit )?(?:status|code)"
    r"|\b(?:exited|failed|finished) with (?:exit |return )(?:code|status) [1-9]"
    r"|[Nn]on-zero exit (?:code|status)"
)
_CONSEQUENCES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "ncclRemoteError",
    "NCCL communicator was aborted",
    "recvValue failed",
    "Socket closed",
    "Timed out waiting",
    "Watchdog caught collective operation timeout",
    "ActorDiedError",
    "RayActorError",
    "The actor died unexpectedly",
    "workers are no longer alive",
    "See root cause above",
    "See stack trace for root cause",
    "See stack trace (above) for the root cause",
    "see the root cause above",
    "No trials are completed yet",
    "Pin memory thread exited unexpectedly",
    "Collective ops is aborted by",
    "errors_impl.UnavailableError",
    "Background thread failed. Check other traceback",
)
# Exceptions at the other end of a pipe after a process of the same program has died.
_PIPE = "multiprocessing/connection.py:"
_PIPE_ERRORS = ("EOFError", "BrokenPipeError", "ConnectionResetError")
# A program's report that other programs failed, without the errors of these programs.
_OF_OTHERS = re.compile(
    r"\b(?:trials?|workers?|tasks?|jobs?|actors?|subprocess(?:es)?|child(?:ren| process(?:es)?)?)\b"
    r"[^:\n]{0,24}\b(?:did not complete|failed|crashed|errored)\b(?! ?:)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Error:
    """One exception with its message.

    Attributes:
        name: The exception's name with the module, as printed; empty if the line contains no name.
        text: The line with the name, and the further lines of the message.
        line: The index of the line with the name in the log, from 0.
    """

    name: str
    text: str
    line: int

    @property
    def headline(self) -> str:
        """The line with the name; if the message begins on the next line, that line is appended."""
        first, *others = [line for line in self.text.split("\n") if line.strip()] or [""]
        return f"{first.rstrip()} {others[0]}" if others and first.rstrip().endswith(":") else first


@dataclass(frozen=True, slots=True)
class Traceback:
    """One traceback, including the tracebacks of earlier exceptions in its chain.

    Attributes:
        start: The index of the first line of the traceback in the log, from 0.
        end: The index of the last line of the traceback.
        rank: The rank that wrote the traceback; None if the rank is unknown.
        errors: The exceptions in the order of the log.
        place: The last frame outside of libraries, or else the last frame; empty if the traceback
            has no frame.
        last_place: The last frame; empty if the traceback has no frame.
        is_aside: Whether the exception did not end the program, because the exception was ignored,
            raised in a finalizer or a thread, or logged as a warning.
        is_dropped: Whether Python discarded the exception, because the exception was ignored or
            raised in a finalizer.
    """

    start: int
    end: int
    rank: int | None
    errors: tuple[Error, ...]
    place: str = ""
    last_place: str = ""
    is_aside: bool = False
    is_dropped: bool = False

    @property
    def is_launcher(self) -> bool:
        """Whether a launcher raised the exception to report that a child failed."""
        last = self.errors[-1]
        return last.name.endswith(_LAUNCHERS) or _OF_CHILD.search(last.text) is not None

    @property
    def is_consequence(self) -> bool:
        """Whether the last exception only reports the loss of another rank or program."""
        text = self.errors[-1].text
        return (
            any(each in text for each in _CONSEQUENCES)
            or _OF_OTHERS.search(self.errors[-1].headline) is not None
            or self.is_of_lost_process
        )

    @property
    def is_of_lost_process(self) -> bool:
        """Whether the last exception only reports that a process at the other end of a pipe died."""
        return _PIPE in self.last_place and self.errors[-1].name.endswith(_PIPE_ERRORS)


def read_tracebacks(lines: Sequence[str]) -> tuple[Traceback, ...]:
    """Return all tracebacks of a log in the order of their first lines."""
    return _read_tracebacks(tuple(lines))


@lru_cache(maxsize=8)  # Filters and causes read the same log in turn.
def _read_tracebacks(lines: tuple[str, ...]) -> tuple[Traceback, ...]:
    streams: dict[int | None, list[tuple[int, str]]] = {}
    for index, line in enumerate(lines):
        rank, text = split_rank(line)
        streams.setdefault(rank, []).append((index, text))
    found = [
        traceback
        for rank, stream in streams.items()
        for traceback in _join(_Reader(tuple(_strip_records(stream)), rank).read())
    ]
    return tuple(sorted(found, key=lambda traceback: traceback.start))


def find_script(lines: Sequence[str]) -> str:
    """Return the first script outside of libraries in a traceback, or an empty string."""
    frames = [found for line in lines if (found := FRAME.search(line[:700])) is not None]
    names = (found[1] for found in frames if found[3] == "<module>")
    return next(
        (name for name in names if name.endswith(".py") and not any(map(name.count, _LIBRARIES))),
        "",
    )


def _strip_records(stream: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the lines without the prefix that a logger wrote before each line of a traceback."""
    prefix = ""
    for index, line in stream:
        at = line.find(_START, 0, _LONGEST_HEAD)
        if at > 0 and _RECORD.match(line):
            prefix = simplify(line[:at])
        if not prefix or not simplify(line[: len(prefix)]).startswith(prefix.rstrip()):
            prefix = ""
        yield index, line[len(prefix) :]


@dataclass(frozen=True, slots=True)
class _Part:
    """A traceback that has not yet been joined with the other tracebacks in the same chain.

    Attributes:
        traceback: The traceback.
        is_joined: Whether the traceback continues the chain of the previous traceback.
        is_of_main_thread: Whether a frame is at module level, which shows that the exception was
            not raised in another thread.
    """

    traceback: Traceback
    is_joined: bool
    is_of_main_thread: bool


@dataclass(frozen=True, slots=True)
class _Joint:
    """The exceptions that are chained to the next traceback.

    Attributes:
        errors: Earlier exceptions of the chain that have no traceback.
        is_behind: Whether the first exception of the chain has a traceback.
    """

    errors: tuple[Error, ...] = ()
    is_behind: bool = False

    def extend(self, bare: Error | None, *, is_behind: bool) -> _Joint:
        """Return a copy with another exception; `bare` is None if it has a traceback."""
        errors = self.errors if bare is None else (*self.errors, bare)
        return _Joint(errors, self.is_behind or is_behind)


def _join(parts: Iterator[_Part]) -> list[Traceback]:
    found: list[Traceback] = []
    for part in parts:
        if part.is_joined and found:
            before = found.pop()
            found.append(
                Traceback(
                    start=before.start,
                    end=part.traceback.end,
                    rank=before.rank,
                    errors=before.errors + part.traceback.errors,
                    place=part.traceback.place or before.place,
                    last_place=part.traceback.last_place or before.last_place,
                    # The main thread may raise a thread's exception again.
                    is_aside=before.is_dropped or (before.is_aside and not part.is_of_main_thread),
                    is_dropped=before.is_dropped,
                )
            )
        else:
            found.append(part.traceback)
    return found


class _Reader:
    """Reads the tracebacks of one stream: the lines of one rank, or the lines without a rank."""

    def __init__(self, stream: Sequence[tuple[int, str]], rank: int | None) -> None:
        self._stream = stream
        self._rank = rank
        self._at = 0
        self._last_name = ""

    def read(self) -> Iterator[_Part]:
        """Yield the tracebacks in the stream."""
        before = ""
        joint = _Joint()
        table_rank = None
        while self._at < len(self._stream):
            text = self._stream[self._at][1]
            if _START in text[:_LONGEST_HEAD] and _OF_CPP not in text[:_LONGEST_HEAD]:
                joint = joint if before.startswith(_JOINTS) else _Joint()
                rank = self._rank if "traceback :" not in text else table_rank
                is_nested = "Original " in text[:_LONGEST_HEAD] or (
                    self._last_name.endswith(_OF_CELLS) and bool(read_name_of_ipython(text))
                )
                part = self._read_part(rank, before, joint, is_nested=is_nested)
                if part is not None:
                    self._last_name = part.traceback.errors[-1].name
                    yield part
                before, joint = "", _Joint()
                continue
            if text.startswith(_JOINTS):
                joint = joint.extend(self._read_bare() if before else None, is_behind=not before)
            rank_of_table = read_table_rank(text)
            table_rank = table_rank if rank_of_table is None else rank_of_table
            before = text.strip() or before
            self._at += 1

    def _read_bare(self) -> Error | None:
        """Read an exception that has no traceback, from its last line back to its name."""
        message: list[str] = []
        for line, text in reversed(self._stream[max(0, self._at - _LONGEST_MESSAGE) : self._at]):
            if text.startswith(_JOINTS):
                return None
            message.append(text.strip())
            name = _BARE_NAME.match(text)
            if name is not None:
                return Error(name[0], "\n".join(reversed(message)).rstrip(), line)
        return None

    def _read_part(
        self, rank: int | None, before: str, joint: _Joint, *, is_nested: bool
    ) -> _Part | None:
        start, head = self._stream[self._at]
        self._at += 1
        place, last_place, functions = self._skip_frames(head)
        # Two threads may write their tracebacks at the same time, line by line; the second
        # traceback then contains the lines of both.
        if self._at >= len(self._stream) or _START in self._stream[self._at][1][:_LONGEST_HEAD]:
            return None
        error = self._read_error()
        is_finalizer = not _FINALIZERS.isdisjoint(functions)
        is_dropped = is_finalizer or before.startswith((_IGNORED, "Error in atexit"))
        is_of_thread = _OF_THREAD in functions or before.startswith(_ASIDE)
        is_warned = _is_warning(before) and _OUTERMOST.isdisjoint(functions)
        return _Part(
            Traceback(
                start=min([start, *(bare.line for bare in joint.errors)]),
                end=self._stream[self._at - 1][0],
                rank=rank,
                errors=(*joint.errors, error),
                place=place,
                last_place=last_place,
                is_aside=is_dropped or is_of_thread or is_warned,
                is_dropped=is_dropped,
            ),
            is_joined=is_nested or joint.is_behind,
            is_of_main_thread="<module>" in functions,
        )

    def _skip_frames(self, head: str) -> tuple[str, str, set[str]]:
        """Skip frames; return `place` and `last_place` of `Traceback`, and the function names."""
        is_end = self._make_end(head)
        place = own_place = ""
        functions: set[str] = set()
        while self._at < len(self._stream):
            text = self._stream[self._at][1]
            if text.strip() and is_end(text):
                break
            frame = read_frame(text)
            if frame is not None:
                place, function = frame
                own_place = own_place if any(part in place for part in _LIBRARIES) else place
                functions.add(function)
            self._at += 1
        return own_place or place, place, functions

    def _make_end(self, head: str) -> Callable[[str], bool]:
        """Return a function that recognizes the line with the name of the exception."""
        if name := read_name_of_ipython(head):
            return lambda text: _START in text or names_exception(text, name)
        if "╭" in head:
            return lambda text: not text.startswith(("│", "╰"))
        indent = _indent(head)
        return lambda text: _indent(text) <= indent

    def _read_error(self) -> Error:
        line, text = self._stream[self._at]
        self._at += 1
        headline = text.strip()
        name = _NAME.match(headline)
        message = [headline]
        blanks = 0
        while self._at < len(self._stream) and len(message) < _LONGEST_MESSAGE:
            text = self._stream[self._at][1]
            blanks += not text.strip()
            if blanks > 1 or (blanks and len(message) > 2) or ends_message(text):  # noqa: PLR2004
                break
            message.append(text.strip())
            self._at += 1
        return Error(name[0] if name else "", "\n".join(message).rstrip(), line)


def ends_message(text: str) -> bool:
    """Return whether a line after an exception does not belong to the exception's message."""
    stripped = text.strip()
    return (
        _START in text[:_LONGEST_HEAD]
        or stripped.startswith((*_JOINTS, *_ASIDE, "====", "----"))
        or is_launcher_line(stripped)
        or _RECORD.match(stripped) is not None
        or is_progress(text)
    )


def _is_warning(line: str) -> bool:
    return _RECORD.match(line) is not None and _WARNED.search(line[:_LONGEST_HEAD]) is not None


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
