"""Shared fixtures: the files of a fake machine, and a certificate."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.certificates import make_certificate
from trainvitals.sources.files import Roots

MACHINE = Path(__file__).parents[1] / "fixtures" / "machine"
TRACED_CASES = 4
_IS_UNTRACED = pytest.StashKey[bool]()
_MEMORY = "/dev/shm"
_ROOM_BYTES = 1 << 30


def pytest_configure() -> None:
    """Keep the 60,000 small files of the tests in memory, if it has room and may hold programs."""
    try:
        memory = os.statvfs(_MEMORY)
    except OSError:
        return
    if memory.f_bavail * memory.f_frsize >= _ROOM_BYTES and not memory.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Choose the cases that are traced, and begin with the longest tests.

    Of each test, at most `TRACED_CASES` cases are traced, spread over all. Tests that repeat made-up
    inputs take the longest: at the end, they would run while the other workers are idle.
    """
    items.sort(key=lambda item: item.get_closest_marker("untraced") is None)
    tests = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        interval = -(-len(cases) // TRACED_CASES)
        for number, case in enumerate(cases):
            is_marked = case.get_closest_marker("untraced") is not None
            case.stash[_IS_UNTRACED] = is_marked or number % interval != 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure no coverage during a test that is marked, or a case that runs the code of others.

    Tracing doubles the time of a test and of pytest around it. The marker `no_cover` of pytest-cov
    has no effect in the processes of pytest-xdist, each of which measures the coverage twice.
    """
    if not item.stash.get(_IS_UNTRACED, False):
        return (yield)
    of_this_thread, of_new_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(of_this_thread)
        threading.settrace(of_new_threads)


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A copy of the fake machine's `/proc` and `/sys`."""
    shutil.copytree(MACHINE, tmp_path / "machine")
    return Roots(procfs=tmp_path / "machine/proc", sysfs=tmp_path / "machine/sys")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A folder with a self-signed certificate for 127.0.0.1, cert.pem, and its key, key.pem."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))
