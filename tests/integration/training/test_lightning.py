"""Small fits by real Trainers of both Lightning distributions, and their output and run files."""

# ruff: noqa: ARG002 - Lightning decides about the parameters of its hooks

import contextlib
import csv
import importlib.util
import inspect
import logging
import os
import pickle
import re
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch
import pytest
import pytorch_lightning
import torch
import yaml
from hydra.utils import instantiate

from tests.support.run_files import decode, events, read_only, state, step
from trainvitals.lightning import ResourceMonitorCallback, _choose_gpus
from trainvitals.runfile import ALERTS, STATE, State
from trainvitals.training.monitor import TrainingMonitor

ROOT = Path(__file__).parents[3]
PACKAGES = (lightning.pytorch, pytorch_lightning)

pytestmark = [
    pytest.mark.usefixtures("run_dir"),
    pytest.mark.filterwarnings("ignore:The '(train|val)_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:The number of training batches .* is smaller than the log"),
    pytest.mark.filterwarnings("ignore:GPU available but not used"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX` has been removed"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]


def make_model(package, **settings):
    """Return a linear model of one of the distributions."""

    class Model(package.LightningModule):
        """A model that learns a sum, with the losses of the settings."""

        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)
            self.example = settings

        def training_step(self, batch, batch_idx):
            """Return a loss."""
            x, y = batch
            loss = ((self.linear(x) - y) ** 2).mean()
            if "loss" in settings:
                loss = loss * 0 + settings["loss"][batch_idx]
            if batch_idx == settings.get("raises_at"):
                raise ZeroDivisionError("as the test wants")
            time.sleep(settings.get("step_seconds", 0))
            self.log("train_acc", 0.25)
            self.log("grad_norm", 1.5)
            self.log("teacher_ratio", 0.5)
            return loss

        def validation_step(self, batch, batch_idx):
            """Log the values of an evaluation."""
            self.log("val_loss", settings.get("validation_loss", 0.75))
            self.log("val_acc", 0.5)
            self.log("val_iou", 0.0902)

        def configure_optimizers(self):
            """Return an optimizer with a known learning rate."""
            return torch.optim.SGD(self.parameters(), lr=0.0625)

    return Model()


def load(rows=32, batch_size=4, **settings):
    """Return a data loader with random rows."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, 4, generator=generator)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    return torch.utils.data.DataLoader(data, batch_size=batch_size, **settings)


@pytest.fixture(params=PACKAGES, ids=lambda package: package.__name__)
def package(request):
    """Return each of the two distributions in turn."""
    return request.param


def fit(callbacks, *, package=lightning.pytorch, model=None, train=None, validate=None, **settings):
    """Fit a model and return the trainer."""
    chosen = {
        "accelerator": "cpu",
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        **settings,
    }
    trainer = package.Trainer(callbacks=callbacks, **chosen)
    trainer.fit(model or make_model(package), train or load(), validate)
    return trainer


def metrics(record):
    """Return the free metrics of a run file by name."""
    return {name: record.state[STATE[f"metric_{i}"]] for i, (name, _) in enumerate(record.metrics)}


def rows(path):
    """Return the rows of a CSV file."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# The interface of the callback.


def test_the_parameters_are_the_published_ones():
    """The published parameters keep their order and defaults; newer ones are keyword-only."""
    parameters = inspect.signature(ResourceMonitorCallback).parameters.values()
    positional = {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    assert list(positional.items()) == [
        ("enabled", True),
        ("log_interval", 10),
        ("gpu_monitoring", True),
        ("cpu_monitoring", True),
        ("io_monitoring", True),
        ("alert_gpu_underutilization", True),
        ("alert_memory_pressure", True),
        ("alert_io_bottleneck", True),
        ("gpu_util_threshold", 0.5),
        ("memory_threshold", 0.9),
        ("io_wait_threshold", 0.3),
        ("export_timeseries", True),
        ("timeseries_path", "resource_logs"),
    ]
    assert {p.kind for p in parameters} == {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }


def test_it_is_a_callback_of_both_distributions():
    """The callback is an instance of the `Callback` class of both distributions."""
    callback = ResourceMonitorCallback()
    assert isinstance(callback, lightning.pytorch.Callback)
    assert isinstance(callback, pytorch_lightning.Callback)


@pytest.mark.parametrize("hidden", PACKAGES, ids=lambda package: package.__name__)
def test_one_distribution_is_enough(hidden, monkeypatch):
    """The callback works with one distribution if the other one is not installed."""
    (other,) = (package for package in PACKAGES if package is not hidden)
    monkeypatch.setitem(sys.modules, hidden.__name__, None)
    monkeypatch.delitem(sys.modules, "trainvitals.training.lightning_packages")
    spec = importlib.util.find_spec("trainvitals.lightning")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert issubclass(module.ResourceMonitorCallback, other.Callback)
    assert not issubclass(module.ResourceMonitorCallback, hidden.Callback)


def test_without_lightning_the_import_says_what_to_do():
    """Without Lightning, the ImportError says in one line what to install."""
    code = (
        "import sys; sys.modules['lightning'] = sys.modules['pytorch_lightning'] = None\n"
        "import trainvitals.lightning\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "exporter")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == (
        "ImportError: trainvitals.lightning needs Lightning: run `pip install lightning`"
    )


def test_the_configuration_file_makes_a_callback():
    """Hydra makes a callback with every published parameter from docs/resource_monitor.yaml."""
    settings = yaml.safe_load((ROOT / "docs/resource_monitor.yaml").read_text(encoding="utf-8"))
    callback = instantiate(settings)["resource_monitor"]
    assert type(callback) is ResourceMonitorCallback
    assert callback.log_interval == 10
    assert callback.timeseries_path == "resource_logs"
    assert len(settings["resource_monitor"]) == 14


# The output of a fit.


def test_a_fit_prints_the_block_every_so_many_batches(package, capsys):
    """A fit prints the published lines every `log_interval` batches, with no line for a GPU."""
    fit(ResourceMonitorCallback(log_interval=4, io_wait_threshold=1.0), package=package)
    output = capsys.readouterr().out
    block = (
        r"\[Resources\] Batch {}:\n"
        r"  CPU: \d+\.\d% \(process: \d+\.\d%\)\n"
        r"  Memory: \d+/\d+ MB available \(\d+%\)\n"
        r"  I/O: Read \d+\.\d MB/s, Write \d+\.\d MB/s(, Wait \d+\.\d%)?\n"
    )
    found = output[output.index("[Resources]") :]
    assert re.match(block.format(0) + block.format(4), found)
    assert output.count("[Resources]") == 2


def test_a_fit_writes_a_file_for_each_epoch(package, tmp_path):
    """Each epoch has a CSV file with the published columns first, and steps count on."""
    callback = ResourceMonitorCallback(log_interval=4, sample_seconds=0)
    fit(callback, package=package, max_epochs=2)
    files = sorted(path.name for path in (tmp_path / "resource_logs").iterdir())
    assert files == ["epoch_0.csv", "epoch_1.csv"]
    first, second = (rows(tmp_path / "resource_logs" / name) for name in files)
    assert list(first[0])[:7] == [
        "step",
        "timestamp",
        "gpu_0_util",
        "gpu_0_memory_pct",
        "cpu_percent",
        "memory_percent",
        "io_read_rate_mbps",
    ]
    assert [row["step"] for row in first + second] == ["0", "4", "8", "12"]
    assert first[0]["gpu_0_util"] == ""
    assert float(first[1]["memory_percent"]) > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", first[0]["timestamp"])


def test_a_fit_feeds_the_run_file(package, run_dir):
    """The run file has the steps, samples, losses, logged values and validations of a fit."""
    model = make_model(package, loss=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    fit(
        ResourceMonitorCallback(run="example", log_interval=100),
        package=package,
        model=model,
        validate=load(8),
        max_epochs=2,
        log_every_n_steps=1,
    )
    record = read_only(run_dir)
    assert record.identity.run == "example"
    assert record.identity.static["framework"] == "lightning"
    assert record.identity.static["framework_version"] == package.__version__
    assert (step(record, "steps"), step(record, "samples")) == (16, 64)
    assert (step(record, "global_step"), step(record, "epoch_step")) == (16, 8)
    assert (step(record, "loss"), step(record, "learning_rate")) == (8.0, 0.0625)
    assert (step(record, "accuracy"), step(record, "gradient_norm")) == (0.25, 1.5)
    assert (state(record, "epoch"), state(record, "total_epochs")) == (1, 2)
    assert state(record, "epoch_steps") == 8
    assert (state(record, "validation_loss"), state(record, "validation_accuracy")) == (0.75, 0.5)
    assert state(record, "evaluations") == 2
    assert metrics(record) == {"teacher_ratio": 0.5, "val_iou": pytest.approx(0.0902)}
    assert state(record, "state") == State.FINISHED
    assert step(record, "errors") == 0


def test_phases_are_timed_by_the_hooks(run_dir):
    """A slow step counts as forward time, and a slow dataset counts as waiting for data."""

    class Slow(torch.utils.data.Dataset):
        """A dataset whose samples take 5 ms each."""

        def __len__(self):
            return 32

        def __getitem__(self, index):
            time.sleep(0.005)
            return torch.zeros(4), torch.zeros(1)

    model = make_model(lightning.pytorch, step_seconds=0.02)
    train = torch.utils.data.DataLoader(Slow(), batch_size=4)
    fit(ResourceMonitorCallback(log_interval=100), model=model, train=train, validate=load(8))
    record = read_only(run_dir)
    assert 0.16 <= step(record, "total_data_wait") < 3
    assert 0.16 <= step(record, "total_forward") < 3
    for phase in ("backward", "optimizer", "validation"):
        assert 0 < step(record, f"total_{phase}") < 3, phase


def test_accumulated_batches_are_one_step(run_dir):
    """Accumulated batches are one step with the mean of their losses, also in a partial group."""
    model = make_model(lightning.pytorch, loss=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0])
    callback = ResourceMonitorCallback(log_interval=100)
    fit(callback, model=model, accumulate_grad_batches=3)
    record = read_only(run_dir)
    assert (step(record, "steps"), step(record, "samples")) == (3, 32)
    assert step(record, "global_step") == 3
    assert step(record, "loss") == pytest.approx(8.0)
    assert state(record, "epoch_steps") == 3


def test_the_trial_validation_is_none(run_dir):
    """The sanity validation before the training does not count as an evaluation."""
    fit(ResourceMonitorCallback(), validate=load(8), limit_val_batches=2, check_val_every_n_epoch=5)
    record = read_only(run_dir)
    assert state(record, "evaluations") == 0
    assert step(record, "total_validation") == 0
    assert state(record, "validation_loss") is None


def test_checkpoints_are_counted_and_go_where_they_would(tmp_path, run_dir):
    """Checkpoints are counted and written to the same directory as without the callback."""
    fit(
        ResourceMonitorCallback(),
        enable_checkpointing=True,
        max_epochs=2,
        default_root_dir=str(tmp_path),
    )
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1
    record = read_only(run_dir)
    assert state(record, "checkpoints") == 2
    assert step(record, "total_checkpoint") > 0
    assert state(record, "last_checkpoint_time") is not None


def test_a_step_makes_few_calls():
    """A step makes at most 36 calls of functions of the package."""
    calls = []

    class Count(lightning.pytorch.Callback):
        """A callback that counts the calls in all batches except the first."""

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            """Start to count with the second batch."""
            if batch_idx == 0:
                sys.setprofile(self.count)

        def on_train_epoch_end(self, trainer, pl_module):
            """Stop after the last batch."""
            sys.setprofile(None)

        def count(self, frame, event, _):
            """Keep the name of a called function of the package."""
            if event == "call" and "/trainvitals/" in frame.f_code.co_filename:
                calls.append(frame.f_code.co_name)

    fit([ResourceMonitorCallback(log_interval=1000), Count()], train=load(65 * 4))
    assert 0 < len(calls) / 64 <= 36


def test_loggers_of_the_user_stay_and_ours_goes(tmp_path):
    """The callback's logger is the last one during a fit and is removed after the fit."""
    own = lightning.pytorch.loggers.CSVLogger(str(tmp_path), name="own")
    seen = []

    class Peek(lightning.pytorch.Callback):
        """A callback that keeps the Trainer's loggers."""

        def on_train_start(self, trainer, pl_module):
            """Keep the loggers."""
            seen.extend(trainer.loggers)

    trainer = fit([ResourceMonitorCallback(), Peek()], logger=own, log_every_n_steps=1)
    assert seen[0] is own
    assert len(seen) == 2
    assert trainer.loggers == [own]


def test_a_resumed_fit_goes_on_where_it_was(tmp_path, run_dir):
    """A resumed fit continues the global step and counts only its own steps."""
    checkpoint = tmp_path / "last.ckpt"
    first = fit(ResourceMonitorCallback(), max_epochs=1)
    first.save_checkpoint(checkpoint)
    for path in run_dir.iterdir():
        path.unlink()
    trainer = lightning.pytorch.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ResourceMonitorCallback()],
    )
    trainer.fit(make_model(lightning.pytorch), load(), ckpt_path=checkpoint)
    record = read_only(run_dir)
    assert state(record, "first_global_step") == 8
    assert (step(record, "global_step"), step(record, "steps")) == (16, 8)
    assert "resume" in events(record)
    assert [row["step"] for row in rows("resource_logs/epoch_1.csv")] == ["8"]


def test_manual_optimisation_counts_every_batch(run_dir):
    """With manual optimisation each batch is a step, even with two optimizers and no loss."""

    class Manual(lightning.pytorch.LightningModule):
        """A model with manual optimisation."""

        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.linear = torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            """Do two backward passes and two steps."""
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self.linear(batch[0]).mean())
                optimizer.step()

        def configure_optimizers(self):
            """Return two optimizers."""
            return [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2)]

    callback = ResourceMonitorCallback(log_interval=4)
    fit(callback, model=Manual())
    record = read_only(run_dir)
    assert (step(record, "steps"), step(record, "samples")) == (8, 32)
    assert step(record, "global_step") == 16
    assert callback.errors.count == 0


@pytest.mark.filterwarnings("ignore:You are using the `dataloader_iter` step flavor")
@pytest.mark.filterwarnings("ignore:Found `dataloader_iter` argument in the `training_step`")
def test_an_iterator_taken_by_the_step_is_counted(run_dir, capsys):
    """Steps are counted without Lightning's batch index if the step takes an iterator."""

    class Taking(lightning.pytorch.LightningModule):
        """A model that takes its batches from an iterator."""

        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def training_step(self, dataloader_iter):
            """Take a batch and return its loss."""
            batch, _, _ = next(dataloader_iter)
            return self.linear(batch[0]).mean()

        def configure_optimizers(self):
            """Return an optimizer."""
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = ResourceMonitorCallback(log_interval=4)
    fit(callback, model=Taking())
    assert re.findall(r"Batch (\d+):", capsys.readouterr().out) == ["0", "4"]
    assert step(read_only(run_dir), "steps") == 8
    assert callback.errors.count == 0


def test_a_nan_loss_is_counted(run_dir):
    """NaN losses are counted in training and in validation."""
    nan = float("nan")
    model = make_model(lightning.pytorch, loss=[1.0, nan] * 4, validation_loss=nan)
    fit(ResourceMonitorCallback(), model=model, validate=load(8))
    record = read_only(run_dir)
    assert step(record, "nonfinite_losses") == 4
    assert state(record, "nonfinite_evaluations") == 1


def test_an_exception_of_the_model_is_recorded(package, run_dir):
    """An exception of the model reaches the user, and the run file has its class."""
    callback = ResourceMonitorCallback()
    with pytest.raises(ZeroDivisionError):
        fit(callback, package=package, model=make_model(package, raises_at=3))
    record = read_only(run_dir)
    assert state(record, "state") == State.FAILED
    assert record.last_words == "ZeroDivisionError"
    assert step(record, "steps") == 3
    assert state(record, "data_errors") == 0
    assert callback.errors.count == 0


def test_an_exception_of_the_loader_is_a_data_error(run_dir):
    """An exception of the data loader is counted as a data error."""

    class Broken(torch.utils.data.Dataset):
        """A dataset whose sample 10 raises an error."""

        def __len__(self):
            return 32

        def __getitem__(self, index):
            if index == 10:
                raise OSError("as the test wants")
            return torch.zeros(4), torch.zeros(1)

    with pytest.raises(OSError, match="as the test wants"):
        fit(ResourceMonitorCallback(), train=torch.utils.data.DataLoader(Broken(), batch_size=4))
    record = read_only(run_dir)
    assert state(record, "data_errors") == 1
    assert record.last_words == "OSError"


def test_a_monitor_of_the_user_is_used_and_left_open(run_dir):
    """A monitor of the user is used by the callback and not finished by it."""
    with TrainingMonitor("mine") as monitor:
        callback = ResourceMonitorCallback(monitor=monitor)
        fit(callback)
        assert callback.monitor is monitor
        assert state(read_only(run_dir), "state") == State.RUNNING
    record = read_only(run_dir)
    assert record.identity.run == "mine"
    assert step(record, "steps") == 8


def test_a_callback_serves_one_fit_after_another(run_dir):
    """Two fits with one callback make two finished run files."""
    callback = ResourceMonitorCallback()
    for _ in range(2):
        fit(callback)
    records = [decode(path.read_bytes()) for path in run_dir.glob("*.tv")]
    assert [state(record, "state") for record in records] == [State.FINISHED] * 2
    assert [step(record, "steps") for record in records] == [8, 8]


def test_validating_and_testing_alone_make_no_run(run_dir):
    """`Trainer.validate` without a fit makes no run file."""
    callback = ResourceMonitorCallback()
    trainer = lightning.pytorch.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=[callback]
    )
    trainer.validate(make_model(lightning.pytorch), load(8), verbose=False)
    assert not run_dir.exists()
    assert callback.errors.count == 0


def test_other_ranks_print_nothing_and_have_files_of_their_own(run_dir, tmp_path):
    """Of two ranks only rank 0 prints, and each has its own CSV file and run file."""
    program = (
        "import sys; sys.modules['pytorch_lightning'] = None\n"
        "import torch, lightning.pytorch as pl\n"
        "from trainvitals.lightning import ResourceMonitorCallback\n"
        "torch.set_num_threads(1)\n"
        "class Model(pl.LightningModule):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = torch.nn.Linear(4, 1)\n"
        "    def training_step(self, batch, batch_idx):\n"
        "        loss = self.linear(batch[0]).mean()\n"
        "        self.log('train_loss', loss, sync_dist=True)\n"
        "        return loss\n"
        "    def validation_step(self, batch, batch_idx):\n"
        "        self.log('val_loss', float(self.global_rank), sync_dist=True)\n"
        "    def configure_optimizers(self):\n"
        "        return torch.optim.SGD(self.parameters(), lr=0.1)\n"
        "data = torch.utils.data.TensorDataset(torch.randn(32, 4))\n"
        "load = lambda: torch.utils.data.DataLoader(data, batch_size=4)\n"
        "pl.Trainer(accelerator='cpu', devices=2, strategy='ddp_fork', max_epochs=1,\n"
        "    enable_progress_bar=False, logger=False, log_every_n_steps=1,\n"
        "    callbacks=[ResourceMonitorCallback(run='two', log_interval=2)],\n"
        ").fit(Model(), load(), load())\n"
    )
    script = tmp_path / "train.py"
    script.write_text(program)
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "exporter"), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, script], env=environ, capture_output=True, text=True, check=False,
        timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.findall(r"\[Resources\] Batch (\d)", done.stdout) == ["0", "2"]
    files = sorted(path.name for path in (tmp_path / "resource_logs").iterdir())
    assert files == ["epoch_0.csv", "epoch_0.rank1.csv"]
    records = [decode(path.read_bytes()) for path in run_dir.glob("*.tv")]
    assert sorted(record.identity.rank for record in records) == [0, 1]
    assert {record.identity.world_size for record in records} == {2}
    assert {step(record, "steps") for record in records} == {4}
    assert {state(record, "validation_loss") for record in records} == {0.5}
    assert {state(record, "state") for record in records} == {State.FINISHED}


# Faults of the callback that must not affect the training.


def test_an_error_of_ours_does_not_end_the_fit(package, caplog, monkeypatch):
    """An error of the callback is logged once, and after ten errors it switches itself off."""
    callback = ResourceMonitorCallback(log_interval=1)
    looks = []

    def fail():
        looks.append(1)
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(callback, "get_cpu_memory_metrics", fail)
    callback._sample_seconds = 0
    with caplog.at_level(logging.WARNING, logger="trainvitals"):
        trainer = fit(callback, package=package, max_epochs=4)
    assert trainer.global_step == 32
    assert len(looks) == 10
    told = [record.getMessage() for record in caplog.records if record.name == "trainvitals"]
    assert [line.partition(";")[0] for line in told] == [
        "the resource monitor: RuntimeError: a bug of ours",
        "the resource monitor switches itself off after 10 errors",
    ]


def test_every_hook_is_guarded():
    """Every hook is wrapped, so that no error of the callback reaches the Trainer."""
    hooks = [name for name in vars(ResourceMonitorCallback) if name.startswith("on_")]
    for name in (*hooks, "setup", "teardown"):
        assert hasattr(getattr(ResourceMonitorCallback, name), "__wrapped__"), name


class Broken:
    """A monitor whose attributes all raise an error."""

    def __getattr__(self, name):
        raise RuntimeError(f"a bug in {name}")


@pytest.mark.parametrize("raises_at", [None, 6])
def test_a_broken_monitor_changes_nothing(monkeypatch, tmp_path, raises_at):
    """A fit with a broken monitor ends with the same weights, also if the model itself fails."""
    weights = []
    for callbacks in ([], [ResourceMonitorCallback(log_interval=2)]):
        monkeypatch.setattr("trainvitals.lightning.TrainingMonitor", lambda *_, **__: Broken())
        torch.manual_seed(5)
        model = make_model(lightning.pytorch, raises_at=raises_at)
        with contextlib.suppress(ZeroDivisionError):
            fit(callbacks, model=model, validate=load(8), max_epochs=2, enable_checkpointing=True)
        weights.append(model.linear.weight.detach())
        assert model.trainer.loggers == []
    assert torch.equal(*weights)
    assert callbacks[0].errors.count >= 10


def test_a_machine_without_values_does_not_matter(monkeypatch):
    """An error of psutil, as in a sandbox without `/proc`, breaks neither constructor nor fit."""

    def fail(*_, **__):
        raise FileNotFoundError("/proc/stat")

    monkeypatch.setattr("psutil.cpu_times", fail)
    callback = ResourceMonitorCallback(log_interval=4)
    assert fit(callback).global_step == 8
    assert callback.errors.count > 0


def test_a_fit_that_switched_it_off_is_still_ended(run_dir, monkeypatch):
    """A fit that switched the callback off still ends with a finished run file."""
    callback = ResourceMonitorCallback(log_interval=1, sample_seconds=0)
    monkeypatch.setattr(callback, "export_timeseries", lambda *_: 1 / 0)
    trainer = fit(callback, max_epochs=3)
    assert callback.errors.count == 10
    assert trainer.loggers == []
    assert state(read_only(run_dir), "state") == State.FINISHED


def test_disabled_it_does_nothing(run_dir, tmp_path, capsys):
    """A disabled callback writes no file, prints no line, and has hooks that do nothing."""
    callback = ResourceMonitorCallback(enabled=False)
    trainer = fit(callback, validate=load(8))
    assert trainer.global_step == 8
    assert not run_dir.exists()
    assert not (tmp_path / "resource_logs").exists()
    assert "[Resources]" not in capsys.readouterr().out
    hooks = [name for name in vars(ResourceMonitorCallback) if name.startswith("on_")]
    assert len(hooks) == 13
    assert len({getattr(callback, name) for name in (*hooks, "setup", "teardown")}) == 1
    assert callback.on_train_batch_end(None, None, None, None, 0) is None


def test_what_cannot_be_written_is_logged_and_training_goes_on(tmp_path, caplog):
    """A CSV directory that cannot be made is logged once, and the training continues."""
    (tmp_path / "resource_logs").write_text("")
    callback = ResourceMonitorCallback(log_interval=1, sample_seconds=0)
    with caplog.at_level(logging.WARNING):
        trainer = fit(callback)
    assert trainer.global_step == 8
    assert callback.errors.count == 0
    assert len([r for r in caplog.records if "cannot write" in r.getMessage()]) == 1


def test_it_can_be_pickled():
    """The callback can be pickled, as a Trainer does for the ranks that it spawns."""
    callback = pickle.loads(pickle.dumps(ResourceMonitorCallback(log_interval=3)))
    assert callback.log_interval == 3
    assert fit(callback).global_step == 8


# The public methods of the callback.


def test_the_metrics_may_be_asked_for(monkeypatch):
    """The metrics methods return the published keys, even before any fit."""
    callback = ResourceMonitorCallback()
    assert callback.get_gpu_metrics() == {}
    assert set(callback.get_cpu_memory_metrics()) == {
        "cpu_percent",
        "cpu_process_percent",
        "memory_system_mb",
        "memory_available_mb",
        "memory_percent",
        "memory_process_mb",
    }
    assert {
        "disk_read_mb",
        "disk_write_mb",
        "io_read_rate_mbps",
        "io_write_rate_mbps",
    } <= set(callback.get_io_metrics())


def test_waiting_for_data_is_io_wait():
    """A run that waits for data in a quarter of its time has an I/O wait of 25 %."""
    clock = SimpleNamespace(seconds=0.0)
    callback = ResourceMonitorCallback(clock=lambda: clock.seconds)
    pace = callback._pace
    pace.wait()
    clock.seconds += 1
    pace.begin_batch()
    clock.seconds += 3
    pace.end_batch(8)
    assert callback.get_io_metrics()["io_wait_pct"] == 25.0


def test_alerts_may_be_asked_for():
    """`check_alerts` returns the published texts at every call, for its reading alone."""
    callback = ResourceMonitorCallback()
    reading = {"gpu_0_util": 42.3, "memory_percent": 92.1, "io_wait_pct": 35.0, "gpu_0_temp_c": 85}
    for _ in range(2):
        assert callback.check_alerts(reading) == [
            "⚠️ GPU underutilized: 42.3% (threshold: 50%)",
            "⚠️ High memory usage: 92.1% (threshold: 90%)",
            "⚠️ I/O bottleneck: 35.0% wait time (threshold: 30%)",
            "⚠️ GPU temperature high: 85°C",
        ]
        assert callback.check_alerts({}) == []


def test_alerts_that_are_asked_for_change_none_of_the_fit(run_dir, capsys, monkeypatch):
    """Calls of `check_alerts` between batches do not change the alerts that a fit prints."""

    class Asking(lightning.pytorch.Callback):
        """A callback that calls `check_alerts` before each batch."""

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            """Check a reading with an alert and one without."""
            assert len(callback.check_alerts({"memory_percent": 99.0})) == 1
            assert callback.check_alerts({"memory_percent": 1.0}) == []

    callback = ResourceMonitorCallback(log_interval=1, sample_seconds=0, io_wait_threshold=1.0)
    monkeypatch.setattr(callback, "get_cpu_memory_metrics", lambda: {"memory_percent": 95.0})
    fit([Asking(), callback])
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("  - High memory usage: 95.0% (threshold: 90%)") == 1
    assert not [line for line in lines if "cleared" in line]
    assert int(state(read_only(run_dir), "alerts")) == 1 << ALERTS.index("memory_pressure")


def test_alerts_can_be_switched_off_and_moved():
    """Parameters switch alerts off and change their thresholds."""
    reading = {"gpu_0_util": 42.3, "memory_percent": 92.1, "io_wait_pct": 35.0, "gpu_0_temp_c": 85}
    off = ResourceMonitorCallback(
        alert_gpu_underutilization=False,
        alert_memory_pressure=False,
        alert_io_bottleneck=False,
        temperature_threshold_celsius=None,
    )
    assert off.check_alerts(reading) == []
    moved = ResourceMonitorCallback(
        gpu_util_threshold=0.99,
        memory_threshold=0.01,
        io_wait_threshold=0.355,
        temperature_threshold_celsius=85,
    )
    assert moved.check_alerts(reading) == [
        "⚠️ GPU underutilized: 42.3% (threshold: 99%)",
        "⚠️ High memory usage: 92.1% (threshold: 1%)",
    ]


def test_the_time_series_may_be_written(tmp_path):
    """`export_timeseries` writes a row into the CSV file of the current epoch."""
    callback = ResourceMonitorCallback(timeseries_path=str(tmp_path / "logs"))
    callback.current_epoch = 7
    callback.export_timeseries({"cpu_percent": 45.2}, 20)
    callback._end()
    (row,) = rows(tmp_path / "logs/epoch_7.csv")
    assert (row["step"], row["cpu_percent"]) == ("20", "45.2")


# The alerts of a fit.


def test_alerts_are_printed_once_and_cleared(run_dir, capsys, monkeypatch):
    """An alert is printed once, cleared once, and also written to the run file."""
    callback = ResourceMonitorCallback(log_interval=1, sample_seconds=0, io_wait_threshold=1.0)
    percents = iter([95.0, 96.0, 97.0, 80.0, 80.0, 95.0, 95.0, 95.0])
    monkeypatch.setattr(
        callback, "get_cpu_memory_metrics", lambda: {"memory_percent": next(percents)}
    )
    fit(callback)
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("[Resources] ⚠️ ALERTS:") == 2
    assert lines.count("  - High memory usage: 95.0% (threshold: 90%)") == 2
    assert lines.count("[Resources] cleared: High memory usage: 80.0% (threshold: 90%)") == 1
    for before, line in pairwise(lines):
        if line == "[Resources] ⚠️ ALERTS:":
            assert before == ""
    record = read_only(run_dir)
    assert int(state(record, "alerts")) == 1 << ALERTS.index("memory_pressure")
    assert events(record).count("alert") == 2


def test_validation_is_no_time_of_underuse(monkeypatch):
    """Time in validation does not count towards the minute of GPU underutilization."""
    clock = SimpleNamespace(seconds=0.0)
    texts = []
    callback = ResourceMonitorCallback(
        cpu_monitoring=False,
        io_monitoring=False,
        export_timeseries=False,
        clock=lambda: clock.seconds,
        write=texts.append,
    )
    monkeypatch.setattr(callback, "get_gpu_metrics", lambda: {"gpu_0_util": 3.0})

    def is_told():
        callback._sample_batch(0, 0, prints=True)
        return "ALERTS" in texts.pop()

    assert not is_told()
    clock.seconds += 30
    callback._pause()
    clock.seconds += 600
    assert not is_told()
    callback._go_on()
    clock.seconds += 29
    assert not is_told()
    clock.seconds += 1
    assert is_told()


@pytest.mark.parametrize("adaptive", [True, False])
def test_what_is_unusual_for_the_run_is_reported(run_dir, capsys, adaptive):
    """Unusual step times are always in the run file, and printed only with `adaptive_alerts`."""

    class Slowing(lightning.pytorch.Callback):
        """A callback that makes batches slow from batch 40 on."""

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            """Advance the clock by 1 s, or by 10 s from batch 40 on."""
            clock.seconds += 1 if batch_idx < 40 else 10

    clock = SimpleNamespace(seconds=0.0)
    callback = ResourceMonitorCallback(
        log_interval=1, adaptive_alerts=adaptive, clock=lambda: clock.seconds
    )
    fit([callback, Slowing()], train=load(200))
    record = read_only(run_dir)
    assert state(record, "baseline_step_seconds") == 1.0
    assert state(record, "baseline_samples_per_second") == 4.0
    assert int(state(record, "deviations")) == 3
    names = {name for bit, name in enumerate(ALERTS) if int(state(record, "alerts")) >> bit & 1}
    assert {"adaptive_step_time", "adaptive_throughput"} <= names
    output = capsys.readouterr().out
    assert ("  - step time is 10 s, usually 1 s\n" in output) is adaptive
    assert ("  - 0.4 samples/s, usually 4\n" in output) is adaptive


# GPUs.


def test_a_fit_with_gpus_shows_them(tmp_path, capsys, monkeypatch):
    """The console and the CSV file have both GPUs, and alerts name the GPU."""
    own = {"alert_memory_pressure": False, "alert_io_bottleneck": False}  # depend on this machine
    callback = ResourceMonitorCallback(log_interval=50, alert_seconds=0, **own)
    metrics = {
        "gpu_0_util": 87.0,
        "gpu_0_memory_used_mb": 8192.0,
        "gpu_0_memory_total_mb": 16384.0,
        "gpu_0_memory_pct": 50.0,
        "gpu_0_temp_c": 72.0,
        "gpu_1_util": 42.0,
        "gpu_1_memory_used_mb": 1024.0,
        "gpu_1_memory_total_mb": 1024.0,
        "gpu_1_memory_pct": 100.0,
        "gpu_1_temp_c": 83.0,
    }
    monkeypatch.setattr(callback, "get_gpu_metrics", lambda: metrics)
    fit(callback)
    output = capsys.readouterr().out
    assert output[output.index("[Resources]") :].startswith(
        "[Resources] Batch 0:\n"
        "  GPU 0: 87.0% util, 8192/16384 MB (50%), 72°C\n"
        "  GPU 1: 42.0% util, 1024/1024 MB (100%), 83°C\n"
        "  CPU: "
    )
    assert (
        "\n\n[Resources] ⚠️ ALERTS:\n"
        "  - GPU 1 underutilized: 42.0% (threshold: 50%)\n"
        "  - GPU 1 temperature high: 83°C\n"
    ) in output
    (row,) = rows(tmp_path / "resource_logs/epoch_0.csv")
    assert (row["gpu_0_util"], row["gpu_0_memory_pct"]) == ("87.0", "50.0")
    assert list(row)[7:9] == ["gpu_1_util", "gpu_1_memory_pct"]
    assert row["gpu_1_memory_pct"] == "100.0"


@pytest.mark.parametrize(
    ("device", "local_rank", "gpus"),
    [("cuda:1", 0, [1, 3]), ("cuda:3", 1, [3]), ("cpu", 0, None)],
)
def test_the_first_rank_of_a_machine_looks_at_all_gpus_of_the_run(device, local_rank, gpus):
    """Local rank 0 reads all GPUs of the run, other ranks read theirs; on CPU all are read."""
    trainer = SimpleNamespace(
        strategy=SimpleNamespace(root_device=torch.device(device)),
        local_rank=local_rank,
        device_ids=[1, 3],
    )
    assert _choose_gpus(trainer) == gpus
