"""The tracebacks of a log: of one process, or of many ranks that write between each other's lines.

Python prints a traceback as `Traceback (most recent call last):`, indented frames, and a line
`NAME: MESSAGE`, of which the message may go on. Several that belong together are joined by
`During handling of the above exception, another exception occurred:` or by `The above exception
was the direct cause of the following exception:`; of those before the last there may be no more than
the line `NAME: MESSAGE`. In torchrun's table they are indented, and the box that the package Rich
draws around frames counts as indentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainvitals.causes.ranks import is_launcher_line, read_table_rank, split_rank

_START = "Traceback (most recent call last)"
_JOINTS = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
_ASIDE = ("Exception ignored in", "Exception in thread", "Error in ", "--- Logging error ---")
_NAME = re.compile(r"[A-Za-z_][\w.]{0,200}(?=:|$)")
_BARE_NAME = re.compile(r"(?:[A-Za-z_][\w.]{0,200}\.)?[A-Z]\w{0,80}(?=: |:?$)")
_FRAME = re.compile(r'File "([^"\n]{1,400})", line ([0-9]{1,7})(?:, in ([^\s]{1,200}))?')
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python3", "<frozen")
_LONGEST_MESSAGE = 14
_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "ProcessExitedException")
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
)


@dataclass(frozen=True, slots=True)
class Error:
    """One exception with what follows of its message.

    Attributes:
        name: Its name with its module, as printed; empty where the line does not look like one.
        text: The line with the name, and the lines of the message behind it.
        line: Where in the log that line is, counted from 0.
    """

    name: str
    text: str
    line: int

    @property
    def headline(self) -> str:
        """The line with the name; where its message begins below it, with that."""
        first, *others = [line for line in self.text.split("\n") if line.strip()] or [""]
        return f"{first.rstrip()} {others[0]}" if others and first.rstrip().endswith(":") else first


@dataclass(frozen=True, slots=True)
class Traceback:
    """One traceback with those that it was joined to.

    Attributes:
        start: Where in the log it begins, counted from 0.
        end: Where its last line is.
        rank: The rank that wrote it; None where nothing says that.
        errors: Its exceptions in the order they stand in.
        place: Where it was raised: the last frame that is in no library, else the last frame.
        is_aside: Whether Python says itself that it did not end the program: an exception that was
            ignored, or one of a thread.
    """

    start: int
    end: int
    rank: int | None
    errors: tuple[Error, ...]
    place: str = ""
    is_aside: bool = False

    @property
    def is_launcher(self) -> bool:
        """Whether it is the launcher's own, which only says that a child failed."""
        return self.errors[-1].name.endswith(_LAUNCHERS)

    @property
    def is_consequence(self) -> bool:
        """Whether it only says that another rank is gone."""
        return any(sign in self.errors[-1].text for sign in _CONSEQUENCES)


def read_tracebacks(lines: Sequence[str]) -> tuple[Traceback, ...]:
    """Find all tracebacks, in the order they begin in."""
    streams: dict[int | None, list[tuple[int, str]]] = {}
    for index, line in enumerate(lines):
        rank, text = split_rank(line)
        streams.setdefault(rank, []).append((index, text))
    found = [
        traceback
        for rank, stream in streams.items()
        for traceback in _join(_Reader(stream, rank).read())
    ]
    return tuple(sorted(found, key=lambda traceback: traceback.start))


@dataclass(frozen=True, slots=True)
class _Part:
    """A traceback as it stands, before it is joined with those it belongs to."""

    traceback: Traceback
    is_joined: bool


@dataclass(frozen=True, slots=True)
class _Joint:
    """What was joined to a traceback that is still to come.

    Attributes:
        errors: Exceptions that stand before it without tracebacks.
        is_behind: Whether the first of all that is joined is a traceback.
    """

    errors: tuple[Error, ...] = ()
    is_behind: bool = False

    def extend(self, bare: Error | None, *, is_behind: bool) -> _Joint:
        """Give what is joined when another joint was read."""
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
                    is_aside=before.is_aside,
                )
            )
        else:
            found.append(part.traceback)
    return found


class _Reader:
    """Reads the tracebacks of one stream: all lines of one rank, or all that name none."""

    def __init__(self, stream: Sequence[tuple[int, str]], rank: int | None) -> None:
        self._stream = stream
        self._rank = rank
        self._at = 0

    def read(self) -> Iterator[_Part]:
        """Give the tracebacks one by one."""
        before = ""
        joint = _Joint()
        table_rank = None
        while self._at < len(self._stream):
            text = self._stream[self._at][1]
            if _START in text[:200]:
                joint = joint if before.startswith(_JOINTS) else _Joint()
                rank = self._rank if "traceback :" not in text else table_rank
                part = self._read_part(rank, before, joint, is_nested="Original " in text[:200])
                if part is not None:
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
        """Read an exception without a traceback, from its joint back to the line with its name."""
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
        place = self._skip_frames(head)
        if self._at >= len(self._stream):
            return None
        error = self._read_error()
        return _Part(
            Traceback(
                start=min([start, *(bare.line for bare in joint.errors)]),
                end=self._stream[self._at - 1][0],
                rank=rank,
                errors=(*joint.errors, error),
                place=place,
                is_aside=before.startswith(_ASIDE),
            ),
            is_joined=is_nested or joint.is_behind,
        )

    def _skip_frames(self, head: str) -> str:
        indent = _indent(head)
        is_boxed = "╭" in head
        place = own_place = ""
        while self._at < len(self._stream):
            text = self._stream[self._at][1]
            is_inside = text.startswith(("│", "╰")) if is_boxed else _indent(text) > indent
            if text.strip() and not is_inside:
                break
            frame = _FRAME.search(text[:700])
            if frame is not None:
                place = f"{frame[1]}:{frame[2]}" + (f" in {frame[3]}" if frame[3] else "")
                own_place = own_place if any(sign in place for sign in _LIBRARIES) else place
            self._at += 1
        return own_place or place

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
            if blanks > 1 or (blanks and len(message) > 2) or _ends_message(text):  # noqa: PLR2004
                break
            message.append(text.strip())
            self._at += 1
        return Error(name[0] if name else "", "\n".join(message).rstrip(), line)


def _ends_message(text: str) -> bool:
    stripped = text.strip()
    return (
        _START in text[:200]
        or stripped.startswith((*_JOINTS, *_ASIDE, "====", "----"))
        or is_launcher_line(stripped)
        or is_progress(text)
    )


_PROGRESS = ("step", "epoch", "iter", "it/s", "s/it", "samples/s", "tokens/s", "loss")


def is_progress(line: str) -> bool:
    """Whether a line looks like what a training that goes on writes: a step, an epoch, a loss."""
    lower = line[:400].lower()
    return (
        any(sign in lower for sign in _PROGRESS)
        and any(character in "0123456789" for character in lower)
        and "error" not in lower
    )


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
