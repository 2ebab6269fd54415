"""Tests for following the kernel log through `/dev/kmsg`."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.privileges import as_nobody
from trainvitals.sources.containers.evidence import Gap
from trainvitals.sources.host.kernel_log import KernelLog, KernelNews

NOON = 1_700_049_600.0
UPTIME = 50_000.0
BOOTED = NOON - UPTIME
ONE, TWO = "1" * 64, "2" * 64
XID = "NVRM: Xid (PCI:0000:3b:00): {}, pid=7, x"


def oom_kill(container: str, pid: int = 7) -> str:
    """Return the first line of an OOM kill, which names the container."""
    return (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
        f"oom_memcg=/docker/{container},task_memcg=/docker/{container},task=python,pid={pid},uid=0"
    )


def killed(pid: int = 7) -> str:
    """Return the second line of an OOM kill, which contains the memory of the process."""
    return (
        f"Memory cgroup out of memory: Killed process {pid} (python) total-vm:67804kB, "
        "anon-rss:16000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:72kB oom_score_adj:0"
    )


class Log:
    """A kernel log in a regular file, with a clock that a test sets."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sequence = 100
        self.now = NOON
        path.touch()

    def write(self, text: str, *, at: float | None = None) -> None:
        """Write a record that is dated at a number of seconds since boot, or now."""
        seconds = self.now - BOOTED if at is None else at
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"4,{self.sequence},{int(seconds * 1e6)},-;{text}\n SUBSYSTEM=x\n")
        self.sequence += 1

    def follow(self, read: Callable[[int, int], bytes] = os.read) -> KernelLog:
        """Return a follower of the kernel log."""
        return KernelLog(
            self.path, clock=lambda: self.now, monotonic=lambda: self.now - BOOTED, read=read
        )


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """An empty kernel log."""
    return Log(tmp_path / "kmsg")


def codes(news: KernelNews) -> list[int]:
    """Return the Xid codes of the GPU errors."""
    return [xid.code for xid in news.xids]


def test_the_ring_is_read_first_and_then_what_is_new(log: Log):
    """The records in the ring buffer are read first, then new records, and each of them once."""
    log.write(XID.format(13), at=100.0)
    log.write("docker0: port 1(veth1a2b3c4) entered blocking state")
    log.write(XID.format(31), at=200.0)
    followed = log.follow()
    news = followed.read()
    assert [(xid.code, xid.time) for xid in news.xids] == [
        (13, BOOTED + 100.0),
        (31, BOOTED + 200.0),
    ]
    assert followed.read() == KernelNews()
    log.now += 10.0
    log.write(XID.format(79))
    (xid,) = followed.read().xids
    assert (xid.code, xid.time) == (79, NOON + 10.0)
    assert followed.read() == KernelNews()
    followed.close()


def test_what_comes_between_two_looks_lies_between_them(log: Log):
    """A new record is dated between the last two readings, because the kernel's clock can drift."""
    followed = log.follow()
    followed.read()
    log.now += 10.0
    log.write(XID.format(13), at=UPTIME - 52.0)
    log.write(XID.format(31), at=UPTIME + 99.0)
    log.write(XID.format(45), at=UPTIME + 4.0)
    assert [xid.time for xid in followed.read().xids] == [NOON, NOON + 10.0, NOON + 4.0]
    followed.close()


def test_nothing_is_of_the_future(log: Log):
    """A record in the ring buffer with a time in the future is dated at the time of reading."""
    log.write(XID.format(13), at=UPTIME + 7.0)
    followed = log.follow()
    assert [xid.time for xid in followed.read().xids] == [NOON]
    followed.close()


def test_a_kill_that_is_half_written_is_told_when_it_is_whole(log: Log):
    """A kill is reported only when the second of its two lines has been written."""
    followed = log.follow()
    log.write(oom_kill(ONE))
    assert followed.read().oom_kills == ()
    log.write(killed())
    (kill,) = followed.read().oom_kills
    assert (kill.task_memcg, kill.anon_rss_bytes) == (f"/docker/{ONE}", 16_384_000)
    followed.close()


def test_a_record_that_is_half_written_is_read_when_it_is_whole(log: Log):
    """An incomplete record in a regular file is read when the rest of the record is written."""
    followed = log.follow()
    text = "4,1,1000000,-;" + XID.format(13) + "\n"
    with log.path.open("a", encoding="utf-8") as file:
        file.write(text[:30])
        file.flush()
        assert followed.read() == KernelNews()
        file.write(text[30:])
    assert codes(followed.read()) == [13]
    followed.close()


def test_kills_are_recalled_since_a_time(log: Log):
    """`recall` returns the kills in all control groups since the given time."""
    followed = log.follow()
    for container, pid in ((ONE, 7), (TWO, 8), (f"{ONE}/worker", 9)):
        log.now += 10.0
        log.write(oom_kill(container, pid))
        log.write(killed(pid))
        followed.read()
    assert [kill.pid for kill in followed.recall(NOON).oom_kills] == [7, 8, 9]
    assert [kill.pid for kill in followed.recall(NOON + 20.0).oom_kills] == [8, 9]
    followed.close()


def test_errors_of_gpus_are_found(log: Log):
    """`recall` returns the GPU errors since the given time."""
    followed = log.follow()
    for code in (13, 31):
        log.now += 10.0
        log.write(XID.format(code))
        followed.read()
    assert codes(followed.recall(NOON)) == [13, 31]
    assert codes(followed.recall(NOON + 20.0)) == [31]
    followed.close()


def test_only_so_many_are_remembered(log: Log):
    """Only the last 256 kills are remembered, as a container may be killed again and again."""
    followed = log.follow()
    for pid in range(300):
        log.write(oom_kill(ONE, pid))
        log.write(killed(pid))
    assert len(followed.read().oom_kills) == 300
    assert len(followed.recall(0.0).oom_kills) == 256
    assert followed.recall(0.0).oom_kills[-1].pid == 299
    followed.close()


class Device:
    """A fake device that returns one record or raises one error for each read."""

    def __init__(self, *answers: str | int) -> None:
        self.answers = list(answers)

    def read(self, _descriptor: int, size: int) -> bytes:
        """Return the next record or raise the next error."""
        if not self.answers:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        assert len(answer) < size
        return answer.encode()


def test_what_was_overwritten_is_counted(log: Log):
    """The number of overwritten records is computed from the next record's sequence number."""
    device = Device("4,100,1,-;a\n", errno.EPIPE, f"4,141,1,-;{XID.format(13)}\n", "4,142,1,-;b\n")
    followed = log.follow(device.read)
    news = followed.read()
    assert news.lost == 40
    assert codes(news) == [13]
    assert followed.read().lost == 0
    followed.close()


def test_what_the_ring_lost_before_the_first_look_is_not_counted(log: Log):
    """Records that were overwritten before the first reading are not counted as lost."""
    followed = log.follow(Device("4,99999,1,-;a\n").read)
    assert followed.read().lost == 0
    followed.close()


def test_a_record_that_is_too_long_is_passed_over(log: Log):
    """A record that is too long is skipped and counted as lost, and the next record is read."""
    device = Device("4,1,1,-;a\n", errno.EINVAL, f"4,3,1,-;{XID.format(13)}\n")
    followed = log.follow(device.read)
    news = followed.read()
    assert (news.lost, codes(news)) == (1, [13])
    followed.close()


def test_errors_without_end_have_an_end(log: Log):
    """A reading ends even if the device returns the same error every time."""

    def fail(_descriptor: int, _size: int) -> bytes:
        raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))

    followed = log.follow(fail)
    assert followed.read() == KernelNews()
    followed.close()


def test_a_device_that_fails_is_opened_again(log: Log):
    """After an I/O error the device is reopened, and only the new records are reported."""
    log.write(XID.format(13))
    broken = [errno.EIO]

    def read(descriptor: int, size: int) -> bytes:
        if broken and log.sequence == 102:
            raise OSError(broken.pop(), "Input/output error")
        return os.read(descriptor, size)

    followed = log.follow(read)
    assert codes(followed.read()) == [13]
    log.write(XID.format(31))
    assert followed.read() == KernelNews()
    assert codes(followed.read()) == [31]
    followed.close()


def test_a_log_that_was_closed_goes_on_where_it_was(log: Log):
    """After `close`, the next reading reopens the log and continues after the last record."""
    log.write(XID.format(13))
    followed = log.follow()
    assert codes(followed.read()) == [13]
    followed.close()
    followed.close()
    log.write(XID.format(31))
    assert codes(followed.read()) == [31]
    followed.close()


def test_what_there_is_can_be_skipped(log: Log):
    """`skip` skips the existing records, even if the log is reopened later or does not exist."""
    log.write(XID.format(13))
    followed = log.follow()
    followed.skip()
    assert followed.read() == KernelNews()
    followed.close()
    log.write(XID.format(31))
    log.now += 5
    assert followed.read() == KernelNews()  # written before the log was reopened
    log.write(XID.format(79))
    (xid,) = followed.read().xids
    assert (xid.code, xid.time) == (79, log.now)
    followed.close()
    log.write(XID.format(94))
    assert codes(followed.read()) == [94]
    followed.close()
    absent = KernelLog(log.path.with_name("none"))
    absent.skip()
    assert absent.read() == KernelNews()


def test_a_log_that_is_not_there_tells_nothing(tmp_path: Path):
    """A missing log yields no events and a gap with a remedy, and is read once it exists."""
    followed = KernelLog(tmp_path / "kmsg")
    assert not followed.is_readable
    assert followed.read() == KernelNews()
    gap = followed.why_not
    assert gap is not None
    assert gap.what == "the kernel log"
    assert gap.why == f"there is no {tmp_path}/kmsg"
    assert "--cap-add SYSLOG --device /dev/kmsg" in gap.remedy
    (tmp_path / "kmsg").write_text(f"4,1,1000000,-;{XID.format(13)}\n")
    assert followed.is_readable
    assert followed.why_not is None
    assert codes(followed.read()) == [13]
    followed.close()


@pytest.fixture
def shut() -> Iterator[Path]:
    """A kernel log that only root may read."""
    with tempfile.TemporaryDirectory() as directory:  # `tmp_path` is closed to other users
        Path(directory).chmod(0o755)
        path = Path(directory) / "kmsg"
        path.touch(mode=0)
        yield path


def test_a_log_that_may_not_be_read_says_what_is_missing(shut: Path):
    """If the log may not be read, the gap names the error and the missing capability."""
    with as_nobody():
        followed = KernelLog(shut)
        assert not followed.is_readable
        assert followed.read() == KernelNews()
        assert followed.why_not == Gap(
            "the kernel log",
            f"{shut}: Permission denied",
            "give it CAP_SYSLOG: for a container `--cap-add SYSLOG --device /dev/kmsg` and user "
            "root, for a systemd unit `AmbientCapabilities=CAP_SYSLOG`",
        )


def test_a_folder_in_its_place_tells_nothing(tmp_path: Path):
    """A directory in place of the kernel log yields no events."""
    followed = KernelLog(tmp_path)
    assert followed.read() == KernelNews()
    followed.close()


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/kmsg is Linux's")
@pytest.mark.skipif(not os.access("/dev/kmsg", os.W_OK), reason="/dev/kmsg is not for us")
def test_the_kernels_own_log_is_followed():
    """A record that root writes to `/dev/kmsg` is read back with the correct time."""
    followed = KernelLog()
    assert followed.is_readable
    followed.read()
    mark = f"trainvitals test {os.getpid()}: I/O error, which is none"
    before = time.time()
    with Path("/dev/kmsg").open("w", encoding="ascii") as device:
        device.write(f"{mark}\n")
    lines = []
    while not lines:  # the kernel may take a moment to show it
        assert time.time() < before + 10.0
        lines = [line for line in followed.read().lines if line.text == mark]
    assert len(lines) == 1
    assert before - 5.0 <= lines[0].time <= time.time()
    followed.close()


def test_reading_nothing_costs_next_to_nothing(log: Log):
    """200 readings without new records take less than 0.2 s of CPU time.

    The kernel log is read on every scrape.
    """
    followed = log.follow()
    followed.read()
    began = time.process_time()
    for _ in range(200):
        followed.read()
    assert time.process_time() - began < 0.2
    followed.close()


@given(st.binary(max_size=300))
def test_any_bytes_are_read(tmp_path_factory: pytest.TempPathFactory, data: bytes):
    """A log of arbitrary bytes is read without an error."""
    path = tmp_path_factory.mktemp("hostile") / "kmsg"
    path.write_bytes(data + b"\n4,7,1000000,-;" + data)
    followed = KernelLog(path)
    followed.read()
    followed.close()
