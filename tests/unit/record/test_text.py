"""Tests for the text format of snapshots."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.record.snapshots import CET, ID, NOW, WHOLE
from trainvitals.record.snapshot import Snapshot
from trainvitals.record.text import write_end, write_text
from trainvitals.sources.containers.reading import ContainerReading, ContainersReading
from trainvitals.sources.host.processes import Process, ProcessesReading

EXPECTED = """\
=== 2025-11-13 03:13:20 CET | gpu-07 | snapshot 12 | 34ms ===
skipped    2 snapshots, because one took longer than the interval
unwritten  1 snapshots before this one
memory     48.0 GiB of 64.0 GiB used (75%), 16.0 GiB available, 2.0 GiB shared
swap       25% of 8.0 GiB used
cpu        12% busy, 3% waiting for I/O, load 4.00 3.50 3.25, 32 cores
processes  412
             PID   USER  CPU%  RSS       NAME
  by cpu     4021  ann   99.5  21.0 GiB  python
  by memory  4021  ann   99.5  21.0 GiB  python
  by memory  1     root  -     4.0 KiB   init
accelerators  2
  DEVICE  STATE  UTIL  MEMORY           TEMP   POWER  MODEL  UUID
  gpu 0   ok     97%   71.0 / 80.0 GiB  63 °C  512 W  H100   GPU-1
  gpu 1   lost   -     -                -      -      H100   GPU-2
  gpu 0: 70.0 GiB held by python (pid 4021, container bert)
  gpu 0: 1.0 GiB held by ? (pid 5000)
containers  2
  NAME  STATE    HEALTH   CPU%   MEMORY          LIMIT     RESTARTS  DEATHS  OOM  LAST       ID
  bert  running  healthy  398.2  12.0 GiB (75%)  16.0 GiB  1         1       1    oom-limit  4f66ad9a0b2e
  web   exited   -        -      -               -         -         0       0    -          111111111111
  bert: died at 03:12:20 with exit code 137: oom-limit (high confidence). It hit its limit.
disks
  MOUNT  USED  AVAILABLE  SIZE     INODES                   DEVICE
  /      75%   25.0 GiB   100 GiB  10%                      /dev/sda1
  /data  -     -          -        -       does not answer  nas:/data
oom kills  1 since the last snapshot
  03:12:20 killed python (pid 4000, held 15.0 GiB): CONSTRAINT_MEMCG /docker/a
  03:12:50 Xid 79 of 0000:3b:00 GPU has fallen off the bus.
  11-12 02:13 EXT4-fs error (device sda1)
  7 lines of the kernel log were overwritten before they were read
engine     logged:
  error: Failed to start container
not read   disk: did not answer in time

"""


def test_a_whole_snapshot():
    """The text has lines for every part of a snapshot and ends with an empty line."""
    assert write_text(WHOLE, CET) == EXPECTED


def test_a_death_is_told_once():
    """A death is described only in the first snapshot after it; the table keeps the reason."""
    text = write_text(replace(WHOLE, new_deaths=()), CET)
    assert "died at" not in text
    assert " oom-limit " in text


def test_what_is_not_known_is_left_out():
    """A snapshot without readings consists of its head only."""
    assert write_text(Snapshot(NOW, "gpu-07", 1, 0.0), CET) == (
        "=== 2025-11-13 03:13:20 CET | gpu-07 | snapshot 1 | 0s ===\n\n"
    )


def test_the_last_line():
    """The last line of a recording that ended normally has the number of snapshots."""
    assert write_end(NOW, 12, CET) == (
        "=== 2025-11-13 03:13:20 CET | the recording ends, snapshots: 12 ===\n"
    )


@given(st.text(), st.text())
def test_hostile_names_make_no_lines_of_their_own(name, trouble):
    """A name with control characters neither begins a line nor moves the cursor."""
    snapshot = Snapshot(
        NOW,
        "gpu-07",
        1,
        0.0,
        processes=ProcessesReading(1, (Process(1, name, name, 1.0, 1),), ()),
        containers=ContainersReading(is_there=True, containers=(ContainerReading(name, ID),)),
        troubles=(trouble,),
    )
    text = write_text(snapshot, CET)
    assert text.count("\n") == 9
    assert text.replace("\n", "").isprintable()


def test_memory_that_the_kernel_does_not_report_is_a_dash():
    """Memory values that the kernel does not report are shown as a dash."""
    assert WHOLE.memory is not None
    memory = replace(WHOLE.memory, available_bytes=None, shared_bytes=None, swap_free_bytes=None)
    assert write_text(replace(WHOLE, memory=memory), CET).splitlines()[3:5] == [
        "memory     - of 64.0 GiB used (-), - available, - shared",
        "swap       - of 8.0 GiB used",
    ]
    assert "swap       none" in write_text(
        replace(WHOLE, memory=replace(memory, swap_total_bytes=0)), CET
    )


def test_hidden_processes_are_not_counted():
    """If `/proc` hides processes of other users, their number is shown as unknown."""
    assert WHOLE.processes is not None
    hidden = replace(WHOLE, processes=replace(WHOLE.processes, count=None))
    assert "\nprocesses  - (/proc hides those of other users)\n" in write_text(hidden, CET)
