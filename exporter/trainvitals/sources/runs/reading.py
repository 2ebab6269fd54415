"""A reading of this machine's training runs."""

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
    """A rank of a run.

    Attributes:
        run: The run's name.
        rank: The rank's number, as text.
        source: The source: the training client, TensorBoard event files or a log file.
        record: The last record.
        liveness: The liveness of the process; None for a run without a run file.
        ending: How the rank ended; None while it is alive, or for a run without a run file.
        start_timestamp_seconds: When the process started, in Unix seconds; None if unknown.
        gpu_uuids: The UUIDs of the accelerators that the process holds.
        stall: Whether the rank makes progress; None if the rank has ended.
        rates: The training speed.
        progress: The training progress.
        slowness: The comparison with the run's other ranks on this machine; None if there are no
            other ranks.
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
    """The values expected of a run, according to the baselines file; None if not specified.

    Attributes:
        epoch_seconds: The duration of an epoch.
        memory_bytes: The memory in use on each of the run's accelerators.
    """

    epoch_seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RunReading:
    """The values of a run as a whole.

    Attributes:
        run: The run's name.
        source: The source, as in `RankReading`.
        static: The run's description, as in `runfile.Identity`.
        world_size: The number of ranks on all machines; None if unknown.
        ranks_alive: The number of ranks that are alive on this machine; None for a run without a
            run file.
        exits: The number of the run's processes that have ended on this machine since the exporter
            started, by reason.
        losses: The steps and time lost because of restarts; None for a run without a run file.
        expected: The expected values; None if the baselines file specifies none for the run.
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
    """All runs on this machine, including runs that ended within the last 15 minutes.

    Attributes:
        ranks: All ranks.
        runs: All runs.
        incompatible_files: The number of files in the run directory that are not run files or have
            an unknown version.
        omitted: The number of ranks left out because of the limits.
        omitted_alive: The number of omitted ranks that are alive.
        complaint: The errors that made the reading incomplete; None if the reading is complete.
    """

    ranks: tuple[RankReading, ...] = ()
    runs: tuple[RunReading, ...] = ()
    incompatible_files: int = 0
    omitted: int = 0
    omitted_alive: int = 0
    complaint: str | None = None


def choose_runs(reading: RunsReading, names: Collection[str]) -> RunsReading:
    """Return a reading that contains only the runs with the given names."""
    if len(names) == len(reading.runs):
        return reading
    chosen = frozenset(names)
    return replace(
        reading,
        ranks=tuple(rank for rank in reading.ranks if rank.run in chosen),
        runs=tuple(run for run in reading.runs if run.run in chosen),
    )


def describe_record(record: Record) -> dict[str, object]:
    """Return a record for JSON: words by name, and free metrics; unknown values are left out."""
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
