"""The current time on the wall clock and the monotonic clock, and the ages of a trainer's records.

A trainer records the time of day and CLOCK_MONOTONIC. The time of day may be set during a run, but
CLOCK_MONOTONIC is the same for all processes of one boot, including processes in containers. Ages
are therefore calculated from CLOCK_MONOTONIC if the record is from this boot.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.runfile import ABSENT, COARSE, STATE, STEP, Phase, Record, State

_NANOSECONDS = 1e9
_UNKNOWN_BOOT = bytes(16)
_MONO, _WALL, _PHASE = STEP["mono_ns"], STEP["wall_time"], STEP["phase"]
_PROGRESS, _PHASE_START = STEP["last_progress_time"], STEP["phase_start_time"]
_PHASES = {float(phase): phase for phase in Phase}
_STATE = STATE["state"]
_STATES = {float(state): state for state in State}


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time, as read from the wall clock and from the monotonic clock.

    Attributes:
        wall_time: The time of the wall clock, in Unix seconds.
        mono_ns: The time of CLOCK_MONOTONIC, in nanoseconds.
        boot_id: The ID of the boot from which `mono_ns` counts, 16 bytes; zeros if the ID is
            unknown.
    """

    wall_time: float
    mono_ns: int
    boot_id: bytes = _UNKNOWN_BOOT

    def record_age_seconds(self, record: Record) -> float | None:
        """Return the age of a step record, in seconds; None if the record was never written."""
        mono_ns, wall_time = record.step[_MONO], record.step[_WALL]
        if self._shares_clock(record) and mono_ns != ABSENT and mono_ns <= self.mono_ns:
            return (self.mono_ns - mono_ns) / _NANOSECONDS
        return max(0.0, self.wall_time - wall_time) if wall_time != ABSENT else None

    def progress_age_seconds(self, record: Record) -> float | None:
        """Return the time since the training thread's last progress, in seconds.

        Progress means the end of a step, the beginning of a coarse phase, or a change of phase
        within a step.

        Returns:
            The time since the last progress; None if that time is unknown.
        """
        step, identity = record.step, record.identity
        written_ago = self.record_age_seconds(record)
        if written_ago is None:
            created = identity.created_time if identity is not None else ABSENT
            ages = [max(0.0, self.wall_time - created)] if created > 0 else []
        else:
            at = max(step[_PROGRESS], step[_PHASE_START])
            before = step[_WALL] - at if at != ABSENT and step[_WALL] != ABSENT else 0.0
            ages = [written_ago + max(0.0, before)]
        if record.live is not None and self._shares_clock(record):
            marked_ns = record.live[0]
            if marked_ns <= self.mono_ns:
                ages.append((self.mono_ns - marked_ns) / _NANOSECONDS)
        return min(ages, default=None)

    def _shares_clock(self, record: Record) -> bool:
        identity = record.identity
        return identity is not None and identity.boot_id == self.boot_id != _UNKNOWN_BOOT


def find_state(record: Record) -> State | None:
    """Return the state that a run's trainer recorded last; None if the state is unknown."""
    return _STATES.get(record.state[_STATE])


def find_phase(record: Record) -> Phase | None:
    """Return the trainer's phase from a record; None if no phase was ever recorded."""
    number = record.step[_PHASE] if record.live is None else record.live[1]
    return _PHASES.get(number)


def name_coarse_phase(record: Record) -> str | None:
    """Return the name in `COARSE_PHASES` of a record's phase; None if no phase was recorded."""
    phase = find_phase(record)
    return None if phase is None else COARSE[phase]
