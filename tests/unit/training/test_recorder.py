"""Creation and maintenance of a run file in any kind of run directory."""

import fcntl
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_files import decode
from trainvitals import runfile
from trainvitals.runfile import Identity
from trainvitals.training.recorder import (
    Recorder,
    RunFileUnavailableError,
    create_run_file,
)

SOURCE_ROOT = Path(__file__).parents[3] / "exporter"


@pytest.fixture
def recorder(tmp_path):
    """Yield the recorder of a run file in a newly created directory."""
    recorder = Recorder(
        create_run_file(Identity("a/b", rank=2, pid=os.getpid()), tmp_path / "runs")
    )
    yield recorder
    recorder.close()


def run_python(code, *arguments, wrapper=()):
    """Run code in a separate process and return its standard output."""
    answer = subprocess.run(
        [*wrapper, sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(SOURCE_ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_the_directory_and_the_file_have_the_documented_modes(recorder):
    """Anyone may read a run file and add one, but only its owner may delete it."""
    assert stat.S_IMODE(recorder.path.parent.stat().st_mode) == 0o1777
    assert stat.S_IMODE(recorder.path.stat().st_mode) == 0o644
    assert recorder.path.stat().st_size == 16384
    assert recorder.path.name.startswith(f"a_b.2.{os.getpid()}.")


def test_the_file_is_readable_whatever_the_umask(tmp_path):
    """A run file is readable by other users even if the owner's umask is strict."""
    before = os.umask(0o077)
    try:
        file = create_run_file(Identity("r"), tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o644
    os.close(file.descriptor)


def test_what_is_published_is_in_the_file(recorder):
    """Both records, a metric's name and the last words can be read from the file."""
    recorder.step.words[runfile.STEP["loss"]] = 0.5
    recorder.step.publish(2.5, 1e9)
    number = recorder.find_metric("val_iou", "validation")
    recorder.state.words[runfile.STATE[f"metric_{number}"]] = 0.75
    recorder.state.words[runfile.STATE["names"]] = recorder.name_count
    recorder.state.publish(2.5, 1e9)
    recorder.leave_last_words("KeyError")
    record = decode(recorder.path.read_bytes())
    assert record.step[runfile.STEP["loss"]] == 0.5
    assert record.step[runfile.STEP["mono_ns"]] == 2_500_000_000
    assert record.metrics == (("val_iou", "validation"),)
    assert record.state[runfile.STATE["metric_0"]] == 0.75
    assert record.last_words == "KeyError"


def test_the_65th_free_name_finds_no_room(recorder):
    """At most 64 free metrics get a number, and a known name keeps its number."""
    numbers = [recorder.find_metric(f"m{index}", "") for index in range(65)]
    assert numbers == [*range(64), None]
    assert recorder.find_metric("m7", "") == 7


def test_the_lock_is_held_until_the_recorder_closes(recorder):
    """The lock of a run file is held by its process until the recorder closes."""
    code = """
import fcntl, os, struct, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
query = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
answer = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, query))
print(answer[4] if answer[0] != fcntl.F_UNLCK else "free")
"""
    assert run_python(code, recorder.path).strip() == str(os.getpid())
    recorder.close()
    assert run_python(code, recorder.path).strip() == "free"


def test_a_symlink_in_place_of_the_directory_is_refused(tmp_path):
    """A symbolic link in place of the run directory is refused, and its target stays empty."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFileUnavailableError, match="cannot use the run directory"):
        create_run_file(Identity("r"), tmp_path / "runs")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    """If the run directory is a file, the error names the setting that changes the directory."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunFileUnavailableError, match="set TRAINVITALS_RUN_DIR"):
        create_run_file(Identity("r"), tmp_path / "runs")


def test_a_full_file_system_is_met_when_the_file_is_made(tmp_path):
    """On a full file system, the creation fails at once and no later write raises SIGBUS."""
    code = """
import subprocess, sys
from pathlib import Path
from trainvitals.runfile import Identity
from trainvitals.training.recorder import RunFileUnavailableError, create_run_file
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4096", "tmpfs", sys.argv[1]], check=True)
try:
    create_run_file(Identity("r"), Path(sys.argv[1]))
except RunFileUnavailableError as error:
    print(error, list(Path(sys.argv[1]).iterdir()))
"""
    answer = run_python(code, tmp_path, wrapper=["unshare", "--map-root-user", "--mount"])
    assert "No space left on device; make room there" in answer
    assert answer.strip().endswith("[]")


def test_a_system_without_record_locks_is_told_so(tmp_path, monkeypatch):
    """Without `fcntl`, as on Windows, no file is made and the error names the reason."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(RunFileUnavailableError, match="no record locks"):
        create_run_file(Identity("r"), tmp_path)


def test_a_system_that_sets_no_room_aside_is_told_so(tmp_path, monkeypatch):
    """Without `posix_fallocate`, as on macOS, no file is made and the error names the reason."""
    monkeypatch.delattr(os, "posix_fallocate")
    with pytest.raises(RunFileUnavailableError, match="sets no room aside"):
        create_run_file(Identity("r"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_only_what_died_a_day_ago_is_taken_away(tmp_path):
    """Run files of dead processes are deleted after a day, and all other files stay."""
    live = create_run_file(Identity("live", pid=1), tmp_path)
    held = tmp_path / "held.0.1.aaaaaaaa.tv"
    held.write_bytes(b"")
    code = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'r+b'); "
        "fcntl.lockf(file, fcntl.LOCK_EX, 1); print(flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, held], stdout=subprocess.PIPE)
    child.stdout.readline()
    for name in ("old.0.1.aaaaaaaa.tv", "young.0.1.aaaaaaaa.tv", "old.txt"):
        (tmp_path / name).write_bytes(b"")
    for name in ("old.0.1.aaaaaaaa.tv", "old.txt", "held.0.1.aaaaaaaa.tv"):
        os.utime(tmp_path / name, (1e9, 1e9))
    new = create_run_file(Identity("new", pid=2), tmp_path)
    child.kill()
    child.wait()
    child.stdout.close()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        live.path.name, new.path.name, "young.0.1.aaaaaaaa.tv", "old.txt", "held.0.1.aaaaaaaa.tv",
    }  # fmt: skip
    os.close(live.descriptor)
    os.close(new.descriptor)


def test_nothing_that_touches_a_run_file_truncates():
    """No code that handles run files truncates them, because a shrunken map raises SIGBUS."""
    package = SOURCE_ROOT / "trainvitals"
    touching = [
        path
        for path in package.rglob("*.py")
        if "runfile" in path.read_text(encoding="utf-8") or path.is_relative_to(package / "sources")
    ]
    assert package / "training" / "recorder.py" in touching
    for path in touching:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"truncate\(|O_TRUNC|\bopen\([^)]*[\"']w", text), path


def test_the_lock_constant_is_the_systems():
    """The numeric lock constant 6 equals `LOCK_EX | LOCK_NB` of fcntl."""
    assert fcntl.LOCK_EX | fcntl.LOCK_NB == 6
