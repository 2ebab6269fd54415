"""The exporter and `diagnose` only read from a container engine and change nothing on it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.engine.conftest import Watch
from tests.integration.engine.recording_proxy import RecordingProxy
from tests.integration.engine.stage import Stage, ask_engine

_EAT = "b = []\nwhile True: b.append(b'x' * (1 << 20))"


@pytest.fixture
def proxy(make_stage: Callable[..., Stage]) -> Iterator[RecordingProxy]:
    """Start a recording proxy in front of the machine's own engine."""
    # The path of a Unix socket may have at most 107 bytes.
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "docker.sock"
        with RecordingProxy(path, make_stage("").socket) as proxy:
            yield proxy


def test_the_proxy_writes_down_what_changes_something(proxy: RecordingProxy):
    """The recording proxy writes down the request line of a POST as well as of a GET."""
    socket = proxy.address.removeprefix("unix://")
    assert "ApiVersion" in ask_engine(socket, "/version").json()
    assert ask_engine(socket, "/containers/trainvitals-none/kill", "POST").status_code == 404
    assert proxy.lines == [
        "GET /version HTTP/1.1",
        "POST /containers/trainvitals-none/kill HTTP/1.1",
    ]


def test_they_send_only_get(
    proxy: RecordingProxy,
    make_stage: Callable[..., Stage],
    watch_second: Callable[..., Watch],
):
    """Every request is a GET while containers start, become unhealthy, exhaust memory and end."""
    watch = watch_second(proxy.address)
    sick, full, gone = make_stage("sick"), make_stage("full"), make_stage("gone")
    probe = ("--health-cmd=exit 1", "--health-interval=300ms", "--health-retries=1")
    assert not sick.run(probe, ("sleep", "600"))
    assert not full.run(("--memory=48m",), ("python3", "-c", _EAT))
    assert not gone.run(("--rm",), ("sh", "-c", "echo last words; exit 3"))
    watch.exporter.scrape_until(
        lambda page: bool(
            page.find("container_health", name=sick.name, status="unhealthy")
            and page.find("container_last_death_info", name=full.name)
            and page.find("container_last_death_info", name=gone.name)
        ),
        "container",
    )
    for words in ((sick.name,), (full.name,), (gone.name,), ("--last",), ("--since", "1h")):
        assert watch.run("diagnose", *words).returncode in {0, 1}, words

    paths = {re.sub(r"[0-9a-f]{64}|\?.*", "", line.split()[1]) for line in proxy.lines}
    assert {line.split()[0] for line in proxy.lines} == {"GET"}
    told = {path.partition("/containers")[2] for path in paths}
    assert {"/json", "//json", "//logs"} <= told, paths
    assert not [path for path in paths if re.search(r"/(exec|attach|archive|export)\b", path)]
