"""Tests for finding the files that processes on accelerators write, if no flag names them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from trainvitals.sources.runs.held_files import HeldFiles
from trainvitals.sources.runs.owners import Users

TABLE = "epoch,step,loss\n0,10,0.5\n"


@contextmanager
def process(folder: Path, script: str = "true", *, output: Path | None = None) -> Iterator[int]:
    """Start a process in a working folder after running a shell script, and yield its PID."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["sh", "-c", f"{script}; : > .ready; exec sleep 600"]
    with (output or Path(os.devnull)).open("w", encoding="utf-8") as file:
        child = subprocess.Popen(command, cwd=folder, stdout=file)
    try:
        wait_until((folder / ".ready").exists)
        (folder / ".ready").unlink()
        yield child.pid
    finally:
        child.kill()
        child.wait()


def search(*pids: int, instrumented: tuple[int, ...] = (), **options: object) -> HeldFiles:
    """Return the result of a search for the files of processes."""
    held = HeldFiles(**options)  # type: ignore[arg-type]
    held.search(pids, instrumented)
    return held


def name_files(held: HeldFiles, folder: Path) -> set[str]:
    """Return the relative paths of the found files below a folder."""
    return {os.path.relpath(file.path, folder) for file in held.files}


def test_files_below_the_working_folder_are_found(tmp_path: Path):
    """Hidden folders, links, other names, old files and files above the folder are left out."""
    work = tmp_path / "work"
    (work / "runs/exp").mkdir(parents=True)
    (work / ".cache").mkdir()
    (work / "old.csv").write_text(TABLE)
    os.utime(work / "old.csv", (1.0, 1.0))
    (tmp_path / "beside.csv").write_text(TABLE)
    (work / "linked.csv").symlink_to(tmp_path / "beside.csv")
    (work / "linked").symlink_to(tmp_path)
    time.sleep(0.1)
    script = (
        "for f in runs/exp/results.csv train.log .cache/a.csv model.py runs/events.out.tfevents.1.h;"
        f" do echo 1 > $f; done; echo 1 > {tmp_path}/beside.csv"
    )
    with process(work, script) as pid:
        held = search(pid)
    assert name_files(held, work) == {
        "runs/exp/results.csv",
        "train.log",
        "runs/events.out.tfevents.1.h",
    }
    assert {(file.holders, file.place, file.is_named) for file in held.files} == {
        ((pid,), str(work), False)
    }


def test_output_that_is_redirected_is_a_log_wherever_it_is(tmp_path: Path):
    """A file to which a process's output is redirected is a log, whatever its name and folder."""
    with process(tmp_path / "work", output=tmp_path / "output") as pid:
        (file,) = search(pid).files
    assert (file.path, file.is_log, file.holders) == (str(tmp_path / "output"), True, (pid,))


def test_a_process_with_a_run_file_has_no_files(tmp_path: Path):
    """No files are found if the process, a relative or a process in its folder has a run file."""
    with process(tmp_path, f"echo 1 > a.csv; sleep 500 & echo $! > {tmp_path}/child") as pid:
        child = int((tmp_path / "child").read_text())
        assert name_files(search(pid), tmp_path) == {"a.csv"}
        assert not search(pid, instrumented=(pid,)).files
        assert not search(pid, instrumented=(child,)).files
        assert not search(child, instrumented=(pid,)).files
        with process(tmp_path) as other:
            assert not search(pid, other, instrumented=(other,)).files
        os.kill(child, 9)


def test_two_processes_share_the_files_of_a_folder(tmp_path: Path):
    """A file in the folder of two processes is listed once, with the PIDs of both."""
    with process(tmp_path, "echo 1 > a.csv") as one, process(tmp_path) as other:
        (file,) = search(one, other).files
    assert file.holders == tuple(sorted((one, other)))


def test_only_files_of_counted_users_are_found(tmp_path: Path):
    """Only the files of users that `--run-dir.users` selects are found."""
    with process(tmp_path, "echo 1 > a.csv") as pid:
        assert not search(pid, users=Users(((4242, 4242),))).files
        assert search(pid, users=Users(((os.getuid(), os.getuid()),))).files


def test_a_large_folder_is_searched_in_part(tmp_path: Path):
    """Thousands of files in a subfolder do not hide a file in the working folder."""
    with process(
        tmp_path, "mkdir data; cd data; seq 3000 | xargs touch; cd ..; echo 1 > a.csv"
    ) as pid:
        began = time.monotonic()
        assert name_files(search(pid), tmp_path) == {"a.csv"}
        assert time.monotonic() - began < 5


def test_the_latest_state_of_a_trainer_is_chosen(tmp_path: Path):
    """Only the latest of the `trainer_state.json` files in the checkpoint folders is chosen."""
    script = (
        "for n in 10 20; do mkdir -p out/checkpoint-$n;"
        " echo 1 > out/checkpoint-$n/trainer_state.json; sleep 0.05; done"
    )
    with process(tmp_path, script) as pid:
        assert name_files(search(pid), tmp_path) == {"out/checkpoint-20/trainer_state.json"}


def test_files_stay_for_an_hour_after_the_process(tmp_path: Path):
    """Files are kept for an hour after their process ends, and a search is due once a minute."""
    now = [1000.0]
    held = HeldFiles(clock=lambda: time.time() + now[0] - 1000, monotonic=lambda: now[0])
    assert not held.is_due(())
    with process(tmp_path, "echo 1 > a.csv") as pid:
        assert held.is_due([pid])
        held.search([pid], ())
        assert not held.is_due([pid])
    now[0] += 60
    assert held.is_due(())
    held.search((), ())
    assert held.files
    now[0] += 3600
    held.search((), ())
    assert not held.files


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a mount namespace")
def test_files_in_another_mount_namespace_are_opened_below_its_root(tmp_path: Path):
    """A file in another mount namespace is opened below `/proc/PID/root`."""
    command = ["unshare", "--mount", "sh", "-c"]
    script = (
        f"mount -t tmpfs none {tmp_path} && cd {tmp_path} && echo 1 > a.csv && echo $$ >&2"
        " && exec sleep 600"
    )
    child = subprocess.Popen([*command, script], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    with child.stderr:
        line = child.stderr.readline().strip()
    if not line.isdecimal():
        child.wait()
        pytest.skip(f"needs the permission to make namespaces: {line}")
    try:
        (file,) = search(int(line)).files
        assert file.path == f"/proc/{line}/root{tmp_path}/a.csv"
        assert file.beneath == f"/proc/{line}/root"
    finally:
        child.kill()
        child.wait()


def test_a_process_that_is_gone_or_hidden_is_no_fault():
    """A process that does not exist has no files and causes no error."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert not search(gone.pid, 1 << 22).files
