"""The identity of a process and the interpreter hooks that report the end of a run."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_files import decode
from trainvitals import runfile
from trainvitals.training.process import InterpreterHooks, read_self

SOURCE_ROOT = Path(__file__).parents[3] / "exporter"


class Run:
    """A run that records the calls it receives."""

    def __init__(self):
        self.told = []

    def finish(self):
        """Record the call."""
        self.told.append("finish")

    def fail(self, exception=None):
        """Record the class of the exception."""
        self.told.append(type(exception).__name__)

    def silence(self):
        """Record that this process is a child."""
        self.told.append("silence")


@pytest.fixture(autouse=True)
def told_before(monkeypatch):
    """Return the list of what the previous exception hook receives, and restore the hook."""
    told = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: told.append(kind.__name__))
    return told


def run_script(code, tmp_path, *flags):
    """Run a script that prints no errors; return the state and last words of its run file."""
    answer = subprocess.run(
        [sys.executable, *flags, "-c", f"from trainvitals import TrainingMonitor\n{code}"],
        env=os.environ
        | {"PYTHONPATH": str(SOURCE_ROOT), "TRAINVITALS_RUN_DIR": str(tmp_path / "runs")},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert answer.stderr == b""
    (path,) = (tmp_path / "runs").glob("*.tv")
    record = decode(path.read_bytes())
    return runfile.State(int(record.state[runfile.STATE["state"]])), record.last_words


def test_runs_are_told_of_an_error_each_and_the_hook_before_them_too(told_before):
    """An uncaught exception reaches every run and the previous hook."""
    runs = [Run(), Run()]
    hooks = [InterpreterHooks(run, run.silence) for run in runs]
    sys.excepthook(KeyError, KeyError("x"), None)
    assert [run.told for run in runs] == [["KeyError"], ["KeyError"]]
    assert told_before == ["KeyError"]
    for each in hooks:
        each.remove()


def test_hooks_leave_in_any_order(told_before):
    """The hooks of 100 overlapping runs are removed without a trace."""
    before = sys.excepthook
    run, last = Run(), None
    for _ in range(100):
        hooks = InterpreterHooks(run, run.silence)
        if last is not None:
            last.remove()
        last = hooks
    assert hooks._previous is before
    hooks.remove()
    assert sys.excepthook is before


def test_a_run_that_nobody_holds_goes():
    """A deleted run does not receive a later exception."""
    run = Run()
    hooks = InterpreterHooks(run, run.silence)
    told = run.told
    gc.disable()
    try:
        del run
        sys.excepthook(KeyError, KeyError("x"), None)
    finally:
        gc.enable()
    assert told == []
    hooks.remove()


def test_a_hook_that_took_our_place_hides_no_error(tmp_path):
    """An error is recorded even if a later hook does not call the run's hook."""
    code = (
        "import sys\nmonitor = TrainingMonitor('r')\n"
        "sys.excepthook = lambda *_: None\nraise ArithmeticError\n"
    )
    assert run_script(code, tmp_path) == (runfile.State.FAILED, "ArithmeticError")


def test_an_error_of_before_the_run_is_not_the_runs(tmp_path):
    """An error in `sys.last_value` from before the run does not fail the run."""
    code = "import sys\nsys.last_value = KeyError()\nmonitor = TrainingMonitor('r')\n"
    assert run_script(code, tmp_path) == (runfile.State.ENDED, "")


def test_no_warning_of_ours_ends_a_program(tmp_path):
    """With `-W error`, `-X dev` and `-O`, a training script prints no warning."""
    code = (
        "monitor = TrainingMonitor('r')\nmonitor.start_epoch()\n"
        "for batch in monitor.batches([1, 2]):\n    monitor.update_batch(1, loss=0.5)\n"
        "monitor.log(val_iou=0.5)\nmonitor.log_validation(0.25)\n"
    )
    flags = ("-W", "error", "-X", "dev", "-X", "warn_default_encoding", "-O")
    assert run_script(code, tmp_path, *flags) == (runfile.State.ENDED, "")


def test_a_process_tells_itself_from_others():
    """`read_self` returns the start, boot id and PID namespace that `/proc` shows."""
    ticks, boot, namespace = read_self()
    assert ticks == int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert boot.hex() == Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace(
        "-", ""
    )
    assert namespace == Path("/proc/self/ns/pid").stat().st_ino


def test_without_procfs_a_process_does_not_know_itself(tmp_path):
    """Without `/proc`, `read_self` returns zeros."""
    assert read_self(procfs=tmp_path) == (0, bytes(16), 0)
