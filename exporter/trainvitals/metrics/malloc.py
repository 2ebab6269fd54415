"""Calls to glibc's allocator functions that limit the memory of the process."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # The constant is defined in malloc.h.


def use_one_arena() -> None:
    """Make all threads share one heap; call this function before the first thread is started.

    If each thread had its own arena, other threads could not use the memory that a thread has
    freed. The interpreter allows only one thread to allocate at a time, so a single arena causes no
    contention. With a C library that lacks this setting, the call has no effect.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def trim_heap() -> None:
    """Return free heap pages to the system, such as pages that imports needed temporarily."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
