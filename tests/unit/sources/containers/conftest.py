"""An engine for the tests of its clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine_stand_in import EngineStandIn


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineStandIn]:
    """An engine on a socket of its own."""
    with EngineStandIn(tmp_path / "engine.sock") as stand_in:
        yield stand_in
