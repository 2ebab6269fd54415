"""How long integration tests may last, and which share a process of pytest-xdist.

Tests of one file share what its module fixtures start. Tests that use the machine's one Docker
engine run one after the other, whatever file they are in; the first of them starts it, and makes
the images where there are none.
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

_ROOT = "tests/integration/"
_ONE_ENGINE = ("compose", "docker_proxy", "doctor", "engine")
_SECONDS = 300
_ENGINE_SECONDS = 900


class FileScheduling(LoadScopeScheduling):
    """A process for each file, and one for all files that use the Docker engine."""

    def _split_scope(self, nodeid):
        """Return the group of a test, as xdist's own schedulers do."""
        path = nodeid.partition("::")[0]
        return "engine" if _has_engine(path) else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Return the scheduler for `--dist loadscope`; None for another kind.

    Marks of `xdist_group` do not reach xdist 3.8 from pytest 9.2, whose tests keep their names.
    """
    return FileScheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_collection_modifyitems(config, items):
    """Set the time that each test may take, unless it has its own."""
    if config.getoption("timeout") is not None:
        return
    for item in items:
        path = item.nodeid.partition("::")[0]
        if path.startswith(_ROOT) and item.get_closest_marker("timeout") is None:
            seconds = _ENGINE_SECONDS if _has_engine(path) else _SECONDS
            item.add_marker(pytest.mark.timeout(seconds))


def _has_engine(path):
    return path.removeprefix(_ROOT).partition("/")[0] in _ONE_ENGINE
