"""The control groups of containers are found by PID and by a search of the cgroup folders."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.privileges import as_nobody
from trainvitals.sources.containers.cgrouppaths import (
    find_container,
    find_group,
    find_groups,
    identify,
    take_folder,
)
from trainvitals.sources.files import Roots

CGROUPS = Path(__file__).parents[3] / "fixtures" / "cgroups"
V1_ID = "87726d3cd943f6598684e07374f7a85e9524d34635966f89c1bd69cb3cc45d73"
V2_ID = "9cfe6cdb6160d6cd5801343fc5420eb487823ef25a2e4135a39e715e2854067a"
ONE, TWO = "1" * 64, "2" * 64


def roots_of(directory: Path) -> Roots:
    """Return the roots of the file systems below a directory."""
    return Roots(procfs=directory / "proc", sysfs=directory / "sys", rootfs=directory)


def enter(roots: Roots, lines: str, pid: int = 77) -> None:
    """Write the file `cgroup` of a process."""
    (roots.procfs / str(pid)).mkdir(parents=True, exist_ok=True)
    (roots.procfs / str(pid) / "cgroup").write_text(lines, encoding="utf-8")


@pytest.mark.parametrize(
    "path",
    [
        f"/docker/{ONE}",
        f"/docker/{ONE}/init.scope",
        f"/docker/{ONE}/docker/{TWO}",
        f"/system.slice/docker-{ONE}.scope",
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ONE}.scope",
        f"/libpod_parent/libpod-{ONE}",
        f"/machine.slice/libpod-{ONE}.scope",
        f"/machine.slice/libpod-{ONE}.scope/container",
        f"/system.slice/train.service/libpod-payload-{ONE}",
        f"/kubepods/besteffort/pod4fe6e5c0-86b0-4d28-8d8a-a4ae1b2b0c3d/{ONE}",
        f"/kubepods.slice/kubepods-pod4fe6.slice/cri-containerd-{ONE}.scope",
        f"/kubepods.slice/kubepods-pod4fe6.slice/crio-{ONE}.scope",
        f"/system.slice/containerd.service/kubepods-pod4fe6.slice:cri-containerd:{ONE}",
        f"/../{ONE}",
    ],
)
def test_a_containers_path_names_it(path: str):
    """The container ID is found in the path formats of all engines and cgroup drivers."""
    assert identify(path) == ONE


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/docker",
        "/docker/buildkit/k3rntq0wpeb7e1i7ykb5yhsks",
        "/system.slice/docker.service",
        f"/machine.slice/libpod-conmon-{ONE}.scope",
        f"/machine.slice/crio-conmon-{ONE}.scope",
        f"/docker/{ONE[1:]}",
        f"/docker/{ONE}0",
        f"/docker/{'G' * 64}",
        f"/docker/x{ONE}",
    ],
)
def test_what_only_looks_like_a_container_is_none(path: str):
    """Paths of monitors, engines, builds and malformed IDs belong to no container."""
    assert identify(path) is None


@given(st.text(max_size=200))
def test_any_text_is_a_path(path: str):
    """Arbitrary text is accepted as a path and belongs to no container."""
    assert identify(path) is None


def test_version_1_is_found_through_the_process():
    """In cgroup v1, a process's group has a separate folder for each controller."""
    group = find_group(2210, roots_of(CGROUPS / "v1"))
    assert group is not None
    assert (group.id, group.version, group.cgroup) == (V1_ID, 1, f"/docker/{V1_ID}")
    base = CGROUPS / "v1/sys/fs/cgroup"
    assert group.memory == f"{base}/memory/docker/{V1_ID}"
    assert group.cpu == f"{base}/cpu/docker/{V1_ID}"
    assert group.cpuacct == f"{base}/cpuacct/docker/{V1_ID}"
    assert group.pids == f"{base}/pids/docker/{V1_ID}"
    assert group.blkio == f"{base}/blkio/docker/{V1_ID}"
    assert find_container(2210, roots_of(CGROUPS / "v1")) == V1_ID


def test_version_2_is_found_through_the_process():
    """In cgroup v2, a process's group has one folder for all controllers."""
    group = find_group(5201, roots_of(CGROUPS / "v2"))
    assert group is not None
    assert (group.id, group.version) == (V2_ID, 2)
    folder = f"{CGROUPS}/v2/sys/fs/cgroup/system.slice/docker-{V2_ID}.scope"
    assert group.folders == (folder,)
    assert find_container(5201, roots_of(CGROUPS / "v2")) == V2_ID


def test_both_ways_find_the_same_group():
    """`find_groups` and `find_group` return the same group for a container."""
    for version, pid in (("v1", 2210), ("v2", 5201)):
        roots = roots_of(CGROUPS / version)
        group = find_group(pid, roots)
        assert group is not None
        assert dict(find_groups(roots)) == {group.id: group}


def test_a_process_outside_of_containers_has_its_own_group(tmp_path: Path):
    """The group of a job outside containers is found, with an empty container ID."""
    roots = roots_of(tmp_path)
    (roots.sysfs / "fs/cgroup").mkdir(parents=True)
    (roots.sysfs / "fs/cgroup/cgroup.controllers").touch()
    enter(roots, "0::/slurm/job_17\n")
    group = find_group(77, roots)
    assert group is not None
    assert (group.id, group.cgroup) == ("", "/slurm/job_17")
    assert group.memory == f"{tmp_path}/sys/fs/cgroup/slurm/job_17"
    assert find_container(77, roots) is None


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "0::/\n",
        "0::/../../system.slice/x.scope\n",
        "4:memory:/\n3:cpu,cpuacct:/\n0::/\n",
        "rubbish\n",
        "\0\n::\n",
    ],
)
def test_the_root_and_what_cannot_be_seen_are_no_group(tmp_path: Path, lines: str):
    """No group is found for the root group, another cgroup namespace or a malformed file."""
    roots = roots_of(tmp_path)
    enter(roots, lines)
    assert find_group(77, roots) is None


def test_a_process_in_another_cgroup_namespace_still_names_its_container(tmp_path: Path):
    """The container ID is found in a path outside the cgroup namespace, but the group is not."""
    roots = roots_of(tmp_path)
    enter(roots, f"0::/../docker-{ONE}.scope\n")
    assert find_group(77, roots) is None
    assert find_container(77, roots) == ONE


@pytest.mark.parametrize("pid", [-1, 0, 999_999_999])
def test_a_process_that_is_not_there_has_no_group(pid: int):
    """A PID that does not exist has no group; engines report PID 0 for a stopped container."""
    assert find_group(pid) is None
    assert find_container(pid) is None


def test_groups_of_some_controllers_alone_are_found(tmp_path: Path):
    """If a process has a group of only the memory controller, only that folder is returned."""
    roots = roots_of(tmp_path)
    enter(roots, "9:name=systemd:/\n4:memory:/agents/7\n3:cpu,cpuacct:/\n0::/\n")
    group = find_group(77, roots)
    assert group is not None
    assert group.memory == f"{tmp_path}/sys/fs/cgroup/memory/agents/7"
    assert group.folders == (group.memory,)


def test_a_hybrid_machine_has_version_1(tmp_path: Path):
    """If both cgroup versions are mounted, the groups of the v1 controllers are returned."""
    roots = roots_of(tmp_path)
    shutil.copytree(CGROUPS / "v1/sys", roots.sysfs)
    (roots.sysfs / f"fs/cgroup/unified/docker/{V1_ID}").mkdir(parents=True)
    (roots.sysfs / "fs/cgroup/unified/cgroup.controllers").touch()
    assert [group.version for group in find_groups(roots).values()] == [1]


def test_a_unified_hierarchy_beside_named_ones_has_version_2(tmp_path: Path):
    """If cgroup v1 has no controllers, the groups below the folder `unified` are returned."""
    roots = roots_of(tmp_path)
    folder = roots.sysfs / f"fs/cgroup/unified/docker/{ONE}"
    folder.mkdir(parents=True)
    (roots.sysfs / "fs/cgroup/systemd").mkdir()
    enter(roots, f"1:name=systemd:/docker/{ONE}\n0::/docker/{ONE}\n")
    group = find_group(77, roots)
    assert group is not None
    assert group.folders == (str(folder),)
    assert dict(find_groups(roots)) == {ONE: group}


def test_every_engines_groups_are_found_by_walking(tmp_path: Path):
    """The groups of all engines are found to a depth of eight, except inside other containers."""
    names = [f"{number:064x}" for number in range(9)]
    places = [
        f"docker/{names[0]}/init.scope",
        f"system.slice/docker-{names[1]}.scope",
        f"machine.slice/libpod-{names[2]}.scope/container",
        f"machine.slice/libpod-conmon-{names[3]}.scope",
        f"kubepods.slice/a.slice/b.slice/cri-containerd-{names[4]}.scope",
        f"1/2/3/4/5/6/7/docker-{names[5]}.scope",
        f"1/2/3/4/5/6/7/8/docker-{names[6]}.scope",
        f"docker/{names[0]}/docker/{names[7]}",
        f"dev-hugepages.mount/docker/{names[8]}",
    ]
    base = tmp_path / "sys/fs/cgroup"
    for place in places:
        (base / place).mkdir(parents=True)
    (base / "cgroup.controllers").touch()
    (base / f"docker-{TWO}.scope").touch()  # no folder
    (base / ONE).symlink_to(base / "docker")
    found = find_groups(roots_of(tmp_path))
    assert set(found) == {names[0], names[1], names[2], names[4], names[5]}
    assert found[names[2]].cgroup == f"/machine.slice/libpod-{names[2]}.scope"


def test_so_many_are_found_and_no_more(tmp_path: Path):
    """`find_groups` returns no more groups than the given maximum."""
    base = tmp_path / "sys/fs/cgroup"
    for number in range(10):
        (base / f"docker/{number:064x}").mkdir(parents=True)
    (base / "cgroup.controllers").touch()
    assert len(find_groups(roots_of(tmp_path), most=4)) == 4
    assert len(find_groups(roots_of(tmp_path))) == 10


def test_a_machine_without_control_groups_has_none(tmp_path: Path):
    """If no cgroup file system is mounted, no groups are found and no error is raised."""
    assert dict(find_groups(roots_of(tmp_path))) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_folder_that_may_not_be_read_is_passed_over():
    """An unreadable folder is skipped, and the groups in other folders are found."""
    with tempfile.TemporaryDirectory() as directory:  # `tmp_path` may be closed to `nobody`
        base = Path(directory) / "sys/fs/cgroup"
        (base / f"shut/deep/{TWO}").mkdir(parents=True)
        (base / f"docker/{ONE}").mkdir(parents=True)
        (base / "cgroup.controllers").touch()
        Path(directory).chmod(0o755)
        (base / "shut").chmod(0)
        with as_nobody():
            assert set(find_groups(roots_of(Path(directory)))) == {ONE}
        (base / "shut").chmod(0o700)


def test_copied_files_tell_their_version(tmp_path: Path):
    """The cgroup version of a folder with copied files is recognized by the names of the files."""
    for name, version in (("memory.max", 2), ("memory.oom_control", 1), ("io.stat", 2)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).touch()
        group = take_folder(str(folder))
        assert group is not None
        assert (group.id, group.version, group.folders) == ("", version, (str(folder),))


def test_a_folder_of_other_files_is_no_group(tmp_path: Path):
    """A folder without control group files and a missing folder are not accepted as groups."""
    (tmp_path / "log.txt").touch()
    assert take_folder(str(tmp_path)) is None
    assert take_folder(str(tmp_path / "none")) is None
