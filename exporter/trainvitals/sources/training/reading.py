"""What is known of the training runs of this machine at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainvitals.runfile import ABSENT, STATE, STATE_WORDS, STEP_WORDS, Record
from trainvitals.sources.training.attempts import Losses
from trainvitals.sources.training.endings import Ending
from trainvitals.sources.training.liveness import Liveness
from trainvitals.sources.training.rates import Progress, Rates
from trainvitals.sources.training.stalls import Stall
from trainvitals.sources.training.stragglers import Slowness

Source = Literal["client", "tensorboard", "log"]

_METRICS = STATE["metric_0"]
_DESCRIBED = ("local_rank", "node_rank", "world_size", "attempt", "created_time", "static")


@dataclass(frozen=True, slots=True)
class RankReading:
    """One rank of one run.

    Attributes:
        run: The run's name.
        rank: The rank's number, as text.
        source: Who tells: the training client, TensorBoard's event files or a log file.
        record: What it last told.
        liveness: Whether its process lives; None for a run that only its files tell of.
        ending: How it ended; None while it lives, and where nobody can know.
        start_timestamp_seconds: When its process started, Unix seconds; None unknown.
        gpu_uuids: The accelerators that its process holds.
        stall: Whether it gets on; None when it is dead or nobody can know.
        rates: How fast it trains.
        progress: How far it is.
        slowness: How it compares with the other ranks of its run here; None with none.
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
class RunReading:
    """What concerns a run as a whole.

    Attributes:
        run: Its name.
        source: Who tells of it.
        static: What describes it, as in `runfile.Identity`.
        world_size: How many ranks it has on all machines; None unknown.
        ranks_alive: How many of them live here; None for a run that only its files tell of.
        exits: How many of its processes ended here since the exporter started, by reason.
        losses: What its restarts have cost; None for a run that only its files tell of.
    """

    run: str
    source: Source
    static: Mapping[str, object] = field(default_factory=dict)
    world_size: int | None = None
    ranks_alive: int | None = None
    exits: Mapping[str, int] = field(default_factory=dict)
    losses: Losses | None = None


@dataclass(frozen=True, slots=True)
class RunsReading:
    """All runs of this machine, those included that ended within the last quarter of an hour.

    Attributes:
        ranks: Every rank.
        runs: Every run.
        incompatible_files: How many files in the run directory are no run files or of a version
            that is not known here.
        omitted: How many ranks the bounds left out.
        complaint: What kept the reading from being whole; None when nothing did.
    """

    ranks: tuple[RankReading, ...] = ()
    runs: tuple[RunReading, ...] = ()
    incompatible_files: int = 0
    omitted: int = 0
    complaint: str | None = None


def describe_record(record: Record) -> dict[str, object]:
    """Give a record for JSON: its words by name, and free metrics; what is not known is left out."""
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
