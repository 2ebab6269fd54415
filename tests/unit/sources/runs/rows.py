"""Helpers that return a trainer's records, in which a test sets only the values it needs."""

from __future__ import annotations

from trainvitals.runfile import EMPTY_STATE, EMPTY_STEP, STATE, STEP, Identity, Phase, Record
from trainvitals.sources.runs.moment import Moment

BOOT = b"the same boot id"
NOON = 1_700_049_600.0
SECOND_NS = 1_000_000_000


def at(seconds: float, *, clock_is_off_by: float = 0.0) -> Moment:
    """Return a moment in seconds after noon; CLOCK_MONOTONIC showed 1000 s at noon."""
    return Moment(NOON + seconds + clock_is_off_by, int((1000 + seconds) * SECOND_NS), BOOT)


def write_record(
    phase: Phase | None = Phase.FORWARD,
    *,
    written: float = 0.0,
    live: tuple[float, Phase] | None = None,
    identity: Identity | None = None,
    **words: float,
) -> Record:
    """Return a record.

    Args:
        phase: The phase of the run in the step record.
        written: The time when the record was published, in seconds after noon.
        live: The time (in seconds after noon) and the phase of the live word; None for none.
        identity: The identity of the rank that wrote the record.
        words: The values of words in the step and state records, by name.
    """
    step, state = list(EMPTY_STEP), list(EMPTY_STATE)
    step[STEP["mono_ns"]] = (1000 + written) * SECOND_NS
    step[STEP["wall_time"]] = step[STEP["last_progress_time"]] = NOON + written
    step[STEP["phase_start_time"]] = NOON - 500
    state[STATE["state"]] = 0.0
    if phase is not None:
        step[STEP["phase"]] = float(phase)
    for name, value in words.items():
        if name in STEP:
            step[STEP[name]] = value
        else:
            state[STATE[name]] = value
    return Record(
        step=step,
        state=state,
        live=None if live is None else (int((1000 + live[0]) * SECOND_NS), int(live[1])),
        identity=identity or Identity("llama", boot_id=BOOT, created_time=NOON - 600),
    )
