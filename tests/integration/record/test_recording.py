"""`trainvitals record`, mostly run as a process."""

import contextlib
import csv
import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.fakes.machine import FOREVER, FakeMachine
from tests.support.waiting import wait_until
from tests.unit.record.snapshots import NOW
from trainvitals import TrainingMonitor
from trainvitals.cli import main
from trainvitals.metrics.machine import MachineOptions
from trainvitals.record import (
    LogFile,
    RecordOptions,
    Watcher,
    leave_out_the_rest,
    record,
)
from trainvitals.record.formats import CsvFormat
from trainvitals.sources.containers.source import ContainerOptions

ROOT = Path(__file__).parents[3]
HEAD = re.compile(r"^=== \S+ \S+ \S+ \| \S+ \| snapshot (\d+) \| [\d.]+m?s ===$", re.MULTILINE)


@contextlib.contextmanager
def recording(*arguments, environ=(), home=None):
    """Run `trainvitals record` until the block ends."""
    words = ["--containers.engine=none", *map(str, arguments)]
    process = subprocess.Popen(
        [sys.executable, "-m", "trainvitals", "record", *words],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "exporter"),
            "HOME": str(home),
            "TRAINVITALS_JOURNAL_DIR": str(Path(home) / "deaths"),
            **dict(environ),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def numbers(path):
    """Return the numbers of the snapshots in a recording."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [int(number) for number in HEAD.findall(text)]


def run(*arguments, home):
    """Run `trainvitals record` to its end; return its exit code and output."""
    with recording(*arguments, home=home) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_the_default_file(tmp_path):
    """The default file in ~/runner-monitoring is named by host and time and has mode 0600."""
    code, out, err = run("--once", home=tmp_path)
    assert (code, err) == (0, "")
    (path,) = (tmp_path / "runner-monitoring").iterdir()
    assert re.fullmatch(rf"runner-{re.escape(os.uname().nodename)}-\d{{8}}-\d{{6}}\.log", path.name)
    assert out == f"recording to {path}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert numbers(path) == [1]


def test_one_look_at_the_terminal(tmp_path):
    """`--once --output -` prints one snapshot with memory, CPU use, processes and disks."""
    code, out, err = run("--once", "--output", "-", home=tmp_path)
    assert (code, err) == (0, "")
    assert re.search(r"^memory     [\d.]+ \wiB of [\d.]+ GiB used \(\d+%\), ", out, re.MULTILINE)
    assert re.search(r"^cpu        [\d.]+% busy, [\d.]+% waiting for I/O, load ", out, re.MULTILINE)
    assert re.search(r"^  by cpu +\d+ ", out, re.MULTILINE)
    assert re.search(r"^  by memory +\d+ ", out, re.MULTILINE)
    assert re.search(r"^  / +\d+% ", out, re.MULTILINE)
    assert "\noom kills  " in out
    assert out.endswith("| the recording ends, snapshots: 1 ===\n")


def test_a_count_ends_it(tmp_path):
    """`--count` ends the recording after this number of snapshots, an interval apart."""
    path = tmp_path / "run.log"
    began = time.monotonic()
    code, _, err = run("--interval=0.5", "--count=3", "--output", path, home=tmp_path)
    assert (code, err) == (0, "")
    assert numbers(path) == [1, 2, 3]
    assert time.monotonic() - began > 1.9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_whole_lines(tmp_path, number):
    """After a signal the last snapshot is whole, an end line follows, and the exit code is 0."""
    path = tmp_path / "run.log"
    with recording("--interval=0.1", "--output", path, home=tmp_path) as process:
        wait_until(lambda: len(numbers(path)) >= 2)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    text = path.read_text(encoding="utf-8")
    count = len(numbers(path))
    assert text.splitlines()[-1].endswith(f"| the recording ends, snapshots: {count} ===")
    assert text.count("\n\n") == count


def test_accelerators_and_who_holds_them(tmp_path):
    """A snapshot has a line for each GPU and names the process that holds memory of a GPU."""
    (tmp_path / "machine").mkdir()
    machine = FakeMachine(tmp_path / "machine", gpus=2)
    machine.gpu(1).set_processes([(os.getpid(), 3 << 30)])
    path = tmp_path / "run.log"
    with recording(
        "--once", "--output", path, environ=machine.environment(), home=tmp_path
    ) as process:
        assert process.wait(60) == 0
    text = path.read_text(encoding="utf-8")
    assert "\naccelerators  2\n" in text
    assert re.search(
        r"^  gpu 0 +ok +\d+% +[\d.]+ / 79.6 GiB +\d+ °C +\d+ W +NVIDIA H100",
        text,
        re.MULTILINE,
    )
    name = psutil.Process().name()[:15]
    assert f"\n  gpu 1: 3.0 GiB held by {name} (pid {os.getpid()})\n" in text


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_runs_are_found_where_the_run_directory_is_named(tmp_path, way):
    """A run is found in the directory of `--run-dir` or of `TRAINVITALS_RUN_DIR`."""
    run_dir, path = tmp_path / "runs", tmp_path / "run.jsonl"
    monitor = TrainingMonitor("bert", run_dir=run_dir)
    words = ["--run-dir", run_dir] if way == "flag" else []
    environ = {} if way == "flag" else {"TRAINVITALS_RUN_DIR": str(run_dir)}
    with recording("--once", "--output", path, *words, environ=environ, home=tmp_path) as process:
        assert process.wait(60) == 0
    monitor.finish()
    (line,) = path.read_text(encoding="utf-8").splitlines()
    assert [run["run"] for run in json.loads(line)["runs"]] == ["bert"]


def test_a_driver_that_hangs_does_not_delay_the_schedule(tmp_path):
    """While a driver hangs, snapshots continue at their interval and report the hung driver."""
    (tmp_path / "machine").mkdir()
    machine = FakeMachine(tmp_path / "machine", gpus=1)
    path = tmp_path / "run.log"
    with recording(
        "--interval=1", "--output", path, environ=machine.environment(), home=tmp_path
    ) as process:
        wait_until(lambda: len(numbers(path)) >= 1)
        machine.hang("nvml*", FOREVER)
        begun, before = time.monotonic(), len(numbers(path))
        wait_until(lambda: len(numbers(path)) >= before + 5)
        assert time.monotonic() - begun < 20  # a wait for the driver would take that long each time
        process.terminate()
        assert process.wait(60) == 0
    text = path.read_text(encoding="utf-8")
    assert "hung" in text
    assert text.count("\nmemory     ") == len(numbers(path))


def test_a_full_disk_is_survived(tmp_path):
    """A full disk is reported once, tears no snapshot, and the recording continues afterwards."""
    if os.geteuid():
        pytest.skip("to mount a small file system takes root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
    try:
        path, filler = disk / "run.log", disk / "filler"
        with recording("--interval=0.1", "--output", path, home=tmp_path) as process:
            wait_until(lambda: len(numbers(path)) >= 1)
            with contextlib.suppress(OSError):
                filler.write_bytes(70_000 * b"x")
            assert process.stderr.readline() == (
                f"trainvitals: cannot write {path}: No space left on device; "
                "the recording continues when that is over\n"
            )
            time.sleep(0.5)
            filler.unlink()
            assert process.stderr.readline() == f"trainvitals: {path} is written again\n"
            wait_until(lambda: "\nunwritten  " in path.read_text(encoding="utf-8"))
            process.terminate()
            assert process.wait(60) == 0
        text = path.read_text(encoding="utf-8")
        assert text.count("\n\n") == len(numbers(path))
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.parametrize(("suffix", "most"), [("csv", 800), ("jsonl", 4000)])
def test_whatever_happens_no_line_is_torn(tmp_path, suffix, most):
    """SIGKILL, rotation and a full disk leave only whole lines in CSV and JSON Lines files."""
    if os.geteuid():
        pytest.skip("to mount a small file system takes root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "none", disk], check=True)
    try:
        path, filler = disk / f"run.{suffix}", disk / "filler"
        words = ("--interval=0.1", f"--max-size={most}", "--keep=1000", "--output", path)
        for _ in range(3):
            with recording(*words, home=tmp_path) as process:
                known = count_lines(disk)
                wait_until(lambda known=known: count_lines(disk) >= known + 5)
                process.kill()
        with recording(*words, home=tmp_path) as process:
            with contextlib.suppress(OSError):
                filler.write_bytes(5_500_000 * b"x")
            assert "No space left on device" in process.stderr.readline()
            known = count_lines(disk)
            filler.unlink()
            assert process.stderr.readline().endswith("is written again\n")
            wait_until(lambda: count_lines(disk) >= known + 3)
            process.terminate()
            assert process.wait(60) == 0
        texts = read_all(disk)
        assert len(texts) > 3
        for text in texts:
            assert text.endswith("\n")
            if suffix == "csv":
                assert len({len(row) for row in csv.reader(io.StringIO(text))}) == 1
            else:
                assert all(json.loads(line)["snapshot"] for line in text.splitlines())
        assert count_lines(disk) >= known + 3
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def read_all(disk):
    """Return the text of every file of the recording, decompressed."""
    texts = []
    for path in disk.glob("run.*"):
        if path.suffix != ".part":
            with contextlib.suppress(FileNotFoundError):  # the file has just been renamed
                data = path.read_bytes()
                texts.append((gzip.decompress(data) if path.suffix == ".gz" else data).decode())
    return texts


def count_lines(disk):
    """Count the lines with a snapshot in all files of the recording."""
    return sum(
        text.count("\n2") + text.count('\n{"') + text.startswith("{") for text in read_all(disk)
    )


def test_a_clock_that_is_set_changes_nothing_but_the_time(tmp_path):
    """A clock that jumps forward a year and back changes only the timestamps, not the schedule."""
    path = tmp_path / "run.csv"
    times = iter([NOW, NOW, NOW + 31_536_000, NOW - 86_400, NOW])
    file = LogFile(path)
    watcher = Watcher(
        MachineOptions(disabled=leave_out_the_rest(), containers=ContainerOptions(engine="none")),
        clock=lambda: next(times),
    )
    options = RecordOptions(interval_seconds=0.1, count=4, prepare_seconds=0.0)
    assert record(watcher, file, options, format_=CsvFormat()) == 4
    with path.open() as lines:
        rows = list(csv.DictReader(lines))
    assert [row["timestamp"][:4] for row in rows] == ["2025", "2026", "2025", "2025"]
    uptimes = [float(row["uptime_seconds"]) for row in rows]
    assert uptimes == sorted(uptimes)


def test_a_reader_that_goes_away_ends_it(tmp_path):
    """The recording ends with exit code 0 if the reader of its pipe closes it."""
    with recording("--interval=0.1", "--output=-", home=tmp_path) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == ""


def test_command_lines_are_not_written(tmp_path):
    """The recording does not contain the arguments of a busy process."""
    command = [sys.executable, "-c", "while True: pass", "--password", "hunter2"]
    with subprocess.Popen(command) as busy:
        try:
            wait_until(lambda: psutil.Process(busy.pid).cpu_times().user > 0.1)
            code, out, _ = run("--once", "--output", "-", home=tmp_path)
        finally:
            busy.kill()
    assert code == 0
    assert "processes  " in out
    assert "hunter2" not in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--interval=0",), "--interval=0: write a number of seconds from 0.1 to 86400"),
        (("--interval=nan",), "--interval=nan: write"),
        (("--count=0",), "--count=0: write a number of 1 or more"),
        (("--keep=-1",), "--keep=-1: write a number from 0 to 1000"),
        (("--max-size=lots",), "--max-size='lots': write a size such as 100MB or 1GiB"),
        (("--output=/proc/nothing",), "cannot write /proc/nothing: "),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    """An invalid flag is refused in one line with exit code 2, and no file is created."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["record", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("trainvitals: ")
    assert words in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("much", ["--once", "--count=2"])
def test_what_could_not_be_written_is_no_success(tmp_path, much):
    """A recording that could not be written exits with 2, and its last line names the cause."""
    with recording(
        much, "--interval=0.1", "--output=/dev/full", "--no-fsync", home=tmp_path
    ) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    lines = err.splitlines()
    assert "cannot write /dev/full: No space left on device; the last snapshots" in lines[-1]
    assert len(lines) == (1 if much == "--once" else 2)


def test_a_missing_home_directory_is_one_line(capsys):
    """A home directory that cannot be determined is refused in one line with exit code 2."""
    assert main(["record", "--once", "--directory=~nobody-of-that-name/x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "write an absolute path" in line
