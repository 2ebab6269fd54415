"""The limit on the file descriptors that are used to read runs.

The limit is needed because any user may create run files, and without a free file descriptor the
server could not accept connections.
"""

from __future__ import annotations

import errno
import os

from trainvitals.sources.files import has_room

_SHARE = 0.75


def require_room(descriptor: int) -> int:
    """Return a file descriptor; close it instead if less than a quarter of all descriptors is free.

    Raises:
        OSError: The file descriptor was closed; the error code is EMFILE, as if no file descriptor
            were free.
    """
    if not has_room(descriptor, _SHARE):
        os.close(descriptor)
        raise OSError(errno.EMFILE, "too many open files; raise LimitNOFILE")
    return descriptor
