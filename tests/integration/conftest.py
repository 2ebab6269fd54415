"""How long integration tests may last, and which share a process of pytest-xdist.

Tests of one file share what its session fixtures start. Tests that use the machine's one Docker
engine run one after the other, whatever file they are in; the first of them starts it, and makes
the images where there are none.
"""

import pytest

_ONE_ENGINE = ("compose", "docker_proxy", "doctor", "engine")
_SECONDS = 300
_ENGINE_SECONDS = 900


def pytest_collection_modifyitems(config, items):
    """Return each test the group of the engine or of its file, and its time unless it has another."""
    root = config.rootpath / "tests/integration"
    is_timed = config.getoption("timeout") is not None
    for item in items:
        if item.path.is_relative_to(root):
            parts = item.path.relative_to(root).parts
            has_engine = parts[0] in _ONE_ENGINE
            item.add_marker(pytest.mark.xdist_group("engine" if has_engine else "/".join(parts)))
            if not is_timed and item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_ENGINE_SECONDS if has_engine else _SECONDS))
