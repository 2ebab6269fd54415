"""The time for which a removed container stays on the page."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.engine.stage import Stage
from tests.support.waiting import wait_until
from trainvitals.sources.containers.reading import ContainerReading
from trainvitals.sources.containers.source import ContainerOptions, ContainerSource
from trainvitals.verdicts.causes.judge import judge

_TEN_MINUTES = 600.0


def test_its_series_stay_ten_minutes_and_go(make_stage: Callable[..., Stage], tmp_path: Path):
    """The death of a container with `--rm` is reported for ten minutes, and then no longer."""
    stage = make_stage("gone")
    later = 0.0
    options = ContainerOptions(
        engine=f"unix://{stage.socket}", journal=tmp_path, interval_seconds=0.2
    )
    source = ContainerSource(options, judge=judge, clock=lambda: time.time() + later)
    try:

        def find() -> ContainerReading | None:
            containers = source.read().containers
            return next((each for each in containers if each.name == stage.name), None)

        def has_died() -> bool:
            found = find()
            return found is not None and found.last_death is not None and found.ends_at is not None

        stage.wait_until(lambda: source.read().is_connected, "connected")
        assert not stage.run(("--rm",), ("sh", "-c", "exit 3"))
        stage.wait_until(has_died, "dead")

        later = _TEN_MINUTES - 60
        _wait_for_look(source)
        found = find()
        assert found is not None
        assert found.last_death is not None
        assert found.last_death.exit_code == 3

        later = _TEN_MINUTES + 1
        stage.wait_until(lambda: find() is None, "forgotten")
    finally:
        source.close()


def _wait_for_look(source: ContainerSource) -> None:
    """Wait until all containers have been read twice from now on."""
    for _ in range(2):
        before = source.read().sampled
        wait_until(lambda before=before: source.read().sampled != before)
