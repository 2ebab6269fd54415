"""The containers of a machine: a stand-in for their engine, and their control groups as files."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from tests.integration.dashboards.live.moving_host import MovingHost, rewrite, write_net_dev
from tests.support.container_stage import put_container, write_inspection
from tests.support.engine_stand_in import EngineStandIn

MIB = 1 << 20
_GROUP = Path(__file__).parents[3] / "fixtures/cgroups/v2/sys/fs/cgroup"
_SLICE = "system.slice"
_IMAGE = "acme/train:1"  # the image in the documents of `write_inspection`
_IO = "259:0 rbytes={read} wbytes={written} rios=19 wios=22 dbytes=0 dios=0\n"
_STAT = """anon {held}
file {cache}
shmem 0
inactive_anon {held}
active_anon 0
inactive_file {cache}
active_file 0
unevictable 0
slab_unreclaimable 203136
"""
_CPU = """usage_usec {used}
user_usec {used}
system_usec 0
nr_periods 31
nr_throttled 4
throttled_usec {throttled}
"""
_PRESSURE = """some avg10=1.25 avg60=0.40 avg300=0.09 total={some}
full avg10=0.75 avg60=0.20 avg300=0.04 total={full}
"""


@dataclass(slots=True)
class Container:
    """A container and its use of resources.

    Attributes:
        name: The name; for Compose it is `project-service-1`.
        number: Two hexadecimal digits, which the ID repeats.
        memory_bytes: The used memory without the page cache.
        limit_bytes: The memory limit; 0 for none.
        cores: The number of busy cores.
        health: The state of the health check; empty without a health check.
        pid: The PID of the first process.
        started: The time of the last start, Unix seconds.
        restarts: The number of restarts.
        oom_kills: The number of processes that the kernel's OOM killer killed.
    """

    name: str
    number: str
    memory_bytes: int
    limit_bytes: int
    cores: float
    health: str = ""
    pid: int = 0
    started: float = 0.0
    restarts: int = 0
    oom_kills: int = 0

    @property
    def id(self) -> str:
        """The container's ID."""
        return self.number * 32

    @property
    def cgroup(self) -> str:
        """The container's control group."""
        return f"/{_SLICE}/docker-{self.id}.scope"


class Containers:
    """The containers of a host, while its `with` block lasts.

    Args:
        directory: The directory for the engine's socket.
        host: The host on which the containers run.
    """

    def __init__(self, directory: Path, host: MovingHost) -> None:
        self._host = host
        self._directory = directory
        self._since = time.time()
        self._running: list[Container] = []
        self.engine = EngineStandIn(directory / "engine.sock")
        groups = host.sysfs / "fs/cgroup"
        groups.mkdir(parents=True)
        shutil.copy(_GROUP / "cgroup.controllers", groups)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The flags with which an exporter finds the containers."""
        return (
            f"--containers.engine={self.engine.address}",
            f"--containers.journal={self._directory / 'deaths'}",
        )

    def __enter__(self) -> Containers:  # noqa: PYI034 - Self is not in Python 3.10
        self.engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.stop()

    def start(self, container: Container, *, is_told: bool = True) -> None:
        """Start a container, whose process must be in the host's `/proc` already.

        Args:
            container: The container.
            is_told: Whether to send the engine's events about the start.
        """
        container.started = time.time()
        self._running.append(container)
        self._copy_group(container)
        self.move()
        self._describe(container, "running")
        if is_told:
            self._tell("create", container)
            self._tell("start", container)

    def run_out_of_memory(self, container: Container) -> None:
        """Write the kernel's log and counts of an OOM kill in a container, and send the event."""
        container.oom_kills += 1
        self.move()
        self._host.count_oom_kill()
        group = container.cgroup
        self._host.log(
            f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=docker-{container.id}.scope,"
            f"mems_allowed=0,oom_memcg={group},task_memcg={group},task=python,"
            f"pid={container.pid},uid=0"
        )
        self._tell("oom", container)

    def end(self, container: Container, exit_code: int) -> None:
        """End a container."""
        self._running.remove(container)
        shutil.rmtree(self._find_group(container))
        self._describe(container, "exited", exit_code)
        self._tell("die", container, exitCode=str(exit_code))

    def move(self) -> None:
        """Advance the containers' counters to the current time."""
        for container in self._running:
            self._move(container, time.time() - self._since + 100)

    def _move(self, container: Container, seconds: float) -> None:
        held, cache = container.memory_bytes, 64 * MIB
        used = int(1e6 * container.cores * seconds)
        texts = {
            "memory.current": f"{held + cache}\n",
            "memory.peak": f"{held + 2 * cache}\n",
            "memory.max": f"{container.limit_bytes or 'max'}\n",
            "memory.stat": _STAT.format(held=held, cache=cache),
            "memory.events": f"low 0\nhigh 0\nmax 9\noom 0\noom_kill {container.oom_kills}\n",
            "memory.pressure": _PRESSURE.format(some=int(9e3 * seconds), full=int(4e3 * seconds)),
            "cpu.stat": _CPU.format(used=used, throttled=used // 10),
            "io.stat": _IO.format(read=int(5e6 * seconds), written=int(2e6 * seconds)),
        }
        for name, text in texts.items():
            rewrite(self._find_group(container) / name, text)
        rewrite(self._host.procfs / str(container.pid) / "net/dev", write_net_dev(seconds))

    def _copy_group(self, container: Container) -> None:
        (source,) = (_GROUP / _SLICE).iterdir()
        shutil.copytree(source, self._find_group(container))

    def _find_group(self, container: Container) -> Path:
        return Path(f"{self._host.sysfs}/fs/cgroup{container.cgroup}")

    def _describe(self, container: Container, status: str, exit_code: int = 0) -> None:
        is_running = status == "running"
        health = {"Status": container.health, "FailingStreak": 0, "Log": []}
        document = write_inspection(
            container.started,
            None if is_running else time.time(),
            id_=container.id,
            name=container.name,
            status=status,
            exit_code=exit_code,
            memory=container.limit_bytes,
            health=health if container.health and is_running else None,
        )
        project, _, rest = container.name.partition("-")
        labels = {
            "com.docker.compose.project": project,
            "com.docker.compose.service": rest.removesuffix("-1"),
        }
        document["Config"]["Labels"] = labels if rest else {}  # type: ignore[index]
        document["State"]["Pid"] = container.pid if is_running else 0  # type: ignore[index]
        document["RestartCount"] = container.restarts
        put_container(self.engine, document)

    def _tell(self, action: str, container: Container, **attributes: str) -> None:
        now = time.time_ns()
        told = {"name": container.name, "image": _IMAGE, **attributes}
        self.engine.send_event(action, container.id, time_nano=now, **told)
