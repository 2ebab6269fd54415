"""The resource usage of containers is read from the files of their control groups."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.waiting import wait_until
from trainvitals.sources.containers.cgrouppaths import GroupPaths, find_group, take_folder
from trainvitals.sources.containers.cgroups import GroupFiles, find_name, read_traffic, to_sample
from trainvitals.sources.containers.evidence import Sample
from trainvitals.sources.containers.reading import Usage
from trainvitals.sources.files import Roots

CGROUPS = Path(__file__).parents[3] / "fixtures" / "cgroups"
PIDS = {"v1": 2210, "v2": 5201}
NOON = 1_700_049_600.0
ID = "87726d3cd943f6598684e07374f7a85e9524d34635966f89c1bd69cb3cc45d73"


@pytest.fixture(params=["v1", "v2"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Roots:
    """A copy of a machine with one container, for each cgroup version."""
    return copy_machine(request.param, tmp_path)


def copy_machine(version: str, tmp_path: Path) -> Roots:
    """Copy the files of a machine with one container and return their roots."""
    shutil.copytree(CGROUPS / version, tmp_path / version)
    return Roots(procfs=tmp_path / version / "proc", sysfs=tmp_path / version / "sys")


def find(roots: Roots) -> tuple[GroupPaths, int]:
    """Return the container's control group and the PID of its process."""
    pid = PIDS[roots.procfs.parent.name]
    group = find_group(pid, roots)
    assert group is not None
    return group, pid


def read(roots: Roots) -> Usage | None:
    """Return the container's resource usage."""
    group, pid = find(roots)
    files = GroupFiles(group, pid=pid, roots=roots, clock=lambda: NOON)
    return files.read()


def test_version_1_says_this(tmp_path: Path):
    """In cgroup v1, the whole usage of a container with 64 MiB and half a core is read."""
    assert read(copy_machine("v1", tmp_path)) == Usage(
        time=NOON,
        cgroup_version=1,
        memory_usage_bytes=294_912,
        memory_working_set_bytes=294_912,
        memory_unreclaimable_bytes=49_152,
        memory_peak_bytes=67_108_864,
        memory_limit_bytes=67_108_864,
        oom_kills=3,
        cpu_seconds=0.210563981,
        cpu_throttled_seconds=0.078599411,
        cpu_limit_cores=0.5,
        processes=1,
        processes_limit=50,
        processes_refused=0,
        read_bytes=647_168,
        written_bytes=19_902_464,
        received_bytes=726,
        transmitted_bytes=0,
    )


def test_version_2_says_this(tmp_path: Path):
    """In cgroup v2, the whole usage of a container with 64 MiB and one and a half cores is read."""
    assert read(copy_machine("v2", tmp_path)) == Usage(
        time=NOON,
        cgroup_version=2,
        memory_usage_bytes=25_907_200,
        memory_working_set_bytes=5_906_432,
        memory_unreclaimable_bytes=5_052_800,
        memory_peak_bytes=67_108_864,
        memory_limit_bytes=67_108_864,
        memory_waiting_seconds=2.718281,
        memory_stalled_seconds=1.414213,
        memory_pressure_ratio=0.0075,
        oom_kills=3,
        cpu_seconds=1.78888,
        cpu_throttled_seconds=0.25,
        cpu_limit_cores=1.5,
        processes=1,
        processes_limit=512,
        processes_refused=2,
        read_bytes=647_168,
        written_bytes=19_902_464,
        received_bytes=101_096,
        transmitted_bytes=50_586,
    )


def test_no_limit_is_0(tmp_path: Path):
    """A limit of `max`, -1 or the kernel's largest number means no limit and is read as 0."""
    roots = copy_machine("v1", tmp_path)
    group, _ = find(roots)
    Path(f"{group.memory}/memory.limit_in_bytes").write_text("9223372036854771712\n")
    Path(f"{group.cpu}/cpu.cfs_quota_us").write_text("-1\n")
    Path(f"{group.pids}/pids.max").write_text("max\n")
    usage = read(roots)
    assert usage is not None
    assert (usage.memory_limit_bytes, usage.cpu_limit_cores, usage.processes_limit) == (0, 0, 0)
    roots = copy_machine("v2", tmp_path)
    group, _ = find(roots)
    Path(f"{group.memory}/memory.max").write_text("max\n")
    Path(f"{group.cpu}/cpu.max").write_text("max 100000\n")
    Path(f"{group.pids}/pids.max").write_text("max\n")
    usage = read(roots)
    assert usage is not None
    assert (usage.memory_limit_bytes, usage.cpu_limit_cores, usage.processes_limit) == (0, 0, 0)


def test_pages_of_64_kib_make_another_largest_number(tmp_path: Path):
    """The largest multiple of 64 KiB means no memory limit on a machine with 64 KiB pages."""
    roots = copy_machine("v1", tmp_path)
    group, _ = find(roots)
    Path(f"{group.memory}/memory.limit_in_bytes").write_text("9223372036854710272\n")
    usage = read(roots)
    assert usage is not None
    assert usage.memory_limit_bytes == 0


def test_what_is_not_there_is_not_known(machine: Roots):
    """If all files of a group are missing, every value is None rather than 0."""
    group, _ = find(machine)
    for folder in group.folders:
        for file in Path(folder).iterdir():
            file.unlink()
    usage = GroupFiles(group, clock=lambda: NOON).read()
    assert usage == Usage(time=NOON, cgroup_version=group.version)


def test_each_file_is_missed_alone(machine: Roots):
    """If one file is missing, at most three values are None and the others do not change."""
    group, pid = find(machine)
    whole = read(machine)
    assert whole is not None
    for file in sorted(path for folder in group.folders for path in Path(folder).iterdir()):
        data = file.read_bytes()
        file.unlink()
        usage = GroupFiles(group, pid=pid, roots=machine, clock=lambda: NOON).read()
        file.write_bytes(data)
        assert usage is not None
        changed = {
            field.name: getattr(usage, field.name)
            for field in fields(Usage)
            if getattr(usage, field.name) != getattr(whole, field.name)
        }
        assert set(changed.values()) <= {None}, file
        assert len(changed) <= 3, file


def test_a_group_that_is_gone_has_no_usage(machine: Roots):
    """A group that was removed after it had been found has no usage."""
    group, pid = find(machine)
    files = GroupFiles(group, pid=pid, roots=machine)
    for folder in group.folders:
        shutil.rmtree(folder)
    assert files.read() is None


def test_a_container_that_is_started_again_is_read_on(machine: Roots, tmp_path: Path):
    """A group that was removed and created again under the same path can still be read."""
    group, pid = find(machine)
    files = GroupFiles(group, pid=pid, roots=machine, clock=lambda: NOON)
    before = files.read()
    for folder in group.folders:
        shutil.copytree(folder, tmp_path / "kept")
        shutil.rmtree(folder)
        shutil.move(tmp_path / "kept", folder)
    assert files.read() == before


def test_the_hosts_network_is_not_the_containers(machine: Roots):
    """No traffic is read if the container's `net/dev` is the same file as that of process 1."""
    group, pid = find(machine)
    own = machine.procfs / str(pid) / "net/dev"
    own.unlink()
    own.hardlink_to(machine.procfs / "1/net/dev")
    usage = GroupFiles(group, pid=pid, roots=machine).read()
    assert usage is not None
    assert (usage.received_bytes, usage.transmitted_bytes) == (None, None)


def test_who_knows_better_says_whose_network_it_is(machine: Roots):
    """No traffic is read if the caller states that the container has no network of its own."""
    group, pid = find(machine)
    usage = GroupFiles(group, pid=pid, roots=machine, has_own_network=False).read()
    assert usage is not None
    assert usage.received_bytes is None


def test_without_a_process_there_is_no_network(machine: Roots):
    """No traffic is read without a PID; engines report PID 0 for a stopped container."""
    group, _ = find(machine)
    for pid in (None, 0):
        usage = GroupFiles(group, pid=pid, roots=machine).read()
        assert usage is not None
        assert usage.received_bytes is None


@pytest.fixture
def sleeper() -> Iterator[int]:
    """The PID of a process in its own network namespace, which only root may create."""
    command = ["unshare", "--net", "sleep", "60"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        yield process.pid
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.skipif(os.geteuid() != 0, reason="to make a network takes root")
def test_a_real_network_of_its_own_is_told_from_the_hosts(sleeper: int):
    """Traffic is read for a process in its own network namespace, but not in the host's."""
    group = GroupPaths("", 2, "", "/", None, None, None, None)
    wait_until(lambda: Path(f"/proc/{sleeper}/comm").read_text() == "sleep\n")
    usage = GroupFiles(group, pid=sleeper).read()
    assert usage is not None
    assert (usage.received_bytes, usage.transmitted_bytes) == (0, 0)
    usage = GroupFiles(group, pid=os.getpid()).read()
    assert usage is not None
    assert usage.received_bytes is None


def test_a_flat_folder_is_read_alike(tmp_path: Path):
    """Files of all controllers that were copied into one folder are read like the originals."""
    roots = copy_machine("v1", tmp_path)
    group, _ = find(roots)
    for folder in group.folders:
        shutil.copytree(folder, tmp_path / "cgroup", dirs_exist_ok=True)
    flat = take_folder(str(tmp_path / "cgroup"))
    assert flat is not None
    assert (
        GroupFiles(flat, clock=lambda: NOON).read() == GroupFiles(group, clock=lambda: NOON).read()
    )


def test_locked_memory_counts_once(tmp_path: Path):
    """Locked anonymous memory is counted once, although `anon` and `unevictable` include it."""
    stat = (
        "anon 800\nfile 300\nshmem 100\ninactive_anon 300\nactive_anon 100\n"
        "inactive_file 200\nactive_file 0\nunevictable 550\nslab_unreclaimable 7\n"
    )
    (tmp_path / "memory.stat").write_text(stat)
    (tmp_path / "memory.max").write_text("1000")
    group = take_folder(str(tmp_path))
    assert group is not None
    usage = GroupFiles(group).read()
    assert usage is not None
    assert usage.memory_unreclaimable_bytes == 957


def test_an_excerpt_of_the_statistics_is_enough(tmp_path: Path):
    """If `memory.stat` has only `anon` and `shmem`, their sum is the unreclaimable memory."""
    (tmp_path / "memory.stat").write_text("anon 800\nshmem 100\n")
    (tmp_path / "memory.max").write_text("1000")
    group = take_folder(str(tmp_path))
    assert group is not None
    usage = GroupFiles(group).read()
    assert usage is not None
    assert usage.memory_unreclaimable_bytes == 900
    assert usage.memory_working_set_bytes is None


def test_the_groups_below_count_on_version_1(tmp_path: Path):
    """In cgroup v1, the memory of subgroups is included, as in the group's usage and limit."""
    (tmp_path / "memory.stat").write_text(
        "cache 5\nrss 10\nshmem 1\ninactive_file 2\n"
        "total_cache 50\ntotal_rss 100\ntotal_shmem 10\ntotal_inactive_file 20\n"
    )
    (tmp_path / "memory.usage_in_bytes").write_text("180\n")
    group = take_folder(str(tmp_path))
    assert group is not None
    usage = GroupFiles(group).read()
    assert usage is not None
    assert usage.memory_unreclaimable_bytes == 110
    assert usage.memory_working_set_bytes == 160


def test_a_sample_is_what_a_death_is_judged_by():
    """A usage is converted to a sample, in which a limit of 0 becomes None."""
    usage = Usage(
        time=NOON,
        cgroup_version=2,
        memory_usage_bytes=9,
        memory_working_set_bytes=8,
        memory_unreclaimable_bytes=7,
        memory_peak_bytes=10,
        memory_limit_bytes=0,
        memory_pressure_ratio=0.25,
        oom_kills=0,
        cpu_throttled_seconds=0.0,
        processes=3,
        processes_limit=0,
        processes_refused=0,
    )
    assert to_sample(usage) == Sample(
        time=NOON,
        cgroup_version=2,
        memory_usage_bytes=9,
        memory_working_set_bytes=8,
        memory_unreclaimable_bytes=7,
        memory_peak_bytes=10,
        memory_limit_bytes=None,
        memory_pressure_ratio=0.25,
        oom_kills=0,
        processes=3,
        processes_limit=None,
        processes_refused=0,
        cpu_throttled_seconds=0.0,
    )


def test_dockers_file_names_a_container(tmp_path: Path):
    """The container name in Docker's configuration file is returned without its leading slash."""
    folder = tmp_path / f"var/lib/docker/containers/{ID}"
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_text(json.dumps({"ID": ID, "Name": "/train"}))
    assert find_name(ID, Roots(rootfs=tmp_path)) == "train"


def test_podmans_list_names_a_container(tmp_path: Path):
    """The container name is found by container ID in Podman's list of all containers."""
    folder = tmp_path / "var/lib/containers/storage/overlay-containers"
    folder.mkdir(parents=True)
    listed = [{"id": "0" * 64, "names": ["other"]}, {"id": ID, "names": ["train"]}]
    (folder / "containers.json").write_text(json.dumps(listed))
    assert find_name(ID, Roots(rootfs=tmp_path)) == "train"
    assert find_name("3" * 64, Roots(rootfs=tmp_path)) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"7", b'{"Name": 7}', b'{"Name": "/"}', b"[" * 100_000, b"\xff\xfe\0"],
)
def test_what_is_no_configuration_names_nothing(tmp_path: Path, data: bytes):
    """No name is found if the files of Docker and Podman are invalid or lack a name."""
    docker = tmp_path / f"var/lib/docker/containers/{ID}"
    podman = tmp_path / "var/lib/containers/storage/overlay-containers"
    docker.mkdir(parents=True)
    podman.mkdir(parents=True)
    (docker / "config.v2.json").write_bytes(data)
    (podman / "containers.json").write_bytes(data)
    assert find_name(ID, Roots(rootfs=tmp_path)) is None


def test_only_an_id_is_looked_for(tmp_path: Path):
    """No name is searched for unless the ID is valid, so a path such as `..` is not followed."""
    (tmp_path / "var/lib/docker/containers").mkdir(parents=True)
    (tmp_path / "var/lib/docker/config.v2.json").write_text('{"Name": "/no"}')
    assert find_name("..", Roots(rootfs=tmp_path)) is None
    assert find_name("", Roots(rootfs=tmp_path)) is None


def test_hundreds_of_interfaces_are_all_counted(tmp_path: Path):
    """The traffic of all interfaces except loopback is added, even if `net/dev` is large."""
    head = "Inter-|   Receive\n face |bytes\n"
    line = "{}: 3 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0" + " " * 100 + "\n"
    names = ["lo", *(f"eth{number}" for number in range(400))]
    (tmp_path / "dev").write_text(head + "".join(map(line.format, names)))
    assert read_traffic(str(tmp_path)) == (1200, 2000)


NUMBERS = st.sampled_from(["-1", "max", "99999999999999999999999", "0x10", "1e5", "nan", "", "٣"])


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Roots]:
    """One machine for each cgroup version, whose files the examples corrupt and restore."""
    return {version: copy_machine(version, tmp_path_factory.mktemp("spoiled")) for version in PIDS}


@settings(max_examples=100)
@given(data=st.data())
def test_whatever_stands_in_a_file_is_a_number_or_nothing(
    machines: dict[str, Roots], data: st.DataObject
):
    """A corrupt file raises no exception, and each value is None or not negative."""
    roots = machines[data.draw(st.sampled_from(["v1", "v2"]))]
    group, pid = find(roots)
    files = sorted(path for folder in group.folders for path in Path(folder).iterdir())
    file = data.draw(st.sampled_from([*files, roots.procfs / str(pid) / "net/dev"]))
    good = file.read_bytes()
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, len(good)))
    spoiled = data.draw(st.binary(max_size=30) | NUMBERS.map(str.encode))
    file.write_bytes(good[:start] + spoiled + good[end:])
    usage = GroupFiles(group, pid=pid, roots=roots).read()
    file.write_bytes(good)
    assert usage is not None
    for field in fields(Usage):
        value = getattr(usage, field.name)
        assert value is None or value >= 0
    to_sample(usage)
