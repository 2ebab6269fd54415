"""Keeping the process small: settings of glibc's allocator that fit an exporter."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h


def use_one_arena() -> None:
    """Have all threads share one heap; to be called before the first thread.

    With an arena each, every thread keeps freed memory that no other can use. The interpreter
    lets one thread allocate at a time anyway. Without effect where the C library has no such
    setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def give_back_free_memory() -> None:
    """Give free heap pages back to the system, such as what the imports needed for a moment."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
