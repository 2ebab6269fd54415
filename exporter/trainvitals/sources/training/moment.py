"""Now, by both clocks, and how long ago a trainer did something.

A trainer stamps what it does by the time of day and by CLOCK_MONOTONIC. The time of day may be
set while a run is under way; the other clock is the same for all processes of a boot, whatever
container they are in. So ages are taken from it wherever the record is of this boot.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.runfile import ABSENT, COARSE, STEP, Phase, Record

_NANOSECONDS = 1e9
_UNKNOWN_BOOT = bytes(16)
_MONO, _WALL, _PHASE = STEP["mono_ns"], STEP["wall_time"], STEP["phase"]
_PROGRESS, _PHASE_START = STEP["last_progress_time"], STEP["phase_start_time"]
_PHASES = {float(phase): phase for phase in Phase}


@dataclass(frozen=True, slots=True)
class Moment:
    """Now.

    Attributes:
        wall_time: Unix seconds.
        mono_ns: CLOCK_MONOTONIC, nanoseconds.
        boot_id: The boot that it counts from, 16 bytes; zeros unknown.
    """

    wall_time: float
    mono_ns: int
    boot_id: bytes = _UNKNOWN_BOOT

    def record_age_seconds(self, record: Record) -> float | None:
        """Tell how long ago the step record was written; None where it never was."""
        mono_ns, wall_time = record.step[_MONO], record.step[_WALL]
        if self._shares_clock(record) and mono_ns != ABSENT and mono_ns <= self.mono_ns:
            return (self.mono_ns - mono_ns) / _NANOSECONDS
        return max(0.0, self.wall_time - wall_time) if wall_time != ABSENT else None

    def progress_age_seconds(self, record: Record) -> float | None:
        """Tell how long ago the training thread last got on.

        That is the end of a step, the beginning of a coarse phase, or a change of phase within a
        step, whichever came last.

        Returns:
            None where nothing is known of it.
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


def find_phase(record: Record) -> Phase | None:
    """Tell what the trainer does; None where it never said so."""
    number = record.step[_PHASE] if record.live is None else record.live[1]
    return _PHASES.get(number)


def name_coarse_phase(record: Record) -> str | None:
    """Name what the trainer does, as in `COARSE_PHASES`; None where it never said so."""
    phase = find_phase(record)
    return None if phase is None else COARSE[phase]
