"""Fixtures of the accelerator tests, some of which run in parallel with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.accelerators.scene import BESIDE, Scene


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests that run in parallel to the end, where they only wait for their results."""
    items.sort(key=lambda item: item.name in BESIDE)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Eight H100 GPUs that no exporter reads yet."""
    with Scene(tmp_path) as scene:
        yield scene


@pytest.fixture(scope="session", autouse=True)
def begun(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MutableMapping[str, Future[None]]]:
    """The selected tests that run in parallel, which are started here."""
    names = {item.name for item in request.session.items}

    def run(body: Callable[[Scene], None], directory: Path) -> None:
        with Scene(directory) as scene:
            body(scene)

    with ThreadPoolExecutor(max(1, len(BESIDE))) as pool:
        yield {
            name: pool.submit(run, body, tmp_path_factory.mktemp("beside"))
            for name, body in BESIDE.items()
            if name in names
        }
