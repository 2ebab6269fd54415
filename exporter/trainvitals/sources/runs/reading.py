"""The values from one reading of this machine's training runs."""

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

Source = Literal["client", "tensorboard", "log", "csv", "json", "mlflow"]

_METRICS = STATE["metric_0"]
_DESCRIBED = ("local_rank", "node_rank", "world_size", "attempt", "created_time", "static")


@dataclass(frozen=True, slots=True)
class RankReading:
    """The values of one rank of a training run.

    Attributes:
        run: The name of the run to which the rank belongs.
        rank: The rank's number, as text.
        source: The source of the values: the training client, TensorBoard event files, a log file,
            a CSV or JSON file, or MLflow.
        record: The rank's last record.
        liveness: The liveness of the rank's process; None for a run without a run file.
        ending: How the rank ended; None while the rank is alive, or for a run without a run file.
        start_timestamp_seconds: The time when the rank's process started, in Unix seconds; None if
            the time is unknown.
        gpu_uuids: The UUIDs of the accelerators that the rank's process holds.
        stall: Whether the rank makes progress; None if the rank has ended.
        rates: The rank's training speed.
        progress: The rank's training progress.
        slowness: The comparison of the rank with the run's other ranks on this machine; None if
            there are no other ranks.
        alerts_seen: A bit mask of the alerts in `runfile.ALERTS` that were ever active.
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
    """A run's expected values from the baselines file; a value that is not specified is None.

    Attributes:
        epoch_seconds: The expected duration of an epoch, in seconds.
        memory_bytes: The expected memory use on each of the run's accelerators, in bytes.
    """

    epoch_seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RunReading:
    """The values that apply to a whole training run.

    Attributes:
        run: The name of the run.
        source: The source of the values, as in `RankReading`.
        static: The constant properties of the run, as in `runfile.Identity`.
        world_size: The number of the run's ranks on all machines; None if the number is unknown.
        ranks_alive: The number of the run's ranks that are alive on this machine; None for a run
            without a run file.
        exits: The number of the run's processes that have ended on this machine since the exporter
            started, by reason.
        losses: The steps and time that the run lost because of restarts; None for a run without a
            run file.
        expected: The expected values of the run; None if the baselines file specifies no values for
            the run.
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
class FollowedFiles:
    """The state of the files from which runs without the training client are read.

    Attributes:
        understood: The number of files from which numbers were read.
        not_understood: The paths of the files in which no line was understood. Files that were
            tried only because of their names are not listed, nor are files of processes for which
            another file was understood.
        unreadable: The number of files that cannot be read.
        unmatched: The command-line flags whose values match no file, with these values.
    """

    understood: int = 0
    not_understood: tuple[str, ...] = ()
    unreadable: int = 0
    unmatched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunsReading:
    """The values of all runs on this machine, including runs that ended in the last 15 minutes.

    Attributes:
        ranks: The values of all ranks.
        runs: The values of all runs.
        incompatible_files: The number of files in the run directory that are not run files or have
            an unknown version.
        omitted: The number of ranks that were left out because of the limits.
        omitted_alive: The number of ranks that were left out although they are alive.
        followed: The state of the files of runs without the training client.
        complaint: The errors that made the reading incomplete; None if the reading is complete.
    """

    ranks: tuple[RankReading, ...] = ()
    runs: tuple[RunReading, ...] = ()
    incompatible_files: int = 0
    omitted: int = 0
    omitted_alive: int = 0
    followed: FollowedFiles = FollowedFiles()
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
    """Return the known words and user-defined metrics of a record by name, for JSON output."""
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
