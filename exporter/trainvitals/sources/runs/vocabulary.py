"""Map the names under which frameworks log numbers to the words of a run file.

A name such as `train_loss_step`, `Loss/val`, `lr-Adam` or `eval/loss` is split into parts. Parts
that name a data set, such as train, val, eval and test, are removed. Parts that name the averaging,
such as step and epoch, are also removed. If the remaining parts form a known name, the number is
stored under the corresponding word of a run file. Any other number is a user-defined metric and
keeps its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainvitals.runfile.codec import clean_metric_name

Split = Literal["", "train", "validation", "test"]
What = Literal["loss", "gradient", "evaluation"]

_SPLITS: Mapping[str, Split] = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "eval": "validation",
    "evaluation": "validation",
    "evaluator": "validation",
    "test": "test",
    "testing": "test",
}
_AVERAGES = frozenset({"step", "epoch", "batch", "iter", "iteration"})
_SILENT = frozenset({"metric", "metrics", "value", "scalars"})

# The word for each name. If two names in a run have the same word, the name listed first is used.
_WORDS: Mapping[str, str] = {
    "loss": "loss",
    "lm_loss": "loss",
    "total_loss": "loss",
    "loss_total": "loss",
    "samples_loss": "loss",
    "loss_global_avg_loss": "loss",
    "avg_loss": "loss",
    "mean_loss": "loss",
    "running_loss": "loss",
    "average_loss": "loss",
    "avr_loss": "loss",
    "reduced_loss": "loss",
    "accuracy": "accuracy",
    "acc": "accuracy",
    "acc1": "accuracy",
    "top1": "accuracy",
    "top1_acc": "accuracy",
    "acc_top1": "accuracy",
    "binary_accuracy": "accuracy",
    "categorical_accuracy": "accuracy",
    "sparse_categorical_accuracy": "accuracy",
    "lr": "learning_rate",
    "learning_rate": "learning_rate",
    "samples_lr": "learning_rate",
    "current_lr": "learning_rate",
    "grad_norm": "gradient_norm",
    "gradient_norm": "gradient_norm",
    "total_grad_norm": "gradient_norm",
    "gnorm": "gradient_norm",
    "global_grad_norm": "gradient_norm",
    "grad_2_0_norm_total": "gradient_norm",
    "epoch": "epoch",
    "total_epochs": "total_epochs",
    "num_epochs": "total_epochs",
    "max_epochs": "total_epochs",
    "total_steps": "total_steps",
    "max_steps": "total_steps",
    "samples_per_second": "samples_per_second",
    "samples_per_sec": "samples_per_second",
    "images_per_second": "samples_per_second",
    "images_per_sec": "samples_per_second",
    "samples_sec": "samples_per_second",
    "samples_s": "samples_per_second",
    "images_sec": "samples_per_second",
    "images_s": "samples_per_second",
    "imgs_s": "samples_per_second",
    "img_s": "samples_per_second",
    "examples_per_second": "samples_per_second",
    "examples_sec": "samples_per_second",
    "global_batch_size": "batch_size",
    "batch_size": "batch_size",
    "tokens_per_second": "tokens_per_second",
    "tokens_per_sec": "tokens_per_second",
    "tokens_sec": "tokens_per_second",
    "tokens_s": "tokens_per_second",
    "tok_sec": "tokens_per_second",
    "tok_s": "tokens_per_second",
    "tps": "tokens_per_second",
    "throughput_tps": "tokens_per_second",
    "step_seconds": "step_seconds",
    "iteration_time": "step_seconds",
    "time_end_to_end_s": "step_seconds",
    "step_timing_in_s": "step_seconds",
}
_RANKS = {name: rank for rank, name in enumerate(_WORDS)}
_VALIDATED = {"loss": "validation_loss", "accuracy": "validation_accuracy"}
_COARSE = 100
_TEST = 1000
_PART = re.compile(r"[a-z0-9]+")
_GROUP_RATE = re.compile(r"lr[-/]")  # `lr-Adam`, `lr-Adam/pg1`, `lr/pg0`
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a logged number in a record.

    Attributes:
        word: The word of a run file, or `samples_per_second`; None for a user-defined
            metric.
        name: The name of the user-defined metric as logged, cut to the length that a run file
            allows.
        split: The number's data set; empty if the name does not show the data set.
        rank: The priority of the name; if two names in a run have the same word, the name with the
            lower rank is used.
        what: The kind of value under which NaN and infinite values are counted; None if such values
            are not counted.
    """

    word: str | None
    name: str
    split: Split
    rank: int
    what: What | None


def find_split(name: str) -> Split:
    """Return the data set to which a name such as `val` or `eval_dir` refers.

    The result is empty if the name does not refer to a data set.
    """
    return next((_SPLITS[part] for part in _parts_of(name) if part in _SPLITS), "")


def find_place(name: str, split: Split = "") -> Place:
    """Return the position in a record at which a number with a given name is stored.

    Args:
        name: The name of the number, as logged by the framework or the user.
        split: The number's data set, if the data set is known from a source other than the name.
    """
    parts = _parts_of(name)
    split = split or next((_SPLITS[part] for part in parts if part in _SPLITS), "")
    rest = [part for part in parts if part not in _SPLITS and part not in _SILENT]
    fine = [part for part in rest if part not in _AVERAGES]
    known = "_".join(rest)
    averaged = False
    if known not in _WORDS:
        known, averaged = "_".join(fine), "epoch" in rest
    if _GROUP_RATE.match(name.lower()):
        known = "lr"  # the first parameter group is used for the word
    word = _WORDS.get(known)
    rank = _RANKS.get(known, 0)
    if word and split in ("validation", "test"):
        # A mean over an epoch is preferred to the value of a step, and validation to a test.
        rank += (_COARSE if "step" in rest else 0) + (_TEST if split == "test" else 0)
        word = _VALIDATED.get(word) if word != "epoch" else word
    elif averaged:
        rank += _COARSE
    return Place(word, clean_metric_name(name), split, rank, _classify(word, fine, split))


def _parts_of(name: str) -> list[str]:
    return _PART.findall(_HUMP.sub("_", name).lower())


def _classify(word: str | None, parts: list[str], split: Split) -> What | None:
    if split in ("validation", "test"):
        return "evaluation" if word != "epoch" else None
    if word == "gradient_norm" or "grad" in parts:
        return "gradient"
    return "loss" if "loss" in parts else None
