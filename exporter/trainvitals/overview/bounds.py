"""What a run loses its time to, in the words of the boards and by the limits of the alerts.

Of these the first whose condition holds is the answer; a run that died, stands still or is over
has none.

================== =============================================================================
word               condition
================== =============================================================================
`loss is NaN`      the loss of a living rank is no finite number
`input-bound`      a rank waits for data for more than 30 % of its steps' time, over 10 minutes
`throttled`        one of its accelerators loses more than 10 % of a minute to heat, or 2 % to the
                   power brake
`slow rank`        a rank is a straggler
`not in steps`     every rank spends more than half of 10 minutes outside of training
`underused`        one of its accelerators works less than 50 % of 10 minutes (Gaudi: 20 %), time
                   outside of training counted as work
`compute-bound`    its accelerators work more than that
================== =============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainvitals.overview.accelerators import Work
from trainvitals.overview.counters import Counters
from trainvitals.overview.limits import LIMITS
from trainvitals.runfile import ABSENT, STEP
from trainvitals.sources.training.moment import name_coarse_phase
from trainvitals.sources.training.reading import RankReading

JUDGED_SECONDS = 600.0
_MOSTLY = 0.5
_LOSS, _TRAIN, _WAIT = STEP["loss"], STEP["train_seconds"], STEP["total_data_wait"]
_WAITED, _TRAINED, _AWAY = range(3)
_BOUNDLESS = frozenset(("died", "terminated", "stalled", "ended", "finished"))


@dataclass(slots=True)
class Habits:
    """What is remembered of one rank: how long it waited, trained and did something else.

    Attributes:
        start: When it started, to tell a rank that was started again from the one before.
        counters: Seconds that it waited for data, in its steps, and outside of training.
        away_seconds: How long it was seen outside of training.
        seen: When it was last looked at, Unix seconds; None before the first time.
    """

    start: float | None
    counters: Counters
    away_seconds: float = 0.0
    seen: float | None = None

    def note(self, rank: RankReading, time: float) -> None:
        """Take up what the rank tells at this time."""
        if self.seen is not None and time > self.seen:
            phase = name_coarse_phase(rank.record)
            if phase is not None and phase != "train" and rank.ending is None:
                self.away_seconds += time - self.seen
        self.seen = time
        step = rank.record.step
        waited, trained = (None if step[at] == ABSENT else step[at] for at in (_WAIT, _TRAIN))
        self.counters.take(time, (waited, trained, self.away_seconds))

    def share_waited(self) -> float | None:
        """Give the share of its steps in which it waited for data, over 10 minutes."""
        waited = self.counters.rise(_WAITED, JUDGED_SECONDS)
        trained = self.counters.rise(_TRAINED, JUDGED_SECONDS)
        if waited is None or trained is None or trained[0] <= 0:
            return None
        return waited[0] / trained[0]

    def share_away(self) -> float | None:
        """Give the share of 10 minutes in which it did something else than train."""
        away = self.counters.rise(_AWAY, JUDGED_SECONDS)
        return None if away is None else away[0] / away[1]


def judge_bound(
    state: str,
    ranks: Sequence[RankReading],
    habits: Mapping[str, Habits],
    work: Mapping[str, Work],
) -> str | None:
    """Tell what a run loses its time to; None where it has nothing to lose or too little is known.

    Args:
        state: Its state, as `states.tell_state` has it.
        ranks: Its ranks on this machine.
        habits: What is remembered of each, by its number.
        work: How the machine's accelerators worked, by UUID.
    """
    living = [rank for rank in ranks if rank.ending is None]
    if state in _BOUNDLESS or not living:
        return None
    losses = [rank.record.step[_LOSS] for rank in living]
    if any(not math.isfinite(loss) for loss in losses):
        return "loss is NaN"
    kept = {rank.rank: habits[rank.rank] for rank in living if rank.rank in habits}
    waits = _known(each.share_waited() for each in kept.values())
    if waits and max(waits) > LIMITS["data_loader_bottleneck:wait_ratio"]:
        return "input-bound"
    held = {uuid: work[uuid] for uuid in _find_devices(living, work)}
    return _judge_worst(living, kept, held)


def _judge_worst(
    living: Sequence[RankReading], kept: Mapping[str, Habits], held: Mapping[str, Work]
) -> str | None:
    if any(each.is_throttled for each in held.values()):
        return "throttled"
    if any(rank.slowness is not None and rank.slowness.is_straggler for rank in living):
        return "slow rank"
    away = _known(each.share_away() for each in kept.values())
    if away and min(away) > _MOSTLY:
        return "not in steps"
    return _judge_work(living, kept, held)


def _judge_work(
    living: Sequence[RankReading], habits: Mapping[str, Habits], held: Mapping[str, Work]
) -> str | None:
    shares = [
        (rank.gpu_uuids, kept.share_away() or 0.0)
        for rank in living
        if (kept := habits.get(rank.rank)) is not None
    ]
    verdict = None
    for uuid, each in held.items():
        if each.busy_percent is None:
            continue
        # Ranks with several accelerators, or of which nothing is known, count for all of them.
        away = max((share for uuids, share in shares if uuid in uuids or not uuids), default=0.0)
        least = LIMITS[f"{each.kind}_low_utilization:utilization_percent"]
        if each.busy_percent + 100 * away >= least:
            verdict = verdict or "compute-bound"
        elif not each.is_unused:
            return "underused"
    return verdict


def _find_devices(living: Sequence[RankReading], work: Mapping[str, Work]) -> list[str]:
    """Give the accelerators of a run; all there are where no rank says what it holds."""
    known = {uuid for rank in living for uuid in rank.gpu_uuids}
    return [uuid for uuid in work if not known or uuid in known]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
