"""The learning progress of a run: its curves, its best values and its speed."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import COUNT, CRITICAL, OK, SCIENTIFIC, SERIES, WARNING
from grafana.build.panels import About, Panel, colour_series, dash_series, put_right, timeseries
from grafana.build.queries import over_time
from grafana.build.tables import Column, Key, table

# The maximum number of curves in a legend.
_MOST_CURVES: Final = 17

# Values with a dedicated metric, under their usual names.
_NAMED: Final = (
    ("training_accuracy", "accuracy", "train"),
    ("validation_accuracy", "accuracy", "validation"),
    ("training_loss", "loss", "train"),
    ("validation_loss", "loss", "validation"),
)
_LOSS_COLOURS: Final = (
    colour_series("^train", SERIES[0]),
    colour_series("^validation", SERIES[1]),
)


def write_learning() -> Row:
    """Return the row with the other curves and the quantities that alerts on learning compare."""
    return Row(
        "Learning",
        (
            _draw_metrics(),
            _draw_loss_past(),
            _draw_evaluations(),
            _list_best(),
            _draw_learning_rate(),
            _draw_gradients(),
        ),
        is_collapsed=True,
    )


def draw_loss() -> Panel:
    """Return the graph of the losses, which shows whether the run is learning."""
    return timeseries(
        "Loss",
        About(
            "Loss of the latest step, mean of all ranks, and of the latest evaluation.",
            "both fall, validation a little above training.",
            "validation that rises while training falls is overfitting, training that rises is a"
            " learning rate too high.",
        ),
        over_time("avg(training_loss{@rank})", "train"),
        over_time("avg(validation_loss{@rank})", "validation"),
        empty="none reported",
        calcs=("lastNotNull", "min", "max"),
        overrides=_LOSS_COLOURS,
    )


def _draw_metrics() -> Panel:
    return timeseries(
        "Metrics by name",
        About(
            "Accuracy, IoU, Dice and any other metric that the run logs, as selected under"
            f" Metric; of more than {_MOST_CURVES} those with the smallest values, and the target"
            " where one is typed in.",
            "scores rise to the target, errors fall to it.",
            "compare with the loss: scores that fall while it falls are overfitting.",
        ),
        over_time(
            f"bottomk({_MOST_CURVES},"
            " avg by (name, split) (training_metric{@rank, name=~`${metric:regex}`}))",
            "{{name}} {{split}}",
        ),
        over_time("avg(training_accuracy{@rank})", "accuracy train"),
        over_time("avg(validation_accuracy{@rank})", "accuracy validation"),
        # An empty text box results in 0, which is not a target.
        over_time("vector(${target}+0) != 0", "target"),
        empty="No metric was logged under a name",
        calcs=("lastNotNull", "min", "max"),
        overrides=(dash_series("^target$", OK),),
    )


def _list_best() -> Panel:
    return table(
        "Best in this time range",
        About(
            "Each value's latest, highest and lowest: the highest is the best of scores such as IoU,"
            " Dice and accuracy, the lowest of losses and errors.",
            "the latest is near the best.",
            "a best that is long past is worth its checkpoint: widen the time range to see all of"
            " the run.",
        ),
        keys=(Key("name", "Value"), Key("split", "Of")),
        columns=(
            Column("Latest", _gather("avg", "last_over_time"), decimals=4),
            Column("Highest", _gather("max", "max_over_time"), decimals=4),
            Column("Lowest", _gather("min", "min_over_time"), decimals=4),
        ),
        empty="No value was logged",
        width=8,
    )


def _gather(operator: str, function: str) -> str:
    """Return a query for an aggregate of each value over the time range, by name and split."""
    named = (
        f'label_replace(label_replace({function}({metric}{{@rank}}[$__range]), "name", "{name}",'
        f' "", ""), "split", "{split}", "", "")'
        for metric, name, split in _NAMED
    )
    every = " or ".join((f"{function}(training_metric{{@rank}}[$__range])", *named))
    return f"{operator} by (name, split) ({every})"


def _draw_loss_past() -> Panel:
    ratio = limit("training_loss_diverging:ratio")
    usual = "quantile_over_time(0.5, run:training_loss:mean15m{@run}[3h] @ end() offset 15m)"
    return timeseries(
        "Loss against its own past",
        About(
            "The mean of 15 minutes, the multiple of the last 3 hours' median at which the alert"
            " begins, and spikes in 1 h, which raise it from"
            f" {limit('training_loss_diverging:spikes'):g} on.",
            "below the dashed line, no spikes.",
            "look at the learning rate and the gradient norm, and think of a checkpoint from before"
            " it rose.",
            ("TrainingLossDiverging",),
        ),
        over_time("max(run:training_loss:mean15m{@run})", "loss, mean of 15 min"),
        over_time(f"{ratio:g} * max({usual} > 0)", "alert above"),
        over_time("max(increase(training_loss_spikes_total{@rank}[1h]))", "spikes in 1 h"),
        empty="No loss reported",
        calcs=("lastNotNull", "min", "max"),
        overrides=(dash_series("alert above", WARNING), put_right("spikes in 1 h", COUNT)),
    )


def _draw_evaluations() -> Panel:
    return timeseries(
        "Evaluations since the best",
        About(
            "How many evaluations there were since the best one, by the run's own choice of value.",
            "below the line.",
            "stop and keep the best checkpoint, or lower the learning rate.",
            ("ValidationNotImproving",),
        ),
        over_time("max(training_evaluations_since_improvement{@rank})", "evaluations"),
        steps=((None, OK), (limit("validation_not_improving:evaluations"), CRITICAL)),
        empty="No evaluation reported",
        least=0,
        decimals=0,
        calcs=("lastNotNull", "max"),
    )


def _draw_learning_rate() -> Panel:
    return timeseries(
        "Learning rate",
        About(
            "The learning rate of the latest step.",
            "as its schedule says.",
            "a rate that is not lowered where it should be is a scheduler that is not called.",
        ),
        over_time("max(training_learning_rate{@rank})", "learning rate"),
        unit=SCIENTIFIC,
        empty="No learning rate reported",
        least=0,
        calcs=("lastNotNull", "max"),
    )


def _draw_gradients() -> Panel:
    return timeseries(
        "Gradient norm",
        About(
            "The norm of the latest gradients: the mean and the largest of all ranks.",
            "even, falling slowly.",
            "a norm that grows precedes a loss that diverges: clip it or lower the learning rate.",
        ),
        over_time("avg(training_gradient_norm{@rank})", "mean of ranks"),
        over_time("max(training_gradient_norm{@rank})", "largest rank"),
        empty="No gradient norm reported",
        is_logarithmic=True,
    )
