"""Tests for the list of the processes that use the most CPU time and memory."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.host.processes import (
    ProcessesSource,
    _parse_stat,
    read_process_name,
)

PASSWD = "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/bash\n"


def write_stat(procfs, pid, name, *, ticks, start=100, pages=0):
    """Write the stat file of a process with its user and system ticks and its resident pages."""
    user, system = ticks
    folder = procfs / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(
        f"{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {user} {system} 7 7 20 0 3 0 {start} 999 {pages} 18\n",
        encoding="utf-8",
    )


@pytest.fixture
def roots(tmp_path):
    """A fake machine with four processes and two users."""
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/etc/passwd").write_text(PASSWD, encoding="utf-8")
    procfs = tmp_path / "proc"
    write_stat(procfs, 10, "python", ticks=(1000, 500), pages=25)
    write_stat(procfs, 11, "a b) (c", ticks=(300, 0), pages=50)
    write_stat(procfs, 12, "kthread", ticks=(0, 0), pages=0)
    write_stat(procfs, 1, "init", ticks=(0, 0), pages=0)
    (procfs / "self").mkdir()
    (procfs / "meminfo").write_text("", encoding="utf-8")
    return Roots(procfs=procfs, rootfs=tmp_path / "root")


@pytest.fixture
def source(roots):
    """A source that reads the machine every 10 s, with 100 ticks per second and pages of 4 KiB."""
    times = iter(range(0, 1000, 10))
    source = ProcessesSource(
        roots=roots, most=2, clock=lambda: next(times), ticks_per_second=100, page_bytes=4096
    )
    yield source
    source.close()


def test_the_largest_come_first(source):
    """The processes with the most memory come first; those without memory are left out."""
    reading = source.read()
    assert reading.count == 4
    assert [(one.pid, one.name, one.resident_bytes) for one in reading.by_memory] == [
        (11, "a b) (c", 204800),
        (10, "python", 102400),
    ]


def test_the_first_reading_knows_no_cpu(source):
    """The CPU usage is unknown at the first reading, as it needs two readings."""
    reading = source.read()
    assert reading.by_cpu == ()
    assert [one.cpu_percent for one in reading.by_memory] == [None, None]


def test_the_busiest_come_first(source, roots):
    """CPU usage is the share of one core since the last reading, in user and system mode."""
    source.read()
    write_stat(roots.procfs, 10, "python", ticks=(1100, 650), pages=25)
    write_stat(roots.procfs, 11, "a b) (c", ticks=(1300, 0), pages=50)
    assert [(one.name, one.cpu_percent) for one in source.read().by_cpu] == [
        ("a b) (c", 100.0),
        ("python", 25.0),
    ]


def test_those_that_idle_are_not_among_the_busiest(source):
    """A process that has used no CPU time is not among the busiest processes."""
    source.read()
    assert source.read().by_cpu == ()


def test_a_new_process_has_used_all_its_time_since(source, roots):
    """All CPU time of a new process counts, even if the process has the PID of an earlier one."""
    source.read()
    write_stat(roots.procfs, 13, "new", ticks=(20, 20))
    write_stat(roots.procfs, 10, "other", ticks=(50, 0), start=900)
    assert [(one.name, one.cpu_percent) for one in source.read().by_cpu] == [
        ("other", 5.0),
        ("new", 4.0),
    ]


def test_users_have_names(source, roots):
    """The name of a process's user is read from the host's `/etc/passwd`."""
    passwd = PASSWD.replace("ann:x:1000", f"us:x:{os.geteuid()}") if os.geteuid() else PASSWD
    (roots.rootfs / "etc/passwd").write_text(passwd, encoding="utf-8")
    assert {one.user for one in source.read().by_memory} == {"us" if os.geteuid() else "root"}


def test_a_user_that_is_not_listed_is_a_number(source, roots):
    """A user who is not in `/etc/passwd` is shown as a number, as a directory service may hang."""
    (roots.rootfs / "etc/passwd").write_text("", encoding="utf-8")
    assert {one.user for one in source.read().by_memory} == {str(os.geteuid())}


def test_where_others_are_hidden_their_number_is_unknown(source, roots):
    """If `hidepid` hides the processes of other users, the number of processes is unknown."""
    shutil.rmtree(roots.procfs / "1")
    assert source.read().count is None
    (roots.procfs / "1").mkdir()
    assert source.read().count is None


def test_what_is_not_understood_is_left_out(source, roots):
    """A process with an invalid stat file is left out, and the other processes are read."""
    (roots.procfs / "10/stat").write_text("10 (python) S 1", encoding="utf-8")
    (roots.procfs / "11/stat").write_text("11 (x) S" + 40 * " y", encoding="utf-8")
    assert source.read().count == 2


def test_no_proc_is_an_error(tmp_path):
    """If the list of processes cannot be read, the error names its path."""
    source = ProcessesSource(roots=Roots(procfs=tmp_path / "nowhere"))
    with pytest.raises(SourceError, match=r"cannot list .*nowhere: No such file or directory"):
        source.read()


def test_a_busy_process_is_found_on_the_real_machine():
    """A busy process is found with its name and CPU usage, and its command line is not exposed."""
    source = ProcessesSource(most=50)
    command = [sys.executable, "-c", "secret = 1\nwhile True: pass"]
    with subprocess.Popen(command) as busy:
        try:
            source.read()
            time.sleep(0.3)
            found = {one.pid: one for one in source.read().by_cpu}[busy.pid]
            assert found.cpu_percent > 5
            assert found.name.startswith("python")
            assert "secret" not in repr(found)
            assert read_process_name(busy.pid) == found.name
        finally:
            busy.kill()
            source.close()


def test_a_process_that_is_gone_has_no_name(roots):
    """The name of a process that does not exist is None."""
    assert read_process_name(99, roots) is None
    assert read_process_name(10, roots) == "python"


@given(st.binary())
def test_any_file_is_understood_or_not(data):
    """A stat file of arbitrary bytes is parsed without an error."""
    stat = _parse_stat(data)
    assert stat is None or isinstance(stat.resident_pages, int)


def test_times_that_go_back_are_no_use(source, roots):
    """If the kernel's CPU time of a process decreases by a tick, its CPU usage is 0."""
    source.read()
    write_stat(roots.procfs, 11, "a b) (c", ticks=(299, 0), pages=50)
    reading = source.read()
    assert reading.by_cpu == ()
    assert [one.cpu_percent for one in reading.by_memory] == [0.0, 0.0]
