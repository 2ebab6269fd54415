"""The containers of the golden scrape, which have an example of every container metric."""

from __future__ import annotations

from trainvitals.sources.accelerators.reading import Identity
from trainvitals.sources.containers.reading import (
    ContainerReading,
    ContainersReading,
    Death,
    Usage,
)

NOON = 1_700_049_600.0
MIB = 1 << 20
GPU = "GPU-00000000-5e1f-4d3a-9c07-0000a0000000"

_USAGE = Usage(
    time=NOON - 4,
    cgroup_version=2,
    memory_usage_bytes=6144 * MIB,
    memory_working_set_bytes=5120 * MIB,
    memory_unreclaimable_bytes=4096 * MIB,
    memory_peak_bytes=7168 * MIB,
    memory_limit_bytes=8192 * MIB,
    memory_waiting_seconds=1.5,
    memory_stalled_seconds=0.25,
    memory_pressure_ratio=0.0125,
    oom_kills=1,
    cpu_seconds=3600.5,
    cpu_throttled_seconds=12.25,
    cpu_limit_cores=4.0,
    processes=42,
    processes_limit=512,
    processes_refused=0,
    read_bytes=1024 * MIB,
    written_bytes=256 * MIB,
    received_bytes=2048 * MIB,
    transmitted_bytes=128 * MIB,
)

READING = ContainersReading(
    is_there=True,
    step=2,
    is_connected=True,
    gaps=1,
    sampled=NOON - 4,
    containers=(
        ContainerReading(
            name="llama-train-1",
            id="1" * 64,
            image="registry.example/train:2.3",
            compose_project="llama",
            compose_service="train",
            status="running",
            health="healthy",
            started=NOON - 7200,
            restarts=1,
            deaths={"oom-cgroup": 1},
            last_death=Death(
                time=NOON - 7202,
                exit_code=137,
                reason="oom-cgroup",
                signal="SIGKILL",
                confidence="high",
                summary="The kernel killed the container because it reached its memory limit.",
            ),
            oom_kills={"event": 1, "cgroup": 1, "kernel": 1},
            usage=_USAGE,
            accelerators=(Identity("gpu", 0, GPU, "H100", "0000:1b:00.0", "570.00"),),
        ),
        ContainerReading(
            name="sweep",
            id="2" * 64,
            image="sweep",
            status="exited",
            started=NOON - 600,
            restarts=0,
            deaths={"finished": 3, "kill-operator": 1},
            last_death=Death(
                time=NOON - 60,
                exit_code=0,
                reason="finished",
                signal="",
                confidence="high",
                summary="The container ended by itself.",
            ),
            oom_kills={"event": 0, "cgroup": 0, "kernel": 0},
            ends_at=NOON + 540,
        ),
    ),
)


class GoldenContainers:
    """A stand-in for the source of containers, whose reading never changes."""

    def read(self) -> ContainersReading:
        """Return the reading."""
        return READING

    def close(self) -> None:
        """Do nothing, as nothing is open."""
