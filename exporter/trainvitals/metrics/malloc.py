"""Calls of glibc's allocator that keep the process small."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h


def use_one_arena() -> None:
    """Make all threads share one heap; to be called before the first thread is started.

    With an arena for each thread, memory freed by one cannot be used by another, while the
    interpreter lets only one thread allocate at a time anyway. C libraries without this setting
    ignore it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def trim_heap() -> None:
    """Return free heap pages to the system, such as those that imports needed temporarily."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
