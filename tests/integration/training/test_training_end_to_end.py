"""The metrics of a real training loop, served by a real exporter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.exporter_process import ExporterProcess, Page
from tests.support.trainers import SOURCE_ROOT, Loop
from tests.unit.sources.runs.trainer import kernel_tells_exits

RUN = {"run": "instrumented", "rank": "0"}


def wait_for_steps(exporter: ExporterProcess, steps: int) -> Page:
    """Scrape until the run has done this number of steps."""
    return exporter.scrape_until(
        lambda page: (page.value("training_steps_total", **RUN) or 0) >= steps, "training"
    )


def test_what_is_shown_is_what_the_loop_counts_itself(exporter: ExporterProcess, runs: Path):
    """Pace, samples, loss and phases agree with the loop's own measurements within 2 %."""
    with Loop(runs) as loop:
        page = wait_for_steps(exporter, 50)
        ready = json.loads(exporter.get("/ready").text)["checks"]
        accounts = loop.accounts()
        last = exporter.scrape_until(
            lambda page: page.value("validation_loss", **RUN) is not None, "training"
        )
    assert (ready["model_loaded"], ready["data_available"]) == (True, True)
    steps = int(page.value("training_steps_total", **RUN) or 0)
    ended, forward = accounts["ended"], accounts["forward"][:steps]
    seconds = ended[steps] - ended[0]
    about = {"rel": 0.02}
    assert page.value("training_samples_total", **RUN) == 32 * steps
    assert page.value("training_tokens_total", **RUN) == 32 * 128 * steps
    assert page.value("training_samples_per_second", **RUN) == pytest.approx(
        32 * steps / seconds, **about
    )
    assert page.value("training_tokens_per_second", **RUN) == pytest.approx(
        32 * 128 * steps / seconds, **about
    )
    assert page.value("training_loss", **RUN) == 1 / steps
    assert page.value("training_global_step", **RUN) == steps
    assert page.value("training_progress_ratio", **RUN) == steps / 10_000
    assert page.value("batch_processing_time", **RUN) == pytest.approx(
        ended[steps] - ended[steps - 1], **about
    )
    assert page.value("training_phase_seconds_total", phase="forward", **RUN) == pytest.approx(
        sum(forward), **about
    )
    forward_time = page.value("model_forward_time", **RUN)
    assert forward_time is not None
    assert 0.98 * min(forward) <= forward_time <= 1.02 * max(forward)
    assert page.value("training_step_duration_seconds_count", **RUN) in (steps, steps - 1)
    assert page.values("training_phase", "phase", **RUN)["train"] == 1
    assert page.value("training_stalled", **RUN) == 0
    assert page.value("training_rank_info", host_pid=str(loop.process.pid), **RUN) == 1
    assert page.value("training_run_info", source="client", run="instrumented") == 1
    assert last.value("validation_loss", **RUN) == 0.25
    assert last.values("training_metric", "name", split="validation", **RUN) == {"iou": 0.75}


def test_a_killed_run_is_dead_and_its_successor_counts_the_loss(
    exporter: ExporterProcess, runs: Path
):
    """A killed run has its signal, if the kernel reports it, and its successor the lost steps."""
    with Loop(runs) as loop:
        wait_for_steps(exporter, 10)
        loop.kill()
        page = exporter.scrape_until(
            lambda page: page.value("training_process_up", **RUN) == 0, "training"
        )
    reason = "signal" if kernel_tells_exits() else "unknown"
    ends = page.values("training_process_end_timestamp_seconds", "reason", **RUN)
    assert set(ends) == {reason}
    assert page.value("training_process_exit_code", **RUN) == (
        137 if kernel_tells_exits() else None
    )
    reached = int(page.value("training_global_step", **RUN) or 0)
    with Loop(runs, first_step=reached - 4):
        page = exporter.scrape_until(
            lambda page: (
                (page.value("training_steps_total", **RUN) or 1e9) < 1e9
                and page.value("training_process_up", **RUN) == 1
                and (page.value("training_steps_total", **RUN) or 0) > 0
            ),
            "training",
        )
    assert page.value("training_restarts_total", run="instrumented") == 1
    assert page.value("training_lost_steps_total", run="instrumented") == 4
    seconds = page.value("training_lost_seconds_total", run="instrumented")
    assert 4 * 0.07 * 0.7 < seconds < 30  # a delay of the loop makes its steps longer
    if kernel_tells_exits():
        assert page.value("training_process_exits_total", run="instrumented", reason="signal") == 1
        assert (
            f"run instrumented rank 0 was killed by signal 9 (SIGKILL) at step {reached}"
            in exporter.log
        )


def test_a_stopped_run_is_stopped_and_stalled(exporter: ExporterProcess, runs: Path):
    """A run is stopped and stalled after SIGSTOP, and no longer stalled after SIGCONT."""
    with Loop(runs) as loop:
        wait_for_steps(exporter, 1)
        os.kill(loop.process.pid, signal.SIGSTOP)
        page = exporter.scrape_until(
            lambda page: page.value("training_process_stopped", **RUN) == 1, "training"
        )
        assert page.value("training_stalled", **RUN) == 1
        assert page.value("training_process_up", **RUN) == 1
        os.kill(loop.process.pid, signal.SIGCONT)
        exporter.scrape_until(lambda page: page.value("training_stalled", **RUN) == 0, "training")


def test_a_log_shows_up_and_is_followed(tmp_path: Path, runs: Path):
    """Lines in the log of a script without instrumentation soon become metrics."""
    log = tmp_path / "logs/unet.log"
    log.parent.mkdir()
    log.write_text("Epoch 1: val_loss: 0.9075 | val_iou: 0.0902 | val_dice: 0.1623\n")
    arguments = (f"--run-dir={runs}", f"--trainlog.glob={tmp_path}/logs/*.log")
    who = {"run": "unet", "rank": "0"}
    with ExporterProcess(tmp_path, arguments=arguments) as exporter:
        page = exporter.scrape_until(
            lambda page: page.value("validation_loss", **who) == 0.9075, "training"
        )
        assert page.values("training_metric", "name", **who)["val_dice"] == 0.1623
        with log.open("a") as lines:
            lines.write("Epoch 2: val_loss: 0.5 | val_iou: 0.25 | val_dice: 0.75\n")
        exporter.scrape_until(lambda page: page.value("validation_loss", **who) == 0.5, "training")
        assert page.value("training_run_info", run="unet", source="log") == 1


def test_patterns_that_cannot_be_used_are_refused_in_one_line(tmp_path: Path):
    """The exporter refuses an invalid patterns file in one line with the place of the error."""
    patterns = tmp_path / "patterns.yml"
    patterns.write_text("patterns:\n  - name: broken\n    regex: '('\n")
    command = [sys.executable, "-m", "trainvitals", "serve", "--web.listen-address=127.0.0.1:0"]
    ended = subprocess.run(
        [*command, "--trainlog.glob=*.log", f"--trainlog.patterns={patterns}"],
        env={**os.environ, "PYTHONPATH": str(SOURCE_ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()[-1:]
    assert line.startswith(f"trainvitals: {patterns}: line 2: patterns[0].regex: ")
