"""Fixtures for the tests of container engine clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine_stand_in import EngineStandIn


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineStandIn]:
    """A stand-in for a container engine that listens on its own socket."""
    with EngineStandIn(tmp_path / "engine.sock") as stand_in:
        yield stand_in
