"""What the tests of notifications share."""

import os
import re
import shutil
from pathlib import Path

import pytest

from trainvitals.notify import read_version

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "alertmanager"


@pytest.fixture(scope="session")
def alertmanager(alertmanager):
    """Give the path of a real Alertmanager; TRAINVITALS_TEST_ALERTMANAGER names another one."""
    return Path(os.environ.get("TRAINVITALS_TEST_ALERTMANAGER") or alertmanager)


@pytest.fixture(scope="session")
def amtool(alertmanager, amtool):
    """Give the amtool that came with it."""
    beside = alertmanager.parent / "amtool"
    return beside if beside.exists() else amtool


@pytest.fixture(scope="session")
def version(alertmanager):
    """Give the version of that Alertmanager."""
    return read_version(alertmanager)


@pytest.fixture(scope="session")
def quick_routes(tmp_path_factory):
    """Give the shipped files with all waiting shortened.

    10 and 30 s to 0.8 s, 10 s between two tests and 5 minutes between two messages of a group to
    4 s, a minute between two beats to 1 s.
    """
    place = tmp_path_factory.mktemp("shipped") / "alertmanager"
    shutil.copytree(SHIPPED, place)
    file = place / "alertmanager.yml"
    text = file.read_text(encoding="utf-8")
    for pattern, short in (
        (r"group_wait: (10|30)s", "group_wait: 800ms"),
        (r"group_interval: (5m|10s)", "group_interval: 4s"),
        (r"group_interval: 1m", "group_interval: 1s"),
        (r"repeat_interval: 50s", "repeat_interval: 800ms"),
    ):
        text, count = re.subn(pattern, short, text)
        assert count, pattern
    file.write_text(text, encoding="utf-8")
    return place
