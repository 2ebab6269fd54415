"""Tests for the container collector."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainvitals.metrics.collectors.container import ContainerCollector
from trainvitals.sources.accelerators.reading import Identity
from trainvitals.sources.containers.reading import (
    ContainerReading,
    ContainersReading,
    Death,
    Usage,
)

T = 1_800_000_000.0
FULL_USAGE = Usage(
    time=T,
    cgroup_version=2,
    memory_usage_bytes=6,
    memory_working_set_bytes=5,
    memory_unreclaimable_bytes=4,
    memory_peak_bytes=7,
    memory_limit_bytes=0,
    memory_stalled_seconds=0.5,
    cpu_seconds=9.25,
    cpu_throttled_seconds=1.5,
    processes=3,
    read_bytes=10,
    written_bytes=11,
    received_bytes=12,
    transmitted_bytes=13,
)
FULL = ContainerReading(
    "train",
    "a1" * 32,
    image="train:2",
    compose_project="lab",
    compose_service="trainer",
    status="running",
    health="healthy",
    started=T - 60,
    restarts=2,
    deaths={"oom-cgroup": 5, "segfault": 4, "finished": 3, "exception": 2, "kill-outside": 1},
    last_death=Death(T - 61, 137, "kill-outside", "SIGKILL", "medium", "Somebody killed it."),
    oom_kills={"event": 1, "cgroup": 2, "kernel": 3},
    usage=FULL_USAGE,
    accelerators=tuple(
        Identity("gpu", index, f"GPU-{index}", "H200", "0000:1b:00.0", "580.1")
        for index in range(12)
    ),
)
READING = ContainersReading(
    is_there=True, step=2, is_connected=True, gaps=4, sampled=T, containers=(FULL,)
)


@dataclass
class Told:
    """A source of containers that returns a prepared reading."""

    reading: ContainersReading

    def read(self) -> ContainersReading:
        """Return the prepared reading."""
        return self.reading

    def close(self) -> None:
        """Do nothing."""


def express(samples, reading: ContainersReading) -> dict[str, float]:
    """Return the samples of a reading."""
    collector = ContainerCollector(Told(reading))  # type: ignore[arg-type]
    return samples(collector.express(collector.read(0.0)))


def test_a_container_has_25_series_and_the_least_important_give_way(samples):
    """A container has at most 25 series; accelerators and the last values are omitted first."""
    found = {
        name: value
        for name, value in express(samples, READING).items()
        if "container_" in name[:10]
    }
    assert len(found) == 25
    assert found == {
        'container_info{name="train",image="train:2",compose_project="lab",'
        'compose_service="trainer"}': 1,
        'container_state{name="train",state="running"}': 1,
        'container_health{name="train",status="healthy"}': 1,
        'container_deaths_total{name="train",reason="finished"}': 3,
        'container_deaths_total{name="train",reason="kill-outside"}': 1,
        'container_deaths_total{name="train",reason="oom-cgroup"}': 5,
        'container_deaths_total{name="train",reason="segfault"}': 4,
        'container_last_death_info{name="train",reason="kill-outside",signal="SIGKILL",'
        'confidence="medium"}': 1,
        'container_oom_kills_total{name="train",source="event"}': 1,
        'container_oom_kills_total{name="train",source="cgroup"}': 2,
        'container_oom_kills_total{name="train",source="kernel"}': 3,
        **{
            f'container_accelerator_info{{name="train",compose_service="trainer",kind="gpu",'
            f'device="{index}",uuid="GPU-{index}"}}': 1
            for index in range(8)
        },
        'container_start_time_seconds{name="train"}': T - 60,
        'container_restarts_total{name="train"}': 2,
        'container_last_exit_code{name="train"}': 137,
        'container_last_death_timestamp_seconds{name="train"}': T - 61,
        'container_memory_working_set_bytes{name="train"}': 5,
        'container_memory_unreclaimable_bytes{name="train"}': 4,
    }


def test_a_container_that_never_died_has_all_its_values(samples):
    """A container without deaths and accelerators has all values, including a limit of 0."""
    alive = replace(FULL, deaths={}, last_death=None, accelerators=(), health=None)
    found = express(samples, replace(READING, containers=(alive,)))
    assert found['container_spec_memory_limit_bytes{name="train"}'] == 0
    assert found['container_fs_writes_bytes_total{name="train"}'] == 11
    assert len([name for name in found if name.startswith("container_")]) == 19
    assert not any("death" in name or "health" in name or "exit" in name for name in found)


def test_what_is_not_known_has_no_series(samples):
    """A container that is known only from its control group has no series for unknown values."""
    bare = ContainerReading("a1a1a1a1a1a1", "a1" * 32, usage=Usage(T, 1, processes=3))
    reading = ContainersReading(is_there=True, containers=(bare, FULL))
    found = express(samples, reading)
    assert {name: value for name, value in found.items() if "a1a1" in name} == {
        'container_info{name="a1a1a1a1a1a1",image="",compose_project="",compose_service=""}': 1,
        'container_threads{name="a1a1a1a1a1a1"}': 3,
    }
    assert found["trainvitals_containers_privilege_step"] == 0
    assert "trainvitals_containers_events_connected" not in found
    assert "trainvitals_containers_sampled_timestamp_seconds" not in found


def test_the_watch_tells_of_itself_and_what_was_left_out(samples):
    """The state of the event connection has series; complaint and omissions are returned."""
    reading = replace(READING, containers=(), omitted=3, complaint="cannot reach the engine")
    assert express(samples, reading) == {
        "trainvitals_containers_privilege_step": 2,
        "trainvitals_containers_events_connected": 1,
        "trainvitals_containers_events_gaps_total": 4,
        "trainvitals_containers_sampled_timestamp_seconds": T,
    }
    collector = ContainerCollector(Told(reading))  # type: ignore[arg-type]
    assert (collector.complaint(reading), collector.omitted(reading)) == (
        "cannot reach the engine",
        3,
    )
    collector.close()


def test_no_containers_are_nothing(samples):
    """Without a container engine and containers, there are no series."""
    assert express(samples, ContainersReading(is_there=False)) == {}


def test_128_containers_are_told_of_whole():
    """All series of 128 containers are exported."""
    containers = tuple(replace(FULL, name=f"job-{number:03}") for number in range(128))
    reading = replace(READING, containers=containers)
    collector = ContainerCollector(Told(reading))  # type: ignore[arg-type]
    blocks = collector.express(collector.read(0.0))
    assert sum(len(block.values) for block in blocks) == 4 + 128 * 25
