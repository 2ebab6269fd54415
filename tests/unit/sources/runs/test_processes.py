"""Tests for the state and the exit of processes that are not children of the reader."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from tests.unit.sources.runs.trainer import kernel_tells_exits
from trainvitals.sources.runs.processes import Exit, Watch, may_map, read_process_state

STAT = "7 (a) R (b) D 1 7 7 0 -1 4194560 9 9 9 9 9 9 9 9 20 0 1 0 4711 1 1 1" + " 0" * 26


@pytest.fixture
def sleeper():
    """A process that sleeps until the test ends."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_name_with_brackets_does_not_confuse(tmp_path: Path):
    """The state and the start time are read after the last bracket of the process name."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text(STAT)
    state = read_process_state(7, procfs=tmp_path)
    assert state is not None
    assert (state.letter, state.start_ticks, state.exit) == ("D", 4711, None)
    assert not state.is_exiting


@pytest.mark.parametrize("text", ["", "7 (a", "7 (a) S", "7 (a) S" + " x" * 40])
def test_a_state_that_makes_no_sense_is_none(tmp_path: Path, text: str):
    """A `stat` file that does not have the kernel's format is read as no state."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text(text)
    assert read_process_state(7, procfs=tmp_path) is None


def test_a_process_that_is_not_there_has_no_state():
    """A PID without a process has no state, and the process cannot be watched."""
    assert read_process_state(1 << 22) is None
    with pytest.raises(OSError, match="No such process"):
        Watch((1 << 22) - 1)


def test_a_stopped_process_is_seen(sleeper):
    """A process that is stopped with SIGSTOP is alive and in state T."""
    watch = Watch(sleeper.pid)
    wait_until(lambda: watch.read_letter() == "S")
    os.kill(sleeper.pid, signal.SIGSTOP)
    wait_until(lambda: watch.read_letter() == "T")
    assert not watch.is_dead()
    assert watch.read_exit() is None
    assert not watch.is_settled
    watch.close()


def test_a_zombie_is_dead_and_tells_its_signal(sleeper):
    """A zombie is dead, and the kernel reports the signal that killed the process."""
    watch = Watch(sleeper.pid)
    os.kill(sleeper.pid, signal.SIGKILL)
    wait_until(watch.is_dead)
    assert watch.read_letter() == "Z"
    assert watch.read_exit() == Exit(code=None, signal=9)
    assert watch.is_settled
    watch.close()


@pytest.mark.skipif(not kernel_tells_exits(), reason="the kernel tells exits from 6.15 on")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("exit 0", Exit(code=0, signal=None)),
        ("exit 3", Exit(code=3, signal=None)),
        ("kill -SEGV $BASHPID", Exit(code=None, signal=11)),
        ("kill -KILL $BASHPID", Exit(code=None, signal=9)),
    ],
)
def test_a_collected_process_still_tells_how_it_ended(command, expected):
    """A process that is not the parent can read the exit status after the parent has waited."""
    shell = f"{{ read line; {command}; }} <&3 & echo $!; wait $!; echo collected; read line"
    process = subprocess.Popen(
        ["bash", "-c", f"exec 3<&0; {shell}"], stdin=-1, stdout=-1, stderr=-1, text=True
    )
    watch = Watch(int(process.stdout.readline()))
    assert not watch.is_dead()
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "collected\n"
    assert watch.is_dead()
    assert watch.read_exit() == expected
    assert watch.is_settled
    watch.close()
    process.communicate()


@pytest.mark.skipif(not kernel_tells_exits(), reason="the kernel tells exits from 6.15 on")
def test_a_zombie_with_exit_code_0_tells_it_later():
    """An exit code of 0 is reported only after the zombie's parent has waited for it.

    Before that, the kernel also shows 0 to readers that may not know the exit code.
    """
    with subprocess.Popen(["true"]) as process:
        watch = Watch(process.pid)
        wait_until(watch.is_dead)
        assert watch.read_exit() is None
        assert not watch.is_settled
        process.wait()
        assert watch.read_exit() == Exit(code=0, signal=None)
        watch.close()


def test_a_foreign_proc_is_not_believed(sleeper, tmp_path: Path):
    """A `/proc` that shows another process with the same PID is ignored."""
    (tmp_path / str(sleeper.pid)).mkdir()
    (tmp_path / str(sleeper.pid) / "stat").write_text(STAT)
    watch = Watch(sleeper.pid, start_ticks=4712, procfs=tmp_path)
    assert watch.read_letter() is None
    assert watch.read_state() is None
    watch.close()
    watch = Watch(sleeper.pid, start_ticks=4711, procfs=tmp_path)
    assert watch.read_letter() == "D"
    watch.close()


def test_a_python_without_pidfd_cannot_watch(sleeper, monkeypatch):
    """A Python without `os.pidfd_open` raises an error that names the function."""
    monkeypatch.delattr(os, "pidfd_open")
    with pytest.raises(OSError, match=r"no os\.pidfd_open"):
        Watch(sleeper.pid)


def test_a_mapped_file_is_found_by_its_number(tmp_path: Path):
    """Only writable shared mappings count; an unreadable or very long list may contain the file."""
    (tmp_path / "42").mkdir()
    maps = tmp_path / "42/maps"
    maps.write_text(
        "7f0000000000-7f0000004000 rw-s 00000000 00:1b 4711   /dev/shm/run dir/a.tv (deleted)\n"
        "7f0000004000-7f0000008000 r--s 00000000 00:1b 4712   /dev/shm/b.tv\n"
        "7f0000008000-7f000000c000 rw-p 00000000 00:00 0 \n"
    )
    assert may_map(42, 4711, procfs=tmp_path)
    assert not may_map(42, 4712, procfs=tmp_path)
    assert not may_map(42, 47, procfs=tmp_path)
    assert may_map(43, 4711, procfs=tmp_path)
    maps.write_text("")
    assert may_map(42, 4711, procfs=tmp_path)
    maps.write_text("7f0000008000-7f000000c000 rw-p 00000000 00:00 0 \n" * 6000)
    assert may_map(42, 4711, procfs=tmp_path)  # The list is too long to be read completely.
