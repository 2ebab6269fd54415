"""Whether the process behind a run file lives, asked of real processes."""

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
    """A reader of one run file's liveness."""

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
        """Ask once."""
        self.kills.begin()
        return self.pulse.read(has_ended=has_ended, age_seconds=age_seconds)

    def close(self):
        """Close everything."""
        self.pulse.close()
        self.kills.close()
        os.close(self.descriptor)


@pytest.fixture
def trainer(tmp_path: Path):
    """A trainer."""
    with Trainer(tmp_path) as trainer:
        yield trainer


@pytest.fixture
def ear(trainer):
    """A reader of the trainer's liveness, who has met it alive."""
    ear = Ear(trainer.path)
    assert ear.listen().is_alive
    yield ear
    ear.close()


def test_the_holder_of_the_lock_is_told(trainer):
    """A descriptor that can only read is enough to learn the trainer's PID."""
    descriptor = os.open(trainer.path, os.O_RDONLY)
    assert query_lock(descriptor) == trainer.pid
    trainer.kill()
    assert query_lock(descriptor) is None
    os.close(descriptor)


def test_a_lock_for_reading_is_no_sign_of_life(tmp_path: Path):
    """Anybody who may read the file can lock it for reading; that makes no dead rank alive."""
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
    """The lock says that it lives, and /proc what it does."""
    ear = Ear(trainer.path)
    wait_until(lambda: ear.listen(age_seconds=1.0).state == "S")
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.evidence) == (True, "lock")
    assert (liveness.host_pid, liveness.exit, liveness.oom_killed) == (trainer.pid, None, False)
    ear.close()


def test_a_stopped_trainer_is_alive_and_stopped(trainer, ear):
    """SIGSTOP shows as T, once the last record is more than a moment old."""
    os.kill(trainer.pid, signal.SIGSTOP)
    wait_until(lambda: ear.listen(age_seconds=1.0).state == "T")
    assert ear.listen(age_seconds=1.0).is_alive
    assert ear.listen(age_seconds=0.1).state == "R"


def test_sigkill_is_told_at_once(trainer, ear):
    """A killed trainer is dead in the next reading, by signal 9 where the kernel tells it."""
    trainer.kill()
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.evidence) == (False, "lock")
    assert (liveness.host_pid, liveness.state) == (trainer.pid, None)
    assert liveness.exit == (Exit(None, 9) if kernel_tells_exits() else None)
    assert not liveness.oom_killed
    assert ear.listen() is liveness


def test_the_exit_code_is_told(trainer, ear):
    """A trainer that left with exit code 3 is dead by that."""
    trainer.do("leave 3")
    trainer.process.wait()
    assert ear.listen().exit == (Exit(3, None) if kernel_tells_exits() else None)


def test_a_zombie_is_dead_and_its_end_told_later(trainer, ear):
    """A trainer that its parent has not collected yet is dead; exit code 0 comes afterwards."""
    trainer.do("leave 0")
    wait_until(lambda: not ear.listen().is_alive)
    assert ear.listen().exit is None
    trainer.process.wait()
    assert ear.listen().exit == (Exit(0, None) if kernel_tells_exits() else None)


def test_a_forked_child_does_not_keep_its_parent_alive(trainer, ear):
    """A child that holds the descriptor and the mapping holds no lock."""
    child = int(trainer.do("fork"))
    trainer.kill()
    assert not ear.listen().is_alive
    os.kill(child, signal.SIGKILL)


def test_a_trainer_that_lost_its_lock_is_alive_by_its_pid(trainer, ear):
    """Reading its own file drops the lock; the process is still there."""
    assert trainer.do("read_copy") == "16384"
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.evidence) == (True, "pid")
    trainer.kill()
    assert not ear.listen().is_alive


def test_a_finished_run_is_over_though_its_process_stays(trainer, ear):
    """One that said its last word and let go is not alive; its exit is told when it leaves."""
    trainer.do("finish")
    liveness = ear.listen(has_ended=True)
    assert (liveness.is_alive, liveness.evidence, liveness.exit) == (False, "lock", None)
    trainer.do("leave 4")
    trainer.process.wait()
    later = ear.listen(has_ended=True)
    assert later.exit == (Exit(4, None) if kernel_tells_exits() else None)


def test_a_trainer_met_dead_is_dead(trainer):
    """The reader that comes too late learns that it died, not how."""
    trainer.kill()
    ear = Ear(trainer.path)
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.evidence) == (False, "pid")
    assert (liveness.host_pid, liveness.exit) == (trainer.pid, None)
    ear.close()


def test_where_the_lock_is_not_seen_the_pid_decides(trainer):
    """PID, start time and mapped file say whether a trainer of our PID namespace lives."""
    trainer.do("read_copy")
    ear = Ear(trainer.path)
    liveness = ear.listen(age_seconds=1e6)
    assert (liveness.is_alive, liveness.evidence) == (True, "pid")
    trainer.kill()
    assert not ear.listen(age_seconds=0.0).is_alive
    ear.close()


def test_a_copy_of_a_run_file_is_nobodys(trainer, tmp_path: Path):
    """The process that its header names lives, but writes to another file."""
    shutil.copy(trainer.path, tmp_path / "copy")
    ear = Ear(tmp_path / "copy")
    assert not ear.listen().is_alive
    ear.close()


def test_a_pid_that_another_process_has_got_is_no_life(trainer, tmp_path: Path):
    """A process that started at another time is another process."""
    shutil.copy(trainer.path, tmp_path / "unlocked")
    ear = Ear(tmp_path / "unlocked", start_ticks=1)
    assert not ear.listen().is_alive
    ear.close()


def test_another_pid_namespace_of_the_same_kernel_needs_the_lock(trainer, tmp_path: Path):
    """Locks are seen across the PID namespaces of a kernel, so none means dead."""
    shutil.copy(trainer.path, tmp_path / "unlocked")
    ear = Ear(tmp_path / "unlocked", pid_namespace=1)
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.evidence, liveness.host_pid) == (False, "lock", None)
    ear.close()


@pytest.mark.parametrize(
    ("age_seconds", "is_alive"), [(0.0, True), (599.0, True), (601.0, False), (-601.0, False)]
)
def test_under_another_kernel_the_age_decides(trainer, tmp_path, age_seconds, is_alive):
    """A record of the last ten minutes is a sign of life; one from the future is none."""
    shutil.copy(trainer.path, tmp_path / "unlocked")
    ear = Ear(tmp_path / "unlocked", boot_id=b"another machine.")
    liveness = ear.listen(age_seconds=age_seconds)
    assert (liveness.is_alive, liveness.evidence) == (is_alive, "age")
    assert not ear.listen(age_seconds=0.0, has_ended=True).is_alive
    ear.close()


def test_without_a_watch_the_lock_alone_is_told(trainer):
    """Beyond the number of watched processes neither state nor exit is known."""
    ear = Ear(trainer.path, may_watch=False)
    assert ear.listen().state is None
    trainer.kill()
    liveness = ear.listen()
    assert (liveness.is_alive, liveness.exit) == (False, None)
    ear.close()


def test_nothing_of_a_dead_trainer_stays_open(trainer, ear):
    """Once everything is told, the descriptors of its process are closed."""
    assert ear.pulse.is_watching
    trainer.kill()
    ear.listen()
    assert not ear.pulse.is_watching


def test_the_pid_of_a_trainer_in_a_pid_namespace_is_ours(tmp_path: Path):
    """A trainer that is PID 1 in its container has its host PID here."""
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
    """A control group of 48 MiB, of whichever version has the memory here."""
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
    """A trainer that the kernel killed for its memory is told apart from one that was killed."""
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
    """Exit by signal 9 alone is no evidence."""
    (small_group / "cgroup.procs").write_text(str(trainer.pid))
    ear = Ear(trainer.path)
    assert ear.listen().is_alive
    trainer.kill()
    assert not ear.listen().oom_killed
    ear.close()


def test_a_file_system_without_locks_leaves_the_pid(trainer, tmp_path, monkeypatch):
    """Where the question for the lock fails, PID and start time decide."""
    shutil.copy(trainer.path, tmp_path / "unlocked")
    ear = Ear(tmp_path / "unlocked")

    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert ear.listen().evidence == "pid"
    monkeypatch.undo()
    ear.close()


def test_an_unknown_host_is_no_error(tmp_path: Path):
    """Without /proc neither boot nor namespace is known."""
    host = read_host(procfs=tmp_path)
    assert (host.boot_id, host.pid_namespace) == (bytes(16), 0)


def test_the_package_imports_without_fcntl():
    """Where there are no record locks, the modules still import."""
    code = (
        "import sys; sys.modules['fcntl'] = None; sys.path.insert(0, sys.argv[1]);"
        "import trainvitals.sources.runs.directory, trainvitals.sources.runs.namespaces"
    )
    subprocess.run([sys.executable, "-S", "-c", code, SOURCE_ROOT], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_that_names_another_user_s_process_is_no_ghost(trainer, tmp_path: Path, monkeypatch):
    """A file without a process is not alive by the number and the start of another user's."""
    # As where an exporter that is not root cannot read what a process maps.
    monkeypatch.setattr("trainvitals.sources.runs.liveness.may_map", lambda *_, **__: True)
    ghost = tmp_path / "ghost.tv"
    shutil.copyfile(trainer.path, ghost)
    assert Ear(ghost).listen().is_alive
    os.chown(ghost, 12345, -1)
    told = Ear(ghost).listen()
    assert (told.is_alive, told.host_pid) == (False, None)
