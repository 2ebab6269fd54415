"""The best value that each run reported for each metric in a period."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trainvitals.errors import ConfigurationError
from trainvitals.report.archive import Archive, find_extreme
from trainvitals.report.training import Best
from trainvitals.sources.prometheus import Series

# Lower values are better for a metric whose name contains one of these words.
_LOWER_IS_BETTER = frozenset(
    {
        *("loss", "losses", "nll", "bce", "error", "err", "mae", "mse", "rmse", "brier", "ece"),
        *("perplexity", "ppl", "bpc", "bpb", "wer", "cer", "ter", "fid", "kid", "lpips"),
        *("distance", "hausdorff", "hd95", "fnr"),
        *("mape", "fpr"),  # codespell:ignore mape,fpr
    }
)
_WORDS = re.compile(r"[a-z]+[0-9]*|[0-9]+")
_TRAINING = frozenset({"train", "training"})
_MOST_METRICS = 200
# The exporter's own metrics, each with the name and split that a run would report for it.
_OWN: Mapping[str, tuple[str, str]] = {
    "validation_accuracy": ("accuracy", "validation"),
    "validation_loss": ("loss", "validation"),
    "training_accuracy": ("accuracy", "train"),
    "training_loss": ("loss", "train"),
}


def read_targets(texts: Sequence[str]) -> dict[str, float]:
    """Return the values of the `--target` options, such as `iou=0.75`, by metric name.

    Raises:
        ConfigurationError: A target is not of the form NAME=NUMBER.
    """
    targets = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not name.strip() or not math.isfinite(value):
            raise ConfigurationError(f"--target={text}: write NAME=NUMBER, as in iou=0.75")
        targets[name.strip()] = value
    return targets


def is_lower_better(name: str) -> bool:
    """Return whether, for a metric of this name, a lower value is better."""
    return not _LOWER_IS_BETTER.isdisjoint(_WORDS.findall(name.lower()))


def has_word(name: str, word: str) -> bool:
    """Return whether a metric's name contains a word; `val_iou` and `mIoU` contain `iou`."""
    words = _WORDS.findall(name.lower())
    return any(each in {word, f"m{word}"} for each in words)


def find_best(archive: Archive, targets: Mapping[str, float]) -> tuple[Best, ...]:
    """Return each run's best value of each metric.

    Metrics with targets are first. The values of a metric on training data follow its other values.
    """
    by = "instance, run, name, split"
    found: dict[tuple[str, str, str, str], Best] = {}
    for operation in ("max", "min"):
        query = f"{operation} by ({by}) ({operation}_over_time(training_metric{{@run}}[@hour]))"
        for one in archive.ask_hours("the metrics of runs", query):
            _keep(found, one, one.labels.get("name", ""), one.labels.get("split", ""), operation)
    for metric, (name, split) in _OWN.items():
        operation = "min" if is_lower_better(name) else "max"
        query = f"{operation} by (instance, run) ({operation}_over_time({metric}{{@run}}[@hour]))"
        for one in archive.ask_hours(f"the best {split} {name}", query):
            _keep(found, one, name, split, operation)
    return _sort(_aim(each, targets) for each in found.values())[:_MOST_METRICS]


def _keep(
    found: dict[tuple[str, str, str, str], Best], one: Series, name: str, split: str, operation: str
) -> None:
    is_lower = is_lower_better(name)
    highest = find_extreme(one, is_highest=not is_lower)
    if is_lower != (operation == "min") or highest is None:
        return
    run, instance = one.labels.get("run", ""), one.labels.get("instance", "")
    found.setdefault(
        (run, instance, name, split),
        Best(name, split, run, instance, highest[1], is_lower, by_hour=one.points),
    )


def _aim(best: Best, targets: Mapping[str, float]) -> Best:
    """Return a best value with its target, which is set for the metric's name or a word in it."""
    wanted = targets.get(best.name)
    if wanted is None:
        wanted = next((value for name, value in targets.items() if has_word(best.name, name)), None)
    if wanted is None:
        return best
    return replace(best, target=wanted)


def _sort(best: Iterable[Best]) -> tuple[Best, ...]:
    def place(each: Best) -> tuple[bool, str, bool, float, str]:
        value = each.value if each.is_lower_better else -each.value
        return each.target is None, each.name, each.split in _TRAINING, value, each.run

    return tuple(sorted(best, key=place))
