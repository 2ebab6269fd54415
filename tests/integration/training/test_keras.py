"""Small trainings by real Keras with its torch backend, and their run files."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

os.environ["KERAS_BACKEND"] = "torch"  # Keras reads it once, when it is imported

import keras

from tests.support.run_files import decode, read_only, state, step
from trainvitals.keras import TrainvitalsCallback
from trainvitals.runfile import State
from trainvitals.training.monitor import TrainingMonitor

SOURCE_ROOT = Path(__file__).parents[3] / "exporter"
GENERATOR = np.random.default_rng(3)
X = GENERATOR.normal(size=(64, 8)).astype("float32")
Y = X.sum(axis=1, keepdims=True)

# Keras' variables do not support the `copy` argument of NumPy 2.
pytestmark = [
    pytest.mark.usefixtures("run_dir"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


class Peek(keras.callbacks.Callback):
    """A callback that keeps the phase in the named hooks, after the callback before it."""

    def __init__(self, callback, *hooks):
        super().__init__()
        self.callback = callback
        self.seen = []
        for hook in hooks:
            setattr(self, hook, lambda *_, hook=hook, **__: self.look(hook))

    def look(self, hook):
        """Keep the hook and the current phase."""
        self.seen.append((hook, self.callback.monitor.current_phase))


def make_model():
    """Return a small model with the same weights each time."""
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse", metrics=["mae"])
    return model


def fit(*callbacks, model=None, x=X, y=Y, **settings):
    """Train with 16 batches of 4 samples in each epoch, and return the history."""
    chosen = {"batch_size": 4, "epochs": 2, "verbose": 0, **settings}
    return (model or make_model()).fit(x, y, callbacks=list(callbacks), **chosen)


def test_a_fit_is_recorded_whole(run_dir):
    """The run file has all values of a fit of two epochs with validation."""
    history = fit(TrainvitalsCallback("whole", batch_size=4), validation_data=(X[:16], Y[:16]))
    record = read_only(run_dir)
    assert record.identity.run == "whole"
    assert record.identity.static["framework"] == "keras"
    assert record.identity.static["framework_version"].startswith("3.")
    assert record.identity.static["framework_version"].endswith(" (torch)")
    assert step(record, "steps") == 32
    assert step(record, "global_step") == 32
    assert step(record, "epoch_step") == 16
    assert step(record, "samples") == 128
    assert state(record, "epoch") == 1
    assert state(record, "total_epochs") == 2
    assert state(record, "epoch_steps") == 16
    assert state(record, "total_steps") == 32
    assert state(record, "first_global_step") == 0
    assert state(record, "evaluations") == 2
    assert state(record, "evaluations_since_improvement") == 0
    assert state(record, "state") == State.FINISHED
    assert step(record, "loss") == history.history["loss"][-1]
    assert state(record, "validation_loss") == history.history["val_loss"][-1]
    metrics = {
        name: state(record, f"metric_{number}") for number, name in enumerate(record.metrics)
    }
    assert metrics == {
        ("mae", ""): history.history["mae"][-1],
        ("mae", "validation"): history.history["val_mae"][-1],
    }
    assert step(record, "total_other") > 0
    assert step(record, "total_validation") > 0
    for phase in ("data_wait", "forward", "backward", "optimizer"):
        assert step(record, f"total_{phase}") == 0, phase
    assert step(record, "errors") == 0


def test_the_training_stays_asynchronous():
    """With the callback, Keras keeps its asynchronous mode and does not wait for batch values."""
    callbacks = keras.callbacks.CallbackList([TrainvitalsCallback()])
    assert callbacks._async_train


def test_phases_are_marked_where_they_are():
    """The phase is `validation` during a validation and `other` at all other times."""
    callback = TrainvitalsCallback()
    peek = Peek(callback, "on_epoch_begin", "on_train_batch_begin", "on_test_begin",
                "on_test_end", "on_epoch_end")  # fmt: skip
    fit(callback, peek, x=X[:8], y=Y[:8], epochs=1, validation_data=(X[:4], Y[:4]))
    assert peek.seen == [
        ("on_epoch_begin", "other"),
        ("on_train_batch_begin", "other"),
        ("on_train_batch_begin", "other"),
        ("on_test_begin", "validation"),
        ("on_test_end", "other"),
        ("on_epoch_end", "other"),
    ]


def test_samples_are_unknown_without_a_batch_size(run_dir):
    """Without `batch_size` the samples are unknown, and steps are counted all the same."""
    fit(TrainvitalsCallback(), epochs=1)
    record = read_only(run_dir)
    assert step(record, "steps") == 16
    assert step(record, "samples") is None


def test_nan_is_counted(run_dir):
    """NaN losses are counted from the batch that makes the mean of the epoch NaN."""
    x = X.copy()
    x[40] = np.nan
    fit(TrainvitalsCallback(), x=x, epochs=1, shuffle=False)
    record = read_only(run_dir)
    # The mean is NaN after batches 10 to 15; all values but the last may arrive too late to count.
    assert 1 <= step(record, "nonfinite_losses") <= 6
    assert np.isnan(step(record, "loss"))
    assert state(record, "last_nonfinite_time") is not None


def test_means_are_not_searched_for_spikes(run_dir):
    """Keras' running means are not searched for loss spikes, even if the losses rise steeply."""
    x = np.concatenate([X, X, X, X, X, X, X, 50 * X])
    fit(TrainvitalsCallback(), x=x, y=np.zeros((512, 1)), epochs=1, shuffle=False)
    record = read_only(run_dir)
    assert state(record, "loss_spikes") == 0
    assert step(record, "loss_ema") is None


def test_a_resumed_fit_counts_its_own_work_only(run_dir, tmp_path):
    """A fit of a loaded model starts at step 16 and counts only its own 32 steps."""
    model = make_model()
    fit(TrainvitalsCallback(), model=model, epochs=1)
    model.save(tmp_path / "model.keras")
    (first,) = run_dir.iterdir()
    first.unlink()
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    fit(TrainvitalsCallback(batch_size=4), model=loaded, initial_epoch=1, epochs=3)
    record = read_only(run_dir)
    assert state(record, "first_global_step") == 16
    assert step(record, "global_step") == 48
    assert step(record, "steps") == 32
    assert step(record, "samples") == 128
    assert state(record, "epoch") == 2
    assert state(record, "total_steps") == 48


def test_several_batches_in_one_execution_are_one_step(run_dir):
    """With steps_per_execution=4 the hooks for batches 0, 4 and 8 are three steps of 10 batches.

    The test calls the hooks itself, because the torch backend does not support this setting.
    """
    callback = TrainvitalsCallback(batch_size=2)
    model = make_model()
    model.steps_per_execution = 4
    callback.set_model(model)
    callback.set_params({"epochs": 1, "steps": 10, "verbose": 0})
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    for batch in (0, 4, 8):
        callback.on_train_batch_begin(batch)
    callback.on_test_begin()  # the values of the last batch are still on their way
    callback.on_epoch_end(0, {"loss": 1.5})
    record = read_only(run_dir)
    assert step(record, "steps") == 3
    assert step(record, "global_step") == 10
    assert step(record, "samples") == 20
    assert step(record, "loss") == 1.5


def test_late_and_unordered_values_change_nothing(run_dir):
    """If batches end on many threads in any order, the value of the latest batch counts."""
    callback = TrainvitalsCallback()
    callback.set_params({"epochs": 1, "steps": 100, "verbose": 0})
    callback.set_model(make_model())
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.on_train_batch_begin(0)
    with ThreadPoolExecutor(8) as pool:
        for batch in [*range(50, 100), *range(50)]:
            pool.submit(callback.on_train_batch_end, batch, {"loss": float(batch)})
    callback.on_train_batch_begin(100)
    record = read_only(run_dir)
    assert step(record, "loss") == 99
    assert step(record, "steps") == 1
    callback.on_train_end()


@pytest.mark.parametrize(
    "broken", ["_end_step", "_find_end", "_read_parameter", "monitor", "_received"]
)
def test_an_error_of_ours_does_not_end_the_fit(run_dir, monkeypatch, caplog, broken):
    """An error of the callback is logged once and does not change the trained weights."""
    alone = make_model()
    fit(model=alone, shuffle=False)

    def fail(*_, **__):
        raise RuntimeError("injected")

    callback = TrainvitalsCallback()
    if broken == "monitor":
        monkeypatch.setattr("trainvitals.keras._MeansMonitor", fail)
    elif broken == "_received":
        monkeypatch.setattr("trainvitals.keras._BatchValues.put", fail)
    else:
        monkeypatch.setattr(TrainvitalsCallback, broken, fail)
    model = make_model()
    fit(callback, model=model, shuffle=False, validation_data=(X, Y))
    assert np.array_equal(model.get_weights()[0], alone.get_weights()[0])
    assert len([message for message in caplog.messages if "RuntimeError" in message]) == 1


def test_every_hook_is_guarded():
    """Every hook is wrapped, so that no error of the callback reaches Keras."""
    for name in vars(TrainvitalsCallback):
        if name.startswith("on_"):
            assert hasattr(getattr(TrainvitalsCallback, name), "__wrapped__"), name


def test_a_fit_after_one_that_broke_is_another_run(run_dir):
    """The next fit marks the interrupted one as failed and makes a run file of its own."""

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, *_, **__):
            raise KeyboardInterrupt

    callback = TrainvitalsCallback(batch_size=4)
    with pytest.raises(KeyboardInterrupt):
        fit(callback, Stop())
    (broken,) = run_dir.glob("*.tv")
    fit(callback, epochs=1)
    assert state(decode(broken.read_bytes()), "state") == State.FAILED
    broken.unlink()
    record = read_only(run_dir)
    assert state(record, "state") == State.FINISHED
    assert step(record, "samples") == 64


def test_a_monitor_of_the_users_own_is_finished_by_the_user(run_dir):
    """Several fits with the user's monitor are one run, which the user finishes."""
    with TrainingMonitor("both") as monitor:
        for _ in range(2):
            fit(TrainvitalsCallback(monitor=monitor), epochs=1)
            assert monitor.current_phase == "idle"
        record = read_only(run_dir)
        assert step(record, "steps") == 32
        assert state(record, "state") == State.RUNNING
    assert state(read_only(run_dir), "state") == State.FINISHED


def test_an_evaluation_by_itself_is_no_run(run_dir):
    """`evaluate` with the callback makes no run file."""
    callback = TrainvitalsCallback()
    make_model().evaluate(X, Y, callbacks=[callback], verbose=0)
    assert not run_dir.exists()


@pytest.mark.parametrize(
    ("missing", "advice"),
    [
        ("keras", "pip install keras"),
        ("torch", "pip install torch, or set KERAS_BACKEND to a backend that is"),
    ],
)
def test_without_keras_or_its_backend_one_line_says_what_to_do(missing, advice):
    """Without Keras or its backend, the ImportError says what to install."""
    code = f"import sys; sys.modules[{missing!r}] = None; import trainvitals.keras"
    environ = {**os.environ, "PYTHONPATH": str(SOURCE_ROOT)}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert answer.stderr.splitlines()[-1] == (
        f"ImportError: trainvitals.keras needs {missing}, which is not installed: {advice}"
    )
