"""Simulated training runs: the exporter's readings of the runs.

Rates, progress and stalls are determined by the exporter's own sources.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fleet.course import ripple
from fleet.jobs import DEAD, Job, Outcome, Slowdown
from fleet.pace import Pace
from fleet.records import BOOT, FORWARD_SHARE, write_monotonic, write_record
from fleet.script import Script
from trainvitals.sources.runs.attempts import Losses
from trainvitals.sources.runs.endings import Ending
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.moment import Moment
from trainvitals.sources.runs.processes import Exit
from trainvitals.sources.runs.rates import measure_progress, measure_rates
from trainvitals.sources.runs.reading import Expected, RankReading, RunReading, RunsReading
from trainvitals.sources.runs.stalls import detect_stall
from trainvitals.sources.runs.stragglers import LOCAL_PHASES, STRAGGLER_RATIO, Slowness

# The time for which an ended run remains on the page, in seconds.
_SHOWN_SECONDS = 900.0
_PIDS_EACH_ROUND = 16


class Run:
    """A run on one machine.

    Args:
        job: The training job.
        script: The script of the run's stages, which are those of `pace.py`.
        start: The time at which the run begins, in Unix seconds.
        outcome: The outcome of each round; None for a run whose script has no stage `dead`.
        steps_before: The number of steps completed before the first round.
        slowdown: A rank that temporarily slows the others down; None for no such rank.

    Attributes:
        start: The argument `start`.
    """

    def __init__(
        self,
        job: Job,
        script: Script,
        start: float,
        *,
        outcome: Outcome | None = None,
        steps_before: int = 0,
        slowdown: Slowdown | None = None,
    ) -> None:
        self._job, self._outcome, self.start = job, outcome, start
        self._pace = Pace(job, script, start, outcome, steps_before, slowdown)

    def load(self, now: float) -> float:
        """Return the share of the time in which the run's devices are busy."""
        name = self._pace.scene(now).name
        if self._pace.is_training(now):
            share = self._job.utilization * (1 - self._pace.data_wait(now))
            return share * (0.97 + 0.03 * ripple(self._job.pid, now))
        # A rank that waits for another rank spins.
        return {"validation": 0.75, "compile": 0.1, "hung": 1.0}.get(name, 0.0)

    def held_bytes(self, now: float) -> float:
        """Return the memory that the run holds on each device, in bytes."""
        name = self._pace.scene(now).name
        return {DEAD: 0.0, "init": 0.2}.get(name, 1.0) * self._job.reserved_bytes

    def pids(self, rank: int, now: float) -> tuple[int, ...]:
        """Return the IDs of a rank's running processes."""
        return (self._pid(rank, now),) if self._lives(now) else ()

    def is_shown(self, now: float) -> bool:
        """Return whether the run is on the machine's page."""
        return self._lives(now) or now - self._pace.scene(now).start < _SHOWN_SECONDS

    def read(self, now: float) -> tuple[RunReading, tuple[RankReading, ...]]:
        """Return the readings of the run and of its ranks."""
        ranks = range(len(self._job.devices))
        return self._read_run(now), tuple(self._read_rank(rank, now) for rank in ranks)

    def _lives(self, now: float) -> bool:
        return self._pace.scene(now).name != DEAD

    def _pid(self, rank: int, now: float) -> int:
        return self._job.pid + _PIDS_EACH_ROUND * self._pace.attempt(now) + rank

    def _read_run(self, now: float) -> RunReading:
        job, lives, attempt = self._job, self._lives(now), self._pace.attempt(now)
        framework, version = job.framework
        exits: Counter[str] = Counter()
        losses = Losses()
        if self._outcome is not None:
            for rank in range(len(job.devices)):
                exits[self._outcome.of_rank(rank).reason] += attempt + (not lives)
        if self._outcome is not None and self._outcome.reason != "finished":
            lost = attempt * self._pace.lost_steps()
            losses = Losses(attempt, lost, lost * job.step_seconds)
        return RunReading(
            run=job.run,
            source="client",
            static={
                "framework": framework,
                "framework_version": version,
                "client_version": "0.1.0",
                "clock": "host",
            },
            world_size=job.world_size or len(job.devices),
            ranks_alive=len(job.devices) if lives else 0,
            exits=exits,
            losses=losses,
            # The values that a user of the run would have recorded as its expected values.
            expected=Expected(job.epoch_steps * job.step_seconds, job.reserved_bytes),
        )

    def _read_rank(self, rank: int, now: float) -> RankReading:
        pace, lives = self._pace, self._lives(now)
        pid = self._pid(rank, now)
        record = write_record(pace, rank, pid, now)
        moment = Moment(now, write_monotonic(pace, now), BOOT)
        return RankReading(
            run=self._job.run,
            rank=str(self._job.first_rank + rank),
            source="client",
            record=record,
            liveness=self._judge_life(rank, pid, now),
            ending=self._read_end(rank, now),
            start_timestamp_seconds=pace.began(now),
            gpu_uuids=tuple(filter(None, (self._job.devices[rank],))),
            stall=detect_stall(record, moment, is_stopped=False) if lives else None,
            rates=measure_rates(record, moment),
            progress=measure_progress(record, is_alive=lives),
            slowness=self._compare(rank, now) if lives else None,
            alerts_seen=self._job.alerts,
        )

    def _judge_life(self, rank: int, pid: int, now: float) -> Liveness:
        if self._lives(now) or self._outcome is None:
            return Liveness(is_alive=True, evidence="lock", host_pid=pid, state="S")
        out = self._outcome.of_rank(rank)
        return Liveness(
            is_alive=False,
            evidence="lock",
            host_pid=pid,
            exit=Exit(out.exit_code, out.signal),
            oom_killed=out.reason == "oom",
        )

    def _read_end(self, rank: int, now: float) -> Ending | None:
        scene = self._pace.scene(now)
        if self._outcome is None or scene.name != DEAD:
            return None
        out = self._outcome.of_rank(rank)
        exception = out.exception or None
        return Ending(out.reason, out.exit_code, out.signal, exception, scene.start, "Recorded.")

    def _compare(self, rank: int, now: float) -> Slowness | None:
        if len(self._job.devices) == 1:
            return None
        slowdown, ratio = self._pace.slowdown, 1.0
        if rank == slowdown.rank:
            share = FORWARD_SHARE * (1 - self._job.data_wait)
            ratio = round(1 + (slowdown.factor(now) - 1) / share, 3)
        ratios = tuple(ratio if phase == "forward" else 1.0 for phase in LOCAL_PHASES)
        return Slowness(ratios, ratio > STRAGGLER_RATIO)


class Attempts:
    """A run whose attempts are planned individually; the newest attempt that has begun is shown.

    Args:
        attempts: The attempts in the order of their start times.
    """

    def __init__(self, attempts: Sequence[Run]) -> None:
        self._attempts = attempts
        self._starts = [attempt.start for attempt in attempts]

    def load(self, now: float) -> float:
        """Return the share of the time in which the run's devices are busy."""
        return self._newest(now).load(now)

    def held_bytes(self, now: float) -> float:
        """Return the memory that the run holds on each device, in bytes."""
        return self._newest(now).held_bytes(now)

    def pids(self, rank: int, now: float) -> tuple[int, ...]:
        """Return the IDs of a rank's running processes."""
        return self._newest(now).pids(rank, now)

    def is_shown(self, now: float) -> bool:
        """Return whether the run is on the machine's page."""
        return self._newest(now).is_shown(now)

    def read(self, now: float) -> tuple[RunReading, tuple[RankReading, ...]]:
        """Return the readings of the run and of its ranks.

        Counters continue from the previous attempt if that attempt was still on the page.
        """
        place = bisect_right(self._starts, now) - 1
        run, ranks = self._attempts[place].read(now)
        exits, restarts = Counter(run.exits), 0
        while place > 0 and self._attempts[place - 1].is_shown(self._starts[place]):
            place, restarts = place - 1, restarts + 1
            exits += Counter(self._attempts[place].read(self._starts[place + 1])[0].exits)
        losses = Losses(restarts, 600 * restarts, 900 * restarts)
        return replace(run, exits=exits, losses=losses), ranks

    def _newest(self, now: float) -> Run:
        return self._attempts[max(0, bisect_right(self._starts, now) - 1)]


def read_runs(runs: Sequence[Run | Attempts], now: float) -> RunsReading:
    """Return the readings of all runs that are on a machine's page."""
    read = [run.read(now) for run in runs if run.is_shown(now)]
    ranks = tuple(rank for _, members in read for rank in members)
    return RunsReading(ranks=ranks, runs=tuple(run for run, _ in read))
