"""The fake machine, as files that a test may change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainvitals.sources.files import Roots

MACHINE = Path(__file__).parents[2] / "fixtures" / "machine"


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A copy of the fake machine's `/proc` and `/sys`."""
    shutil.copytree(MACHINE, tmp_path / "machine")
    return Roots(procfs=tmp_path / "machine/proc", sysfs=tmp_path / "machine/sys")
