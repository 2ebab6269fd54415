"""How many descriptors the readers of runs may keep.

Anybody may leave run files, and without a free descriptor the server could not take a connection.
"""

from __future__ import annotations

import errno
import os

try:
    import resource
except ImportError:  # Windows has no run files
    resource = None  # type: ignore[assignment]

_SHARE = 0.75


def require_room(descriptor: int) -> int:
    """Give back a descriptor, or close it where it leaves less than a quarter of them all free.

    The kernel gives the lowest number that is free, so the number tells how many are in use.

    Raises:
        OSError: EMFILE, as where there is none left.
    """
    if resource is not None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY and descriptor >= limit * _SHARE:
            os.close(descriptor)
            raise OSError(errno.EMFILE, "too many open files; raise LimitNOFILE")
    return descriptor
