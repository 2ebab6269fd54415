"""Tests for the names under which frameworks log their values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.runfile import STATE_WORDS, STEP_WORDS
from trainvitals.sources.runs import vocabulary
from trainvitals.sources.runs.vocabulary import find_place, find_split


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("loss", "loss"),
        ("Loss/train", "loss"),
        ("train/loss", "loss"),
        ("train_loss_step", "loss"),
        ("trainLoss", "loss"),
        ("lm loss", "loss"),
        ("loss_metrics/global_avg_loss", "loss"),
        ("Train/Samples/train_loss", "loss"),
        ("epoch_loss", "loss"),
        ("val_loss", "validation_loss"),
        ("eval/loss", "validation_loss"),
        ("Loss/validation", "validation_loss"),
        ("valid loss", "validation_loss"),
        ("lm loss validation", "validation_loss"),
        ("test_loss", "validation_loss"),
        ("train_acc", "accuracy"),
        ("val_accuracy", "validation_accuracy"),
        ("lr", "learning_rate"),
        ("lr-Adam", "learning_rate"),
        ("lr-SGD/pg1", "learning_rate"),
        ("train/learning_rate", "learning_rate"),
        ("learning-rate", "learning_rate"),
        ("train/grad_norm", "gradient_norm"),
        ("grad_2.0_norm_total", "gradient_norm"),
        ("train/epoch", "epoch"),
        ("throughput(tps)", "tokens_per_second"),
        ("train_samples_per_second", "samples_per_second"),
        ("iteration-time", "step_seconds"),
        ("global batch size", "batch_size"),
    ],
)
def test_a_known_name_has_a_word(name: str, word: str):
    """The different names of the same value are mapped to one word."""
    assert find_place(name).word == word


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("val_iou", "validation"),
        ("val_dice", "validation"),
        ("train/box_loss", "train"),
        ("test/f1", "test"),
        ("eval/samples_per_second", "validation"),
        ("loss_d", ""),
        ("lr_scheduler_last_epoch", ""),
        ("epoch_time", ""),
        ("", ""),
    ],
)
def test_any_other_name_is_a_free_metric(name: str, split: str):
    """A free metric keeps its name, and the beginning of its name shows the data set."""
    place = find_place(name)
    assert (place.word, place.name, place.split) == (None, name, split)


def test_the_finer_of_two_names_has_the_word():
    """Training values per step, and evaluations per epoch, are preferred.

    A test value is used only if there is no validation value.
    """
    for better, worse in [
        ("train_loss_step", "train_loss_epoch"),
        ("train_loss", "train_loss_epoch"),
        ("train_loss", "lm_loss"),
        ("val_loss_epoch", "val_loss_step"),
        ("val_loss", "test_loss"),
        ("val_loss_step", "test_loss"),
    ]:
        assert find_place(better).rank < find_place(worse).rank


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("loss", "loss"),
        ("train/box_loss", "loss"),
        ("grad_norm", "gradient"),
        ("val_iou", "evaluation"),
        ("eval/loss", "evaluation"),
        ("lr", None),
        ("throughput", None),
    ],
)
def test_what_is_harmful_when_it_is_no_number(name: str, what: str | None):
    """A NaN loss, gradient norm or evaluation indicates a failed training."""
    assert find_place(name).what == what


def test_a_folder_says_what_data_it_is_about():
    """A folder's name shows the data set of the names in the folder."""
    assert find_split("loss_val") == "validation"
    assert find_split("version_0") == ""
    assert find_place("epoch_loss", "validation").word == "validation_loss"


def test_words_are_those_of_the_run_file():
    """All words exist in the run file, except the sample and token rates and the batch size."""
    words = set(vocabulary._WORDS.values()) | set(vocabulary._VALIDATED.values())
    known = {*STEP_WORDS, *STATE_WORDS, "samples_per_second", "tokens_per_second", "batch_size"}
    assert words <= known


@given(st.text(max_size=200))
def test_any_name_has_a_place(name: str):
    """Any name is mapped to a printable name that fits in a run file."""
    place = find_place(name)
    assert len(place.name.encode(errors="replace")) <= 62
    assert place.name.isprintable()
