"""The limit of file descriptors for the readers of runs.

Any user may create run files, and without a free descriptor the server could not accept a
connection.
"""

from __future__ import annotations

import errno
import os

from trainvitals.sources.files import has_room

_SHARE = 0.75


def require_room(descriptor: int) -> int:
    """Return a descriptor, or close it if less than a quarter of all descriptors are free.

    Raises:
        OSError: EMFILE, as if no descriptors were left.
    """
    if not has_room(descriptor, _SHARE):
        os.close(descriptor)
        raise OSError(errno.EMFILE, "too many open files; raise LimitNOFILE")
    return descriptor
