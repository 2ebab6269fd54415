"""Tests for the activity of processes, which is read from a fake `/proc`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trainvitals.sources.files import Roots
from trainvitals.sources.host.activity import Activity, ActivitySource, Surroundings

MIB = 1 << 20
WORLD = b"MASTER_ADDR=10.0.0.1\0MASTER_PORT=29500\0WORLD_SIZE=2\0"


class Proc:
    """A fake `/proc` with a few processes, and the source that reads it.

    Attributes:
        time: The monotonic time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.time = 100.0
        roots = Roots(procfs=folder, sysfs=folder / "sys")
        self.source = ActivitySource(roots, clock=lambda: self.time, ticks_per_second=100)

    def put(
        self,
        pid: int,
        *,
        letter: str = "S",
        parent: int = 1,
        ticks: int = 0,
        start: int = 50,
        name: str = "python",
        wait: str | None = "futex_do_wait",
        tid: int | None = None,
        **files: bytes,
    ) -> None:
        """Write the files of a process or of one of its threads; `files` are additional files."""
        place = self.folder / str(pid)
        folders = [place / "task" / str(tid)] if tid else [place, place / "task" / str(pid)]
        columns = ["0"] * 48
        columns[0], columns[10], columns[18] = str(parent), str(ticks), str(start)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "stat").write_text(f"{tid or pid} ({name}) {letter} {' '.join(columns)}\n")
            if wait is not None:
                (folder / "wchan").write_text(wait)
            for file, content in files.items():
                (folder / file).write_bytes(content)

    def read(self, pid: int, after: float = 0.0) -> Surroundings:
        """Return the activity of a process and its relatives after a number of seconds."""
        self.time += after
        return self.source.read([pid])[pid]


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """A fake `/proc` without processes."""
    return Proc(tmp_path)


def count(read: int, disk: int) -> bytes:
    """Return the content of a process's `io` file."""
    return f"rchar: {read}\nwchar: 1\nsyscr: 2\nsyscw: 3\nread_bytes: {disk}\n".encode()


def test_rates_are_those_between_two_looks(proc):
    """The CPU rate is that of all threads, plus the first thread's time in the run queue."""
    proc.put(7, ticks=100, io=count(0, 0), schedstat=b"1000 500000000 9\n")
    assert proc.read(7).own == Activity(7, "python", "S", 1, wait="futex_do_wait")
    proc.put(7, ticks=250, io=count(8 * MIB, 2 * MIB), schedstat=b"1000 1500000000 9\n")
    assert proc.read(7, after=2.0).own == Activity(
        7, "python", "S", 1, 1.25, 4.0 * MIB, 1.0 * MIB, "futex_do_wait"
    )


def test_a_look_a_moment_later_has_the_same_rates(proc):
    """A reading within a second of the previous one returns the previous rates."""
    proc.put(7, ticks=100)
    proc.read(7)
    proc.put(7, ticks=200)
    before = proc.read(7, after=2.0).own
    proc.put(7, ticks=210)
    assert proc.read(7, after=0.1).own == before
    assert proc.read(7, after=1.9).own.cores == 0.05


def test_another_process_of_the_same_number_has_no_rate_yet(proc):
    """A process that reuses the PID of an earlier process has no rate at its first reading."""
    proc.put(7, ticks=100)
    proc.read(7)
    proc.put(7, ticks=900, start=60)
    assert proc.read(7, after=2.0).own.cores is None


def test_a_process_that_was_seen_and_is_gone_is_told_from_one_never_seen(proc):
    """A process that has ended is distinguished from a process that was never visible.

    If `/proc` shows only some processes, an invisible process may still be running.
    """
    assert proc.read(7) == Surroundings(7)
    proc.put(8)
    proc.read(8)
    for file in sorted((proc.folder / "8").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    assert proc.read(8) == Surroundings(8, was_seen=True)
    proc.put(2, name="kthreadd")
    assert proc.read(9) == Surroundings(9, shows_all=True)


def test_what_may_not_be_read_is_not_known(proc):
    """The wait channel and the byte rate of another user's process are unknown."""
    proc.put(7, wait="0")
    proc.read(7)
    own = proc.read(7, after=2.0).own
    assert (own.wait, own.bytes_per_second, own.cores) == (None, None, 0.0)


def test_a_function_without_a_name_is_not_a_secret(proc):
    """A wait channel without a name is empty, not unknown, if the system call is readable."""
    proc.put(7, wait="0", syscall=b"running\n")
    assert proc.read(7).own.wait == ""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("socket:[99]", "socket"),
        ("pipe:[99]", "pipe"),
        ("/dev/pts/3", "terminal"),
        ("/dev/nvidiactl", "device"),
        ("/data/shard-0001.tar", "file"),
    ],
)
def test_the_file_that_is_read_has_a_kind(proc, monkeypatch, name, kind):
    """The kind of file that a process waits to read from is reported, but not the file's name."""
    calls = "trainvitals.sources.host.activity._CALLS"
    monkeypatch.setattr(calls, (b"16", b"0"))
    proc.put(7, wait="wait_woken", syscall=b"0 0x5 0x7ffe 0x1\n")
    (proc.folder / "7/fd").mkdir()
    (proc.folder / "7/fd/5").symlink_to(name)
    assert proc.read(7).own.waits_on == kind
    proc.put(7, wait="ep_poll", syscall=b"232 0x5 0x7ffe 0x1\n")
    assert proc.read(7).own.waits_on == ""


def test_threads_have_names_and_places_where_they_are_stuck(proc):
    """The threads' names and the wait channels of blocked threads are read."""
    proc.put(7)
    proc.put(7, tid=8, letter="D", name="cuda-EvtHandlr", wait="uvm_va_block_lock")
    proc.put(7, tid=9, letter="R", name="pt_gloo_runloop", wait="0")
    found = proc.read(7)
    assert found.blocked == ("uvm_va_block_lock",)
    assert found.threads == {"python", "cuda-EvtHandlr", "pt_gloo_runloop"}
    assert found.running == 1


def test_descendants_are_found_through_every_thread(proc):
    """Descendants are found through all threads, such as a `ptxas` process started by `nvcc`."""
    proc.put(7)
    proc.put(7, tid=8, children=b"31 ")
    (proc.folder / "7/task/7/children").write_bytes(b"30 ")
    proc.put(30, parent=7, name="nvcc")
    (proc.folder / "30/task/30/children").write_bytes(b"32 33 ")
    proc.put(31, parent=7, environ=b"HOME=/\0TORCH_WARM_POOL=0\0")
    proc.put(32, parent=30, name="ptxas")
    proc.read(7)
    proc.put(31, parent=7, ticks=90)
    found = {one.pid: one for one in proc.read(7, after=1.0).workers}
    assert {pid: one.name for pid, one in found.items()} == {
        30: "nvcc",
        31: "python",
        32: "ptxas",
    }
    assert [pid for pid, one in found.items() if one.is_compile_worker] == [31]


def test_at_most_32_descendants_are_looked_at(proc):
    """At most 32 descendants are read, as a data loader may have hundreds of workers."""
    proc.put(7, children=" ".join(map(str, range(1000, 1100))).encode())
    for pid in range(1000, 1100):
        proc.put(pid, parent=7)
    assert len(proc.read(7).workers) == 32


def test_siblings_are_those_of_the_same_launch(proc):
    """Siblings have the same parent, the same name and the same values of the launch variables."""
    proc.put(5, name="torchrun", children=b"7 8 9 10 ")
    proc.put(7, parent=5, environ=WORLD + b"RANK=0\0")
    proc.put(8, parent=5, environ=WORLD + b"RANK=1\0")
    proc.put(9, parent=5, environ=WORLD.replace(b"29500", b"29501"))
    proc.put(10, parent=5, name="tensorboard", environ=WORLD)
    found = proc.read(7)
    assert found.world == ("10.0.0.1", "29500", "2")
    assert [one.pid for one in found.siblings] == [8]


def test_one_process_is_no_world(proc):
    """A process with `WORLD_SIZE=1` has no `world`, although its launcher sets the variables."""
    proc.put(7, environ=WORLD.replace(b"SIZE=2", b"SIZE=1"))
    assert proc.read(7).world == ()


def test_the_environment_of_a_stuck_process_is_not_asked_for(proc):
    """The environment of a blocked process is not read, as the read may wait for a lock."""
    proc.put(7, letter="D", wait="uvm_va_block_lock", environ=WORLD)
    assert proc.read(7).world == ()


def test_the_pressure_is_that_of_the_control_group_or_of_the_machine(proc):
    """The pressure of the control group takes precedence over that of the machine."""
    proc.put(7, cgroup=b"0::/job\n")
    line = b"some avg10=%d.00 avg60=0.00 avg300=0.00 total=1\n"
    (proc.folder / "pressure").mkdir()
    for name, percent in (("io", 20), ("cpu", 30)):
        (proc.folder / "pressure" / name).write_bytes(line % percent)
    found = proc.read(7)
    assert (found.io_pressure_ratio, found.cpu_pressure_ratio) == (0.2, 0.3)
    group = proc.folder / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (group.parent / "cgroup.controllers").write_bytes(b"cpu io\n")
    (group / "io.pressure").write_bytes(line % 70)
    assert proc.read(7).io_pressure_ratio == 0.7


def test_what_is_not_looked_at_is_forgotten(proc):
    """The last reading of a process is dropped if the next call does not include the process."""
    proc.put(7, ticks=100)
    proc.read(7)
    proc.source.read([])
    proc.put(7, ticks=200)
    own = proc.read(7, after=2.0).own
    assert own == replace(own, cores=None)


def test_files_that_are_not_understood_are_left_out(proc):
    """Invalid files, such as those of a process that is ending, are ignored."""
    proc.put(7, io=b"rchar\nread_bytes: x\n", schedstat=b"1", children=b"x 9 \n", environ=b"\xff=")
    proc.read(7)
    found = proc.read(7, after=2.0)
    assert (found.own.bytes_per_second, found.own.cores, found.workers) == (None, 0.0, ())
