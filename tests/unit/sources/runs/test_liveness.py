"""Tests for the liveness check of a run file's writer, with real processes."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from tests.unit.sources.runs.trainer import SOURCE_ROOT, Trainer, kernel_tells_exits
from trainvitals.runfile import Identity
from trainvitals.runfile.codec import decode_header
from trainvitals.sources.runs.liveness import LivenessCheck, query_lock, read_host
from trainvitals.sources.runs.oomkills import OomKills
from trainvitals.sources.runs.processes import Exit

IN_A_CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


class Ear:
    """A reader that checks the liveness of one run file's writer."""

    def __init__(self, path: Path, *, may_watch=True, host=None, **changes):
        self.descriptor = os.open(path, os.O_RDONLY)
        self.identity: Identity = dataclasses.replace(
            decode_header(os.pread(self.descriptor, 4096, 0)), **changes
        )
        self.kills = OomKills()
        self.pulse = LivenessCheck(
            self.descriptor,
            self.identity,
            host=host or read_host(),
            oom_kills=self.kills,
            may_watch=lambda: may_watch,
        )

    def listen(self, *, has_ended=False, age_seconds=0.0):
        """Check the liveness once."""
        self.kills.begin()
        return self.pulse.read(has_ended=has_ended, age_seconds=age_seconds)

    def close(self):
        """Stop watching the process and close all descriptors."""
        self.pulse.close()
        self.kills.close()
        os.close(self.descriptor)


@pytest.fixture
def trainer(tmp_path: Path):
    """A running process that writes a run file."""
    with Trainer(tmp_path) as trainer:
        yield trainer


@pytest.fixture
def ear(trainer):
    """A reader of the trainer's run file that has already seen the trainer alive."""
    ear = Ear(trainer.path)
    assert ear.listen().is_alive
    yield ear
    ear.close()


def test_the_holder_of_the_lock_is_told(trainer):
    """`query_lock` returns the PID of the lock holder, even for a read-only descriptor."""
    descriptor = os.open(trainer.path, os.O_RDONLY)
    assert query_lock(descriptor) == trainer.pid
    trainer.kill()
    assert query_lock(descriptor) is None
    os.close(descriptor)


def test_a_lock_for_reading_is_no_sign_of_life(tmp_path: Path):
    """A read lock is ignored, because any user with read permission may hold one."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    code = "import fcntl,sys;f=open(sys.argv[1]);fcntl.lockf(f,fcntl.LOCK_SH);print(1,flush=True);input()"
    with (
        subprocess.Popen(
            [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process,
        path.open() as file,
    ):
        process.stdout.readline()
        assert query_lock(file.fileno()) is None
        process.stdin.write(b"\n")


def test_a_living_trainer_is_alive_by_its_lock(trainer):
    """A trainer that holds the lock is alive, and its state is read from `/proc`."""
    ear = Ear(trainer.path)
    wait_until(lambda: ear.listen(age_seconds=1.0).state == "S")
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.evidence) == (True, "lock")
    assert (liveness.host_pid, liveness.exit, liveness.oom_killed) == (trainer.pid, None, False)
    ear.close()


def test_a_stopped_trainer_is_alive_and_stopped(trainer, ear):
    """A process stopped with SIGSTOP is alive in state T, if its last record is not recent."""
    os.kill(trainer.pid, signal.SIGSTOP)
    wait_until(lambda: ear.listen(age_seconds=1.0).state == "T")
    assert ear.listen(age_seconds=1.0).is_alive
    assert ear.listen(age_seconds=0.1).state == "R"


def test_sigkill_is_told_at_once(trainer, ear):
    """The reading after SIGKILL reports the death, with signal 9 if the kernel reports exits."""
    trainer.kill()
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.evidence) == (False, "lock")
    assert (liveness.host_pid, liveness.state) == (trainer.pid, None)
    assert liveness.exit == (Exit(None, 9) if kernel_tells_exits() else None)
    assert not liveness.oom_killed
    assert ear.listen() is liveness


def test_the_exit_code_is_told(trainer, ear):
    """The exit code 3 of a trainer is reported if the kernel reports exits."""
    trainer.do("leave 3")
    trainer.process.wait()
    assert ear.listen().exit == (Exit(3, None) if kernel_tells_exits() else None)


def test_a_zombie_is_dead_and_its_end_told_later(trainer, ear):
    """A zombie is reported as dead, and its exit code 0 after its parent has waited for it."""
    trainer.do("leave 0")
    wait_until(lambda: not ear.listen().is_alive)
    assert ear.listen().exit is None
    trainer.process.wait()
    assert ear.listen().exit == (Exit(0, None) if kernel_tells_exits() else None)


def test_a_forked_child_does_not_keep_its_parent_alive(trainer, ear):
    """A forked child that keeps the descriptor and the mapping does not hold the lock."""
    child = int(trainer.do("fork"))
    trainer.kill()
    assert not ear.listen().is_alive
    os.kill(child, signal.SIGKILL)


def test_a_trainer_that_lost_its_lock_is_alive_by_its_pid(trainer, ear):
    """A trainer that lost its lock by reading its own run file is alive, as its PID shows."""
    assert trainer.do("read_copy") == "16384"
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.evidence) == (True, "pid")
    trainer.kill()
    assert not ear.listen().is_alive


def test_a_finished_run_is_over_though_its_process_stays(trainer, ear):
    """A run that finished is not alive although its process continues.

    The exit of the process is reported when the process ends.
    """
    trainer.do("finish")
    liveness = ear.listen(has_ended=True)
    assert (liveness.is_alive, liveness.evidence, liveness.exit) == (False, "lock", None)
    trainer.do("leave 4")
    trainer.process.wait()
    later = ear.listen(has_ended=True)
    assert later.exit == (Exit(4, None) if kernel_tells_exits() else None)


def test_a_trainer_met_dead_is_dead(trainer):
    """If the first reading follows the death, the death is reported without the kind of exit."""
    trainer.kill()
    ear = Ear(trainer.path)
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.evidence) == (False, "pid")
    assert (liveness.host_pid, liveness.exit) == (trainer.pid, None)
    ear.close()


def test_where_the_lock_is_not_seen_the_pid_decides(trainer):
    """Without a lock, the PID, start time and mapped file show whether the trainer lives."""
    trainer.do("read_copy")
    ear = Ear(trainer.path)
    liveness = ear.listen(age_seconds=1e6)
    assert (liveness.is_alive, liveness.evidence) == (True, "pid")
    trainer.kill()
    assert not ear.listen(age_seconds=0.0).is_alive
    ear.close()


def test_a_copy_of_a_run_file_is_nobodys(trainer, tmp_path: Path):
    """A copy of a run file is not alive, because the process in its header maps another file."""
    shutil.copy(trainer.path, tmp_path / "copy")
    ear = Ear(tmp_path / "copy")
    assert not ear.listen().is_alive
    ear.close()


def test_a_pid_that_another_process_has_got_is_no_life(trainer, tmp_path: Path):
    """A process with another start time is not the writer, even if its PID is the same."""
    shutil.copy(trainer.path, tmp_path / "unlocked")
    ear = Ear(tmp_path / "unlocked", start_ticks=1)
    assert not ear.listen().is_alive
    ear.close()


def test_another_pid_namespace_of_the_same_kernel_needs_the_lock(trainer, tmp_path: Path):
    """A writer without a lock in another PID namespace is dead, as its lock would be visible."""
    shutil.copy(trainer.path, tmp_path / "unlocked")
    ear = Ear(tmp_path / "unlocked", pid_namespace=1)
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.evidence, liveness.host_pid) == (False, "lock", None)
    ear.close()


@pytest.mark.parametrize(
    ("age_seconds", "is_alive"), [(0.0, True), (599.0, True), (601.0, False), (-601.0, False)]
)
def test_under_another_kernel_the_age_decides(trainer, tmp_path, age_seconds, is_alive):
    """A writer on another kernel is alive if its record is less than ten minutes old.

    A record from the future does not count.
    """
    shutil.copy(trainer.path, tmp_path / "unlocked")
    ear = Ear(tmp_path / "unlocked", boot_id=b"another machine.")
    liveness = ear.listen(age_seconds=age_seconds)
    assert (liveness.is_alive, liveness.evidence) == (is_alive, "age")
    assert not ear.listen(age_seconds=0.0, has_ended=True).is_alive
    ear.close()


def test_without_a_watch_the_lock_alone_is_told(trainer):
    """The state and the exit of a process that may not be watched are unknown."""
    ear = Ear(trainer.path, may_watch=False)
    assert ear.listen().state is None
    trainer.kill()
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.exit) == (False, None)
    ear.close()


def test_nothing_of_a_dead_trainer_stays_open(trainer, ear):
    """The descriptors of the trainer's process are closed when its ending is known."""
    assert ear.pulse.is_watching
    trainer.kill()
    ear.listen()
    assert not ear.pulse.is_watching


def test_the_pid_of_a_trainer_in_a_pid_namespace_is_ours(tmp_path: Path):
    """A trainer with PID 1 in its own PID namespace is reported with its PID in this namespace."""
    if subprocess.run([*IN_A_CONTAINER, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the permission to make a PID namespace (root)")
    with Trainer(tmp_path, wrapper=IN_A_CONTAINER) as trainer:
        ear = Ear(trainer.path)
        assert ear.identity.pid == 1
        liveness = ear.listen()
        assert liveness.is_alive
        parent = Path(f"/proc/{liveness.host_pid}/stat").read_text().rpartition(")")[2].split()[1]
        assert parent == str(trainer.pid)
        os.kill(liveness.host_pid, signal.SIGKILL)
        trainer.process.wait()
        liveness = ear.listen()
        assert not liveness.is_alive
        assert liveness.exit == (Exit(None, 9) if kernel_tells_exits() else None)
        ear.close()


@pytest.fixture
def small_group():
    """A control group with a memory limit of 48 MiB, of version 1 or 2."""
    for root, limit in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        group = Path(root) / f"trainvitals-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                (group / limit).write_text(str(48 << 20))
                with contextlib.suppress(OSError):
                    (group / "memory.swap.max").write_text("0")
                yield group
                return
            finally:
                wait_until(partial(_is_removed, group))
    pytest.skip("needs the permission to make a control group with a memory limit (root)")


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def test_an_oom_kill_is_told_from_the_control_group(small_group, trainer):
    """The death of a trainer that exceeded its group's memory limit is reported as an OOM kill."""
    (small_group / "cgroup.procs").write_text(str(trainer.pid))
    ear = Ear(trainer.path)
    assert ear.listen().is_alive
    trainer.do("eat 512")
    trainer.process.wait()
    liveness = ear.listen()
    assert not liveness.is_alive
    assert liveness.oom_killed
    assert liveness.exit == (Exit(None, 9) if kernel_tells_exits() else None)
    ear.close()


def test_a_sigkill_in_a_control_group_is_no_oom(small_group, trainer):
    """A process that was killed by signal 9 without an OOM kill in its group is not an OOM kill."""
    (small_group / "cgroup.procs").write_text(str(trainer.pid))
    ear = Ear(trainer.path)
    assert ear.listen().is_alive
    trainer.kill()
    assert not ear.listen().oom_killed
    ear.close()


def test_a_file_system_without_locks_leaves_the_pid(trainer, tmp_path, monkeypatch):
    """If querying the lock fails, the PID and the start time show whether the trainer lives."""
    shutil.copy(trainer.path, tmp_path / "unlocked")
    ear = Ear(tmp_path / "unlocked")

    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert ear.listen().evidence == "pid"
    monkeypatch.undo()
    ear.close()


def test_an_unknown_host_is_no_error(tmp_path: Path):
    """Without `/proc`, the boot ID and the PID namespace are unknown."""
    host = read_host(procfs=tmp_path)
    assert (host.boot_id, host.pid_namespace) == (bytes(16), 0)


def test_the_package_imports_without_fcntl():
    """The modules can be imported on systems without `fcntl`."""
    code = (
        "import sys; sys.modules['fcntl'] = None; sys.path.insert(0, sys.argv[1]);"
        "import trainvitals.sources.runs.directory, trainvitals.sources.runs.namespaces"
    )
    subprocess.run([sys.executable, "-S", "-c", code, SOURCE_ROOT], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_that_names_another_user_s_process_is_no_ghost(trainer, tmp_path: Path, monkeypatch):
    """A run file is not alive because of the PID and start time of another user's process."""
    # An exporter that is not root cannot read the mappings of other users' processes.
    monkeypatch.setattr("trainvitals.sources.runs.liveness.may_map", lambda *_, **__: True)
    ghost = tmp_path / "ghost.tv"
    shutil.copyfile(trainer.path, ghost)
    assert Ear(ghost).listen().is_alive
    os.chown(ghost, 12345, -1)
    told = Ear(ghost).listen()
    assert (told.is_alive, told.host_pid) == (False, None)
