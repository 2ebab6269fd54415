"""Where the files of a trace go."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TracePlace:
    """Where a trace goes.

    Attributes:
        directory: The folder of all traces; it is made where it is missing.
        stem: What the trace's own folder is called, without the time.
    """

    directory: Path
    stem: str


def find_trace_place(directory: str, run: str, rank: int) -> TracePlace:
    """Tell where a trace of this moment goes.

    Args:
        directory: As the user wrote it; from the working directory where it is relative.
        run: The run's name.
        rank: Its rank.

    Raises:
        OSError: There is no working directory any more.
    """
    try:
        place = Path(directory).expanduser().absolute()
    except RuntimeError as error:  # $HOME is not set, and the user has no entry
        raise OSError(errno.ENOENT, "nobody knows this home directory", str(directory)) from error
    slug = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in run)
    return TracePlace(place, f"{slug[:48]}-{rank}")
