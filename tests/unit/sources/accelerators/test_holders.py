"""The owner, container, run and job of each process that holds an accelerator are found."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainvitals.sources.accelerators.holders import (
    Holders,
    Place,
    Places,
    find_pod,
    find_slurm_job,
)
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
    Owner,
    ProcessMemory,
)
from trainvitals.sources.files import Roots

GPU = Identity("gpu", 0, "G", "H100", "0:1b", "570")
ID = "9c" * 32
POD = "0a1b2c3d-0405-4607-8809-0a0b0c0d0e0f"


@pytest.mark.parametrize(
    ("path", "job"),
    [
        ("/slurm/uid_1000/job_1234/step_0/task_0", "1234"),
        ("/system.slice/slurmstepd.scope/job_98/step_batch/user/task_0", "98"),
        ("/system.slice/node7_slurmstepd.scope/job_98/step_extern", "98"),
        ("/user.slice/user-1000.slice/job_1234", None),
        ("/slurm/uid_1000", None),
        ("/slurm/job_", None),
    ],
)
def test_a_job_is_a_group_of_slurm(path, job):
    """A Slurm job is found in both versions of control groups, but not in a user's slice."""
    assert find_slurm_job(path) == job


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/burstable/pod{POD}/{ID}",
        f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/crio-{ID}.scope",
    ],
)
def test_a_pod_is_named_by_its_uid(path):
    """The pod UID is found in the paths of the cgroup drivers cgroupfs and systemd."""
    assert find_pod(path) == POD
    assert find_pod(f"/docker/{ID}") is None


def make_process(proc: Path, pid: int, cgroup: str) -> None:
    """Create a process with the given control group below a fake `/proc`."""
    (proc / str(pid)).mkdir(parents=True)
    numbers = " ".join(["0"] * 48)
    (proc / str(pid) / "stat").write_text(f"{pid} (python3) S 1 {numbers}\n")
    (proc / str(pid) / "cgroup").write_text(f"0::{cgroup}\n")


def look_up(roots: Roots, *pids: int, time: float = 0.0) -> list[Owner | None]:
    """Return the owners of the processes."""
    processes = tuple(ProcessMemory(pid, 1) for pid in pids)
    reading = AcceleratorsReading((AcceleratorReading(GPU, "ok", 1.0, None, processes),))
    found = Holders(roots).look_up(reading, time)
    return [process.owner for process in found.devices[0].processes]


def test_what_a_process_is_is_read_from_proc(tmp_path):
    """The owner of a process is read from `/proc`, and is empty if the process does not exist."""
    make_process(tmp_path, 7, f"/kubepods/pod{POD}/{ID}")
    make_process(tmp_path, 8, "/system.slice/slurmstepd.scope/job_5/step_0")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(f"ada:x:{os.getuid()}:0::/:/bin/sh\n")
    roots = Roots(procfs=tmp_path, rootfs=tmp_path)
    assert look_up(roots, 7, 8, 9) == [
        Owner("python3", "ada", container=ID, pod=POD),
        Owner("python3", "ada", slurm_job="5"),
        Owner(),
    ]


def test_a_lookup_is_kept_for_half_a_minute(tmp_path):
    """The owner of a PID is cached for 30 seconds, since the PID may be reused later."""
    holders = Holders(Roots(procfs=tmp_path, rootfs=tmp_path))
    process = ProcessMemory(7, 1)
    reading = AcceleratorsReading((AcceleratorReading(GPU, "ok", 1.0, None, (process,)),))
    names = []
    for time in (0.0, 29.0, 31.0):
        found = holders.look_up(reading, time)
        names.append(found.devices[0].processes[0].owner.name)
        if time == 0.0:
            make_process(tmp_path, 7, "/")
    assert names == [None, None, "python3"]


def test_a_process_is_in_its_container_and_run():
    """A process is assigned to its container and run; an unnamed container has its short ID."""
    containers = SimpleNamespace(
        containers=(SimpleNamespace(id=ID, name="llm-train-1", compose_service="train"),)
    )
    alive = SimpleNamespace(is_alive=True, host_pid=7)
    dead = SimpleNamespace(is_alive=False, host_pid=8)
    runs = SimpleNamespace(
        ranks=(
            SimpleNamespace(run="llama", liveness=alive),
            SimpleNamespace(run="gone", liveness=dead),
            SimpleNamespace(run="log", liveness=None),
        )
    )
    places = Places(runs, containers)
    in_container, elsewhere = Owner("python3", container=ID), Owner("p", container="ab" * 32)
    assert places.find(ProcessMemory(7, 1, owner=in_container)) == Place(
        "llm-train-1", "train", "llama"
    )
    assert places.find(ProcessMemory(8, 1, owner=elsewhere)) == Place("abababababab")
    assert Places(None, None).find(ProcessMemory(8, 1)) == Place()
