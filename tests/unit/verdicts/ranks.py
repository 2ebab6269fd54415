"""Builders of rank readings for the tests of verdicts."""

from __future__ import annotations

from tests.unit.sources.runs.rows import NOON, write_record
from trainvitals.runfile import Phase, Record
from trainvitals.sources.runs.endings import Ending, Reason
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.reading import RankReading
from trainvitals.sources.runs.stalls import Cause, Stall
from trainvitals.sources.runs.stragglers import Slowness


def living(
    rank: int = 0,
    phase: Phase = Phase.FORWARD,
    *,
    cause: Cause | None = None,
    uuids: tuple[str, ...] = (),
    slowness: Slowness | None = None,
    record: Record | None = None,
    start: float = NOON - 600,
    **words: float,
) -> RankReading:
    """Return a rank that is alive and made its last progress at noon."""
    return RankReading(
        run="llama",
        rank=str(rank),
        source="client",
        record=record or write_record(phase, **words),
        liveness=Liveness(is_alive=True, evidence="lock", host_pid=4000 + rank),
        start_timestamp_seconds=start,
        gpu_uuids=uuids,
        stall=Stall(cause, 60.0, NOON),
        slowness=slowness,
    )


def dead(
    reason: Reason,
    rank: int = 0,
    *,
    code: int | None = None,
    signal: int | None = None,
    exception: str | None = None,
    time: float = NOON,
    start: float = NOON - 600,
) -> RankReading:
    """Return a rank that has ended."""
    return RankReading(
        run="llama",
        rank=str(rank),
        source="client",
        record=write_record(),
        liveness=Liveness(is_alive=False, evidence="lock"),
        ending=Ending(reason, code, signal, exception, time, "The test says so."),
        start_timestamp_seconds=start,
    )


def observed(record: Record, *, told: float = NOON) -> RankReading:
    """Return a run that is known only by its log, with the time of its last line."""
    return RankReading(
        run="llama", rank="0", source="log", record=record, stall=Stall(None, None, told)
    )
