"""The expected pace and memory of training runs, from a file that a user writes.

The baselines file is YAML with one key, `baselines`, which contains a list of mappings:

====================== ==========================================================================
key                    meaning
====================== ==========================================================================
`run`                  required: the name of a run, or a pattern with `*`, `?` and `[...]`; the
                       first matching entry is used
`epochs_per_hour`      the expected pace, in epochs per hour
`memory`               the expected memory on each of the run's accelerators: 7GB, 6.5GiB or bytes
`memory_by_batch_size` the expected memory by the number of samples per rank and step, such as
                       {16: 6.5GB, 32: 11GB}; it takes precedence over `memory` if the run's batch
                       size is within 10% of a batch size listed here
====================== ==========================================================================

An example for a run of 50 epochs that should take two and a half hours::

    baselines:
      - run: "swinv2-360*"
        epochs_per_hour: 20
        memory: 7GB
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from trainvitals.runfile import ABSENT, STEP
from trainvitals.sources.accelerators.limits import parse_size
from trainvitals.sources.runs.reading import Expected, RankReading, RunReading
from trainvitals.yamlfile import Section, load_yaml

VARIABLE = "TRAINVITALS_BASELINES_FILE"

_FLAG = "--baselines.file"  # in messages
_SECONDS_PER_HOUR = 3600.0
_BATCH_MARGIN_RATIO = 0.1
_STEPS, _SAMPLES = STEP["steps"], STEP["samples"]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The expected pace and memory of the runs whose names match a pattern.

    Attributes:
        run: The pattern that is compared with the run names.
        epochs_per_hour: The expected pace, in epochs per hour; None if the file does not specify a
            pace.
        memory_bytes: The expected memory on each accelerator, in bytes, for batch sizes that
            `memory_bytes_by_batch` does not contain; None if the file does not specify a memory.
        memory_bytes_by_batch: The expected memory on each accelerator in bytes, by batch size.
    """

    run: str
    epochs_per_hour: float | None = None
    memory_bytes: int | None = None
    memory_bytes_by_batch: Mapping[int, int] = field(default_factory=dict)


def read_baselines(path: Path) -> tuple[Baseline, ...]:
    """Read and check a baselines file.

    Args:
        path: The path of the baselines file.

    Raises:
        ConfigurationError: The file cannot be read, or an entry does not have the format that the
            module docstring describes; the message names the file, the entry and the remedy.
    """
    file = Section(str(path), load_yaml(path, flag=_FLAG) or {})
    entries = file.take("baselines", list, "a list") or []
    file.finish()
    if not entries:
        raise file.refuse("baselines", f"there is none; write at least one, or leave out {_FLAG}")
    return tuple(
        _read_entry(Section(f"{path}: baselines[{number}]", entry))
        for number, entry in enumerate(entries)
    )


def _read_entry(entry: Section) -> Baseline:
    run = entry.take("run", str, "a text in quotes")
    if not run:
        raise entry.refuse("run", "it is missing; write the name of a run, or a pattern")
    baseline = Baseline(
        run,
        epochs_per_hour=_read_pace(entry),
        memory_bytes=_read_size(entry, "memory"),
        memory_bytes_by_batch=_read_batches(entry),
    )
    entry.finish()
    if baseline == Baseline(run):
        raise entry.refuse("run", "nothing is expected of it; write epochs_per_hour or memory")
    return baseline


def _read_pace(entry: Section) -> float | None:
    pace = entry.take("epochs_per_hour", object, "a number")
    if pace is None:
        return None
    if isinstance(pace, bool) or not isinstance(pace, (int, float)) or not 0 < pace < math.inf:
        raise entry.refuse("epochs_per_hour", "this is not a number above 0; correct it")
    return float(pace)


def _read_size(entry: Section, key: str) -> int | None:
    size = entry.take(key, object, "a size")
    return None if size is None else _parse(entry, key, size)


def _read_batches(entry: Section) -> dict[int, int]:
    key = "memory_by_batch_size"
    batches = entry.take(key, dict, "a mapping of batch sizes") or {}
    for batch in batches:
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise entry.refuse(key, f"{batch} is not a batch size; write a whole number above 0")
    return {batch: _parse(entry, key, size) for batch, size in batches.items()}


def _parse(entry: Section, key: str, size: object) -> int:
    is_plain = isinstance(size, (int, str)) and not isinstance(size, bool)
    found = parse_size(str(size)) if is_plain else None
    if found is None:
        raise entry.refuse(key, f"{size} is not a size; write one such as 7GB, 6.5GiB or bytes")
    return found


def add_expected(
    baselines: Sequence[Baseline], runs: Iterable[RunReading], ranks: Iterable[RankReading]
) -> list[RunReading]:
    """Return the given runs, with their expected pace and memory added.

    Args:
        baselines: The entries in the baselines file, in order.
        runs: The runs to which the expected values are added.
        ranks: The ranks of the runs; a run's batch size is the largest batch size of its ranks.
    """
    batches: dict[str, float] = {}
    for rank in ranks:
        batch = _measure_batch(rank)
        if batch is not None:
            batches[rank.run] = max(batch, batches.get(rank.run, 0.0))
    return [
        replace(run, expected=find_expected(baselines, run.run, batches.get(run.run)))
        for run in runs
    ]


def find_expected(baselines: Sequence[Baseline], run: str, batch: float | None) -> Expected | None:
    """Return a run's expected pace and memory; None if no baseline matches the run's name.

    Args:
        baselines: The entries in the baselines file, in order.
        run: The name of the run.
        batch: The number of samples per rank and step; None if the number is unknown.
    """
    baseline = next((each for each in baselines if fnmatchcase(run, each.run)), None)
    if baseline is None:
        return None
    pace = baseline.epochs_per_hour
    return Expected(
        epoch_seconds=None if pace is None else _SECONDS_PER_HOUR / pace,
        memory_bytes=_choose_memory(baseline, batch),
    )


def _choose_memory(baseline: Baseline, batch: float | None) -> int | None:
    sizes = baseline.memory_bytes_by_batch
    if batch is not None and sizes:
        nearest = min(sizes, key=lambda size: abs(size - batch))
        if abs(nearest - batch) <= _BATCH_MARGIN_RATIO * nearest:
            return sizes[nearest]
    return baseline.memory_bytes


def _measure_batch(rank: RankReading) -> float | None:
    """Return a rank's mean number of samples per step; None if the rank does not count samples."""
    steps, samples = rank.record.step[_STEPS], rank.record.step[_SAMPLES]
    return samples / steps if ABSENT not in (steps, samples) and steps > 0 < samples else None
