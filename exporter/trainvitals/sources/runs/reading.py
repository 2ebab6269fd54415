"""The reading of the training runs of this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from trainvitals.runfile import ABSENT, STATE, STATE_WORDS, STEP_WORDS, Record
from trainvitals.sources.runs.rates import Progress, Rates

if TYPE_CHECKING:
    from trainvitals.sources.runs.attempts import Losses
    from trainvitals.sources.runs.endings import Ending
    from trainvitals.sources.runs.liveness import Liveness
    from trainvitals.sources.runs.stalls import Stall
    from trainvitals.sources.runs.stragglers import Slowness

Source = Literal["client", "tensorboard", "log"]

_METRICS = STATE["metric_0"]
_DESCRIBED = ("local_rank", "node_rank", "world_size", "attempt", "created_time", "static")


@dataclass(frozen=True, slots=True)
class RankReading:
    """One rank of one run.

    Attributes:
        run: The run's name.
        rank: The rank's number, as text.
        source: The source: the training client, TensorBoard's event files or a log file.
        record: Its last record.
        liveness: Whether its process lives; None for a run known from its files alone.
        ending: How it ended; None while it lives, and where that cannot be known.
        start_timestamp_seconds: When its process started, Unix seconds; None if unknown.
        gpu_uuids: The accelerators that its process holds.
        stall: Whether it makes progress; None if it is dead or that cannot be known.
        rates: Its speed of training.
        progress: Its progress.
        slowness: The comparison with the other ranks of its run on this machine; None if there are
            none.
        alerts_seen: A bit for each of `runfile.ALERTS` that was ever active.
    """

    run: str
    rank: str
    source: Source
    record: Record
    liveness: Liveness | None = None
    ending: Ending | None = None
    start_timestamp_seconds: float | None = None
    gpu_uuids: tuple[str, ...] = ()
    stall: Stall | None = None
    rates: Rates = Rates()  # noqa: RUF009 - immutable
    progress: Progress = Progress()  # noqa: RUF009 - immutable
    slowness: Slowness | None = None
    alerts_seen: int = 0


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of a run, by the file of baselines; None is not expected.

    Attributes:
        epoch_seconds: The time of an epoch.
        memory_bytes: The memory in use of each of its accelerators.
    """

    epoch_seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RunReading:
    """The values of a run as a whole.

    Attributes:
        run: Its name.
        source: The source.
        static: Its description, as in `runfile.Identity`.
        world_size: The number of its ranks on all machines; None if unknown.
        ranks_alive: The number of its ranks that live on this machine; None for a run known from
            its files alone.
        exits: The number of its processes that ended on this machine since the exporter started, by
            reason.
        losses: The cost of its restarts; None for a run known from its files alone.
        expected: What is expected of it; None if nothing is.
    """

    run: str
    source: Source
    static: Mapping[str, object] = field(default_factory=dict)
    world_size: int | None = None
    ranks_alive: int | None = None
    exits: Mapping[str, int] = field(default_factory=dict)
    losses: Losses | None = None
    expected: Expected | None = None


@dataclass(frozen=True, slots=True)
class RunsReading:
    """All runs of this machine, including those that ended within the last quarter of an hour.

    Attributes:
        ranks: Every rank.
        runs: Every run.
        incompatible_files: The number of files in the run directory that are not run files or have
            an unknown version.
        omitted: The number of ranks that the bounds left out.
        omitted_alive: The number of living ranks among them.
        complaint: The error that made the reading incomplete; None if it is complete.
    """

    ranks: tuple[RankReading, ...] = ()
    runs: tuple[RunReading, ...] = ()
    incompatible_files: int = 0
    omitted: int = 0
    omitted_alive: int = 0
    complaint: str | None = None


def choose_runs(reading: RunsReading, names: Collection[str]) -> RunsReading:
    """Return a reading with these of its runs alone."""
    if len(names) == len(reading.runs):
        return reading
    chosen = frozenset(names)
    return replace(
        reading,
        ranks=tuple(rank for rank in reading.ranks if rank.run in chosen),
        runs=tuple(run for run in reading.runs if run.run in chosen),
    )


def describe_record(record: Record) -> dict[str, object]:
    """Return a record for JSON: its words by name, and free metrics; unknown values are left out."""
    words = dict(zip((*STEP_WORDS, *STATE_WORDS), (*record.step, *record.state), strict=True))
    metrics = [
        {"name": name, "split": split, "value": record.state[_METRICS + number]}
        for number, (name, split) in enumerate(record.metrics)
        if name and record.state[_METRICS + number] != ABSENT
    ]
    document: dict[str, object] = {
        name: value
        for name, value in words.items()
        if value != ABSENT and not name.startswith(("sequence", "used", "metric_"))
    }
    document |= {"metrics": metrics, "last_words": record.last_words}
    identity = record.identity
    if identity is not None:
        document |= {name: getattr(identity, name) for name in _DESCRIBED}
    return document
