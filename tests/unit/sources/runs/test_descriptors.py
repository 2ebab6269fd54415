"""Tests for the limit on the file descriptors that the readers of runs keep open."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from collections.abc import Iterator

import pytest

from trainvitals.sources.runs.descriptors import require_room


@pytest.fixture
def _at_most_1024() -> Iterator[None]:
    """A limit of 1024 open file descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("_at_most_1024")
def test_the_last_quarter_is_not_for_run_files():
    """With a limit of 1024, descriptor 767 is kept, and 768 is closed and raises `EMFILE`."""
    descriptor = os.open("/dev/null", os.O_RDONLY)
    kept = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 767)
    assert (kept, require_room(kept)) == (767, 767)
    refused = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 768)
    with pytest.raises(OSError, match="too many open files") as raised:
        require_room(refused)
    assert raised.value.errno == errno.EMFILE
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(refused)
    os.close(kept)
    os.close(descriptor)
