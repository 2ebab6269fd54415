"""CPU, memory, disk and network readings of this machine and of real child processes."""

import subprocess
import sys

import psutil
import pytest

from trainvitals.training import resources
from trainvitals.training.resources import (
    HostSampler,
    ProcessTree,
    _find_descendants,
    _list_descendants,
)

MIB = 1 << 20
BURN = "import time\nwhile time.process_time() < 0.5: pass\n"


class Clock:
    """A clock that the test advances."""

    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        """Return the time in seconds."""
        return self.seconds


def write_pressure(procfs, microseconds):
    """Write a pressure file with this total time of waiting for I/O."""
    directory = procfs / "pressure"
    directory.mkdir(exist_ok=True)
    (directory / "io").write_text(
        f"some avg10=1.00 avg60=2.00 avg300=3.00 total={microseconds}\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
    )


def test_cpu_and_memory_have_the_published_keys():
    """The machine's memory equals that of psutil, and the process's values are plausible."""
    values = HostSampler().read_cpu_memory()
    assert set(values) == {
        "cpu_percent",
        "cpu_process_percent",
        "memory_system_mb",
        "memory_available_mb",
        "memory_percent",
        "memory_process_mb",
    }
    assert values["memory_system_mb"] == psutil.virtual_memory().total / MIB
    assert 0 <= values["cpu_percent"] <= 100
    assert 0 < values["memory_percent"] < 100
    assert 1 < values["memory_process_mb"] < values["memory_system_mb"]


def test_the_cpu_time_of_a_child_that_ended_is_the_process_s():
    """The CPU time of a finished child counts once in the CPU percentage of the process."""
    clock = Clock()
    sampler = HostSampler(clock=clock)
    subprocess.run([sys.executable, "-c", BURN], check=True)
    clock.seconds += 10
    percent = sampler.read_cpu_memory()["cpu_process_percent"]
    assert 4.5 <= percent < 15
    clock.seconds += 1000
    assert sampler.read_cpu_memory()["cpu_process_percent"] < 1


def test_a_child_that_lives_is_read_with_its_parent():
    """CPU time, memory and disk traffic of a running child are included in the parent's."""
    clock = Clock()
    tree = ProcessTree(clock=clock)
    before = tree.read()
    code = f"{BURN}held = bytearray(64 << 20)\nprint('ready', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        clock.seconds += 5
        during = tree.read()
        child.communicate(b"\n")
    after = tree.read()
    assert during.cpu_seconds - before.cpu_seconds >= 0.45
    assert during.resident_bytes - before.resident_bytes >= 64 * MIB
    assert after.cpu_seconds >= during.cpu_seconds
    assert after.resident_bytes < during.resident_bytes
    assert after.write_bytes >= during.write_bytes


def test_children_are_looked_for_every_five_seconds():
    """New children are searched for every five seconds, because the search is slow."""
    clock = Clock()
    tree = ProcessTree(clock=clock)
    tree.read()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        clock.seconds += 4.9
        tree.read()
        early = len(tree._members)
        clock.seconds += 0.1
        tree.read()
        late = len(tree._members)
        child.communicate(b"\n")
    assert late == early + 1


def test_children_and_theirs_are_found_by_the_kernel_s_list(tmp_path):
    """Descendants are read from the `children` files of all threads, even if a file is missing."""
    lists = {"7/task/7": b"8 9 ", "7/task/12": b"10 ", "9/task/9": b"11 ", "8/task/8": b""}
    for task, children in lists.items():
        (tmp_path / task).mkdir(parents=True)
        (tmp_path / task / "children").write_bytes(children)
    (tmp_path / "7/task/13").mkdir()
    assert sorted(_list_descendants(7, procfs=tmp_path)) == [8, 9, 10, 11]
    assert _list_descendants(1, procfs=tmp_path) is None


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_grandchild_is_found(is_listed, monkeypatch):
    """A grandchild is found with and without the kernel's list of children."""
    if not is_listed:
        monkeypatch.setattr("trainvitals.training.resources._list_descendants", lambda _: None)
    shell = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE)
    sleeper = int(shell.stdout.readline())
    found = {process.pid for process in _find_descendants(psutil.Process())}
    psutil.Process(sleeper).kill()
    shell.wait()
    shell.stdout.close()
    assert {shell.pid, sleeper} <= found


def test_what_a_child_writes_is_counted(tmp_path):
    """The bytes that a child writes are included in the disk rate of the process."""
    clock = Clock()
    sampler = HostSampler(clock=clock)
    code = (
        "import os, sys\n"
        "file = open(sys.argv[1], 'wb'); file.write(bytes(8 << 20)); file.flush()\n"
        "os.fsync(file.fileno())\n"
        "print(open('/proc/self/io').read().split('write_bytes: ')[1].split()[0])\n"
    )
    written = int(
        subprocess.run(
            [sys.executable, "-c", code, tmp_path / "data"], capture_output=True, check=True
        ).stdout
    )
    clock.seconds += 4
    values = sampler.read_io()
    assert values["disk_write_mb"] >= written / MIB
    assert values["io_write_rate_mbps"] == values["disk_write_mb"] / 4
    clock.seconds += 4
    assert sampler.read_io()["disk_write_mb"] <= values["disk_write_mb"]


def test_disk_and_network_have_the_published_keys():
    """Without a pressure file, the I/O readings have only the disk and network keys."""
    clock = Clock()
    sampler = HostSampler(clock=clock, procfs=resources.Path("/nowhere"))
    clock.seconds += 1
    assert set(sampler.read_io()) == {
        "disk_read_mb",
        "disk_write_mb",
        "io_read_rate_mbps",
        "io_write_rate_mbps",
        "net_sent_mbps",
        "net_recv_mbps",
    }


def test_no_rates_are_given_when_no_time_went_by():
    """No rates are returned if no time has passed since the last reading."""
    sampler = HostSampler(clock=lambda: 7.0)
    assert not [name for name in sampler.read_io() if name.endswith(("_mbps", "_pct"))]


def test_pressure_is_the_share_of_the_time(tmp_path):
    """1.5 s of waiting for I/O in 10 s are a pressure of 15%."""
    clock = Clock()
    write_pressure(tmp_path, 1_000_000)
    sampler = HostSampler(clock=clock, procfs=tmp_path)
    write_pressure(tmp_path, 2_500_000)
    clock.seconds += 10
    assert sampler.read_io()["io_pressure_pct"] == 15.0


def test_a_system_without_io_counters_has_no_disk_values(monkeypatch):
    """Without I/O counters, as on macOS, only the network values are returned."""
    monkeypatch.delattr(psutil.Process, "io_counters")
    clock = Clock()
    sampler = HostSampler(clock=clock)
    clock.seconds += 1
    values = sampler.read_io()
    assert "net_sent_mbps" in values
    assert not [name for name in values if "disk" in name or "rate" in name]


@pytest.mark.parametrize(
    ("name", "is_loopback"),
    [
        ("lo", True),
        ("lo0", True),
        ("Loopback Pseudo-Interface 1", True),
        ("eth0", False),
        ("Local Area Connection", False),
        ("lowpan0", False),
    ],
)
def test_the_loopback_is_known_by_its_name(name, is_loopback):
    """Loopback interfaces are recognised by name, so that their traffic is not counted."""
    assert bool(resources._LOOPBACK.match(name)) is is_loopback
