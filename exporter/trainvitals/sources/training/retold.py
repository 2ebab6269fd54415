"""Which found runs tell of themselves too, through the training client.

Such a run has the name that the client gave it, or its event file was made by the client's process:
writers name these files `events.out.tfevents.SECOND.HOST.PID.` and so on. What the client tells is
worth more, so the run is shown once, and what is found of it is left aside for as long as the
client's run file is there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

from trainvitals.sources.training.scalars import FoundRun
from trainvitals.sources.training.starts import Start, date_start

_PREFIX = ["events", "out", "tfevents"]
_CLOCK_SECONDS = 2.0
# A log may get its last lines when the client is done.
_LAST_LINES_SECONDS = 60.0


def leave_out_retold(found: Iterable[FoundRun], starts: Sequence[Start]) -> list[FoundRun]:
    """Give the found runs that do not tell of themselves.

    Args:
        found: What event files and logs tell of.
        starts: Every start whose run file is there, those that are not shown any more included.
    """
    by_name: dict[str, list[Start]] = {}
    for start in starts:
        by_name.setdefault(start.run, []).append(start)
    return [
        run
        for run in found
        if not any(_is_of(run, start) for start in by_name.get(run.run, ()))
        and not any(_made(start, run.path) for start in starts)
    ]


def _is_of(run: FoundRun, start: Start) -> bool:
    """Tell whether a run is a start of the same name, and not a later one that took the name."""
    return start.ending is None or run.last_time <= start.ending.time + _LAST_LINES_SECONDS


def _made(start: Start, path: str) -> bool:
    """Tell whether the process of a start made an event file."""
    *prefix, second, writer = [*os.path.basename(path).split(".", 4), "", ""][:5]  # noqa: PTH119 - hot
    host, pid = start.identity.static.get("hostname"), start.identity.pid
    if prefix != _PREFIX or not second.isdecimal() or not writer.startswith(f"{host}.{pid}."):
        return False
    # Numbers of processes come again, in containers above all.
    started = date_start(start.identity) or 0.0
    ended = math.inf if start.ending is None else start.ending.time
    return started - _CLOCK_SECONDS <= float(second) <= ended + _CLOCK_SECONDS
