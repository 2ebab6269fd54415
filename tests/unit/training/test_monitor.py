"""The monitor's run file, and its effect on the training loop."""

import gc
import logging
import math
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.run_files import decode
from trainvitals import TrainingMonitor, runfile
from trainvitals.runfile import ABSENT, STATE, STEP

SOURCE_ROOT = Path(__file__).parents[3] / "exporter"


class Clock:
    """A clock that advances only if `pass_seconds` is called."""

    def __init__(self):
        self.seconds = 1000.0

    def pass_seconds(self, seconds):
        """Advance the clock by these seconds."""
        self.seconds += seconds

    def monotonic(self):
        """Return the seconds since boot."""
        return self.seconds

    def time(self):
        """Return the Unix time in seconds."""
        return self.seconds + 1_700_000_000


@pytest.fixture
def clock():
    """Return a clock that the test advances."""
    return Clock()


@pytest.fixture
def make(tmp_path, clock):
    """Yield a function that makes monitors on the test's clock, and finish them at the end."""
    monitors = []

    def make(**options):
        monitor = TrainingMonitor(
            options.pop("run", "r"),
            run_dir=tmp_path,
            monotonic=clock.monotonic,
            clock=clock.time,
            publish_seconds=0.0,
            environ={},
            **options,
        )
        monitors.append(monitor)
        return monitor

    yield make
    for monitor in monitors:
        monitor.finish()


def read(monitor):
    """Return the known words of a monitor's file as a dictionary."""
    record = decode(monitor.path.read_bytes())
    words = dict(zip(runfile.STATE_WORDS, record.state, strict=True))
    words |= dict(zip(runfile.STEP_WORDS, record.step, strict=True))
    known = {name: value for name, value in words.items() if value != ABSENT}
    free = {
        (split, name): record.state[STATE[f"metric_{index}"]]
        for index, (name, split) in enumerate(record.metrics)
    }
    return known | {"free": free, "identity": record.identity, "last_words": record.last_words}


def run_python(code, tmp_path, *, environ=(), expect=0):
    """Run a training script in a separate process and return its standard error."""
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {"PYTHONPATH": str(SOURCE_ROOT), "TRAINVITALS_RUN_DIR": str(tmp_path)}
        | dict(environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == expect, answer.stderr
    return answer.stderr


def test_the_class_of_the_seed_works_as_written(make, clock):
    """`get_throughput` returns None before the first epoch, and then rates and the elapsed time."""
    monitor = make()
    assert monitor.get_throughput() is None
    monitor.start_epoch()
    for _ in range(4):
        clock.pass_seconds(0.5)
        monitor.update_batch(32, 128)
    assert monitor.get_throughput() == {
        "samples_per_second": pytest.approx(64.0),
        "tokens_per_second": pytest.approx(8192.0),
        "elapsed_time": pytest.approx(2.0),
    }
    assert (monitor.samples_processed, monitor.tokens_processed) == (128, 16384)
    assert monitor.start_time == pytest.approx(1_700_001_000.0)


def test_the_throughput_is_that_of_the_current_epoch(make, clock):
    """The throughput counts only the samples of the current epoch."""
    monitor = make()
    for _ in range(2):
        monitor.start_epoch()
        clock.pass_seconds(1.0)
        monitor.update_batch(10, 2)
    assert monitor.get_throughput()["samples_per_second"] == pytest.approx(10.0)
    assert monitor.samples_processed == 20


def test_marks_divide_a_step(make, clock):
    """Each phase is credited with the time from its mark to the next mark."""
    monitor = make()
    monitor.start_epoch()
    monitor.mark("data_wait")
    for _ in range(2):
        clock.pass_seconds(0.1)
        monitor.mark("h2d")
        clock.pass_seconds(0.05)
        monitor.mark("forward")
        clock.pass_seconds(0.2)
        monitor.mark("backward")
        clock.pass_seconds(0.4)
        monitor.mark("optimizer")
        clock.pass_seconds(0.25)
        monitor.update_batch(8, loss=0.5)
    monitor.finish()
    words = read(monitor)
    assert words["total_data_wait"] == pytest.approx(0.2)
    assert words["total_h2d"] == pytest.approx(0.1)
    assert words["total_forward"] == pytest.approx(0.4)
    assert words["total_backward"] == pytest.approx(0.8)
    assert words["total_optimizer"] == pytest.approx(0.5)
    assert words["forward_seconds"] == pytest.approx(0.2)
    assert words["backward_seconds"] == pytest.approx(0.4)
    assert words["optimizer_seconds"] == pytest.approx(0.25)
    assert words["step_seconds"] == pytest.approx(1.0)
    assert words["train_seconds"] == pytest.approx(2.0)
    assert words["step_bucket_6"] == 2.0  # 0.5 to 1 s
    assert (words["steps"], words["samples"], words["global_step"]) == (2.0, 16.0, 2.0)


def test_a_validation_between_two_steps_is_not_part_of_a_step(make, clock):
    """Step times exclude validations and checkpoints, whose longest durations are recorded."""
    monitor = make()
    monitor.start_epoch()
    for _ in range(2):
        clock.pass_seconds(1.0)
        monitor.update_batch(1)
    with monitor.phase("validation"):
        clock.pass_seconds(600.0)
    with monitor.phase("checkpoint"):
        clock.pass_seconds(30.0)
    clock.pass_seconds(1.0)
    monitor.update_batch(1)
    words = read(monitor)
    assert words["train_seconds"] == pytest.approx(3.0)
    assert words["slowest_step_seconds"] == pytest.approx(1.0)
    assert words["longest_validation_seconds"] == pytest.approx(600.0)
    assert words["longest_checkpoint_seconds"] == pytest.approx(30.0)
    assert words["total_validation"] == pytest.approx(600.0)


def test_a_phase_gives_way_to_the_one_before(make):
    """At the end of a nested phase, the enclosing phase is current again."""
    monitor = make()
    with monitor.phase("validation"):
        with monitor.phase("checkpoint"):
            assert monitor.current_phase == "checkpoint"
        assert monitor.current_phase == "validation"
    assert monitor.current_phase == "init"


def test_a_run_that_dies_in_a_phase_died_there(make):
    """If an exception leaves a phase context, that phase stays the recorded one."""
    monitor = make()
    monitor.start_epoch()
    with pytest.raises(OSError, match="disk full"), monitor, monitor.phase("checkpoint"):
        raise OSError("disk full")
    assert read(monitor)["phase"] == runfile.Phase.CHECKPOINT


def test_a_checkpoint_is_noted_with_its_step(make):
    """A checkpoint is recorded with the step just completed, even if it is not yet published."""
    monitor = make(global_step=10)
    monitor._publish_seconds = 1e9
    for _ in range(5):
        monitor.update_batch(1)
    monitor.checkpoint_saved()
    words = read(monitor)
    code = runfile.EVENTS.index("checkpoint")
    noted = [words[f"event_value_{i}"] for i in range(8) if words.get(f"event_code_{i}") == code]
    assert noted == [15.0]


def test_the_first_step_is_published_at_once(make):
    """The first step is visible even if the second step never ends."""
    monitor = make()
    monitor._publish_seconds = 1e9
    for _ in range(2):
        monitor.update_batch(1)
    assert read(monitor)["steps"] == 1


def test_a_first_step_that_nobody_announced_has_no_duration(make, clock):
    """Without `start_epoch` or a mark, the duration of the first step is unknown."""
    monitor = make()
    clock.pass_seconds(50.0)
    monitor.update_batch(1)
    assert "step_seconds" not in read(monitor)
    clock.pass_seconds(2.0)
    monitor.update_batch(1)
    assert read(monitor)["step_seconds"] == pytest.approx(2.0)


def test_the_first_step_is_no_measure_of_the_slowest(make, clock):
    """The first step is not counted as the slowest, because it may include compilation."""
    monitor = make()
    monitor.start_epoch()
    for seconds in (300.0, 2.0, 1.0):
        clock.pass_seconds(seconds)
        monitor.update_batch(1)
    assert read(monitor)["slowest_step_seconds"] == pytest.approx(2.0)


def test_the_slowest_step_is_forgotten_in_the_end(make, clock):
    """A slow step stays the slowest for at least 64 and at most 128 steps."""
    monitor = make()
    monitor.start_epoch()
    for index in range(200):
        clock.pass_seconds(9.0 if index == 10 else 1.0)
        monitor.update_batch(1)
        if index == 74:
            assert read(monitor)["slowest_step_seconds"] == pytest.approx(9.0)
    assert read(monitor)["slowest_step_seconds"] == pytest.approx(1.0)


def test_the_iteration_times_the_loader_and_counts_its_errors(make, clock):
    """The wait for a batch counts as data wait, and a loader's error is counted and propagates."""

    def load():
        for item in "ab":
            clock.pass_seconds(0.5)
            yield item
        raise OSError("the share is gone")

    monitor = make()
    batches = monitor.batches(load())
    for item in "ab":
        assert next(batches) == item
        clock.pass_seconds(1.0)
        monitor.update_batch(1)
    with pytest.raises(OSError, match="the share is gone"):
        next(batches)
    words = read(monitor)
    assert words["total_data_wait"] == pytest.approx(1.0)
    assert words["total_other"] == pytest.approx(2.0)
    assert words["data_errors"] == 1.0


def test_a_loop_that_forgives_its_loader_goes_on(make):
    """A loop that catches a loader's error receives the batches that follow."""

    class Loader:
        """A data loader whose third batch raises an error."""

        def __init__(self):
            self.batch = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.batch += 1
            if self.batch == 3:
                raise OSError("one broken file")
            if self.batch > 5:
                raise StopIteration
            return self.batch

    monitor = make()
    batches = monitor.batches(Loader())
    got = [next(batches), next(batches)]
    with pytest.raises(OSError, match="one broken file"):
        next(batches)
    got.extend(batches)
    assert got == [1, 2, 4, 5]
    assert read(monitor)["data_errors"] == 1.0


def test_the_live_words_tell_the_phase_of_a_step_that_hangs(make, clock):
    """The live words hold the phase and its start before the next record is published."""
    monitor = make()
    monitor.start_epoch()
    clock.pass_seconds(1.0)
    monitor.mark("backward")
    record = decode(monitor.path.read_bytes())
    assert record.live == (1_001_000_000_000, runfile.Phase.BACKWARD)


def test_values_have_their_words_or_become_free_metrics(make):
    """Known names are recorded in fixed words, and other values keep their name and split."""
    monitor = make()
    monitor.log(lr=0.001, grad_norm=2.0, val_iou=0.3, temperature=0.7)
    monitor.log({"loss": 0.75, "val_loss": 0.5}, val_acc=0.9)
    monitor.log({"dice": 0.1}, split="test")
    words = read(monitor)
    assert (words["learning_rate"], words["gradient_norm"], words["loss"]) == (0.001, 2.0, 0.75)
    assert (words["validation_loss"], words["validation_accuracy"]) == (0.5, 0.9)
    assert words["free"] == {
        ("validation", "val_iou"): 0.3,
        ("", "temperature"): 0.7,
        ("test", "dice"): 0.1,
    }


def test_an_evaluation_may_name_its_values_in_full(make):
    """`log_validation` records `val_loss` as the validation loss and `val_accuracy` likewise."""
    monitor = make()
    monitor.log_validation(val_loss=0.5, val_accuracy=0.75, val_iou=0.25)
    words = read(monitor)
    assert (words["validation_loss"], words["validation_accuracy"]) == (0.5, 0.75)
    assert words["free"] == {("validation", "val_iou"): 0.25}
    assert words["best_evaluation"] == 0.5


def test_names_without_room_are_counted_each_time(make):
    """Only 64 free metrics are kept, and the other names are counted as dropped on every step."""
    monitor = make()
    for step in range(2):
        monitor.log({f"value_{number}": number + step for number in range(1000)})
    monitor.finish()
    words = read(monitor)
    assert words["free"] == {("", f"value_{number}"): number + 1.0 for number in range(64)}
    assert words["dropped_names"] == 2 * 936
    assert words["names"] == 64


def test_evaluations_are_counted_until_one_is_better(make):
    """Evaluations since the last improvement are counted, including one whose value is NaN."""
    monitor = make(watch="val_iou", watch_mode="max")
    for iou in (0.5, 0.4, math.nan, 0.5):
        monitor.log_validation(loss=1.0, iou=iou)
    words = read(monitor)
    assert (words["evaluations"], words["evaluations_since_improvement"]) == (4.0, 3.0)
    assert words["best_evaluation"] == 0.5
    assert words["nonfinite_evaluations"] == 1.0


def test_values_that_are_not_finite_are_counted(make):
    """NaN and infinite losses and gradient norms are recorded and counted."""
    monitor = make()
    for loss in (1.0, math.nan, math.inf):
        monitor.update_batch(1, loss=loss, gradient_norm=math.inf)
    monitor.finish()
    words = read(monitor)
    assert words["nonfinite_losses"] == 2.0
    assert words["loss"] == math.inf
    assert words["nonfinite_gradients"] == 3.0
    assert words["last_nonfinite_time"] == pytest.approx(1_700_001_000.0)
    assert words["loss_ema"] == 1.0


def test_a_spike_that_is_over_was_one(make):
    """A spike that ended between two publications is counted, and its event has its fifth loss."""
    monitor = make()
    for loss in [1.0] * 50 + [9.0] * 6 + [1.0]:
        monitor.update_batch(1, loss=loss)
    monitor.finish()
    words = read(monitor)
    assert (words["loss_spikes"], words.get("loss_spike", 0.0), words["loss"]) == (1.0, 0.0, 1.0)
    events = [words[f"event_code_{index}"] for index in range(4) if f"event_code_{index}" in words]
    spike = events.index(runfile.EVENTS.index("loss_spike"))
    assert words[f"event_value_{spike}"] == 9.0


def test_a_step_that_takes_long_is_published_with_what_is_told_once_a_second(make, clock):
    """A NaN loss of a slow step is counted in the record of the same step."""
    monitor = make()
    for loss in (1.0, math.nan):
        clock.pass_seconds(60.0)
        monitor.update_batch(1, loss=loss)
    assert read(monitor)["nonfinite_losses"] == 1.0


def test_progress_totals_and_checkpoints_are_told(make, clock):
    """The epoch, the totals, the global step and the time of the last checkpoint are recorded."""
    monitor = make(total_epochs=3, epoch_steps=100, global_step=500)
    monitor.start_epoch()
    monitor.start_epoch()
    monitor.update_batch(4)
    clock.pass_seconds(5.0)
    monitor.checkpoint_saved()
    words = read(monitor)
    assert (words["epoch"], words["total_epochs"], words["epoch_steps"]) == (1.0, 3.0, 100.0)
    assert (words["first_global_step"], words["global_step"], words["steps"]) == (500.0, 501.0, 1.0)
    assert words["last_checkpoint_time"] == pytest.approx(1_700_001_005.0)


def test_alerts_are_bits(make):
    """An alert's bit is set until the alert is cleared, and an unknown alert counts as an error."""
    monitor = make()
    monitor.raise_alert("memory_pressure")
    monitor.raise_alert("gpu_temperature")
    assert read(monitor)["alerts"] == 0b1010
    monitor.clear_alert("memory_pressure")
    monitor.raise_alert("no such alert")
    assert monitor.errors.count == 1
    monitor.finish()
    assert read(monitor)["alerts"] == 0b1000


def test_another_thread_may_log(make, clock):
    """A value logged by another thread is recorded with a later step."""
    monitor = make()
    thread = threading.Thread(target=monitor.log, kwargs={"val_iou": 0.25})
    thread.start()
    thread.join()
    clock.pass_seconds(2.0)
    monitor.update_batch(1)
    assert read(monitor)["free"] == {("validation", "val_iou"): 0.25}


def test_hostile_arguments_never_reach_the_loop(make, caplog):
    """No argument makes a method raise, and the tenth error switches the monitor off."""

    class Hostile:
        def __getattr__(self, name):
            raise RuntimeError("hostile")

        def __float__(self):
            raise RuntimeError("hostile")

        __hash__ = None

    monitor = make()
    monitor.mark(Hostile())
    monitor.mark("no such phase")
    monitor.update_batch(Hostile(), Hostile(), loss=Hostile(), accuracy=Hostile())
    monitor.update_batch(10**400, tokens=-1)
    monitor.log({Hostile: Hostile()})
    monitor.log(None, split=7)
    assert 5 <= monitor.errors.count < 10
    for _ in range(10):
        monitor.mark("no such phase")
    assert monitor.errors.count == 10
    assert "switches itself off" in caplog.text
    monitor.update_batch(1, loss=1.0)
    assert read(monitor)["state"] == runfile.State.SWITCHED_OFF


@pytest.mark.parametrize("step", ["x", 3j, -1, 10**400, None, [1, 2]], ids=str)
def test_a_step_that_is_none_resumes_nothing(make, step):
    """An invalid global step is counted as an error, and later steps are counted from 0."""
    monitor = make(global_step=step)
    assert monitor.errors.count == 1
    monitor.resume(step)
    for _ in range(3):
        monitor.update_batch(1)
    assert monitor.errors.count == 2
    assert read(monitor)["global_step"] == 3.0


def test_names_and_ranks_may_be_of_other_types(make):
    """A number as the run's name and texts as rank and world size are accepted."""
    monitor = make(run=7, rank="3", world_size="8", framework="x" * 5000)
    assert (monitor.run, monitor.rank, monitor.world_size) == ("7", 3, 8)
    assert read(monitor)["identity"].static["framework"] == "x" * 200


@pytest.mark.parametrize("nonsense", [{"rank": "first"}, {"run_dir": 7}, {"attempt": [1]}], ids=str)
def test_nonsense_makes_a_silent_monitor(nonsense, caplog):
    """Invalid arguments cause one warning and a monitor without a run file."""
    monitor = TrainingMonitor("r", environ={}, **nonsense)
    monitor.update_batch(1, loss=0.5)
    assert monitor.path is None
    assert len(caplog.records) == 1


def test_a_monitor_that_is_off_does_nothing(tmp_path):
    """A disabled monitor makes no file, and its methods still work as a caller expects."""
    monitor = TrainingMonitor(run_dir=tmp_path, enabled=False)
    monitor.start_epoch()
    assert list(monitor.batches([1, 2])) == [1, 2]
    with monitor.phase("validation"):
        monitor.mark("forward")
        monitor.update_batch(1, loss=1.0)
    assert monitor.get_throughput() is None
    assert (monitor.path, monitor.samples_processed, monitor.last_step_seconds) == (None, 0, None)
    assert list(tmp_path.iterdir()) == []


def test_a_context_that_ends_well_is_a_finished_run(make):
    """A context that ends normally finishes the run, and an exception fails it."""
    with make() as monitor:
        monitor.update_batch(1)
    assert read(monitor)["state"] == runfile.State.FINISHED
    failing = make()
    with pytest.raises(KeyError), failing:
        raise KeyError("secret")
    words = read(failing)
    assert (words["state"], words["last_words"]) == (runfile.State.FAILED, "KeyError")
    assert b"secret" not in failing.path.read_bytes()


def test_a_run_that_is_over_says_so(make, caplog):
    """A monitor that is used again after its end records nothing and logs one warning."""
    monitor = make()
    with monitor:
        monitor.update_batch(1)
    with monitor:
        monitor.update_batch(1)
    assert read(monitor)["samples"] == 1.0
    assert caplog.messages == ["run r is over; what follows needs a monitor of its own"]


def test_a_monitor_that_nobody_holds_is_over(make, tmp_path):
    """An unreferenced monitor finishes and closes its file without the cyclic garbage collector."""
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    hook = sys.excepthook
    gc.disable()
    try:
        for _ in range(3):
            TrainingMonitor("dropped", run_dir=tmp_path).update_batch(1)
    finally:
        gc.enable()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert sys.excepthook is hook
    records = [decode(path.read_bytes()) for path in tmp_path.glob("dropped.*")]
    states = [record.state[STATE["state"]] for record in records]
    assert states == [runfile.State.FINISHED] * 3


def test_a_method_that_was_kept_writes_nothing_after_the_end(make):
    """Methods called after the end of the run do not change its file."""
    monitor = make()
    mark, update_batch, log = monitor.mark, monitor.update_batch, monitor.log
    update_batch(1)
    monitor.finish()
    before = monitor.path.read_bytes()
    mark("forward")
    update_batch(1)
    log(val_iou=0.5)
    assert monitor.path.read_bytes() == before
    assert monitor.errors.count == 0


def test_an_uncaught_exception_is_recorded_with_its_class(tmp_path):
    """An uncaught exception is recorded with its class, and its traceback is printed as usual."""
    code = """
from trainvitals import TrainingMonitor
monitor = TrainingMonitor("r")
monitor.update_batch(1)
raise FloatingPointError("boom")
"""
    assert "FloatingPointError: boom" in run_python(code, tmp_path, expect=1)
    record = decode(next(tmp_path.glob("*.tv")).read_bytes())
    assert record.state[STATE["state"]] == runfile.State.FAILED
    assert record.last_words == "FloatingPointError"


def test_a_script_that_ends_says_so(tmp_path):
    """A script that ends without calling `finish` leaves the state ENDED."""
    run_python(
        "from trainvitals import TrainingMonitor as T; m = T('r'); m.update_batch(1)", tmp_path
    )
    record = decode(next(tmp_path.glob("*.tv")).read_bytes())
    assert record.state[STATE["state"]] == runfile.State.ENDED
    assert record.step[STEP["steps"]] == 1.0


def test_a_forked_child_never_writes(make, tmp_path):
    """The monitor in a forked child writes nothing, ends nothing and keeps no file open."""
    monitor = make()
    update_batch, log = monitor.update_batch, monitor.log  # as a data set might keep them
    monitor.update_batch(1)
    pid = os.fork()
    if pid == 0:
        try:
            monitor.update_batch(1000, loss=9.0)
            update_batch(1000)
            log(val_iou=0.5)
            monitor.finish()
            held = [str(path.resolve()) for path in Path("/proc/self/fd").iterdir()]
            held.append(Path("/proc/self/maps").read_text(encoding="utf-8"))
            os._exit(any(str(tmp_path) in each for each in held))
        finally:
            os._exit(2)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    words = read(monitor)
    assert (words["samples"], words["state"]) == (1.0, runfile.State.RUNNING)
    assert words["free"] == {}
    monitor.update_batch(1)
    assert read(monitor)["samples"] == 2.0
    assert len(list(tmp_path.iterdir())) == 1


class OutOfMemoryError(RuntimeError):
    """The error that frameworks raise, under this name, if the device has no memory left."""


@pytest.mark.parametrize(
    ("exception", "is_noted"), [(OutOfMemoryError(), True), (MemoryError(), False)]
)
def test_only_memory_of_the_device_is_noted_as_such(make, exception, is_noted):
    """Only the device's OutOfMemoryError is recorded as out of memory, not Python's MemoryError."""
    monitor = make()
    monitor.fail(exception)
    words = read(monitor)
    assert words["state"] == runfile.State.FAILED
    assert ("last_oom_time" in words) is is_noted


def make_monitor_in_worker(path):
    """Make a monitor as an imported training script does, and return whether it has a file."""
    return TrainingMonitor("w", run_dir=path).path is not None


def test_a_worker_of_multiprocessing_makes_no_file(tmp_path):
    """A monitor in a daemonic child without a given rank makes no run file."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(make_monitor_in_worker, (str(tmp_path),)) is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trouble", ["missing", "read-only", "file", "no fcntl"])
def test_training_goes_on_without_a_run_file(tmp_path, trouble, monkeypatch, caplog):
    """Without a run file, one warning is logged and the monitor still measures throughput."""
    run_dir = tmp_path / "runs"
    if trouble == "missing":
        run_dir = Path("/proc/nowhere/runs")
    elif trouble == "read-only":
        run_dir = Path("/proc/self/fdinfo")
    elif trouble == "file":
        run_dir.write_text("")
    else:
        monkeypatch.setitem(sys.modules, "fcntl", None)
    with caplog.at_level(logging.WARNING):
        monitor = TrainingMonitor("r", run_dir=run_dir)
        monitor.start_epoch()
        for _ in range(3):
            monitor.update_batch(2, 5, loss=1.0)
        monitor.finish()
    assert monitor.path is None
    assert monitor.samples_processed == 6
    assert monitor.get_throughput()["samples_per_second"] > 0
    assert monitor.errors.count == 0
    assert len(caplog.records) == 1
    assert "cannot see run r" in caplog.text


def test_a_file_that_is_deleted_under_the_run_does_not_matter(make, caplog):
    """A deleted run file causes no errors, and a warning at the end of the run."""
    monitor = make()
    monitor.path.unlink()
    for _ in range(10):
        monitor.update_batch(1, loss=0.5)
    assert monitor.samples_processed == 10
    monitor.finish()
    assert monitor.errors.count == 0
    (line,) = caplog.messages
    assert line.startswith("the run file of run r was deleted under it: ")


def test_two_monitors_never_share_a_file(make):
    """Two monitors of one process have separate files."""
    first, second = make(), make()
    first.update_batch(1)
    second.update_batch(5)
    assert first.path != second.path
    assert (read(first)["samples"], read(second)["samples"]) == (1.0, 5.0)


def test_the_client_tells_what_it_costs(make):
    """The monitor records its own overhead, which is measured on one step of 64."""
    monitor = make()
    for _ in range(129):
        monitor.update_batch(1)
    assert read(monitor)["overhead_seconds"] == 0.0  # the test's clock stands still


def test_a_batch_of_odd_types_is_counted(make):
    """Sample and token counts may be whole floats or booleans."""
    monitor = make()
    monitor.update_batch(2.0, 3)
    monitor.update_batch(True, tokens=4)  # noqa: FBT003 - what some loops pass
    words = read(monitor)
    assert (words["samples"], words["tokens"]) == (3.0, 10.0)


def test_a_value_that_cannot_be_read_is_told_once(make, caplog):
    """A loss that cannot be read without waiting is skipped and causes one log message."""

    class Array:
        """An array that is computed in the background."""

    monitor = make()
    for _ in range(3):
        monitor.update_batch(1, loss=Array())
    assert "loss" not in read(monitor)
    (told,) = [record.message for record in caplog.records]
    assert told.startswith("training monitor: a value of type Array cannot be read without waiting")
    assert monitor.errors.count == 0
