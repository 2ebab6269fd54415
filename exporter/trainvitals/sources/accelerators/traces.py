"""The traces that a driver and its devices leave in `/proc` and `/sys`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trainvitals.sources.files import Roots


class Traces:
    """Notices that a driver or one of its devices came or went, at the cost of a few listings.

    Args:
        paths: Files and directories; each path begins with `proc/` or `sys/`.
        roots: Where those are found.
    """

    def __init__(self, paths: Sequence[str], roots: Roots) -> None:
        self._paths = tuple(_locate(path, roots) for path in paths)
        self._seen = self._look()

    def have_changed(self) -> bool:
        """Tell whether anything came or went since the last time."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> tuple[object, ...]:
        return tuple(_look_at(path) for path in self._paths)


def _locate(trace: str, roots: Roots) -> Path:
    tree, _, rest = trace.partition("/")
    return {"proc": roots.procfs, "sys": roots.sysfs}[tree] / rest


def _look_at(trace: Path) -> object:
    """What a file or directory shows at little cost: its entries, or that it is there."""
    try:
        return frozenset(os.listdir(trace))  # noqa: PTH208 - on every scrape
    except NotADirectoryError:
        return True
    except OSError:
        return None
