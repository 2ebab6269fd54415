"""Record rows of named numbers that loggers write to CSV and JSON files.

A row is a line in a CSV file, a line in a JSON Lines file, or an entry in a JSON document. A row
consists of names and values. The following names have a fixed meaning; the module `vocabulary` maps
all other names:

================== ===============================================================================
names              meaning
================== ===============================================================================
`STEP_NAMES`       the optimizer's step; the first name in this order that a row contains
`epoch`            the epoch, as logged
`TIME_NAMES`       the time when the row was written, in seconds since 1970
`SPLIT_NAMES`      a text such as `train` or `val`, which names the data set of the row's numbers
================== ===============================================================================

Names are compared in lower case, with spaces replaced by `_`. Empty cells, texts that are not
numbers, true and false are ignored. JSON objects inside a row are read as well, down to the third
level. The name of such a value is the object's name and the inner name, joined by a slash.

A row belongs to a training run in three cases: it contains a step or an epoch together with another
number, it contains a number whose name the vocabulary knows, or it contains a loss. All other rows
are ignored, so that data tables are not shown as runs.

Formats in which names have other meanings are declared in `ROW_FORMATS`. A declared format applies
to each row that contains all names in `columns`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from trainvitals.foreign_numbers import read_count, read_time
from trainvitals.sources.runs.named_numbers import parse_number
from trainvitals.sources.runs.scalars import RunScalars
from trainvitals.sources.runs.taken import Taken
from trainvitals.sources.runs.vocabulary import Split, find_place, find_split

STEP_NAMES = (
    "step",
    "global_step",
    "trainer/global_step",
    "_step",
    "current_steps",
    "current_step",
    "num_updates",
    "iteration",
    "iter",
    "total_timesteps",
)
TIME_NAMES = ("_timestamp", "timestamp", "ts", "created_at", "wall_time")
SPLIT_NAMES = ("mode", "phase", "split", "stage", "event", "kind", "type", "dataset", "subset")
_SILENT = frozenset(
    {
        *TIME_NAMES,
        *SPLIT_NAMES,
        *("time", "date", "percentage", "elapsed_time", "remaining_time", "_runtime", "index"),
        *("pid", "lineno", "level", "levelno", "thread", "process", "relativecreated", "msecs"),
    }
)
_DEEPEST = 3
_MOST_NAMES = 512
_FIRST_TIME = 1e9  # a smaller number is the time since the start of the run, in seconds


@dataclass(frozen=True, slots=True)
class RowFormat:
    """A row format in which some names have a specific meaning.

    Attributes:
        name: The name of the format, which is shown in messages.
        columns: The names that every row contains.
        steps: The names that the step may have.
        words: The names whose numbers are recorded as a word of a run file. Each name maps to the
            word and to the factor that converts the number to the word's unit. A number whose word
            is an empty string is not recorded. If the format has step names, the numbers of these
            names are recorded only from rows with a step.
        sums: The names of sums. Each name maps to the prefix and the suffix of the names whose
            numbers are added.
    """

    name: str
    columns: frozenset[str] = frozenset()
    steps: tuple[str, ...] = STEP_NAMES
    words: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    sums: Mapping[str, tuple[str, str]] = field(default_factory=dict)


ROW_FORMATS = (
    # The loss is the sum of its parts, whose logged values already contain their weights.
    RowFormat(
        "YOLO results",
        frozenset({"epoch", "train/box_loss"}),
        sums={"train/loss": ("train/", "_loss"), "val/loss": ("val/", "_loss")},
    ),
    RowFormat(
        "LLaMA-Factory log",
        frozenset({"current_steps", "total_steps"}),
        words={"throughput": ("tokens_per_second", 1.0)},
    ),
    RowFormat(
        "OpenMMLab log of epochs",
        frozenset({"mode", "epoch", "iter"}),
        steps=(),
        words={"iter": ("epoch_step", 1.0), "time": ("step_seconds", 1.0)},
    ),
    RowFormat(
        "OpenMMLab or detectron2 metrics",
        frozenset({"data_time", "time"}),
        steps=("iter", "iteration"),  # in an evaluation's row, `step` counts epochs
        words={"time": ("step_seconds", 1.0)},
    ),
    RowFormat(
        "Hugging Face's last entry",
        frozenset({"train_runtime", "step"}),
        words={"train_loss": ("", 1.0)},
    ),
)
_OTHERS = RowFormat("table")


@dataclass(slots=True)
class Row:
    """The names and values in a row.

    Attributes:
        numbers: The numbers by their names in the row.
        split: The data set of the numbers; empty if the row does not name a data set.
        unread: The names whose values are texts that are not numbers.
    """

    numbers: dict[str, float]
    split: Split
    unread: tuple[str, ...] = ()


def make_row(cells: Iterable[tuple[str, object]]) -> Row:
    """Return the row with the given names and values; a value may be a nested object."""
    row = Row({}, "")
    unread: list[str] = []
    for name, value in _flatten(cells, "", 1):
        number = _to_number(value)
        if number is not None and len(row.numbers) < _MOST_NAMES:
            row.numbers[name] = number
        elif number is None and isinstance(value, str) and value:
            if _fold(name) in SPLIT_NAMES:
                row.split = find_split(value[:32])
            elif _fold(name) not in _SILENT:
                unread.append(name)
    row.unread = tuple(unread)
    return row


@lru_cache(maxsize=256)
def find_format(names: tuple[str, ...]) -> RowFormat | None:
    """Return the format of rows with the given names; None if the rows do not belong to a run."""
    if not is_training(names):
        return None
    known = {_fold(name) for name in names}
    return next((each for each in ROW_FORMATS if each.columns <= known), _OTHERS)


def is_training(names: Iterable[str]) -> bool:
    """Return whether rows with the given names belong to a training run."""
    folded = {_fold(name) for name in names}
    others = folded - set(STEP_NAMES) - _SILENT - {"epoch"}
    if folded & {*STEP_NAMES, "epoch"} and others:
        return True
    places = [find_place(name[:512]) for name in others]
    return any(place.word not in (None, "epoch") or place.what == "loss" for place in places)


def record_row(scalars: RunScalars, row: Row) -> Taken:
    """Record a row if it belongs to a training run; return the result of reading the row."""
    numbers = row.numbers
    if not numbers:
        return Taken(reason="it contains no name with a number")
    kind = find_format((*numbers, "mode") if row.split else tuple(numbers))
    if kind is None:
        return Taken(reason="it has neither a step or epoch with a number, nor a loss")
    _move(scalars, kind, numbers)
    steps = _find_steps(kind, numbers)
    is_step = bool(steps) or not kind.steps
    recorded = _add_sums(kind, _choose(kind, numbers))
    for name, value in recorded.items():
        word, factor = kind.words.get(_fold(name), (None, 1.0))
        if word is None:
            scalars.record(name, value, row.split)
        elif word and is_step:
            scalars.set_word(word, value * factor)
    reason = f"not a number: {', '.join(row.unread[:8])}" if row.unread else ""
    if "train_runtime" in numbers:
        scalars.is_finished = True
    return Taken(kind.name, reason)


def _move(scalars: RunScalars, kind: RowFormat, numbers: Mapping[str, float]) -> None:
    step = next(map(read_count, _find_steps(kind, numbers).values()), None)
    folded = {_fold(name): value for name, value in numbers.items()}
    times = (read_time(folded[name]) for name in TIME_NAMES if name in folded)
    time = next((each for each in times if each is not None and each > _FIRST_TIME), None)
    if step is not None:
        scalars.move(step, time)


def _find_steps(kind: RowFormat, numbers: Mapping[str, float]) -> dict[str, float]:
    folded = {_fold(name): (name, value) for name, value in numbers.items()}
    return dict([folded[name] for name in kind.steps if name in folded][:1])


def _choose(kind: RowFormat, numbers: Mapping[str, float]) -> dict[str, float]:
    hidden = {*STEP_NAMES, *_SILENT} - kind.words.keys()
    return {name: value for name, value in numbers.items() if _fold(name) not in hidden}


def _add_sums(kind: RowFormat, numbers: dict[str, float]) -> dict[str, float]:
    sums = {
        name: math.fsum(parts)
        for name, (first, last) in kind.sums.items()
        if name not in numbers
        and (parts := [v for n, v in numbers.items() if n.startswith(first) and n.endswith(last)])
        and all(map(math.isfinite, parts))
    }
    return {**numbers, **sums}


def _flatten(
    cells: Iterable[tuple[str, object]], prefix: str, depth: int
) -> Iterator[tuple[str, object]]:
    for name, value in cells:
        if isinstance(value, dict):
            if depth < _DEEPEST:
                yield from _flatten(value.items(), f"{prefix}{name}/", depth + 1)
        else:
            yield f"{prefix}{name}", value


def _to_number(value: object) -> float | None:
    if isinstance(value, str):
        return parse_number(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _fold(name: str) -> str:
    return name.strip().lower().replace(" ", "_")
