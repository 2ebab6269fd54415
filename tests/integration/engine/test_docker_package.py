"""The exporter's values in comparison with those of Docker's own Python package."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from tests.integration.engine.conftest import SOCKET, Watch, start_watch
from tests.integration.engine.stage import Stage
from tests.support.exporter_process import Page
from trainvitals.sources.timestamps import parse_time

_EAT = "b = []\nwhile True: b.append(b'x' * (1 << 20))"
_WORK = "import time\nb = b'x' * (24 << 20)\nwhile True: sum(range(10000)); time.sleep(0.01)"
_MIB = 1 << 20

# For each container: the options of `docker run`, and the command.
_SCENES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "works": (
        ("--memory=256m", "--publish=127.0.0.1::8000", "--expose=9000/udp"),
        ("python3", "-c", _WORK),
    ),
    "sleeps": (("--env=TOKEN=hidden",), ("sleep", "600")),
    "paused": ((), ("sleep", "600")),
    "full": (("--memory=48m", "--memory-swap=48m"), ("python3", "-c", _EAT)),
    "failed": ((), ("sh", "-c", "exit 3")),
    "finished": ((), ("true",)),
    "again": (("--restart=on-failure:2",), ("sh", "-c", "exit 7")),
    "sick": (
        ("--health-cmd=exit 1", "--health-interval=300ms", "--health-retries=1"),
        ("sleep", "600"),
    ),
}
# On a busy machine, the engine's own time of an end is seconds after the event.
_LATE_SECONDS = 15.0
_ENDED = ("full", "failed", "finished", "again")


@pytest.fixture(scope="module")
def client(engine: dict[str, str]) -> Iterator[docker.DockerClient]:
    """Yield a client of the machine's own engine."""
    client = docker.from_env(environment=engine)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture(scope="module")
def watch(engine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """Yield an exporter that watches the machine's own engine from before the first container."""
    watch = start_watch(tmp_path_factory.mktemp("watch"), engine.get("DOCKER_HOST", SOCKET))
    with watch.exporter:
        yield watch


@pytest.fixture(scope="module")
def containers(
    watch: Watch, client: docker.DockerClient, engine: dict[str, str], python_image: str
) -> Iterator[dict[str, Container]]:
    """Yield a container of each scene from Docker's package, once all have their final state."""
    watch.exporter.scrape_until(
        lambda page: page.value("trainvitals_containers_events_connected") == 1, "container"
    )
    prefix = f"trainvitals-{uuid.uuid4().hex[:8]}"
    socket = engine.get("DOCKER_HOST", SOCKET).removeprefix("unix://")
    stages = {
        title: Stage(f"{prefix}-{title}", engine, python_image, socket=socket) for title in _SCENES
    }
    try:
        for title, (options, command) in _SCENES.items():
            assert not stages[title].run(options, command)
        for title in _ENDED:
            stages[title].wait_for_end()
        found = {title: client.containers.get(stage.name) for title, stage in stages.items()}
        found["paused"].pause()
        stages["sick"].wait_until(lambda: _reload(found["sick"]).health == "unhealthy")
        yield {title: _reload(each) for title, each in found.items()}
    finally:
        for container in client.containers.list(all=True, filters={"name": prefix}):
            container.remove(force=True, v=True)


def _reload(container: Container) -> Container:
    container.reload()
    return container


def _scrape(watch: Watch, containers: Mapping[str, Container]) -> Page:
    """Return a page on which every container has its final state."""

    def is_whole(page: Page) -> bool:
        return all(
            page.value("container_state", name=each.name, state=each.status) == 1
            and bool(each.status != "running" or _measures(page, each))
            for each in containers.values()
        ) and bool(page.find("container_health", name=containers["sick"].name, status="unhealthy"))

    return watch.exporter.scrape_until(is_whole, "container")


def _measures(page: Page, container: Container) -> bool:
    return page.value("container_cpu_usage_seconds_total", name=container.name) is not None


def _state(container: Container) -> dict[str, Any]:
    state: dict[str, Any] = container.attrs["State"]
    return state


def test_states_and_ends_are_those_that_docker_has(watch: Watch, containers: dict[str, Container]):
    """The exporter's states, times, restarts, limits and exit codes are those of Docker."""
    page = _scrape(watch, containers)
    for container in containers.values():
        name, attributes, state = container.name, container.attrs, _state(container)
        told = page.values("container_state", "state", name=name)
        assert [each for each, value in told.items() if value] == [container.status]
        assert page.value("container_info", name=name, image=attributes["Config"]["Image"]) == 1
        started = page.value("container_start_time_seconds", name=name)
        assert started == pytest.approx(parse_time(state["StartedAt"]), abs=_LATE_SECONDS)
        assert page.value("container_restarts_total", name=name) == attributes["RestartCount"]
        healths = page.values("container_health", "status", name=name)
        assert [each for each, value in healths.items() if value] == (
            [container.health] if container.health != "unknown" else []
        )
    for title in _ENDED:
        name, state = containers[title].name, _state(containers[title])
        assert page.value("container_last_exit_code", name=name) == state["ExitCode"]
        ended = page.value("container_last_death_timestamp_seconds", name=name)
        assert ended == pytest.approx(parse_time(state["FinishedAt"]), abs=_LATE_SECONDS)
        kills = page.values("container_oom_kills_total", "source", name=name)
        # On a busy machine, Docker may omit kills that its events and the kernel report.
        assert any(kills.values()) is (title == "full")
        assert state["OOMKilled"] in {False, title == "full"}
    limits = {
        title: page.value("container_spec_memory_limit_bytes", name=containers[title].name)
        for title in ("works", "sleeps")
    }
    assert limits == {
        title: containers[title].attrs["HostConfig"]["Memory"] for title in ("works", "sleeps")
    }


def test_use_is_what_docker_measures(watch: Watch, containers: dict[str, Container]):
    """CPU time and network bytes lie between two readings of Docker; memory is about equal."""
    container, before = containers["works"], containers["works"].stats(stream=False)
    page = watch.exporter.scrape_until(
        lambda page: (
            (page.value("container_cpu_usage_seconds_total", name=container.name) or 0)
            >= before["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9
        ),
        "container",
    )
    after = container.stats(stream=False)
    used = page.value("container_cpu_usage_seconds_total", name=container.name)
    assert used is not None
    assert used <= after["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9
    working_set = page.value("container_memory_working_set_bytes", name=container.name)
    assert working_set == pytest.approx(_measure_memory(after), abs=4 * _MIB)
    assert page.value("container_threads", name=container.name) == after["pids_stats"]["current"]
    for direction, key in (("receive", "rx_bytes"), ("transmit", "tx_bytes")):
        counts = [sum(net[key] for net in each["networks"].values()) for each in (before, after)]
        told = page.value(f"container_network_{direction}_bytes_total", name=container.name)
        assert told is not None
        assert counts[0] <= told <= counts[1]


def _measure_memory(stats: Mapping[str, Any]) -> int:
    """Return memory as `docker stats` shows it, without the inactive file cache."""
    memory = stats["memory_stats"]
    inactive = memory["stats"].get("total_inactive_file", memory["stats"].get("inactive_file", 0))
    return int(memory["usage"] - inactive)


def test_a_reason_agrees_with_what_docker_says(watch: Watch, containers: dict[str, Container]):
    """`diagnose` reports Docker's exit code, and an OOM kill if Docker reports one."""
    _scrape(watch, containers)
    for title, reason in (("full", "oom-cgroup"), ("failed", None), ("finished", "finished")):
        container = containers[title]
        told = watch.diagnose(container.name)
        assert told["exit_code"] == _state(container)["ExitCode"]
        assert reason in {None, told["reason"]}
        assert _state(container)["OOMKilled"] in {False, told["reason"] == "oom-cgroup"}


def test_doctor_shows_the_ports_that_docker_has(watch: Watch, containers: dict[str, Container]):
    """`doctor` lists published ports with their address and exposed ports without one."""
    container = containers["works"]
    words = ("doctor", "--json", "--checks=container-states", "--containers.engine")
    said = json.loads(watch.run(*words, watch.environment["DOCKER_HOST"]).stdout)
    (line,) = [each for each in said["checks"][0]["details"] if each.startswith(container.name)]
    (published,) = container.ports["8000/tcp"]
    ports = f"{published['HostIp']}:{published['HostPort']}->8000/tcp"
    assert container.ports["9000/udp"] is None
    assert set(line.partition(", ports ")[2].split(", ")) == {ports, "9000/udp"}
