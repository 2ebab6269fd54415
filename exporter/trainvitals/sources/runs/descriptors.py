"""The limit on file descriptors for reading runs.

Any user may create run files, and without a free file descriptor the server could not accept
connections.
"""

from __future__ import annotations

import errno
import os

from trainvitals.sources.files import has_room

_SHARE = 0.75


def require_room(descriptor: int) -> int:
    """Return a file descriptor, or close it if less than a quarter of all descriptors are free.

    Raises:
        OSError: The file descriptor was closed; the error is EMFILE, as if none were free.
    """
    if not has_room(descriptor, _SHARE):
        os.close(descriptor)
        raise OSError(errno.EMFILE, "too many open files; raise LimitNOFILE")
    return descriptor
