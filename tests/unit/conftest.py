"""Shared fixtures: the files of a fake machine, and a certificate."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.certificates import make_certificate
from trainvitals.sources.files import Roots

MACHINE = Path(__file__).parents[1] / "fixtures" / "machine"
TRACED_CASES = 4
_IS_UNTRACED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Choose the cases of each test that are traced: at most `TRACED_CASES`, spread over all."""
    tests = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        interval = -(-len(cases) // TRACED_CASES)
        for number, case in enumerate(cases):
            is_marked = case.get_closest_marker("no_cover") is not None
            case.stash[_IS_UNTRACED] = number % interval != 0 and not is_marked


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Pause the measurement of coverage for cases that run the same code as traced cases.

    Tracing also slows pytest itself, which takes most of the time of a short test.
    """
    plugin = item.config.pluginmanager.getplugin("_cov")
    if plugin is None or plugin.cov_controller is None or not item.stash.get(_IS_UNTRACED, False):
        return (yield)
    plugin.cov_controller.pause()
    try:
        return (yield)
    finally:
        plugin.cov_controller.resume()


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A copy of the fake machine's `/proc` and `/sys`."""
    shutil.copytree(MACHINE, tmp_path / "machine")
    return Roots(procfs=tmp_path / "machine/proc", sysfs=tmp_path / "machine/sys")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A folder with a self-signed certificate for 127.0.0.1, cert.pem, and its key, key.pem."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))
