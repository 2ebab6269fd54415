"""Tests for run directories: their run files, the liveness of ranks, and discarded files."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.waiting import wait_until
from tests.unit.sources.runs.trainer import (
    SOURCE_ROOT,
    Trainer,
    compose_run_file,
    holding,
    kernel_tells_exits,
)
from trainvitals.errors import SourceError
from trainvitals.runfile import ABSENT, STATE, STEP, State
from trainvitals.sources.runs import rankfile
from trainvitals.sources.runs.directory import Limits, RunDirectory
from trainvitals.sources.runs.endings import determine_ending, read_ending, write_ending
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.owners import parse_users
from trainvitals.sources.runs.processes import Exit

DAY = 86400.0
GOOD = compose_run_file()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """An empty run directory."""
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def directory(runs):
    """A reader of the run directory."""
    directory = RunDirectory(runs)
    yield directory
    directory.close()


def put(runs: Path, name: str, data: bytes = GOOD, *, mtime: float | None = None) -> Path:
    """Create a run file by renaming a hidden file, as a trainer does."""
    hidden = runs / f".{name}.tmp"
    hidden.write_bytes(data)
    if mtime is not None:
        os.utime(hidden, (mtime, mtime))
    hidden.rename(runs / name)
    return runs / name


def names_of(reading) -> list[str]:
    """Return the names of the files in a reading."""
    return sorted(file.path.name for file in reading.files)


def losses_of(reading) -> list[float]:
    """Return the losses in a reading."""
    return [file.record.step[STEP["loss"]] for file in reading.files]


def open_descriptors() -> int:
    """Count the open descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_missing_directory_is_empty_until_it_comes(tmp_path: Path):
    """A missing run directory counts as empty, and is read as soon as it exists."""
    directory = RunDirectory(tmp_path / "runs")
    reading = directory.read(1.0)
    assert (reading.files, reading.incompatible, reading.omitted) == ((), 0, 0)
    (tmp_path / "runs").mkdir()
    put(tmp_path / "runs", "a.tv")
    assert names_of(directory.read(2.0)) == ["a.tv"]
    directory.discard(3.0)
    directory.close()


def test_a_living_rank_is_read_as_it_writes(runs, directory):
    """Each reading contains the newest loss and the newest metrics of a living rank."""
    with Trainer(runs, rank=3) as trainer:
        trainer.do("step 0.25")
        trainer.do("metric val_iou 0.75")
        (file,) = directory.read(time.time()).files
        assert file.path == trainer.path
        assert (file.record.identity.run, file.record.identity.rank) == ("run", 3)
        assert file.record.step[STEP["loss"]] == 0.25
        assert file.record.metrics == (("val_iou", ""),)
        assert file.record.state[STATE["metric_0"]] == 0.75
        assert file.liveness.is_alive
        assert file.is_current
        trainer.do("step 0.125")
        trainer.do("metric val_dice 0.5")
        (file,) = directory.read(time.time()).files
        assert file.record.step[STEP["loss"]] == 0.125
        assert file.record.metrics == (("val_iou", ""), ("val_dice", ""))
        assert file.record.state[STATE["metric_1"]] == 0.5


def test_a_killed_rank_keeps_its_last_record(runs, directory):
    """After SIGKILL the last values are read, and also the signal if the kernel reports it."""
    with Trainer(runs) as trainer:
        trainer.do("step 0.25")
        directory.read(time.time())
        trainer.do("step 0.125")
        trainer.kill()
        for _ in range(2):
            (file,) = directory.read(time.time()).files
            assert file.record.step[STEP["loss"]] == 0.125
            assert not file.liveness.is_alive
            assert file.liveness.exit == (Exit(None, 9) if kernel_tells_exits() else None)


def test_a_failed_rank_leaves_its_last_words(runs, directory):
    """The state and the exception that a rank writes when it fails are read after its end."""
    with Trainer(runs) as trainer:
        directory.read(time.time())
        trainer.do("fail ValueError")
        (file,) = directory.read(time.time()).files
        assert file.record.state[STATE["state"]] == State.FAILED
        assert file.record.last_words == "ValueError"
        assert not file.liveness.is_alive


def test_twenty_kills_in_full_flight_leave_whole_records(runs, directory):
    """A rank that is killed while writing leaves a whole record, and its end is seen at once."""
    for rank in range(20):
        with Trainer(runs, rank=rank) as trainer:
            trainer.do("spin")
            wait_until(lambda: directory.read(time.time()).files[-1].record.step[STEP["steps"]] > 0)
            time.sleep(0.003 * rank)
            trainer.kill()
            file = directory.read(time.time()).files[-1]
            assert not file.liveness.is_alive
            assert file.is_current
            steps = file.record.step[STEP["steps"]]
            assert steps == file.record.step[STEP["samples"]]
    assert directory.read(time.time()).incompatible == 0


def test_a_file_unlinked_under_its_trainer_is_still_read(runs, directory):
    """A deleted run file is read while its rank is alive, and for 15 minutes after its end."""
    with Trainer(runs) as trainer:
        directory.read(time.time())
        trainer.path.unlink()
        trainer.do("step 0.25")
        assert losses_of(directory.read(time.time())) == [0.25]
        trainer.kill()
        for later in (0.0, 890.0):
            (seen,) = directory.read(time.time() + later).files
            assert (seen.liveness.is_alive, seen.can_be_noted) == (False, False)
        assert directory.read(time.time() + 910).files == ()


def test_a_wiped_directory_is_found_again(runs, directory):
    """After the directory is deleted, only living ranks remain, and new ranks are found."""
    with Trainer(runs, rank=0) as old:
        put(runs, "dead.tv")
        assert len(directory.read(time.time()).files) == 2
        shutil.rmtree(runs)
        assert names_of(directory.read(time.time())) == [old.path.name]
        with Trainer(runs, rank=1) as new:
            assert names_of(directory.read(time.time())) == [old.path.name, new.path.name]


def test_a_renamed_file_is_the_same(runs, directory):
    """A run file is identified by its inode, so that a renamed or linked file is the same file."""
    with Trainer(runs) as trainer:
        directory.read(time.time())
        trainer.path.rename(runs / "other.tv")
        assert names_of(directory.read(time.time())) == ["other.tv"]
        os.link(runs / "other.tv", runs / "twin.tv")
        assert len(directory.read(time.time()).files) == 1


def test_what_is_no_run_file_is_counted_and_left_alone(runs, directory, tmp_path):
    """Files that are not valid run files are counted and do not prevent reading the others."""
    put(runs, "good.tv")
    put(runs, "empty.tv", b"")
    put(runs, "random.tv", os.urandom(16384))
    put(runs, "short.tv", GOOD[:-1])
    put(runs, "large.tv", GOOD + b"\0")
    put(runs, "future.tv", GOOD[:8] + struct.pack("<H", 2) + GOOD[10:])
    put(runs, "damaged.tv", GOOD[:300] + b"X" + GOOD[301:])
    (tmp_path / "elsewhere").write_bytes(GOOD)
    (runs / "link.tv").symlink_to(tmp_path / "elsewhere")
    (runs / "dangling.tv").symlink_to("nowhere")
    os.mkfifo(runs / "fifo.tv")
    (runs / "folder.tv").mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(runs / "socket.tv"))
    for _ in range(2):
        reading = directory.read(time.time())
        assert names_of(reading) == ["good.tv"]
        assert reading.incompatible == 11
    listener.close()


def test_only_names_of_run_files_count(runs, directory):
    """Notes, hidden files and files with other names are neither read nor counted."""
    for name in (".hidden.tv", "a.tv.end", "a.txt", "tv"):
        (runs / name).write_bytes(b"x")
    reading = directory.read(1.0)
    assert (reading.files, reading.incompatible) == ((), 0)


def test_a_record_that_was_damaged_keeps_its_last_copy(runs, directory):
    """If a run file is damaged, its last valid values are kept until the file is valid again."""
    path = put(runs, "a.tv", compose_run_file(boot_id=bytes(16), loss=0.5))
    assert losses_of(directory.read(1000.0)) == [0.5]
    with path.open("r+b") as file:
        file.seek(8192 + 200)
        file.write(b"\x01")
    reading = directory.read(1000.0)
    assert losses_of(reading) == [0.5]
    assert (reading.incompatible, reading.files[0].is_current) == (1, False)
    path.write_bytes(b"")  # the file is truncated
    reading = directory.read(1000.0)
    assert (losses_of(reading), reading.incompatible) == ([0.5], 1)
    path.write_bytes(compose_run_file(boot_id=bytes(16), loss=0.25))
    reading = directory.read(1000.0)
    assert (losses_of(reading), reading.incompatible) == ([0.25], 0)


def test_a_state_record_caught_in_the_writing_is_read_again(runs, directory):
    """A state record that is only partly written is ignored until it is complete."""
    path = put(runs, "a.tv", compose_run_file(boot_id=bytes(16)))
    directory.read(1000.0)
    whole = bytearray(
        compose_run_file(boot_id=bytes(16), state=State.FINISHED)[10240 : 10240 + 3072]
    )
    used = struct.unpack_from("<Q", whole, 8)[0]
    whole[:8] = struct.pack("<Q", 3)
    whole[8 * used : 8 * used + 8] = struct.pack("<Q", __import__("zlib").crc32(whole[: 8 * used]))
    with path.open("r+b") as file:
        file.seek(10240 + 3072)
        file.write(whole[:100])
        file.flush()
        (seen,) = directory.read(1000.0).files
        assert (seen.record.state[STATE["state"]], seen.is_current) == (State.RUNNING, True)
        file.seek(10240 + 3072)
        file.write(whole)
    (seen,) = directory.read(1000.0).files
    assert seen.record.state[STATE["state"]] == State.FINISHED


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path: Path):
    """A symbolic link in place of the run directory is an error that names the path."""
    (tmp_path / "real").mkdir()
    (tmp_path / "runs").symlink_to("real")
    directory = RunDirectory(tmp_path / "runs")
    with pytest.raises(SourceError, match=r"cannot read the run directory .*/runs: .*--run-dir"):
        directory.read(1.0)


def test_living_ranks_come_first_then_the_newest(runs):
    """Beyond the limit, the oldest files of dead ranks are omitted and counted."""
    with Trainer(runs) as trainer:
        os.utime(trainer.path, (1.0, 1.0))
        for day in range(2, 7):
            put(runs, f"{day}.tv", mtime=float(day))
        directory = RunDirectory(runs, limits=Limits(files=3))
        reading = directory.read(time.time())
        assert names_of(reading) == ["5.tv", "6.tv", trainer.path.name]
        assert reading.omitted == 3
        (runs / "5.tv").unlink()
        directory.read(time.time())
        assert names_of(directory.read(time.time())) == ["4.tv", "6.tv", trainer.path.name]
        assert directory.read(time.time()).omitted == 2
        directory.close()


def test_names_beyond_the_limit_are_seen_in_the_next_readings(runs):
    """If there are too many names, several readings list them and are marked as partial."""
    for index in range(10):
        put(runs, f"{index}.tv")
    directory = RunDirectory(runs, limits=Limits(names=4))
    for count in (4, 8, 10, 10, 10):
        reading = directory.read(1.0)
        assert len(reading.files) == count
        assert reading.is_part
    for index in range(6):
        (runs / f"{index}.tv").unlink()
    for _ in range(3):
        reading = directory.read(1.0)
    assert names_of(reading) == ["6.tv", "7.tv", "8.tv", "9.tv"]
    assert not reading.is_part
    directory.close()


def test_a_flood_of_names_hides_no_living_rank(runs: Path):
    """In a flooded directory, old, new and renamed files of living ranks are found."""
    with ExitStack() as living:
        trainers = [living.enter_context(Trainer(runs, run="before"))]
        for index in range(100):
            (runs / f"{index}.tv").touch()
        directory = RunDirectory(runs, limits=Limits(names=16))
        living.callback(directory.close)
        now = time.time()
        for run in ("first", "second"):
            trainers.append(living.enter_context(Trainer(runs, run=run)))
            for _ in range(2 * 7):
                reading = directory.read(now)
            assert names_of(reading) == sorted(trainer.path.name for trainer in trainers)
            assert all(file.can_be_noted for file in reading.files)
        before = trainers[0].path
        before.rename(runs / "renamed.tv")
        for _ in range(7):
            reading = directory.read(now)
            assert len(reading.files) == 3
        assert "renamed.tv" in names_of(reading)


def test_living_ranks_are_counted_while_a_directory_is_flooded(runs: Path):
    """Omitted living ranks are counted in every reading until their files are deleted."""
    for index in range(100):
        (runs / f"{index}.tv").touch()
    theirs = [put(runs, f"held{index}.tv") for index in range(12)]
    directory = RunDirectory(runs, limits=Limits(files=4, names=16))
    with holding(*theirs, user=os.geteuid()):
        for _ in range(8):
            directory.read(time.time())
        counts = {directory.read(time.time()).omitted_alive for _ in range(8)}
        assert counts == {8}
        for path in theirs:
            path.unlink()
        assert directory.read(time.time()).omitted_alive == 0
    directory.close()


@pytest.mark.parametrize("is_held", [True, False])
def test_a_file_with_many_names_counts_once(runs: Path, is_held: bool):  # noqa: FBT001
    """Many hard links to one file count as one file and do not hide a rank that starts later."""
    first = put(runs, "first.tv")
    for index in range(300):
        os.link(first, runs / f"{index}.tv")
    directory = RunDirectory(runs, limits=Limits(names=64, files=8))
    with holding(*[first] if is_held else (), user=os.geteuid()):
        before = open_descriptors()
        for _ in range(2 * 5):
            reading = directory.read(time.time())
            assert (len(reading.files), reading.omitted, reading.is_short) == (1, 0, False)
            assert open_descriptors() <= before + 4
        with Trainer(runs) as trainer:
            found = (names_of(directory.read(time.time())) for _ in range(10))
            assert any(trainer.path.name in names for names in found)
    directory.close()


def test_a_flooded_directory_may_be_replaced(runs: Path):
    """If a directory with too many names is replaced, the new one is listed from its start."""
    for index in range(9):
        put(runs, f"{index}.tv")
    directory = RunDirectory(runs, limits=Limits(names=4))
    directory.read(1.0)
    runs.rename(runs.with_name("old"))
    runs.mkdir()
    put(runs, "new.tv")
    assert "new.tv" in names_of(directory.read(1.0))
    directory.close()


def test_new_files_are_opened_in_turns(runs):
    """Each reading opens at most four new files, the newest files first."""
    for index in range(10):
        put(runs, f"{index}.tv", mtime=float(index))
    directory = RunDirectory(runs, limits=Limits(files=8, new=4))
    reading = directory.read(100.0)
    assert names_of(reading) == ["6.tv", "7.tv", "8.tv", "9.tv"]
    assert (reading.omitted, reading.is_part) == (6, False)
    assert len(directory.read(100.0).files) == 8
    reading = directory.read(100.0)
    assert names_of(reading) == [f"{index}.tv" for index in range(2, 10)]
    assert reading.omitted == 2
    directory.close()


MALLORY = 54321


def give(paths: Iterable[Path], *, user: int = MALLORY) -> None:
    """Change the owner of files, and set their times in the future."""
    for path in paths:
        os.chown(path, user, -1)
        os.utime(path, (4e9, 4e9))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
@pytest.mark.parametrize("are_held", [True, False])
def test_one_user_s_files_take_no_places_of_another(runs: Path, are_held: bool):  # noqa: FBT001
    """The files of one user do not displace those of another, whatever their number and times."""
    theirs = [put(runs, f"{index}.tv") for index in range(40)]
    give(theirs)
    directory = RunDirectory(runs, limits=Limits(files=8, new=16))
    with holding(*theirs if are_held else (), user=MALLORY):
        with Trainer(runs) as trainer:
            for _ in range(4):
                assert trainer.path.name in names_of(directory.read(time.time()))
            reading = directory.read(time.time())
            assert (len(reading.files), reading.omitted) == (8, 33)
            assert reading.omitted_alive == (33 if are_held else 0)
        mine = [put(runs, f"mine{index}.tv") for index in range(40)]
        for _ in range(4):
            reading = directory.read(time.time())
        assert sum(file.owner == MALLORY for file in reading.files) == 4
        assert len(mine) == 40
    directory.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
def test_users_that_do_not_count_are_not_read(runs: Path):
    """The files of users who are not selected are neither read nor counted."""
    theirs = [put(runs, f"{index}.tv") for index in range(3)]
    theirs.append(put(runs, "bad.tv", b"bad"))
    give(theirs)
    put(runs, "mine.tv")
    directory = RunDirectory(runs, users=parse_users([f"0-{MALLORY - 1}"]))
    for _ in range(2):
        reading = directory.read(time.time())
        assert (names_of(reading), reading.incompatible, reading.omitted) == (["mine.tv"], 0, 0)
    directory.close()


def test_files_beyond_the_limit_are_compared_again(runs: Path):
    """An omitted file of a living rank is read after the ranks of the other files have ended."""
    now = time.time()
    firsts = [put(runs, f"{index}.tv", mtime=now) for index in range(3)]
    directory = RunDirectory(runs, limits=Limits(files=2))
    last = put(runs, "last.tv", mtime=1.0)
    with holding(last, user=os.geteuid()):
        with holding(*firsts, user=os.geteuid()):
            for seconds in (0.0, 1.0):
                assert "last.tv" not in names_of(directory.read(now + seconds))
        assert "last.tv" not in names_of(directory.read(now + 10.0))
        assert "last.tv" in names_of(directory.read(now + 12.0))
    directory.close()


def test_times_to_come_are_not_believed(runs: Path):
    """A run file with times in the future is discarded one day after its creation."""
    now = time.time()
    put(runs, "future.tv", compose_run_file(wall_time=now + 1e8), mtime=now + 1e8)
    directory = RunDirectory(runs)
    (file,) = directory.read(now).files
    assert now - 60 < file.made_time < now + 60
    directory.discard(now + 86_000.0)
    assert (runs / "future.tv").exists()
    directory.discard(now + 87_000.0)
    assert not (runs / "future.tv").exists()
    directory.close()


def test_a_directory_whose_mtime_is_set_back_hides_no_file(runs: Path):
    """A new file is found even if the owner of the directory sets the directory's mtime back."""
    now = time.time() + 10
    put(runs, "first.tv")
    os.utime(runs, (1e9, 1e9))
    directory = RunDirectory(runs)
    assert names_of(directory.read(now)) == ["first.tv"]
    put(runs, "second.tv")
    os.utime(runs, (1e9, 1e9))
    assert names_of(directory.read(now)) == ["first.tv", "second.tv"]
    directory.close()


def test_a_temporary_file_of_a_time_to_come_is_discarded(runs: Path, directory):
    """Two days after its creation, a temporary file with an mtime in the future is discarded."""
    hidden = runs / ".a.tv.tmp"
    hidden.touch()
    os.utime(hidden, (4e9, 4e9))
    now = time.time()
    directory.read(now)
    directory.discard(now)
    assert hidden.exists()
    directory.discard(now + 2 * DAY)
    assert not hidden.exists()


def test_a_thousand_new_files_cost_little(runs, monkeypatch):
    """Choosing 256 of 1000 new files takes fewer than 2000 queries of locks."""
    asked = []
    monkeypatch.setattr(rankfile, "query_lock", lambda _: asked.append(1))
    for index in range(1000):
        put(runs, f"{index}.tv")
    directory = RunDirectory(runs)
    assert len(directory.read(time.time()).files) == 256
    assert len(asked) < 2000
    directory.close()


def test_files_that_may_be_held_become_fewer_and_more(runs):
    """A lower limit omits the oldest files, and a higher limit admits some of them again."""
    for index in range(5):
        put(runs, f"{index}.tv", mtime=float(index))
    directory = RunDirectory(runs)
    assert len(directory.read(100.0).files) == 5
    directory.allow(2)
    reading = directory.read(100.0)
    assert (names_of(reading), reading.omitted) == (["3.tv", "4.tv"], 3)
    directory.allow(4)
    reading = directory.read(100.0)
    assert (len(reading.files), reading.omitted) == (4, 1)
    directory.close()


def test_dead_ranks_hold_no_descriptor(runs):
    """The files of dead ranks are closed, while the last copies of their records are kept."""
    before = open_descriptors()
    directory = RunDirectory(runs)
    for index in range(5):
        put(runs, f"{index}.tv")
    assert len(directory.read(time.time()).files) == 5
    assert open_descriptors() == before
    with Trainer(runs) as trainer:
        assert len(directory.read(time.time()).files) == 6
        trainer.kill()
        directory.read(time.time())
    directory.close()
    assert open_descriptors() == before


def test_a_reader_in_the_trainer_does_not_drop_its_lock(runs):
    """A trainer that reads its own run file keeps the lock, and is alive for other readers."""
    code = """
import sys, time
sys.path.insert(0, sys.argv[1])
sys.argv = ["writer.py", sys.argv[1], sys.argv[2], "0", sys.argv[3]]
sys.path.insert(0, sys.argv[4])
import writer
from pathlib import Path
from trainvitals.sources.runs.directory import RunDirectory
recorder = writer.Recorder(Path(sys.argv[2]), 0, "run")
writer.say_state(recorder, writer.State.RUNNING)
directory = RunDirectory(Path(sys.argv[2]))
for loss in (0.5, 0.25):
    writer.step(recorder, loss)
    (file,) = directory.read(time.time()).files
    print(file.record.step[writer.STEP["loss"]], file.liveness.is_alive, file.liveness.evidence)
directory.close()
directory = RunDirectory(Path(sys.argv[2]))
directory.read(time.time())
print("ready", flush=True)
sys.stdin.readline()
writer.finish(recorder)
(file,) = directory.read(time.time()).files
print(file.liveness.is_alive, file.record.state[writer.STATE["state"]], flush=True)
"""
    command = [sys.executable, "-c", code, SOURCE_ROOT, runs, Path(__file__).parent]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        lines = [process.stdout.readline().strip() for _ in range(3)]
        assert lines == ["0.5 True pid", "0.25 True pid", "ready"]
        outside = RunDirectory(runs)
        (file,) = outside.read(time.time()).files
        assert (file.liveness.is_alive, file.liveness.evidence) == (True, "lock")
        assert file.liveness.host_pid == process.pid
        answer, _ = process.communicate("\n")
        assert answer == "False 1.0\n"
        outside.close()


def test_a_stranger_with_our_pid_in_its_name_is_read(runs, directory):
    """A run file with the reader's own PID is read, as the PID may be from another container."""
    put(runs, f"run.0.{os.getpid()}.x.tv", compose_run_file(pid=os.getpid()))
    assert len(directory.read(time.time()).files) == 1


def test_an_open_descriptor_is_a_directory_too(runs):
    """A run directory may be given as an open descriptor, and is empty after its deletion."""
    directory = RunDirectory(os.open(runs, os.O_RDONLY), path=Path("/container/runs"))
    put(runs, "a.tv")
    (file,) = directory.read(time.time()).files
    assert file.path == Path("/container/runs/a.tv")
    shutil.rmtree(runs)
    assert directory.read(time.time()).files == ()
    directory.close()


def test_a_detached_directory_keeps_its_ranks(runs):
    """The dead ranks of a deleted, detached directory are kept without an open descriptor."""
    before = open_descriptors()
    directory = RunDirectory(os.open(runs, os.O_RDONLY))
    with Trainer(runs) as trainer:
        directory.read(time.time())
        trainer.kill()
        shutil.rmtree(runs)
        directory.detach()
        assert len(directory.read(time.time()).files) == 1
        assert directory.has_no_living_rank
        for _ in range(2):
            assert len(directory.read(time.time()).files) == 1
        directory.discard(time.time())
    assert open_descriptors() == before
    directory.close()


def test_the_dead_of_yesterday_are_discarded_with_their_notes(runs, directory):
    """A day after a rank's end its run file and note are discarded, and other files are kept."""
    now = time.time()
    ending = determine_ending(State.RUNNING, "", Liveness(is_alive=False, evidence="lock"), now)
    for name, ended in (("old.tv", now - DAY - 60), ("new.tv", now - DAY + 60)):
        path = put(runs, name, compose_run_file(state=State.FINISHED, wall_time=ended))
        write_ending(path, ending)
    put(runs, "foreign.tv", b"x", mtime=1.0)
    put(runs, "other.txt", mtime=1.0)
    with Trainer(runs) as trainer:
        directory.read(now)
        directory.discard(now)
        left = sorted(path.name for path in runs.iterdir())
        assert left == sorted(
            ["foreign.tv", "new.tv", "new.tv.end", "other.txt", trainer.path.name]
        )
        assert names_of(directory.read(now)) == ["new.tv", trainer.path.name]
        directory.discard(now + 2 * DAY)
        assert trainer.path.exists()


def test_an_end_that_is_not_credible_counts_from_the_file(runs, directory):
    """If the recorded end is not credible, the run file's mtime decides when it is discarded."""
    now = time.time()
    for name, wall_time in (("future.tv", 1e300), ("nan.tv", float("nan")), ("none.tv", ABSENT)):
        put(runs, name, compose_run_file(wall_time=wall_time), mtime=now - DAY - 60)
    directory.read(now)
    directory.discard(now)
    assert list(runs.iterdir()) == []


def test_the_dead_beyond_the_limit_are_discarded(runs):
    """Run files of dead ranks beyond the limit are discarded; those of living ranks are kept."""
    now = time.time()
    for age in range(5):
        put(runs, f"{age}.tv", compose_run_file(wall_time=now), mtime=now - age)
    with Trainer(runs) as one, Trainer(runs) as two, Trainer(runs) as three:
        directory = RunDirectory(runs, limits=Limits(files=2))
        assert directory.read(now).omitted == 6
        directory.discard(now)
        left = sorted(path.name for path in runs.iterdir())
        assert left == sorted(path.name for path in (one.path, two.path, three.path))
        directory.close()


def test_a_living_rank_beyond_the_limit_is_kept_without_its_lock(runs):
    """An omitted file is kept if its rank is alive but lost its lock by reading its own file."""
    with Trainer(runs, rank=0) as first, Trainer(runs, rank=1) as second:
        assert second.do("read_copy") == "16384"
        directory = RunDirectory(runs, limits=Limits(files=1))
        assert directory.read(time.time()).omitted == 1
        directory.discard(time.time())
        assert (first.path.exists(), second.path.exists()) == (True, True)
        directory.close()


def test_what_was_never_finished_is_discarded_after_a_day(runs, directory):
    """Only temporary files of unfinished run files and notes are discarded after a day."""
    for name in (".a.tv.tmp", ".a.tv.end.0badf00d", ".a.tv", ".b.tmp", "c.tv.tmp", ".d.end"):
        (runs / name).write_bytes(b"")
        os.utime(runs / name, (1000.0, 1000.0))
    (runs / ".new.tv.tmp").write_bytes(b"")
    os.utime(runs / ".new.tv.tmp", (2000.0, 2000.0))
    directory.read(1500.0 + DAY)
    directory.discard(1500.0 + DAY)
    left = [".a.tv", ".b.tmp", ".d.end", ".new.tv.tmp", "c.tv.tmp"]
    assert sorted(path.name for path in runs.iterdir()) == left


def test_a_note_without_its_run_file_stays_a_day(runs, directory):
    """A note without a run file is discarded after a day; an invalid note is kept."""
    now = time.time()
    ending = determine_ending(State.RUNNING, "", Liveness(is_alive=False, evidence="lock"), now)
    for name, mtime in (("old.tv", now - DAY - 60), ("new.tv", now)):
        write_ending(runs / name, ending)
        os.utime(runs / f"{name}.end", (mtime, mtime))
    put(runs, "foreign.tv.end", b"{}", mtime=1.0)
    directory.read(now)
    directory.discard(now)
    assert sorted(path.name for path in runs.iterdir()) == ["foreign.tv.end", "new.tv.end"]
    assert read_ending(runs / "new.tv") is not None


def test_notes_without_their_run_files_are_bounded(runs):
    """Notes without run files beyond the limit are discarded, so that they cannot fill the disk."""
    now = time.time()
    ending = determine_ending(State.RUNNING, "", Liveness(is_alive=False, evidence="lock"), now)
    for number in range(5):
        write_ending(runs / f"{number}.tv", ending)
    directory = RunDirectory(runs, limits=Limits(files=3))
    directory.read(now)
    directory.discard(now)
    assert len(list(runs.iterdir())) == 3
    directory.close()


def test_discarding_waits_a_minute(runs, directory):
    """Files are discarded at most once a minute, not on every scrape."""
    directory.discard(1000.0)
    put(runs, "a.tv", compose_run_file(state=State.FINISHED, wall_time=1.0))
    now = DAY + 1000.0
    directory.read(now)
    directory._discarded_time = now - 59
    directory.discard(now)
    assert (runs / "a.tv").exists()
    directory.discard(now + 2)
    assert not (runs / "a.tv").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else for a moment")
def test_what_may_not_be_unlinked_stays_quietly(tmp_path):
    """An exporter that may not delete files in the directory keeps them and raises no error."""
    now = time.time()
    runs = Path("/dev/shm") / f"trainvitals-test-{os.getpid()}"
    runs.mkdir()
    try:
        put(runs, "a.tv", compose_run_file(state=State.FINISHED, wall_time=1.0))
        directory = RunDirectory(runs)
        os.seteuid(65534)
        try:
            assert len(directory.read(now).files) == 1
            directory.discard(now)
        finally:
            os.seteuid(0)
        assert (runs / "a.tv").exists()
        directory.close()
    finally:
        shutil.rmtree(runs)


def test_a_file_that_nobody_may_open_is_counted(runs, directory, monkeypatch):
    """A file that cannot be opened is counted, and is tried again if descriptors ran out."""
    put(runs, "a.tv")
    put(runs, "b.tv")
    real = os.open
    number = [13]

    def refuse(path, *arguments, **keywords):
        if path == "a.tv":
            raise OSError(number[0], "refused")
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", refuse)
    reading = directory.read(time.time() + 60)
    assert (names_of(reading), reading.incompatible, reading.omitted) == (["b.tv"], 1, 0)
    (runs / "a.tv").rename(runs / "c.tv")
    (runs / "c.tv").rename(runs / "a.tv")
    number[0] = 24
    directory._refused.clear()
    reading = directory.read(time.time() + 60)
    assert (names_of(reading), reading.incompatible, reading.omitted) == (["b.tv"], 0, 1)
    monkeypatch.undo()
    assert names_of(directory.read(time.time() + 60)) == ["a.tv", "b.tv"]


def test_nothing_of_ours_cuts_a_file_short():
    """The reader's code truncates no file, as truncating a mapped file kills its trainer."""
    folder = SOURCE_ROOT / "trainvitals/sources/runs"
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "truncate(" not in text
        assert "O_TRUNC" not in text


@settings(max_examples=120)
@given(
    st.binary(max_size=64).map(lambda start: start.ljust(16384, b"\0"))
    | st.randoms(use_true_random=False).map(lambda random: random.randbytes(16384))
    | st.lists(st.tuples(st.integers(0, 16383), st.integers(1, 255)), min_size=1, max_size=12).map(
        lambda flips: _flip(GOOD, flips)
    )
)
def test_no_file_raises(tmp_path_factory, data):
    """A run file of arbitrary bytes is read or counted, and the run file beside it is read."""
    runs = tmp_path_factory.mktemp("runs")
    put(runs, "fuzz.tv", data)
    put(runs, "good.tv")
    directory = RunDirectory(runs)
    for _ in range(2):
        reading = directory.read(1000.0)
        assert "good.tv" in names_of(reading)
        assert len(reading.files) + reading.incompatible >= 2
    directory.discard(1000.0 + DAY)
    directory.close()
    shutil.rmtree(runs)


def _flip(data: bytes, flips: list[tuple[int, int]]) -> bytes:
    flipped = bytearray(data)
    for at, bits in flips:
        flipped[at] ^= bits
    return bytes(flipped)


def test_a_stopped_rank_is_shown_stopped(runs, directory):
    """A rank that SIGSTOP has stopped is reported as stopped and alive."""
    with Trainer(runs) as trainer:
        directory.read(time.time())
        os.kill(trainer.pid, 19)
        wait_until(lambda: directory.read(time.time()).files[0].liveness.state == "T")
        assert directory.read(time.time()).files[0].liveness.is_alive
