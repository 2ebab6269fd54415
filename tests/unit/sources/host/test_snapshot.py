"""Tests for the snapshot of the machine."""

from trainvitals.sources.files import Roots
from trainvitals.sources.host.snapshot import find_biggest, read_host


def test_this_machine_is_told(tmp_path):
    """The snapshot has the memory, the disks of `/` and of a given folder, and some processes."""
    host = read_host([str(tmp_path)], clock=lambda: 5.0)
    assert host.time == 5.0
    assert 0 < host.memory_available_bytes <= host.memory_total_bytes
    assert {"/", str(tmp_path)} <= {disk.path for disk in host.disks}
    assert all(0 <= disk.free_bytes <= disk.total_bytes for disk in host.disks)
    assert 1 <= len(host.biggest) <= 5


def test_a_machine_that_tells_nothing_is_no_error(tmp_path):
    """Without `/proc` the memory, the disks and the processes are unknown, which is no error."""
    roots = Roots(tmp_path, tmp_path, tmp_path)
    host = read_host(roots=roots, clock=lambda: 5.0)
    assert (host.memory_total_bytes, host.disks, host.biggest) == (None, (), ())


def test_the_biggest_processes_come_first(tmp_path):
    """Processes are sorted by resident memory; kernel threads, which have none, are left out."""
    for pid, name, pages in ((7, "small", 1), (8, "big", 300), (9, "kthread", 0)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
        (tmp_path / str(pid) / "statm").write_text(f"500 {pages} 0 0 0 0 0\n")
    (tmp_path / "meminfo").write_text("")
    found = find_biggest(tmp_path, page_bytes=4096)
    assert found == [("big (8)", 1_228_800), ("small (7)", 4096)]
