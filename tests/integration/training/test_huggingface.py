"""Small trainings by a real Hugging Face Trainer, and their run files."""

import copy
import io
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from tests.support.run_files import decode, events, read_only, state, step
from trainvitals.huggingface import TrainvitalsCallback
from trainvitals.runfile import State
from trainvitals.training.guard import Errors
from trainvitals.training.monitor import TrainingMonitor

SOURCE_ROOT = Path(__file__).parents[3] / "exporter"

pytestmark = [
    pytest.mark.usefixtures("run_dir"),
    # accelerate requests pinned memory even without an accelerator.
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning"),
]


class Rows(torch.utils.data.Dataset):
    """A dataset with rows of eight numbers, labelled with their sum."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(count, 8, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.x[index].sum()}


class Sum(torch.nn.Module):
    """A linear model whose loss is NaN in chosen forward passes.

    Args:
        nan_at: Numbers of the training forward passes with a NaN loss, from 1.
    """

    def __init__(self, nan_at=()):
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)
        self.nan_at = nan_at
        self.forwards = 0

    def forward(self, x, labels=None):
        """Return the loss and the predicted sums."""
        self.forwards += self.training
        y = self.linear(x)[:, 0]
        loss = ((y - labels) ** 2).mean()
        if self.training and self.forwards in self.nan_at:
            # Only the value is NaN and not the gradient, so that the weights stay finite.
            loss = loss + torch.tensor(float("nan"))
        return {"loss": loss, "logits": y}


class Peek(TrainerCallback):
    """A callback that reads the run file in the named hooks, after the callback before it."""

    def __init__(self, callback, *hooks):
        self.callback = callback
        self.seen = []
        for hook in hooks:
            setattr(self, hook, lambda *_, hook=hook, **__: self.look(hook))

    def look(self, hook):
        """Keep the current phase and the content of the run file."""
        monitor = self.callback.monitor
        self.seen.append((hook, monitor.current_phase, decode(monitor.path.read_bytes())))


@pytest.fixture
def train(tmp_path):
    """Return a function that trains with a callback and returns the trainer."""

    def run(callback, *others, model=None, data=None, evaluated=None, resume=None, **settings):
        chosen = {
            "output_dir": str(tmp_path / "checkpoints"),
            "use_cpu": True,
            "report_to": "none",
            "disable_tqdm": True,
            "save_strategy": "no",
            "logging_steps": 5,
            "per_device_train_batch_size": 4,
            **settings,
        }
        trainer = Trainer(
            model=model or Sum(),
            args=TrainingArguments(**chosen),
            train_dataset=data or Rows(64),
            eval_dataset=evaluated or Rows(8),
            callbacks=[callback, *others],
        )
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    return run


def test_a_run_is_recorded_whole(train, run_dir):
    """The run file has all values of a run of two epochs with evaluations and checkpoints."""
    made = train(
        TrainvitalsCallback("whole"),
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="epoch",
    )
    record = read_only(run_dir)
    assert record.identity.run == "whole"
    assert record.identity.static["framework"] == "transformers"
    assert record.identity.static["framework_version"].startswith("5.")
    assert step(record, "steps") == 32
    assert step(record, "global_step") == 32
    assert step(record, "epoch_step") == 16
    assert step(record, "samples") == 128
    assert step(record, "tokens") is None
    assert state(record, "epoch") == 1
    assert state(record, "total_epochs") == 2
    assert state(record, "total_steps") == 32
    assert state(record, "epoch_steps") == 16
    assert state(record, "first_global_step") == 0
    assert state(record, "evaluations") == 2
    assert state(record, "checkpoints") == 2
    assert state(record, "state") == State.FINISHED
    last = [entry for entry in made.state.log_history if "eval_loss" in entry][-1]
    assert state(record, "validation_loss") == last["eval_loss"]
    logged = [entry for entry in made.state.log_history if "grad_norm" in entry][-1]
    assert step(record, "gradient_norm") == logged["grad_norm"]
    assert step(record, "learning_rate") == logged["learning_rate"]
    assert record.metrics == ()
    for phase in ("data_wait", "forward", "backward", "optimizer", "validation", "checkpoint"):
        assert step(record, f"total_{phase}") > 0, phase
    assert step(record, "errors") == 0


def test_phases_are_marked_where_they_are(train):
    """The phase after a step is validation, then checkpoint, then the wait for data."""
    callback = TrainvitalsCallback()
    peek = Peek(
        callback, "on_step_begin", "on_step_end", "on_prediction_step", "on_evaluate", "on_save"
    )
    train(callback, peek, max_steps=2, eval_strategy="steps", eval_steps=2, save_steps=2,
          save_strategy="steps")  # fmt: skip
    assert [(hook, phase) for hook, phase, _ in peek.seen] == [
        ("on_step_begin", "other"),
        ("on_step_end", "data_wait"),
        ("on_step_begin", "other"),
        ("on_step_end", "validation"),
        ("on_prediction_step", "validation"),
        ("on_evaluate", "checkpoint"),
        ("on_save", "data_wait"),
    ]


class Compare(TrainerCallback):
    """A callback that keeps the Trainer's logged losses with those in the run file.

    Args:
        callback: The callback that writes the run file.
    """

    def __init__(self, callback):
        self.callback = callback
        self.losses = []

    def on_log(self, *_, logs=None, **__):
        """Keep the logged loss and the loss in the run file."""
        if "loss" in logs:
            record = decode(self.callback.monitor.path.read_bytes())
            self.losses.append((logs["loss"], step(record, "loss")))


def test_a_checkpoint_of_the_best_is_met_where_it_ends(train, run_dir):
    """The time of a best checkpoint, whose begin is not notified, is not a wait for data."""
    callback = TrainvitalsCallback()
    peek = Peek(callback, "on_evaluate", "on_save", "on_step_begin")
    train(
        callback, peek, max_steps=2, eval_strategy="steps", eval_steps=1, save_strategy="best",
        metric_for_best_model="loss", save_total_limit=1,
    )  # fmt: skip
    phases = [(hook, phase) for hook, phase, _ in peek.seen if hook != "on_step_begin"]
    assert phases[:2] == [("on_evaluate", "other"), ("on_save", "data_wait")]
    assert state(read_only(run_dir), "checkpoints") >= 1


def test_the_loss_is_the_trainers_own(train):
    """The loss in the run file equals the loss that the Trainer logs at each step."""
    compare = Compare(TrainvitalsCallback())
    train(compare.callback, compare, logging_steps=1, max_steps=8, gradient_accumulation_steps=2)
    assert len(compare.losses) == 8
    for logged, ours in compare.losses:
        assert ours == pytest.approx(logged, rel=1e-5)


def test_accumulated_batches_are_one_step(train, run_dir):
    """With accumulation over three, 16 batches of 4 samples are 6 steps and 64 samples."""
    train(TrainvitalsCallback(), num_train_epochs=1, gradient_accumulation_steps=3)
    record = read_only(run_dir)
    assert step(record, "steps") == 6
    assert step(record, "samples") == 64
    assert state(record, "epoch_steps") == 6


def language_model():
    """Return a very small, untrained GPT-2."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=31, n_positions=16, n_embd=8, n_layer=1, n_head=1,
            bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip


class Words(torch.utils.data.Dataset):
    """A dataset of ten-token sentences, every other one with padding at its end."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        tokens = (torch.arange(10) * (index + 1)) % 31
        labels = tokens.clone()
        if index % 2:
            labels[4:] = -100
        return {"input_ids": tokens, "labels": labels}


def test_tokens_are_counted_and_scaled_losses_summed(train, run_dir):
    """Tokens are counted, and losses that are divided by all tokens of a step are summed."""
    compare = Compare(TrainvitalsCallback(flops_per_token=1000.0))
    train(
        compare.callback,
        compare,
        model=language_model(),
        data=Words(),
        evaluated=Words(),
        logging_steps=1,
        max_steps=4,
        gradient_accumulation_steps=2,
    )
    assert len(compare.losses) == 4
    for logged, ours in compare.losses:
        assert ours == pytest.approx(logged, rel=1e-5)
    record = read_only(run_dir)
    assert step(record, "samples") == 32
    assert step(record, "tokens") == 320
    assert state(record, "flops_per_token") == 1000


def test_tokens_are_left_alone_where_they_are_none(train, run_dir):
    """With `count_tokens=False`, for `input_ids` that are no tokens, the token count is unknown."""
    callback = TrainvitalsCallback(count_tokens=False)
    train(callback, model=language_model(), data=Words(), evaluated=Words(), max_steps=2)
    record = read_only(run_dir)
    assert step(record, "samples") == 8
    assert step(record, "tokens") is None


def test_nan_is_counted_under_the_filter(train, run_dir, caplog):
    """NaN losses that the Trainer's filter hides in its log are counted, and a warning names it."""
    with caplog.at_level(logging.WARNING, "trainvitals"):
        made = train(TrainvitalsCallback(), model=Sum(nan_at=(7, 9)), logging_steps=1, max_steps=12)
    logged = [entry["loss"] for entry in made.state.log_history if "loss" in entry]
    assert len(logged) == 12
    assert all(loss == loss for loss in logged)  # noqa: PLR0124 - NaN is not itself
    record = read_only(run_dir)
    assert step(record, "nonfinite_losses") == 2
    assert state(record, "nan_filter_active") == 1
    assert state(record, "last_nonfinite_time") is not None
    assert "nonfinite" in events(record)
    (warning,) = caplog.messages
    assert "logging_nan_inf_filter" in warning


def test_nothing_is_said_of_a_filter_that_is_off(train, run_dir, caplog):
    """With `logging_nan_inf_filter=False` a NaN loss is counted and no warning is logged."""
    with caplog.at_level(logging.WARNING, "trainvitals"):
        train(
            TrainvitalsCallback(),
            model=Sum(nan_at=(2,)),
            max_steps=3,
            logging_nan_inf_filter=False,
        )
    record = read_only(run_dir)
    assert state(record, "nan_filter_active") == 0
    assert step(record, "nonfinite_losses") == 1
    assert caplog.messages == []


def test_a_nan_gradient_is_counted(train, run_dir):
    """A NaN gradient is counted from the logged gradient norm, which the filter does not hide."""

    class Broken(Sum):
        def forward(self, x, labels=None):
            outputs = super().forward(x, labels)
            if self.training and self.forwards == 3:
                outputs["loss"] = outputs["loss"] * float("nan")
            return outputs

    train(TrainvitalsCallback(), model=Broken(), logging_steps=1, max_steps=3)
    record = read_only(run_dir)
    assert step(record, "nonfinite_losses") == 1
    assert state(record, "nonfinite_gradients") == 1


def test_a_resumed_run_counts_its_own_work_only(train, run_dir, tmp_path):
    """A run that is resumed at step 6 of 10 counts 4 steps and 16 samples."""
    train(TrainvitalsCallback(), max_steps=6, save_strategy="steps", save_steps=6)
    (first,) = run_dir.iterdir()
    first.unlink()
    train(
        TrainvitalsCallback(), max_steps=10, resume=str(tmp_path / "checkpoints" / "checkpoint-6")
    )
    record = read_only(run_dir)
    assert state(record, "first_global_step") == 6
    assert step(record, "global_step") == 10
    assert step(record, "steps") == 4
    assert step(record, "samples") == 16
    assert state(record, "total_steps") == 10
    assert "resume" in events(record)


@pytest.mark.parametrize(
    "broken", ["_count_rows", "_find_loss", "_combine", "start_step", "mark_validation", "watch"]
)
def test_an_error_of_ours_does_not_end_the_training(train, run_dir, monkeypatch, caplog, broken):
    """An error of the callback is logged once and does not change the trained weights.

    Ten errors switch the callback off.
    """

    def fail(*_):
        raise RuntimeError("injected")

    torch.manual_seed(5)
    alone = train(Peek(None), model=Sum(), max_steps=12)
    monkeypatch.setattr(f"trainvitals.training.frameworks.ForwardPasses.{broken}", fail)
    torch.manual_seed(5)
    made = train(TrainvitalsCallback(), model=Sum(), max_steps=12, eval_strategy="epoch")
    assert made.state.global_step == 12
    assert torch.equal(made.model.linear.weight, alone.model.linear.weight)
    assert [message for message in caplog.messages if "injected" in message] == [
        "the training monitor: RuntimeError: injected; training goes on"
    ]
    record = read_only(run_dir)
    expected = State.FINISHED if broken in ("mark_validation", "watch") else State.SWITCHED_OFF
    assert state(record, "state") == expected


def test_every_hook_is_guarded():
    """Every hook is wrapped, so that no error of the callback reaches the Trainer."""
    for name in vars(TrainvitalsCallback):
        if name.startswith("on_"):
            assert hasattr(getattr(TrainvitalsCallback, name), "__wrapped__"), name


def test_a_broken_monitor_changes_nothing(train, monkeypatch):
    """A training with a broken monitor ends with the same weights as one without a monitor."""

    class Broken:
        """A monitor whose attributes all raise an error, except `errors`."""

        def __init__(self, *_, **__):
            self.errors = Errors("the test", lambda: None)

        def __getattr__(self, name):
            raise RuntimeError(f"a bug in {name}")

    monkeypatch.setattr("trainvitals.huggingface.TrainingMonitor", Broken)
    weights = []
    for callback in (Peek(None), TrainvitalsCallback()):
        torch.manual_seed(5)
        made = train(
            callback, model=Sum(), num_train_epochs=2, gradient_accumulation_steps=2,
            eval_strategy="epoch", save_strategy="epoch",
        )  # fmt: skip
        weights.append(made.model.linear.weight.detach())
    assert torch.equal(*weights)
    assert callback.errors.count > 30
    assert not made.model._forward_hooks


def test_an_error_of_the_training_is_the_runs_last_word(train, run_dir, capsys):
    """An exception of the training reaches the run file by `sys.excepthook`, as its last words."""

    class Broken(Sum):
        def forward(self, x, **_):
            raise ZeroDivisionError(f"no step is ever done on {len(x)} rows")

    with pytest.raises(ZeroDivisionError) as raised:
        train(TrainvitalsCallback(), model=Broken(), max_steps=2)
    sys.excepthook(raised.type, raised.value, raised.tb)
    assert "no step is ever done on 4 rows" in capsys.readouterr().err
    record = read_only(run_dir)
    assert state(record, "state") == State.FAILED
    assert record.last_words == "ZeroDivisionError"
    assert step(record, "steps") == 0


def test_a_training_after_one_that_broke_is_another_run(train, run_dir):
    """The next training marks the interrupted one as failed and makes a run file of its own."""
    callback = TrainvitalsCallback()

    class Stop(TrainerCallback):
        def on_step_end(self, *_, **__):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(callback, Stop(), max_steps=2)
    (broken,) = run_dir.glob("*.tv")
    train(callback, max_steps=2)
    assert state(decode(broken.read_bytes()), "state") == State.FAILED
    broken.unlink()
    record = read_only(run_dir)
    assert state(record, "state") == State.FINISHED
    assert step(record, "samples") == 8


def test_a_model_can_be_copied_and_saved_while_it_is_watched(train):
    """A watched model can be copied and saved, and the copies do not contain active hooks."""
    copies = []

    class Average(TrainerCallback):
        def on_step_end(self, *_, model=None, **__):
            copies.append(copy.deepcopy(model))
            torch.save(model, io.BytesIO())

    made = train(TrainvitalsCallback(), Average(), max_steps=2)
    copied = copies[0].train()
    assert copied(torch.zeros(1, 8), labels=torch.zeros(1))["loss"] >= 0
    (hook,) = copied._forward_hooks.values()
    assert pickle.loads(pickle.dumps(hook))(None, (), {}, None) is None
    assert "trainvitals" not in pickle.dumps(hook).decode("latin-1")
    assert made.model._forward_hooks == {}
    assert made.model._forward_pre_hooks == {}


def test_a_loss_made_outside_of_the_model_is_taken_from_the_log(train, run_dir):
    """With label smoothing the model returns no loss, and the loss is read from the log."""
    made = train(
        TrainvitalsCallback(),
        model=language_model(),
        data=Words(),
        evaluated=Words(),
        logging_steps=4,
        max_steps=4,
        label_smoothing_factor=0.1,
    )
    (logged,) = [entry["loss"] for entry in made.state.log_history if "loss" in entry]
    assert step(read_only(run_dir), "loss") == logged


def test_several_evaluation_sets_keep_their_names(train, run_dir):
    """`eval_easy_loss` becomes the metric `easy_loss` of the split `validation`."""
    made = train(
        TrainvitalsCallback(),
        evaluated={"easy": Rows(4), "hard": Rows(8)},
        max_steps=2,
        eval_strategy="steps",
        eval_steps=2,
    )
    record = read_only(run_dir)
    assert sorted(record.metrics) == [("easy_loss", "validation"), ("hard_loss", "validation")]
    logged = {key: entry[key] for entry in made.state.log_history for key in entry}
    for number, (name, _) in enumerate(record.metrics):
        assert state(record, f"metric_{number}") == logged[f"eval_{name}"]
    assert state(record, "evaluations") == 2
    assert state(record, "validation_loss") is None


def test_values_of_the_user_become_metrics(train, run_dir):
    """A number that a user logs becomes a free metric; a text is ignored."""

    class Reward(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 1:
                callback.on_log(args, state, control, logs={"reward": 0.25, "note": "text"})

    callback = TrainvitalsCallback()
    train(callback, Reward(), max_steps=2)
    record = read_only(run_dir)
    assert record.metrics == (("reward", ""),)
    assert state(record, "metric_0") == 0.25


def test_a_monitor_of_the_users_own_is_finished_by_the_user(train, run_dir):
    """Several trainings with the user's monitor are one run, which the user finishes."""
    with TrainingMonitor("both") as monitor:
        for _ in range(2):
            train(TrainvitalsCallback(monitor=monitor), max_steps=3)
            assert monitor.current_phase == "idle"
        record = read_only(run_dir)
        assert step(record, "steps") == 6
        assert state(record, "state") == State.RUNNING
    assert state(read_only(run_dir), "state") == State.FINISHED


def test_an_evaluation_after_the_training_is_not_part_of_it(train, run_dir):
    """`trainer.evaluate()` after a training makes no run and does not change the finished run."""
    callback = TrainvitalsCallback()
    made = train(callback, max_steps=2)
    made.evaluate()
    assert callback.monitor is None
    assert state(read_only(run_dir), "evaluations") == 0


def test_every_training_has_a_run_file_of_its_own(train, run_dir):
    """Two calls of `train()` with one callback make two run files."""
    made = train(TrainvitalsCallback(), max_steps=2)
    made.train()
    assert len(list(run_dir.glob("*.tv"))) == 2


def test_compiled_code_is_left_alone(train, run_dir):
    """Under torch.compile the hooks break no graph; samples and loss are known without them."""
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    train(
        TrainvitalsCallback(),
        max_steps=4,
        logging_steps=2,
        torch_compile=True,
        torch_compile_backend="eager",
    )
    assert counters["frames"]["ok"] > 0
    assert counters["graph_break"] == {}
    record = read_only(run_dir)
    assert step(record, "samples") == 16
    assert step(record, "loss") is not None
    assert step(record, "total_forward") == 0
    assert step(record, "total_optimizer") > 0


def test_without_transformers_one_line_says_what_to_do():
    """Without transformers, the ImportError says which package to install."""
    code = "import sys; sys.modules['transformers'] = None; import trainvitals.huggingface"
    environ = {**os.environ, "PYTHONPATH": str(SOURCE_ROOT)}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert answer.stderr.splitlines()[-1] == (
        "ImportError: trainvitals.huggingface needs transformers, which is not installed: "
        "pip install 'transformers[torch]'"
    )
