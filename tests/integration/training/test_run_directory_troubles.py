"""Run directories that are full, damaged, deleted or unwritable, with real programs."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from tests.support.exporter_process import ExporterProcess, Page
from tests.support.run_files import decode
from tests.support.trainers import (
    SOURCE_ROOT,
    Restless,
    as_nobody,
    in_own_mounts,
    read_footprint,
    train,
    without_privileges,
)
from tests.unit.sources.runs.trainer import Trainer, compose_run_file, kernel_tells_exits
from trainvitals.metrics.runner import REUSE_SECONDS
from trainvitals.runfile import STATE, STEP, State

LEARNED = [2.9965331854920927, -2.001049993644661]
STEPS, SAMPLES = 180, 1440
RANK = {"run": "restless", "rank": "0"}
ENDED = "training_process_end_timestamp_seconds"
INCOMPATIBLE = "training_client_incompatible_files"
OMITTED = "trainvitals_collector_omitted_labels"
TINY = "mount -t tmpfs -o size=64k none $0"
# The shell commands that make the run directory, `$0`, unusable before the script runs.
REFUSALS: dict[str, str] = {
    "full": f"{TINY} && {{ cat /dev/zero > $0/filler 2> /dev/null; true; }}",
    "out of inodes": "mount -t tmpfs -o nr_inodes=1 none $0",
    "read-only": "mount -t tmpfs -o ro none $0",
    "missing in a read-only one": "mount -t tmpfs -o ro none $(dirname $0)",
    "under a limit of file sizes": "ulimit -f 0",
    "a file": "rmdir $0 && echo precious > $0",
    "a pipe": "rmdir $0 && mkfifo $0",
    "a link": "mv $0 $0.real && ln -s $0.real $0",
    "below a file": "rmdir $0 $(dirname $0) && echo precious > $(dirname $0)",
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return the path of the run directory, which does not exist yet."""
    return tmp_path / "training/runs"


@pytest.fixture
def start(tmp_path: Path, runs: Path) -> Iterator[Callable[..., ExporterProcess]]:
    """Return a function that starts exporters on the run directory; end them afterwards."""
    with ExitStack() as stack:

        def start(**options) -> ExporterProcess:
            arguments = (f"--run-dir={runs}",)
            return stack.enter_context(ExporterProcess(tmp_path, arguments=arguments, **options))

        yield start


def scrape_anew(exporter: ExporterProcess, *, is_whole: bool = True) -> Page:
    """Scrape after the cached page has expired."""
    time.sleep(1.25 * REUSE_SECONDS)
    return exporter.scrape_until(
        lambda page: page.value("trainvitals_collector_success", collector="training") == is_whole,
        "training",
    )


def check_alive(page: Page, trainer: Restless) -> None:
    """Assert that a page has all metrics of a living trainer."""
    assert page.value("training_process_up", **RANK) == 1
    assert page.value("training_rank_info", host_pid=str(trainer.pid), **RANK) == 1
    steps = page.value("training_steps_total", **RANK)
    assert page.value("training_samples_total", **RANK) == 7 * (steps or math.nan)
    assert page.value("training_stalled", **RANK) == 0


def check_learned(trained: subprocess.CompletedProcess[str]) -> None:
    """Assert that a training succeeded with the same result as one without a monitor."""
    assert (trained.returncode, json.loads(trained.stdout)) == (0, LEARNED)


def test_without_a_monitor(runs: Path):
    """A training without a monitor has the reference result for the other tests."""
    trained = train(runs, "alone")
    check_learned(trained)
    assert trained.stderr == ""
    assert not runs.exists()


def test_a_run_directory_that_is_missing_is_made(runs: Path):
    """A missing run directory and its parents are created without a warning."""
    trained = train(runs)
    check_learned(trained)
    assert trained.stderr == ""
    (path,) = runs.iterdir()
    record = decode(path.read_bytes())
    assert record.step[STEP["steps"]] == STEPS
    assert record.step[STEP["samples"]] == SAMPLES
    assert record.state[STATE["state"]] == State.FINISHED
    assert runs.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize("kind", REFUSALS)
def test_training_goes_on_where_no_run_file_can_be_made(runs: Path, kind: str):
    """A training without a run file has the right result and one warning with path and remedy."""
    runs.mkdir(parents=True)
    trained = train(runs, wrapper=in_own_mounts(REFUSALS[kind], runs))
    check_learned(trained)
    (line,) = trained.stderr.splitlines()
    assert line.startswith("the exporter cannot see run regression: cannot ")
    assert str(runs) in line
    assert "TRAINVITALS_RUN_DIR" in line


def test_what_lay_in_the_way_is_left_as_it_was(runs: Path):
    """A file in the place of the run directory is not changed."""
    runs.parent.mkdir()
    runs.write_text("precious")
    check_learned(train(runs))
    assert runs.read_text() == "precious"
    assert list(runs.parent.iterdir()) == [runs]


def test_a_directory_that_fills_up_under_the_run_does_not_matter(runs: Path, tmp_path: Path):
    """A full disk does not affect a run file, whose blocks are allocated when it is created."""
    runs.mkdir(parents=True)
    kept = tmp_path / "kept.tv"
    wrapper = in_own_mounts(TINY, runs, after=f"test -s $0/filler && cp $0/*.tv {kept}")
    trained = train(runs, "fill", wrapper=wrapper)
    check_learned(trained)
    assert trained.stderr == ""
    record = decode(kept.read_bytes())
    assert record.step[STEP["samples"]] == SAMPLES
    assert record.state[STATE["state"]] == State.FINISHED
    assert len(record.metrics) == 60
    assert record.metrics[59] == ("metric 59 of a rather long name", "")


def test_a_run_whose_directory_is_wiped_goes_on(runs: Path):
    """A training whose run directory is deleted ends with the right result and one warning."""
    trained = train(runs, "wipe")
    check_learned(trained)
    (line,) = trained.stderr.splitlines()
    assert line.startswith("the run file of run regression was deleted under it: ")
    assert str(runs) in line
    assert not runs.exists()


def make_strange_files(runs: Path) -> int:
    """Fill a run directory with invalid files; return the number of those named `*.tv`."""
    good = compose_run_file()
    contents = {
        "empty": b"",
        "random": os.urandom(16384),
        "zeros": bytes(16384),
        "truncated": good[:-1],
        "headless": good[4096:],
        "oversized": good + b"\0",
        "huge": b"",
        "future": good[:8] + struct.pack("<H", 2) + good[10:],
        "damaged": good[:300] + b"X" + good[301:],
        "unreadable": good,
    }
    for name, content in contents.items():
        (runs / f"{name}.tv").write_bytes(content)
    os.truncate(runs / "huge.tv", 1 << 40)
    (runs / "unreadable.tv").chmod(0)
    (runs / "directory.tv").mkdir()
    os.mkfifo(runs / "pipe.tv")
    (runs / "link.tv").symlink_to("/dev/zero")
    (runs / "dangling.tv").symlink_to("nowhere")
    (runs / "loop.tv").symlink_to("loop.tv")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(runs / "socket.tv"))
    names = ("\n.tv", "a b.tv", "\udcff.tv", f"{'x' * 250}.tv")
    for name in names:
        (runs / name).write_bytes(b"not a run file")
    for name in ("notes.txt", ".hidden.tv", ".a.tv.tmp", "gone.tv.end"):
        (runs / name).write_bytes(b"\0")
    return len(contents) + 6 + len(names)


def test_strange_files_are_counted_and_cost_nothing(runs: Path, start):
    """Invalid files in the run directory are counted; the valid run and fast scrapes remain."""
    runs.mkdir(parents=True)
    strange = make_strange_files(runs)
    with Restless(runs) as trainer:
        assert trainer.path.exists()
        exporter = start(wrapper=without_privileges())
        durations = []
        for _ in range(3):
            page = scrape_anew(exporter)
            assert page.value(INCOMPATIBLE) == strange
            check_alive(page, trainer)
            assert list(page.values("training_process_up", "run")) == ["restless"]
            durations.append(
                page.value("trainvitals_collector_duration_seconds", collector="training")
            )
        assert min(durations) < 0.5
        shutil.rmtree(runs / "directory.tv")
        for path in runs.glob("*.tv"):
            if path != trainer.path:
                path.unlink()
        page = scrape_anew(exporter)
        assert page.value(INCOMPATIBLE) == 0
        check_alive(page, trainer)


def test_what_is_no_directory_is_complained_about_once(runs: Path, start):
    """Each obstacle to reading the run directory is logged once, and scrapes recover without it."""
    runs.parent.mkdir()
    (runs.parent / "elsewhere").mkdir()
    exporter = start()
    obstacles: tuple[Callable[[], object], ...] = (
        lambda: runs.write_text("precious"),
        lambda: os.mkfifo(runs),
        lambda: runs.symlink_to("elsewhere", target_is_directory=True),
    )
    for count, put_in_the_way in enumerate(obstacles, 1):
        put_in_the_way()
        for _ in range(2):
            page = scrape_anew(exporter, is_whole=False)
            assert page.find("training_process_up") == []
        assert exporter.log.count(f"cannot read the run directory {runs}: ") == count
        runs.unlink()
        scrape_anew(exporter)
    with Restless(runs) as trainer:
        assert trainer.path.exists()
        check_alive(scrape_anew(exporter), trainer)


def test_a_directory_that_comes_goes_and_comes_again(runs: Path, start):
    """An exporter shows runs from before and after the deletion of the run directory."""
    exporter = start()
    page = scrape_anew(exporter)
    assert page.find("training_process_up") == []
    with Restless(runs, "first") as first, ExitStack() as stack:
        assert first.path.exists()
        steps = scrape_anew(exporter).value("training_steps_total", run="first")
        assert steps
        shutil.rmtree(runs)
        page = scrape_anew(exporter)
        assert page.value("training_process_up", run="first") == 1
        assert (page.value("training_steps_total", run="first") or 0) > steps
        second = stack.enter_context(Restless(runs, "second"))
        assert second.path.exists()
        page = scrape_anew(exporter)
        assert page.values("training_process_up", "run") == {"first": 1, "second": 1}
        first.kill()
        page = scrape_anew(exporter)
        assert page.values("training_process_up", "run") == {"first": 0, "second": 1}
        reason = "signal" if kernel_tells_exits() else "unknown"
        assert set(page.values(ENDED, "reason", run="first")) == {reason}
        assert page.value(INCOMPATIBLE) == 0
    assert "Traceback" not in exporter.log


def test_another_exporter_goes_on_where_the_first_one_stopped(runs: Path, start):
    """After a restart of the exporter, counters continue and endings keep their reasons."""
    exporter = start()
    with Restless(runs) as trainer, Restless(runs, "killed") as killed:
        assert trainer.path.exists()
        assert killed.path.exists()
        before = scrape_anew(exporter)
        killed.kill()
        before = scrape_anew(exporter)
        assert exporter.end() == 0
        exporter = start()
        after = scrape_anew(exporter)
        check_alive(after, trainer)
        steps = "training_steps_total"
        assert (after.value(steps, **RANK) or 0) > (before.value(steps, **RANK) or math.inf)
    for name in ("training_process_start_time_seconds", "training_process_exit_code", steps):
        assert after.value(name, run="killed") == before.value(name, run="killed")
    assert after.values(ENDED, "reason", run="killed") == before.values(
        ENDED, "reason", run="killed"
    )
    if kernel_tells_exits():
        exits = after.values("training_process_exits_total", "reason", run="killed")
        assert {reason: number for reason, number in exits.items() if number} == {"signal": 1}
        assert "killed" not in exporter.log


def test_two_exporters_on_one_directory_do_not_disturb_each_other(runs: Path, start):
    """Two exporters show the same runs and the same ending, and write one ending note."""
    both = (start(), start())
    with Restless(runs) as trainer, Restless(runs, "killed") as killed:
        assert trainer.path.exists()
        assert killed.path.exists()
        for exporter in both:
            check_alive(scrape_anew(exporter), trainer)
        killed.kill()
        time.sleep(1.25 * REUSE_SECONDS)
        pages = [scrape_anew(exporter) for exporter in both]
        for page in pages:
            check_alive(page, trainer)
            assert page.value("training_process_up", run="killed") == 0
            assert page.value(INCOMPATIBLE) == 0
        names = sorted(path.name for path in runs.iterdir())
        own = [killed.path.name, f"{killed.path.name}.end", trainer.path.name]
        assert names == sorted(own)
    reasons = [page.values(ENDED, "reason", run="killed") for page in pages]
    assert reasons[0].keys() == reasons[1].keys()


@pytest.mark.parametrize("become", [without_privileges, as_nobody])
def test_an_exporter_that_may_not_write_there_shows_the_same(runs: Path, start, become):
    """An exporter that cannot write the ending of a run logs that once and shows the ending."""
    runs.mkdir(parents=True)
    with Restless(runs) as trainer, Restless(runs, "killed") as killed:
        assert trainer.path.exists()
        assert killed.path.exists()
        runs.chmod(0o555)
        exporter = start(wrapper=become())
        check_alive(scrape_anew(exporter), trainer)
        killed.kill()
        page = scrape_anew(exporter)
        check_alive(page, trainer)
        again = scrape_anew(exporter)
        assert not list(runs.glob("*.end"))
    reason = "signal" if kernel_tells_exits() else "unknown"
    for each in (page, again):
        assert each.value("training_process_up", run="killed") == 0
        assert set(each.values(ENDED, "reason", run="killed")) == {reason}
    assert exporter.log.count("cannot note how ") == 1


HOSTILE = 'he said "no"\n\\ \u202e日本 {rank="7"} 😀'
AS_LABEL = 'he said "no"_\\ _日本 {rank="7"} 😀'
IN_TEXT = 'run="he said \\"no\\"_\\\\ _日本 {rank=\\"7\\"} 😀"'


def test_a_hostile_name_is_escaped_in_both_formats(runs: Path, start, promtool: Path):
    """Run names with quotes, line breaks, control characters or 3 KB do not break either format."""
    exporter = start()
    with Restless(runs, HOSTILE) as hostile, Restless(runs, "n\n" * 1536) as long:
        for trainer in (hostile, long):
            assert trainer.path.exists()
            assert trainer.path.parent == runs
        (runs / "forged.tv").write_bytes(
            compose_run_file('"}\n# HELP x\n' + "y" * 3000, wall_time=time.time())
        )
        (runs / "surrogate.tv").write_bytes(
            compose_run_file("a\ud800\x00\x7f", wall_time=time.time())
        )
        page = scrape_anew(exporter)
        accept = "application/openmetrics-text; version=1.0.0"
        other = exporter.get("/metrics?collect[]=training", accept=accept)
    up = page.values("training_process_up", "run")
    assert up[AS_LABEL] == 1
    assert f'training_process_up{{rank="0",{IN_TEXT}}} 1.0\n' in page.text
    assert up["a___"] == 0
    forged = '"}_# HELP x_' + "y" * 116
    assert up[forged] == 0
    (name,) = up.keys() - {AS_LABEL, "a___", forged}
    assert name.startswith("n_n_n_")
    assert len(name) == 80
    assert other.headers["content-type"].startswith("application/openmetrics-text")
    read = {
        sample.labels["run"]
        for family in parse_openmetrics(other.text)
        for sample in family.samples
        if sample.name == "training_process_up"
    }
    assert read == up.keys()
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page.text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


CROWD = """
import sys; sys.path.insert(0, sys.argv[1])
from trainvitals import TrainingMonitor
crowd = [
    TrainingMonitor(f"run {n % 20:02}", rank=n, run_dir=sys.argv[2], publish_seconds=0)
    for n in range(100)
]
for each in crowd: each.update_batch(7)
print(flush=True); sys.stdin.read()
"""


@contextmanager
def start_crowd(runs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process with 100 ranks of 20 runs, each with its own run file."""
    command = [sys.executable, "-S", "-E", "-c", CROWD, SOURCE_ROOT, runs]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as crowd:
        assert crowd.stdout is not None
        crowd.stdout.readline()
        yield crowd
        crowd.kill()


def test_crowds_are_bounded(runs: Path, start):
    """Of 300 dead and 100 living ranks, 64 living ones are shown, and the others are counted."""
    runs.mkdir(parents=True)
    now = time.time()
    for number in range(300):
        data = compose_run_file(f"dead {number % 20}", rank=number, wall_time=now)
        (runs / f"dead.{number}.tv").write_bytes(data)
    exporter = start()
    before = read_footprint(exporter.pid)
    with start_crowd(runs) as crowd:
        pages = [scrape_anew(exporter) for _ in range(3)]
        crowded = read_footprint(exporter.pid)
        crowd.send_signal(signal.SIGKILL)
        crowd.wait()
        last = scrape_anew(exporter)
        after = read_footprint(exporter.pid)
    for page in pages:
        up = page.find("training_process_up")
        assert len(up) == 64
        assert len({sample.labels["run"] for sample in up}) <= 16
        assert all(sample.value == 1 for sample in up)
        assert page.value(INCOMPATIBLE) == 0
    # There are 400 run files, of which 64 are shown and 336 are counted as omitted.
    assert pages[0].value(OMITTED, collector="training") == 336
    durations = [
        page.value("trainvitals_collector_duration_seconds", collector="training") or math.inf
        for page in (*pages, last)
    ]
    print("seconds:", durations, "descriptors, threads, bytes:", before, crowded, after)
    assert min(durations) < 0.25
    assert all(sample.value == 0 for sample in last.find("training_process_up"))
    assert after[0] <= before[0] + 8
    assert after[1] <= before[1] + 2
    assert after[2] - before[2] < 32 << 20


def test_run_files_never_take_the_last_descriptor(runs: Path, start):
    """With a limit of 64 descriptors, pages are served, and the ranks left out are counted."""
    exporter = start(wrapper=("sh", "-c", 'ulimit -n 64 && exec "$@"', "sh"))
    with start_crowd(runs) as crowd:
        for _ in range(3):
            page = scrape_anew(exporter, is_whole=False)
            shown = len(page.find("training_process_up"))
            assert 10 < shown < 64
            assert page.value(OMITTED, collector="training") == 100 - shown
        crowd.kill()
        crowd.wait()
        exporter.scrape_until(
            lambda page: page.value(OMITTED, collector="training") == 36, "training"
        )


def test_few_descriptors_show_a_part_and_say_so(tmp_path: Path, runs: Path):
    """With 32 descriptors for ten runs, some runs are shown and the failure reason is reported."""
    runs.mkdir(parents=True)
    with ExitStack() as living:
        for number in range(10):
            living.enter_context(Trainer(runs, run=f"run{number}"))
        exporter = living.enter_context(
            ExporterProcess(
                tmp_path, arguments=(f"--run-dir={runs}",), wrapper=("prlimit", "--nofile=32:32")
            )
        )
        for _ in range(3):
            time.sleep(1.25 * REUSE_SECONDS)
            page = exporter.scrape()  # every collector keeps files open
            shown = page.find("training_process_up")
            assert 1 <= len(shown) < 10
            assert all(sample.value == 1 for sample in shown)
            assert page.value(OMITTED, collector="training") == 10 - len(shown)
            (failure,) = page.find("trainvitals_collector_failure_info")
            assert failure.labels == {
                "collector": "training",
                "reason": "some run files could not be opened, for too many files are open; "
                "raise LimitNOFILE",
            }
        assert failure.labels["reason"] in exporter.log
        assert "cannot accept" not in exporter.log
