"""A snapshot for tests with a value for every part."""

from datetime import timedelta, timezone

from trainvitals.record.snapshot import Holder, Kernel, Snapshot
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
    Measurements,
)
from trainvitals.sources.containers.evidence import OomKill, XidError
from trainvitals.sources.containers.reading import (
    ContainerReading,
    ContainersReading,
    Death,
    Usage,
)
from trainvitals.sources.host.cpu import CpuReading
from trainvitals.sources.host.filesystem import Filesystem, FilesystemReading, Space
from trainvitals.sources.host.kernel_lines import DatedLine
from trainvitals.sources.host.memory import MemoryReading
from trainvitals.sources.host.processes import Process, ProcessesReading

CET = timezone(timedelta(hours=1), "CET")
GIB = 1 << 30
NOW = 1_763_000_000.0  # 2025-11-13 03:13:20 CET
ID = "4f66ad9a0b2e" + 52 * "0"

MEMORY = MemoryReading(
    total_bytes=64 * GIB,
    available_bytes=16 * GIB,
    free_bytes=GIB,
    buffers_bytes=0,
    cached_bytes=0,
    shared_bytes=2 * GIB,
    dirty_bytes=0,
    swap_total_bytes=8 * GIB,
    swap_free_bytes=6 * GIB,
    swap_in_bytes=0,
    swap_out_bytes=0,
    oom_kills=3,
)
CPU = CpuReading(
    mode_seconds=(),
    cores=(),
    core_busy_seconds=(),
    dropped=0,
    logical=32,
    physical=16,
    utilization_percent=12.4,
    io_wait_ratio=0.03,
    frequencies=None,
    load1=4.0,
    load5=3.5,
    load15=3.25,
    processes_running=1,
    processes_blocked=0,
)
GPU = Identity(
    kind="gpu",
    index=0,
    uuid="GPU-1",
    model="H100",
    bus_id="00000000:3B:00.0",
    driver="570",
)
WHOLE = Snapshot(
    time=NOW,
    hostname="gpu-07",
    number=12,
    seconds=0.034,
    skipped=2,
    unwritten=1,
    memory=MEMORY,
    cpu=CPU,
    filesystems=FilesystemReading(
        (
            Filesystem(
                "/",
                "/dev/sda1",
                "ext4",
                Space(100 * GIB, 25 * GIB, 1000, 900, readonly=False),
                None,
                None,
            ),
            Filesystem("/data", "nas:/data", "nfs4", None, False, "does not answer"),  # noqa: FBT003
        ),
        0,
    ),
    processes=ProcessesReading(
        412,
        (Process(4021, "python", "ann", 99.5, 21 * GIB),),
        (Process(4021, "python", "ann", 99.5, 21 * GIB), Process(1, "init", "root", None, 4096)),
    ),
    accelerators=AcceleratorsReading(
        (
            AcceleratorReading(
                GPU,
                "ok",
                NOW,
                Measurements(
                    utilization_ratio=0.97,
                    memory_utilization_ratio=0.4,
                    memory_used_bytes=71 * GIB,
                    memory_free_bytes=8 * GIB,
                    memory_total_bytes=80 * GIB,
                    temperature_core_celsius=63.0,
                    power_watts=512.3,
                ),
            ),
            AcceleratorReading(
                Identity("gpu", 1, "GPU-2", "H100", "00000000:5E:00.0", "570"), "lost", None, None
            ),
        )
    ),
    holders=(
        Holder("GPU-1", 4021, "python", "bert", 70 * GIB),
        Holder("GPU-1", 5000, None, None, GIB),
    ),
    containers=ContainersReading(
        is_there=True,
        containers=(
            ContainerReading(
                "bert",
                ID,
                status="running",
                health="healthy",
                restarts=1,
                deaths={"oom-limit": 1},
                last_death=Death(
                    NOW - 60, 137, "oom-limit", "SIGKILL", "high", "It hit its limit."
                ),
                oom_kills={"event": 1, "kernel": 1},
                usage=Usage(NOW, 2, memory_working_set_bytes=12 * GIB, memory_limit_bytes=16 * GIB),
            ),
            ContainerReading("web", 64 * "1", status="exited"),
        ),
    ),
    cpu_percents=(("bert", 398.2),),
    new_deaths=("bert",),
    oom_kills=1,
    kernel=Kernel(
        oom_kills=(
            OomKill(
                NOW - 60, "CONSTRAINT_MEMCG", "/docker/a", "/docker/a", "python", 4000, 15 * GIB
            ),
        ),
        xids=(XidError(NOW - 30, "0000:3b:00", 79, "GPU has fallen off the bus."),),
        lines=(DatedLine(NOW - 90_000, "EXT4-fs error (device sda1)"),),
        lost=7,
    ),
    engine_errors=("error: Failed to start container",),
    troubles=("disk: did not answer in time",),
)
