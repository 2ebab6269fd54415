"""Fixtures of the recorded minute, the dashboards, and the answers to their queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from grafana.build.queries import find_metrics
from tests.integration.dashboards.live.copies import SCRAPE_SECONDS, make_blocks, write_fleet
from tests.integration.dashboards.live.expectations import read_expectations
from tests.integration.dashboards.live.gpu_box import LLAMA
from tests.integration.dashboards.live.grafana import Asked, Look
from tests.integration.dashboards.live.recording import Programs, Recording, record
from tests.integration.dashboards.live.server import Server
from tests.integration.dashboards.live.visits import Visits
from tests.unit.dashboards import boards as on_disk
from tests.unit.dashboards.boards import Board, read_boards


@pytest.fixture(scope="module")
def boards() -> Mapping[str, Board]:
    """Return the dashboards that Grafana loads, by uid."""
    return {board.uid: board for board in read_boards(on_disk.DASHBOARDS)}


@pytest.fixture(scope="module")
def recording(
    prometheus: Path, alertmanager: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recording]:
    """Yield a recorded minute of all machines."""
    directory = tmp_path_factory.mktemp("live")
    with record(Programs(prometheus, alertmanager), directory) as recording:
        yield recording


@pytest.fixture(scope="module")
def visits(recording: Recording, boards: Mapping[str, Board]) -> Visits:
    """Return an object that sends the dashboards' queries."""
    return Visits(recording, boards, read_expectations())


@pytest.fixture(scope="module")
def fleet(
    recording: Recording,
    boards: Mapping[str, Board],
    prometheus: Path,
    promtool: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Asked, Look]]:
    """Yield a client of a Prometheus with 64 hosts of 8 accelerators each, and a time range."""
    directory = tmp_path_factory.mktemp("fleet")
    questions = [question for board in boards.values() for question in board.questions]
    names = {name for question in questions for name in find_metrics(question.expr)}
    path = directory / "fleet.openmetrics"
    write_fleet(recording, names, "gpu-box:9200", LLAMA, path)
    make_blocks(promtool, path, directory / "data")
    path.unlink()
    seconds = recording.end - recording.begin
    with Server(prometheus, directory) as server:
        yield Asked(server), Look(recording.end, seconds, {}, scrape_seconds=SCRAPE_SECONDS)
