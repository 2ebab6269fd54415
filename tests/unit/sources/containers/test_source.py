"""Tests for the source that watches containers, with a stand-in for the engine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.support.engine_stand_in import EngineStandIn
from tests.support.waiting import wait_until
from trainvitals.sources.containers.journal import Journal
from trainvitals.sources.containers.reading import ContainerReading, ContainersReading
from trainvitals.sources.containers.source import ContainerOptions, ContainerSource
from trainvitals.sources.files import Roots
from trainvitals.verdicts.causes.judge import judge

A, B = "a1" * 32, "b2" * 32
MIB = 1 << 20


def write_time(seconds: float | None) -> str:
    """Return a time in the engine's format; None becomes the engine's zero time."""
    if seconds is None:
        return "0001-01-01T00:00:00Z"
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")


class Stage:
    """A fake root directory, an engine, and a source that watches both."""

    def __init__(self, directory: Path, engine: EngineStandIn) -> None:
        self.engine = engine
        self.root = directory / "root"
        self.journal = Journal(directory / "deaths")
        self.kmsg = self.root / "dev/kmsg"
        self.ahead = 0.0
        for folder in ("dev", "proc", "sys/fs/cgroup"):
            (self.root / folder).mkdir(parents=True)
        self.kmsg.write_text("")
        (self.root / "proc/vmstat").write_text("oom_kill 3\n")
        (self.root / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
        self.source: ContainerSource
        self.listed: dict[str, str] = {}

    def open(
        self,
        *,
        engine: str | None = None,
        forget_after_seconds: float = 600.0,
        interval_seconds: float = 0.05,
    ) -> None:
        """Open the source, which starts to watch."""
        options = ContainerOptions(
            engine=engine or self.engine.address,
            journal=self.journal.directory,
            interval_seconds=interval_seconds,
            forget_after_seconds=forget_after_seconds,
        )
        roots = Roots(self.root / "proc", self.root / "sys", self.root)
        self.source = ContainerSource(
            options, judge=judge, roots=roots, environ={}, clock=lambda: time.time() + self.ahead
        )

    def describe(
        self,
        container: str,
        name: str,
        status: str,
        *,
        exit_code: int = 0,
        started: float | None = None,
        finished: float | None = None,
        error: str = "",
        restarts: int = 0,
    ) -> None:
        """Make the engine describe and list a container."""
        state = {
            "Status": status,
            "ExitCode": exit_code,
            "OOMKilled": False,
            "Error": error,
            "Pid": 4242 if status == "running" else 0,
            "StartedAt": write_time(started),
            "FinishedAt": write_time(finished),
        }
        document = {
            "Id": container,
            "Name": f"/{name}",
            "RestartCount": restarts,
            "State": state,
            "Config": {"Image": "train:2", "Cmd": ["python", "train.py"]},
            "HostConfig": {"Memory": 64 * MIB, "LogConfig": {"Type": "json-file"}},
        }
        self.engine.put(f"/containers/{container}/json", document)
        self.engine.put(f"/containers/{container}/logs", b"")
        self.listed[container] = status
        self.engine.put(
            "/containers/json",
            [{"Id": id_, "Names": [f"/{name}"], "State": it} for id_, it in self.listed.items()],
        )

    def tell(self, action: str, container: str, name: str, at: float, **attributes: str) -> None:
        """Make the engine send an event with the given time."""
        nano = int(at * 1e9)
        self.engine.send_event(action, container, time_nano=nano, name=name, **attributes)

    def await_connection(self) -> None:
        """Wait until events are followed and the containers have been listed."""
        self.engine.await_streams("/events")
        self.await_that(lambda _: any(r.path == "/containers/json" for r in self.engine.requests))
        time.sleep(0.1)

    def await_that(self, holds: Callable[[ContainersReading], object]) -> ContainersReading:
        """Wait until a condition holds for a reading, and return the reading."""

        def read() -> ContainersReading | None:
            reading = self.source.read()
            return reading if holds(reading) else None

        return wait_until(read, describe=self.source.read)

    def await_death(self, name: str) -> ContainerReading:
        """Wait until a container's death has a verdict, and return the container's reading."""
        reading = self.await_that(
            lambda read: any(
                each.name == name and each.last_death is not None for each in read.containers
            )
        )
        return next(each for each in reading.containers if each.name == name)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage whose source has not been opened yet."""
    with EngineStandIn(tmp_path / "docker.sock") as engine:
        stage = Stage(tmp_path, engine)
        yield stage
        stage.source.close()
        assert engine.methods <= {"GET"}


def test_an_oom_kill_is_reported_by_event_and_kernel_and_written_down(stage):
    """The event, the kernel line and the exit code yield one death and one journal record."""
    stage.open()
    stage.await_connection()
    now = time.time()
    stage.describe(A, "train", "running", started=now)
    stage.tell("create", A, "train", now - 0.1)
    stage.tell("start", A, "train", now)
    stage.await_that(lambda read: read.containers and read.containers[0].status == "running")
    micros = int(time.monotonic() * 1e6)
    path = f"/docker/{A}"
    with stage.kmsg.open("a") as kmsg:
        kmsg.write(
            f"6,10,{micros},-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={A},"
            f"mems_allowed=0,oom_memcg={path},task_memcg={path},task=python,pid=4242,uid=0\n"
        )
    stage.describe(A, "train", "exited", exit_code=137, started=now, finished=now + 1)
    stage.tell("oom", A, "train", now + 0.9)
    stage.tell("die", A, "train", now + 1, exitCode="137")
    train = stage.await_death("train")
    assert train.last_death is not None
    assert (train.last_death.reason, train.last_death.confidence) == ("oom-cgroup", "high")
    assert (train.last_death.exit_code, train.last_death.signal) == (137, "SIGKILL")
    assert dict(train.deaths) == {"oom-cgroup": 1}
    assert dict(train.oom_kills) == {"event": 1, "cgroup": 0, "kernel": 1}
    (entry,) = stage.journal.read_entries()
    assert (entry.reason, entry.evidence.name, entry.evidence.exit_code) == (
        "oom-cgroup",
        "train",
        137,
    )
    assert entry.path.stat().st_mode & 0o777 == 0o600
    assert stage.journal.directory.stat().st_mode & 0o777 == 0o700


def test_a_first_start_is_no_restart_and_a_second_is_one(stage):
    """A container's first start is not a restart, and a start after its death is one."""
    stage.open()
    stage.await_connection()
    now = time.time()
    stage.describe(A, "train", "running", started=now)
    stage.tell("create", A, "train", now - 0.1)
    stage.tell("start", A, "train", now)
    reading = stage.await_that(
        lambda read: read.containers and read.containers[0].restarts is not None
    )
    assert reading.containers[0].restarts == 0
    stage.tell("die", A, "train", now + 1, exitCode="1")
    stage.tell("start", A, "train", now + 1.2)
    stage.await_death("train")
    reading = stage.await_that(lambda read: read.containers[0].restarts == 1)
    (train,) = reading.containers
    assert train.status == "running"
    assert train.started == pytest.approx(now + 1.2, abs=0.001)
    assert sum(train.deaths.values()) == 1


def test_a_death_without_an_event_is_found_after_the_reconnect(stage):
    """A death while the engine was stopped is found in the list, and the gap is counted."""
    now = time.time()
    stage.describe(A, "train", "running", started=now - 60)
    stage.open()
    stage.await_connection()
    stage.await_that(lambda read: read.containers and read.containers[0].status == "running")
    stage.engine.stop()
    stage.await_that(lambda read: read.is_connected is False)
    stage.describe(A, "train", "exited", exit_code=139, started=now - 60, finished=now + 0.5)
    stage.engine.start()
    train = stage.await_death("train")
    assert train.last_death is not None
    assert (train.last_death.exit_code, train.last_death.reason) == (139, "segfault")
    assert dict(train.deaths) == {"segfault": 1}
    reading = stage.await_that(lambda read: read.is_connected)
    assert reading.gaps == 1


def test_what_was_dead_before_is_shown_and_not_counted(stage):
    """The death of a container that ended before the source was opened is shown, not counted."""
    now = time.time()
    stage.describe(A, "old", "exited", exit_code=1, started=now - 99, finished=now - 60)
    stage.open()
    old = stage.await_death("old")
    assert old.last_death is not None
    assert old.last_death.exit_code == 1
    assert dict(old.deaths) == {}
    assert stage.journal.read_entries() == ()


def test_a_start_that_fails_is_a_death_without_an_event(stage):
    """A container that stays `created` with an error counts as dead even without a `die` event."""
    stage.open()
    stage.await_connection()
    error = 'exec: "nosuch": executable file not found in $PATH: unknown'
    stage.describe(A, "typo", "created", exit_code=127, error=error)
    stage.tell("create", A, "typo", time.time())
    typo = stage.await_death("typo")
    assert typo.last_death is not None
    assert (typo.last_death.reason, typo.last_death.exit_code) == ("start-cmd", 127)
    assert typo.restarts == 0


def test_a_removed_container_goes_after_its_time_and_a_namesake_goes_on(stage):
    """A removed container is dropped after ten minutes, unless a new container has its name."""
    stage.open()
    stage.await_connection()
    now = time.time()
    for container, name in ((A, "train"), (B, "other")):
        stage.describe(container, name, "running", started=now)
        stage.tell("create", container, name, now - 0.1)
        stage.tell("start", container, name, now)
        stage.tell("die", container, name, now + 0.1, exitCode="3")
        stage.tell("destroy", container, name, now + 0.2)
    stage.await_death("train")
    stage.await_death("other")
    stage.ahead = 590
    time.sleep(0.2)
    assert [each.name for each in stage.source.read().containers] == ["other", "train"]
    stage.tell("create", "c3" * 32, "train", now + 1)
    stage.await_that(
        lambda read: any(each.status == "created" and each.deaths for each in read.containers)
    )
    stage.ahead = 615
    stage.await_that(lambda read: [each.name for each in read.containers] == ["train"])


def test_an_engine_that_hangs_delays_no_reading(stage):
    """While the engine hangs, a reading returns the known containers without delay."""
    stage.describe(A, "train", "running", started=time.time())
    stage.open()
    stage.await_connection()
    stage.await_that(lambda read: read.containers)
    with stage.engine.hanging():
        began = time.monotonic()
        reading = stage.source.read()
        assert time.monotonic() - began < 10
        assert [each.name for each in reading.containers] == ["train"]


def test_a_journal_that_cannot_be_written_is_complained_about(stage, tmp_path):
    """If the journal cannot be written, the death is counted and the reading gives the reason."""
    (tmp_path / "deaths").write_text("a file where the folder should be")
    stage.open()
    stage.await_connection()
    now = time.time()
    stage.tell("create", A, "train", now)
    stage.tell("start", A, "train", now)
    stage.tell("die", A, "train", now + 0.1, exitCode="1")
    stage.await_death("train")
    reading = stage.await_that(lambda read: read.complaint)
    assert reading.complaint is not None
    assert reading.complaint.startswith(f"cannot write {tmp_path}/deaths/")
    assert "--containers.journal" in reading.complaint


def test_without_an_engine_the_control_groups_show_containers(stage):
    """Without an engine, a container is known by its control group until the group is removed."""
    group = stage.root / "sys/fs/cgroup/docker" / A
    group.mkdir(parents=True)
    (stage.root / "sys/fs/cgroup/cgroup.controllers").write_text("memory\n")
    for name, text in (
        ("memory.current", "6291456\n"),
        ("memory.max", "8388608\n"),
        ("memory.events", "low 0\nhigh 0\nmax 1\noom 1\noom_kill 1\noom_group_kill 0\n"),
        ("memory.stat", "anon 4194304\nfile 2097152\ninactive_file 1048576\nshmem 0\n"),
    ):
        (group / name).write_text(text)
    stage.open(engine="none")
    reading = stage.await_that(lambda read: read.containers and read.containers[0].usage)
    (container,) = reading.containers
    assert (reading.step, reading.is_connected) == (0, None)
    assert (container.name, container.id, container.status) == (A[:12], A, None)
    assert container.usage is not None
    assert container.usage.memory_working_set_bytes == 5 * MIB
    assert container.usage.memory_limit_bytes == 8 * MIB
    assert dict(container.oom_kills) == {"event": 0, "cgroup": 1, "kernel": 0}
    for file in group.iterdir():
        file.unlink()
    group.rmdir()
    reading = stage.await_that(lambda read: read.containers[0].ends_at is not None)
    assert reading.containers[0].usage is None


def test_nothing_there_is_quiet(stage):
    """A machine without an engine and containers has an empty reading without a complaint."""
    stage.open(engine="none")
    assert stage.source.read() == ContainersReading(is_there=False)


def test_the_journal_keeps_the_newest_and_passes_over_what_is_no_record(stage, tmp_path):
    """The newest records are kept, and files that are not records are skipped and not removed."""
    stage.open()
    stage.await_connection()
    now = time.time()
    for number in range(3):
        stage.tell("create", f"{number}" * 64, f"job-{number}", now)
        stage.tell("start", f"{number}" * 64, f"job-{number}", now)
        stage.tell("die", f"{number}" * 64, f"job-{number}", now + number / 9, exitCode="1")
    stage.await_that(lambda _: len(stage.journal.read_entries()) == 3)
    first, _, newest = sorted(stage.journal.directory.iterdir())
    (stage.journal.directory / "20200101T000000.000Z-x-1.json").write_text("{")
    other = '{"format": 1, "evidence": {"format": 99}, "verdict": {}}'
    (stage.journal.directory / "20200101T000000.000Z-x-2.json").write_text(other)
    (stage.journal.directory / "notes.txt").write_text("mine")
    small = Journal(stage.journal.directory, most_records=2)
    entry = small.read_entries()[0]
    assert entry.path == newest
    assert [each.evidence.name for each in small.read_entries()] == ["job-2", "job-1", "job-0"]
    document = json.loads(newest.read_text())
    assert sorted(document) == ["evidence", "format", "verdict"]
    newest.unlink()
    small.write(entry.evidence, judge(entry.evidence))
    assert [each.evidence.name for each in small.read_entries()] == ["job-2", "job-1"]
    assert not first.exists()
    assert (stage.journal.directory / "notes.txt").exists()


def test_closing_does_not_wait_for_an_engine_that_hangs(stage):
    """Closing does not wait for a hung engine, and all threads of the source end later."""
    before = set(threading.enumerate())
    stage.describe(A, "train", "running", started=time.time())
    stage.open()
    stage.await_connection()
    with stage.engine.hanging():
        stage.tell("update", A, "train", time.time())
        time.sleep(0.1)
        began = time.monotonic()
        stage.source.close()
        assert time.monotonic() - began < 10
        assert stage.source.read() == ContainersReading(is_there=False)

    def has_ended() -> bool:
        left = set(threading.enumerate()) - before
        return not any(each.name.startswith("container") for each in left)

    wait_until(has_ended, describe=threading.enumerate)


def test_the_use_of_what_ran_before_is_known_without_waiting_for_the_next_sample(stage):
    """Containers are sampled at once, so `trainvitals top --once` shows their memory usage."""
    group = stage.root / "sys/fs/cgroup/docker" / A
    group.mkdir(parents=True)
    (stage.root / "sys/fs/cgroup/cgroup.controllers").write_text("memory\n")
    (group / "memory.current").write_text("6291456\n")
    stage.describe(A, "train", "running", started=time.time() - 60)
    stage.open(interval_seconds=3600.0)
    reading = stage.await_that(lambda read: read.containers and read.containers[0].usage)
    assert reading.containers[0].usage.memory_usage_bytes == 6 * MIB


def test_two_containers_of_one_name_are_two_by_their_groups(stage):
    """If two containers have the same name, one is shown by its ID, and both keep their counts."""
    groups = [stage.root / "sys/fs/cgroup/docker" / container for container in (A, B)]
    (stage.root / "sys/fs/cgroup").joinpath("cgroup.controllers").write_text("memory\n")
    for group in groups:
        group.mkdir(parents=True)
        (group / "memory.current").write_text("6291456\n")
        (group / "memory.events").write_text("oom_kill 1\n")
        folder = stage.root / "var/lib/docker/containers" / group.name
        folder.mkdir(parents=True)
        (folder / "config.v2.json").write_text('{"Name": "/train"}')
    stage.open(engine="none")
    stage.await_that(lambda read: len(read.containers) == 2)
    sampled = stage.source.read().sampled or 0.0
    reading = stage.await_that(lambda read: (read.sampled or 0.0) > sampled + 0.2)
    names = {each.name for each in reading.containers}
    assert names in ({"train", A[:12]}, {"train", B[:12]})
    assert [each.oom_kills["cgroup"] for each in reading.containers] == [1, 1]


def test_the_process_of_another_machine_is_not_read(stage):
    """A PID from a remote engine is ignored, as it belongs to another process on this machine."""
    group = stage.root / "sys/fs/cgroup/system.slice/sshd.service"
    group.mkdir(parents=True)
    (stage.root / "sys/fs/cgroup/cgroup.controllers").write_text("memory\n")
    (group / "memory.current").write_text("6291456\n")
    (stage.root / "proc/4242").mkdir()
    (stage.root / "proc/4242/cgroup").write_text("0::/system.slice/sshd.service\n")
    stage.describe(A, "train", "running", started=time.time())
    stage.open()
    stage.await_connection()
    stage.await_that(lambda read: read.containers and read.containers[0].started)
    sampled = stage.source.read().sampled or 0.0
    reading = stage.await_that(lambda read: (read.sampled or 0.0) > sampled + 0.2)
    assert reading.containers[0].usage is None
