"""Tests for run directories in other mount namespaces."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.unit.sources.runs.trainer import Trainer, kernel_tells_exits
from trainvitals.runfile import STEP
from trainvitals.sources.runs import namespaces
from trainvitals.sources.runs.directory import RunDirectory
from trainvitals.sources.runs.namespaces import ContainerDirectories, find_run_directories
from trainvitals.sources.runs.owners import Users
from trainvitals.sources.runs.processes import Exit
from trainvitals.sources.runs.rankfile import FileKey

OWN_SHM = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
CONTAINER = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
RUNS = Path(f"/dev/shm/trainvitals-test-{os.getpid()}")


@pytest.fixture(autouse=True)
def _permission():
    command = [*CONTAINER, "sh", "-c", OWN_SHM, "sh", "true"]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs the permission to make mount and PID namespaces (root)")
    yield
    shutil.rmtree(RUNS, ignore_errors=True)


def test_who_makes_many_namespaces_has_one_turn_at_a_time(tmp_path: Path):
    """Processes are chosen from each user in turn, so root's containers are among the first."""
    procfs = tmp_path / "proc"
    for pid, user in [("self", 0), *((str(pid), 1000) for pid in range(1, 400)), ("900", 0)]:
        (procfs / pid / "ns").mkdir(parents=True)
        (procfs / pid / "ns/mnt").touch()
        (procfs / pid / "status").write_text(f"Name:\tUid:\nUid:\t{user}\t0\t0\t0\n")
    found = namespaces._one_process_of_each_namespace(procfs, Users())
    assert found[0] == (900, 0)
    assert len(found) == 256
    assert {user for _, user in found[1:]} == {1000}


def test_the_directories_of_one_user_share_files():
    """The file limit is divided among users and then among each user's directories."""
    containers = ContainerDirectories(RUNS)
    for number in range(61):
        key = FileKey(number, 1)
        containers._directories[key] = RunDirectory(RUNS)
        containers._owners[key] = 1000 if number else 0
    shares = list(containers._share_files().values())
    containers.close()
    assert (shares[0], set(shares[1:])) == (64, {4})


def start_container(runs: Path = RUNS, before: str = "") -> Trainer:
    """Start a trainer in a container that has its own `/dev/shm`."""
    return Trainer(runs, wrapper=[*CONTAINER, "sh", "-c", before + OWN_SHM, "sh"])


def open_descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_trainer_that_shares_nothing_is_read():
    """The values, host PID and ending of a trainer in a container are read.

    They remain known for 15 minutes after the container's end.
    """
    before = open_descriptors()
    containers = ContainerDirectories(RUNS)
    with start_container() as trainer:
        assert not RUNS.exists()
        trainer.do("step 0.25")
        (directory,) = containers.find(1000.0)
        (file,) = directory.read(time.time()).files
        assert file.record.step[STEP["loss"]] == 0.25
        assert file.record.identity.pid == 1
        assert (file.liveness.is_alive, file.liveness.evidence) == (True, "lock")
        assert not file.can_be_noted
        assert file.path.match(f"/proc/*/root{RUNS}/run.0.1.*.tv")
        os.kill(file.liveness.host_pid, 9)
        trainer.process.wait()
    for now in (1014.0, 1016.0, 1915.0):
        (directory,) = containers.find(now)
        (file,) = directory.read(time.time()).files
        assert not file.liveness.is_alive
        assert file.liveness.exit == (Exit(None, 9) if kernel_tells_exits() else None)
    assert open_descriptors() == before
    assert containers.find(1931.0) == ()
    containers.close()


def test_each_directory_is_found_once():
    """Each container's own directory is found once, and our own directory is not returned."""
    shared = Trainer(RUNS, wrapper=("unshare", "--mount"))
    with shared, start_container() as one, start_container() as two:
        assert len(list(RUNS.iterdir())) == 1
        found = find_run_directories(RUNS)
        assert len(found) == 2
        assert len({directory.key for directory in found}) == 2
        for directory in found:
            (name,) = os.listdir(directory.descriptor)  # noqa: PTH208 - a descriptor
            assert name in {one.path.name, two.path.name}
            os.close(directory.descriptor)
        assert len(find_and_close(most=1)) == 1


def find_and_close(**keywords):
    """Find run directories, close them, and return them."""
    found = find_run_directories(RUNS, **keywords)
    for directory in found:
        os.close(directory.descriptor)
    return found


def test_a_search_is_repeated_after_15_seconds():
    """A container that starts between two searches is found at the next search."""
    containers = ContainerDirectories(RUNS)
    assert containers.find(1000.0) == ()
    with start_container():
        assert containers.find(1014.0) == ()
        (directory,) = containers.find(1015.0)
        assert containers.find(1031.0) == (directory,)
    containers.close()


def test_containers_share_a_number_of_files(monkeypatch):
    """Containers share one limit on files, and each container keeps its living ranks."""
    monkeypatch.setattr(namespaces, "_MOST_FILES", 8)
    copies = "for i in 1 2 3 4 5 6; do cp $(ls $0/*.tv | head -n 1) $0/$i.tv; done"
    with start_container() as one, start_container() as two:
        for trainer in (one, two):
            into = ("nsenter", "--mount", f"--target={find_inner(trainer)}")
            subprocess.run([*into, "sh", "-c", copies, RUNS], check=True)
        containers = ContainerDirectories(RUNS)
        readings = containers.read(time.time())
        assert [len(reading.files) for reading in readings] == [4, 4]
        assert [reading.omitted for reading in readings] == [3, 3]
        for reading in readings:
            assert any(file.liveness.is_alive for file in reading.files)
        containers.close()


def find_inner(trainer: Trainer) -> int:
    """Return the PID of the child process of `unshare`."""
    return int(Path(f"/proc/{trainer.pid}/task/{trainer.pid}/children").read_text())


def test_what_there_is_no_time_for_is_searched_the_next_time():
    """Directories for which a reading has no time left are searched at the next reading."""
    with start_container(), start_container():
        ticks = iter([0.0, 9.0, 10.0, 19.0])
        containers = ContainerDirectories(RUNS, monotonic=lambda: next(ticks))
        counts = [[len(r.files) for r in containers.read(time.time())] for _ in range(2)]
        assert counts == [[1, 0], [1, 1]]
        containers.close()


def test_directories_of_late_containers_are_bounded(monkeypatch):
    """Only the latest directories of ended containers are kept open, up to the limit."""
    gc.collect()  # Close what other tests left behind before descriptors are counted.
    monkeypatch.setattr(namespaces, "_MOST_GONE", 1)
    before = open_descriptors()
    containers = ContainerDirectories(RUNS)
    with start_container(), start_container():
        assert len(containers.find(1000.0)) == 2
    assert len(containers.find(1015.0)) == 1
    containers.close()
    assert open_descriptors() == before
    containers.close()  # The second call finds nothing to close.
    assert open_descriptors() == before


def test_a_link_inside_a_container_leads_nowhere(tmp_path: Path):
    """A symbolic link in a container is not followed, because it would lead to a path outside."""
    (tmp_path / "secret").mkdir()
    link = f"ln -s {tmp_path}/secret {RUNS}; "
    command = f"mount -t tmpfs tmpfs /dev/shm && {link} echo ready; read line"
    with subprocess.Popen(
        [*CONTAINER, "sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        assert find_and_close() == ()
        process.communicate(b"\n")


def test_who_may_not_look_finds_nothing():
    """Processes of other users are skipped without an error if access is denied."""
    with start_container():
        assert len(find_and_close()) == 1
        os.seteuid(65534)
        try:
            assert find_and_close() == ()
        finally:
            os.seteuid(0)


def test_a_machine_without_proc_has_no_containers(tmp_path: Path):
    """If `/proc` shows no processes, no directory is found."""
    assert find_and_close(procfs=tmp_path) == ()


def test_a_directory_that_turns_out_to_be_ours_is_let_go():
    """A container's directory that is also our own run directory is closed and not read twice."""
    containers = ContainerDirectories(RUNS)
    with start_container():
        (directory,) = containers.find(1000.0)
        ours = directory.read(time.time())
        assert len(ours.files) == 1
        (key,) = containers._directories
        containers._directories[key].close()
        containers._directories.clear()
        RUNS.mkdir()
        status = RUNS.stat()
        own_key = type(key)(status.st_dev, status.st_ino)
        containers._directories[own_key] = directory
        assert directory not in containers.find(1020.0)
        assert containers._gone == []
    containers.close()
