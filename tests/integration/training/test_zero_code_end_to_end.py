"""Runs without instrumentation, with files of real writers, served by a real exporter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import prometheus_client.openmetrics.parser as openmetrics
import pytest
from tqdm import tqdm

from tests.support.exporter_process import ExporterProcess, Page
from tests.support.trainers import SOURCE_ROOT, Loop
from tests.unit.sources.runs.records import write as write_events
from trainvitals import TrainingMonitor

FAKES = Path(__file__).parents[2] / "fakes"
SHOWN_WITHIN_SECONDS = 30.0
INFO = "training_run_info"


class Script:
    """A process of one of the scripts in `tests/fakes` that executes commands from its input.

    Args:
        name: The name of the script.
        arguments: The arguments of the script.
        run_dir: The run directory for a monitor in the script.
    """

    def __init__(self, name: str, *arguments: object, run_dir: Path) -> None:
        environ = {**os.environ, "PYTHONPATH": str(SOURCE_ROOT), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, FAKES / name, *map(str, arguments)],
            env={**environ, "TRAINVITALS_RUN_DIR": str(run_dir), "CUDA_VISIBLE_DEVICES": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def do(self, line: str) -> None:
        """Send a line to the script and wait until it has been executed."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        self.wait_for("written")

    def wait_for(self, word: str) -> None:
        """Wait until the script prints a word."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == f"{word}\n":
                return
        raise AssertionError(f"it ended without a word: {self.process.wait()}")

    def end(self) -> None:
        """Close the script's input and wait until it ends."""
        self.process.communicate()
        assert self.process.returncode == 0

    def kill(self) -> None:
        """Kill the script."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Script:  # noqa: PYI034 - Self is not in Python 3.10
        self.wait_for("ready")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.communicate()


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Return a directory with folders for event files, logs and run files."""
    for name in ("events", "logs", "runs"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def exporter(places: Path) -> Iterator[ExporterProcess]:
    """Start an exporter before any of the files exist."""
    arguments = (
        f"--run-dir={places}/runs",
        f"--tensorboard.logdir={places}/events",
        f"--trainlog.glob={places}/logs/*.log*",
    )
    with ExporterProcess(places, arguments=arguments) as exporter:
        assert exporter.scrape("training").value(INFO) is None
        yield exporter


def watch(exporter: ExporterProcess, is_shown: Callable[[Page], bool]) -> Page:
    """Scrape until a page fulfils a condition, and return the page."""
    page = exporter.scrape_until(is_shown, "training", seconds=SHOWN_WITHIN_SECONDS)
    assert page.value("trainvitals_collector_success", collector="training") == 1, exporter.log
    return page


def shows(name: str, value: float, **labels: str) -> Callable[[Page], bool]:
    """Return the condition that a page has a sample with this value."""
    return lambda page: page.value(name, **labels) == pytest.approx(value, rel=1e-6)


def test_what_torch_writes_shows_while_it_grows_is_cut_off_and_resumed(
    exporter: ExporterProcess, places: Path
):
    """Flushed TensorBoard events become metrics, also after a truncation or a new process."""
    folder, who = places / "events/unet", {"run": "unet", "rank": "0"}
    first = Script("tensorboard_training.py", folder, run_dir=places / "runs")
    second = Script("tensorboard_training.py", folder, run_dir=places / "runs")
    with first, second:
        first.do("1 train/loss=0.5 lr=0.125 val_loss=0.9075 val_iou=0.0902")
        page = watch(exporter, shows("training_loss", 0.5, **who))
        assert page.values(INFO, "source") == {"tensorboard": 1}
        assert page.value("training_learning_rate", **who) == 0.125
        assert page.value("validation_loss", **who) == pytest.approx(0.9075, rel=1e-6)
        assert page.value(
            "training_metric", name="val_iou", split="validation", **who
        ) == pytest.approx(0.0902, rel=1e-6)
        assert page.value("training_global_step", **who) == 1
        assert page.value("training_process_up", **who) is None
        first.do("2 train/loss=0.25")
        watch(exporter, shows("training_loss", 0.25, **who))
        first.do("3 train/loss=0.375")
        first.kill()
        page = watch(exporter, shows("training_loss", 0.375, **who))
        assert page.value("training_steps_total", **who) == 2
        (path,) = folder.iterdir()
        whole = path.read_bytes()
        os.truncate(path, len(whole) - 7)
        page = watch(exporter, shows("training_loss", 0.25, **who))
        assert page.value("validation_loss", **who) == pytest.approx(0.9075, rel=1e-6)
        path.write_bytes(whole)
        watch(exporter, shows("training_loss", 0.375, **who))
        os.truncate(path, len(whole) - 7)
        second.do("3 train/loss=0.0625")
        page = watch(exporter, shows("training_loss", 0.0625, **who))
        assert page.value("training_global_step", **who) == 3
        assert page.value("training_learning_rate", **who) == 0.125
        second.do("4 train/loss=0.03125 val_loss=0.75")
        page = watch(exporter, shows("validation_loss", 0.75, **who))
        assert page.value("training_loss", **who) == 0.03125
        assert page.value("training_evaluations_total", **who) == 2
        assert page.values(INFO, "run") == {"unet": 1}
    assert "damaged" not in exporter.log


def test_what_lightning_logs_shows_and_goes_on_after_a_resume(
    exporter: ExporterProcess, places: Path
):
    """The values that Lightning logs become metrics of one run, also after a resume."""
    who = {"run": "net/version_0", "rank": "0"}
    with Script("logging_fit.py", places / "events", run_dir=places / "runs") as script:
        script.do("1")
        page = watch(exporter, shows("training_global_step", 3, **who))
        assert page.values(INFO, "source") == {"tensorboard": 1}
        assert page.value("training_loss", **who) == 1.0
        assert page.value("validation_loss", **who) == 1.0
        assert page.value("training_epoch", **who) == 0
        split = {"split": "validation", **who}
        assert page.values("training_metric", "name", **split) == {"val_iou": 0.25}
        script.do("2")
        page = watch(exporter, shows("training_global_step", 7, **who))
        assert page.value("training_loss", **who) == 0.5
        assert page.value("validation_loss", **who) == 0.75
        assert page.value("training_epoch", **who) == 1
        assert page.values("training_metric", "name", **split) == {"val_iou": 0.5}
        assert page.values(INFO, "run") == {"net/version_0": 1}
        script.end()


def test_a_log_shows_through_both_ways_of_rotating_and_progress_bars(
    exporter: ExporterProcess, places: Path
):
    """Log lines and tqdm bars become metrics of one run, across both ways of log rotation."""
    log, who = places / "logs/unet.log", {"run": "unet", "rank": "0"}
    log.write_text("Epoch 1: val_loss: 0.9075 | val_iou: 0.0902 | val_dice: 0.1623\n")
    page = watch(exporter, shows("validation_loss", 0.9075, **who))
    assert page.values(INFO, "source", run="unet") == {"log": 1}
    split = {"split": "validation", **who}
    assert page.values("training_metric", "name", **split) == {
        "val_iou": 0.0902,
        "val_dice": 0.1623,
    }
    assert page.value("training_epoch", **who) == 1

    log.rename(places / "logs/unet.log.1")
    log.write_text("Epoch 2: val_loss: 0.8833 | val_iou: 0.2220 | val_dice: 0.3543\n")
    page = watch(exporter, shows("validation_loss", 0.8833, **who))
    assert page.values("training_metric", "name", **split) == {"val_iou": 0.222, "val_dice": 0.3543}
    assert page.value("training_evaluations_total", **who) == 2

    with log.open("a") as file:
        bar = tqdm(total=8, desc="Epoch 3", file=file, mininterval=0, ascii=False)
        for loss in (0.5, 0.4375, 0.375):
            bar.update()
            bar.set_postfix(loss=loss)
        file.flush()
        page = watch(exporter, shows("training_loss", 0.375, **who))
        assert page.value("training_epoch_progress_ratio", **who) == 3 / 8
        shutil.copy(log, places / "logs/unet.log.2")
        os.truncate(log, 0)
        bar.update(5)
        bar.set_postfix(loss=0.25)
        bar.close()
        print("Epoch 3: val_loss: 0.9000 | val_iou: 0.2500 | val_dice: 0.5000", file=file)
    page = watch(exporter, shows("validation_loss", 0.9, **who))
    assert page.value("training_loss", **who) == 0.25
    assert page.value("training_epoch", **who) == 3
    assert page.value("training_evaluations_total", **who) == 3
    assert page.value("training_evaluations_since_improvement", **who) == 1
    assert page.values(INFO, "run") == {"unet": 1}


def test_a_run_with_a_monitor_and_event_files_is_shown_once(
    exporter: ExporterProcess, places: Path
):
    """A run with a monitor and event files is shown once, both while it lives and afterwards."""
    events, runs = places / "events", places / "runs"
    now = time.time()
    for name in ("instrumented", "alone"):
        path = events / f"{name}/events.out.tfevents.{now:.0f}.host.1.0"
        write_events(path, (now, 1, "train/loss", 0.5))
    other = Script("tensorboard_training.py", events / "net/version_0", "bert", run_dir=runs)
    with Loop(runs) as same, other:
        other.do("1 train/loss=0.5")
        page = watch(exporter, lambda page: page.value(INFO, run="alone") is not None)
        assert page.values(INFO, "run", source="client") == {"instrumented": 1, "bert": 1}
        assert page.values(INFO, "run", source="tensorboard") == {"alone": 1}
        same.kill()
        other.end()
        page = watch(
            exporter, lambda page: not any(page.values("training_process_up", "run").values())
        )
        assert page.values(INFO, "run", source="client") == {"instrumented": 1, "bert": 1}
        assert page.values(INFO, "run", source="tensorboard") == {"alone": 1}


def test_a_page_with_runs_of_all_sources_is_whole_for_promtool_and_openmetrics(
    exporter: ExporterProcess, places: Path, promtool: Path, monkeypatch: pytest.MonkeyPatch
):
    """A page with runs of all sources and with hostile names is valid in both formats."""
    monkeypatch.setenv("TRAINVITALS_RUN_DIR", str(places / "runs"))
    hostile = 'b"e\\r\nt é'
    (places / f"logs/{hostile}!.log").write_text("Epoch 1: val_loss: nan | val_iou: inf\n")
    for name in ("unet", hostile):
        path = places / f"events/{name}/events.out.tfevents.1700000000.host.1.0"
        write_events(path, (time.time(), 1, "train/loss", 0.5), (time.time(), 1, 'o"d\nd', 0.25))
    with TrainingMonitor(f"{hostile}?", total_steps=10, epoch_steps=5) as monitor:
        monitor.start_epoch()
        for phase in ("data_wait", "h2d", "forward", "backward", "optimizer"):
            monitor.mark(phase)
        monitor.update_batch(4, 8, loss=0.5, accuracy=0.5, learning_rate=0.1, gradient_norm=1.0)
        monitor.log_validation(loss=float("inf"), accuracy=0.5, **{hostile: 1.0})
        monitor.checkpoint_saved()
        page = watch(exporter, lambda page: len(page.find(INFO)) == 4)
        everything = exporter.scrape()
        exact = exporter.get("/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert {sample.labels["run"]: sample.labels["source"] for sample in page.find(INFO)} == {
        'b"e\\r_t é?': "client",
        'b"e\\r_t é': "tensorboard",
        "unet": "tensorboard",
        'b"e\\r_t é!': "log",
    }
    log = {"run": 'b"e\\r_t é!', "rank": "0"}
    assert page.value("training_nonfinite_total", what="eval", **log) == 2
    assert page.value("training_metric", name="val_iou", **log) == float("inf")
    ended = subprocess.run(
        [promtool, "check", "metrics"],
        input=everything.text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    assert exact.headers["content-type"].startswith("application/openmetrics-text")
    names = [family.name for family in openmetrics.text_string_to_metric_families(exact.text)]
    assert "training_step_duration_seconds" in names
    assert len(names) == len(set(names))
