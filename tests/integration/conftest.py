"""The timeouts of integration tests, and their distribution to processes of pytest-xdist.

Tests of one file run in one process, as they share what the module fixtures start. Tests that use
the machine's only Docker engine run one after the other, even from different files. The first of
these tests starts the engine and builds missing images.
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

_ROOT = "tests/integration/"
_ONE_ENGINE = ("compose", "docker_proxy", "doctor", "engine")
_SECONDS = 300
_ENGINE_SECONDS = 900


class FileScheduling(LoadScopeScheduling):
    """A scheduler with a process for each file, and one for all files that use Docker's engine."""

    def _split_scope(self, nodeid):
        """Return the group of a test, as xdist's own schedulers do."""
        path = nodeid.partition("::")[0]
        return "engine" if _has_engine(path) else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Return the scheduler for `--dist loadscope`; None for another kind.

    With pytest 9.2 and xdist 3.8, `xdist_group` marks have no effect, as they do not change test
    IDs.
    """
    return FileScheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_collection_modifyitems(config, items):
    """Set the timeout of each integration test that has no timeout of its own."""
    if config.getoption("timeout") is not None:
        return
    for item in items:
        path = item.nodeid.partition("::")[0]
        if path.startswith(_ROOT) and item.get_closest_marker("timeout") is None:
            seconds = _ENGINE_SECONDS if _has_engine(path) else _SECONDS
            item.add_marker(pytest.mark.timeout(seconds))


def _has_engine(path):
    return path.removeprefix(_ROOT).partition("/")[0] in _ONE_ENGINE
