"""Tests for the parser of kernel log lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.sources.containers.evidence import OomKill, XidError
from trainvitals.sources.host.kernel_lines import DatedLine, KernelLines, KernelNews, clean

ONE = "1" * 64
KILLED = (
    "Killed process {pid} ({task}) total-vm:67804kB, anon-rss:16000kB, file-rss:1520kB, "
    "shmem-rss:48kB, UID:0 pgtables:72kB oom_score_adj:0"
)
OOM_KILL = (
    "oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0{limit},"
    "task_memcg={memcg},task={task},pid={pid},uid=0"
)


def understand(*lines: str) -> KernelNews:
    """Return the events in these lines, which are dated one second apart from 100 s on."""
    understood = KernelLines()
    for time, line in enumerate(lines, 100):
        understood.take(float(time), line)
    return understood.collect()


def oom_kill(
    *,
    constraint: str = "CONSTRAINT_MEMCG",
    limit: str = f",oom_memcg=/docker/{ONE}",
    memcg: str = f"/docker/{ONE}",
    task: str = "python",
    pid: int = 7,
) -> str:
    """Return a kernel log line that reports an OOM kill."""
    return OOM_KILL.format(constraint=constraint, limit=limit, memcg=memcg, task=task, pid=pid)


def test_the_limit_of_the_container_was_hit():
    """The memory that the killed process held is read from the second line of the OOM kill."""
    news = understand(
        oom_kill(), "Memory cgroup out of memory: " + KILLED.format(pid=7, task="python")
    )
    assert news.oom_kills == (
        OomKill(
            time=100.0,
            constraint="CONSTRAINT_MEMCG",
            oom_memcg=f"/docker/{ONE}",
            task_memcg=f"/docker/{ONE}",
            task="python",
            pid=7,
            anon_rss_bytes=16_384_000,
            shmem_rss_bytes=49_152,
        ),
    )


def test_the_limit_of_a_parent_was_hit():
    """The group whose limit was hit differs from the group of the killed process."""
    (kill,) = understand(oom_kill(limit=",oom_memcg=/limited", memcg=f"/limited/{ONE}")).oom_kills
    assert (kill.oom_memcg, kill.task_memcg) == ("/limited", f"/limited/{ONE}")


def test_the_host_ran_out():
    """If the host runs out of memory, the OOM kill names no group whose limit was hit."""
    (kill,) = understand(
        oom_kill(constraint="CONSTRAINT_NONE", limit=",global_oom"),
        "Out of memory: " + KILLED.format(pid=7, task="python"),
    ).oom_kills
    assert (kill.constraint, kill.oom_memcg) == ("CONSTRAINT_NONE", None)
    assert kill.anon_rss_bytes == 16_384_000


def test_a_numa_node_ran_out():
    """An OOM kill is parsed even if its lists of NUMA nodes contain commas."""
    line = (
        "oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=0-1,3,cpuset=a,b,mems_allowed=0,2,"
        f"global_oom,task_memcg=/docker/{ONE},task=python,pid=7,uid=0"
    )
    (kill,) = understand(line).oom_kills
    assert (kill.constraint, kill.task_memcg) == ("CONSTRAINT_CPUSET", f"/docker/{ONE}")


@pytest.mark.parametrize(
    "task",
    [
        "runc:[2:INIT]",
        "a,pid=1,uid=0",
        "x,task=y",
        "(((",
        "a) (b",
        "",
        " ",
        r"\x0a\x1b[31mred",
        r"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_any_name_of_a_process_is_kept_whole(task: str):
    """A process name that imitates the log syntax cannot assign the kill to another container."""
    news = understand(
        oom_kill(task=task), "Memory cgroup out of memory: " + KILLED.format(pid=7, task=task)
    )
    (kill,) = news.oom_kills
    assert (kill.task, kill.pid, kill.task_memcg) == (task, 7, f"/docker/{ONE}")
    assert kill.anon_rss_bytes == 16_384_000


def test_the_kernel_keeps_some_lines_back():
    """An OOM kill is recognized even if the kernel's rate limit suppressed its first line."""
    (kill,) = understand(
        "Memory cgroup out of memory: " + KILLED.format(pid=7, task="python")
    ).oom_kills
    assert (kill.constraint, kill.task_memcg, kill.pid) == ("CONSTRAINT_MEMCG", "", 7)
    (kill,) = understand("Out of memory: " + KILLED.format(pid=7, task="python")).oom_kills
    assert kill.constraint == "CONSTRAINT_NONE"


def test_a_line_without_its_group_is_not_taken_for_the_one_before():
    """A kill without its first line is not assigned to the container of the kill before it."""
    news = understand(
        oom_kill(pid=7),
        "Memory cgroup out of memory: " + KILLED.format(pid=7, task="python"),
        "Memory cgroup out of memory: " + KILLED.format(pid=8, task="tail"),
    )
    assert [(kill.pid, kill.task_memcg) for kill in news.oom_kills] == [
        (7, f"/docker/{ONE}"),
        (8, ""),
    ]


def test_an_old_kernels_group_is_for_one_kill():
    """The group in an old kernel's log applies only to the next kill, not to later kills."""
    news = understand(
        f"Task in /docker/{ONE} killed as a result of limit of /docker/{ONE}",
        "Memory cgroup out of memory: Kill process 7 (python) score 998 or sacrifice child",
        KILLED.format(pid=7, task="python"),
        "Memory cgroup out of memory: " + KILLED.format(pid=8, task="tail"),
    )
    assert [(kill.pid, kill.task_memcg) for kill in news.oom_kills] == [
        (7, f"/docker/{ONE}"),
        (8, ""),
    ]


def test_a_torn_line_of_an_old_kernel_is_only_shown():
    """An old kernel's `Killed process` line alone is kept as text, not as an OOM kill."""
    line = KILLED.format(pid=7, task="python")
    news = understand(line)
    assert news.oom_kills == ()
    assert news.lines == (DatedLine(100.0, line),)


def test_red_hats_kernels_name_the_user_first():
    """A line of a Red Hat kernel, which has the user after the process name, is parsed."""
    (kill,) = understand(
        "Memory cgroup out of memory: Killed process 7 (python), UID 1000, "
        "total-vm:67804kB, anon-rss:16000kB, file-rss:0kB, shmem-rss:0kB"
    ).oom_kills
    assert (kill.task, kill.anon_rss_bytes) == ("python", 16_384_000)


def test_a_kill_whose_second_line_comes_later_is_told_once():
    """A kill is held back until its second line has arrived, and is then reported once."""
    understood = KernelLines()
    understood.take(100.0, oom_kill())
    assert understood.collect(ends=False).oom_kills == ()
    understood.take(100.1, "Memory cgroup out of memory: " + KILLED.format(pid=7, task="python"))
    (kill,) = understood.collect(ends=False).oom_kills
    assert kill.anon_rss_bytes == 16_384_000
    assert understood.collect(ends=False).oom_kills == ()


def test_a_kill_whose_second_line_never_comes_is_told():
    """A kill without a second line is reported by the second `collect` or at the end of the log."""
    understood = KernelLines()
    understood.take(100.0, oom_kill())
    assert understood.collect(ends=False).oom_kills == ()
    assert [kill.pid for kill in understood.collect(ends=False).oom_kills] == [7]
    understood.take(200.0, oom_kill(pid=8))
    assert [kill.pid for kill in understood.collect().oom_kills] == [8]


def test_a_kill_is_told_when_the_next_one_begins():
    """If two kills follow each other without second lines, both kills are reported."""
    news = understand(oom_kill(pid=7), oom_kill(pid=8))
    assert [kill.pid for kill in news.oom_kills] == [7, 8]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
            XidError(100.0, "0000:3b:00", 79, "pid=1234, GPU has fallen off the bus.", 1234),
        ),
        (
            "NVRM: Xid (PCI:0000:3b:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception",
            XidError(
                100.0, "0000:3b:00", 13, "pid='<unknown>', name=<unknown>, Graphics Exception"
            ),
        ),
        (
            "NVRM: Xid (0000:03:00): 31, Ch 00000010, engmask 00000101, intr 10000000",
            XidError(100.0, "0000:03:00", 31, "Ch 00000010, engmask 00000101, intr 10000000"),
        ),
        (
            "NVRM: Xid (PCI:0000:c1:00 GPU-I:05): 94, pid=77, name=python, Contained",
            XidError(100.0, "0000:c1:00", 94, "pid=77, name=python, Contained", 77),
        ),
        ("NVRM: Xid (PCI:0000:3b:00): 119", XidError(100.0, "0000:3b:00", 119)),
        (
            "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
            XidError(100.0, "0000:3b:00.0", 79, "GPU 0000:3b:00.0: GPU has fallen off the bus."),
        ),
        (
            (
                r"NVRM: The NVIDIA GPU 0000:01:00.0\x0aNVRM: (PCI ID: 10de:1b80) installed "
                r"in this system has\x0aNVRM: fallen off the bus and is not responding to commands."
            ),
            XidError(
                100.0,
                "0000:01:00.0",
                79,
                "fallen off the bus and is not responding to commands.",
            ),
        ),
    ],
)
def test_a_gpus_error_is_understood(line: str, expected: XidError):
    """Each known form of the driver's error line is parsed into an `XidError`."""
    assert understand(line).xids == (expected,)


def test_a_gpu_that_falls_is_counted_once():
    """A GPU that falls off the bus counts once if it is logged both with and without Xid 79."""
    numbered = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
    plain = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
    for lines in ((numbered, plain), (plain, numbered)):
        (xid,) = understand(*lines).xids
        assert xid.code == 79


def test_two_gpus_that_fall_are_two():
    """Two GPUs with different addresses that fall off the bus are two errors."""
    news = understand(
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "NVRM: GPU 0000:5e:00.0: GPU has fallen off the bus.",
    )
    assert [xid.bus_id for xid in news.xids] == ["0000:3b:00", "0000:5e:00.0"]


def test_the_same_error_again_is_another():
    """Two identical lines with an Xid code are two errors."""
    line = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    assert len(understand(line, line).xids) == 2


TELLING = (
    "XFS (sda1): Corruption of in-memory data (0x8) detected at xfs_trans_cancel",
    "XFS (dm-0): Log I/O Error Detected. Shutting down filesystem",
    "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm python: reading directory",
    "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
    "blk_update_request: I/O error, dev nvme1n1, sector 123 op 0x1:(WRITE)",
    "python[4711]: segfault at 0 ip 00007f0a sp 00007ffc error 4 in libtorch_cpu.so[7f0a+1000]",
    "traps: python[4711] trap invalid opcode ip:55d0 sp:7ffd error:0 in python3.11[400000+2b5000]",
    "NVRM: RmInitAdapter failed! (0x26:0x56:1463)",
    "nvidia-modeset: ERROR: GPU:0: Idling display engine timed out",
    "mce: [Hardware Error]: CPU 4: Machine Check: 0 Bank 5: bea0000000000108",
    "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:4711]",
    "INFO: task python:4711 blocked for more than 120 seconds.",
    "cgroup: fork rejected by pids controller in /docker/1111",
    "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
    "nfs: server nas not responding, still trying",
    "habanalabs hl0: Device reset failed",
)


@pytest.mark.parametrize("line", TELLING)
def test_a_telling_line_is_kept(line: str):
    """A line about a failure that can explain an ended process or a stalled run is kept."""
    assert understand(line).lines == (DatedLine(100.0, line),)


@pytest.mark.parametrize(
    "line",
    [
        "docker0: port 1(veth1a2b3c4) entered blocking state",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06",
        "NVRM: GPU at PCI:0000:3b:00: GPU-5e1f4d3a-9c07",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode",
        "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "[  22426]     0 22426   135253    15783    14176     1607         0   180224",
        "",
    ],
)
def test_an_ordinary_line_is_not_kept(line: str):
    """Routine messages and the lines that surround an OOM kill are not kept."""
    assert understand(line) == KernelNews()


def test_only_the_last_lines_are_kept():
    """Only the last 256 lines are kept, as a failing disk can write thousands of lines."""
    news = understand(*(f"I/O error, sector {number}" for number in range(1000)))
    assert len(news.lines) == 256
    assert news.lines[-1].text == "I/O error, sector 999"


def test_a_line_may_be_shown():
    """`clean` removes control characters, masks secrets and cuts the line to 300 characters."""
    text = clean("\x1b[31msegfault at\x9b0 --password=hunter2horse " + "x" * 500)
    assert len(text) == 300
    assert text.startswith("segfault at0")
    assert "hunter2horse" not in text


def check_bounds(news: KernelNews) -> None:
    """Check that the texts of the events are printable and that the lines are within the limits."""
    texts = [line.text for line in news.lines] + [error.text for error in news.xids or ()]
    assert len(news.lines) <= 256
    assert all(text.isprintable() and len(text) <= 300 for text in texts)
    assert all(kill.task.isprintable() and kill.pid >= 0 for kill in news.oom_kills)


@given(st.lists(st.text(max_size=120)))
def test_any_line_is_read(lines: list[str]):
    """Lines of arbitrary characters are parsed, and the events stay within the limits."""
    check_bounds(understand(*lines))


PIECES = st.sampled_from(
    [
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)",
        ",global_oom",
        ",oom_memcg=/",
        ",task_memcg=/",
        ",task=",
        ",pid=1",
        ",uid=0",
        "Memory cgroup out of memory: ",
        "Out of memory: ",
        "Killed process 1 ",
        "Kill process 1 (x) ",
        "(a)",
        "Task in / killed as a result of limit of /",
        "Tasks in / are going to be killed due to memory.oom.group set",
        "anon-rss:1kB",
        "NVRM: ",
        "Xid (PCI:0000:3b:00): ",
        "79",
        "GPU 0000:3b:00.0",
        "fallen off the bus",
        r"\x0a",
        "\\x",
    ]
)


@given(st.lists(st.lists(PIECES, max_size=40).map("".join), max_size=6))
def test_what_almost_fits_is_read_too(lines: list[str]):
    """Pieces of real lines in any order are parsed, and the events stay within the limits."""
    check_bounds(understand(*lines))


def test_a_line_of_many_beginnings_is_no_kill():
    """A line without a PID in which the task could begin at 400 places is not an OOM kill."""
    news = understand(
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=" + ",oom_memcg=,task_memcg=,task=" * 400
    )
    assert news.oom_kills == ()
