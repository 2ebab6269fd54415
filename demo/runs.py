"""Training runs: how a machine would judge what their ranks have told.

Pace, progress and stalls are judged by the exporter's own sources.
"""

from __future__ import annotations

from collections.abc import Sequence

from demo.course import ripple
from demo.jobs import DEAD, Job, Outcome, Slowdown
from demo.pace import Pace
from demo.records import BOOT, FORWARD_SHARE, tell_monotonic, write_record
from demo.script import Script
from trainvitals.sources.training.attempts import Losses
from trainvitals.sources.training.endings import Ending
from trainvitals.sources.training.liveness import Liveness
from trainvitals.sources.training.moment import Moment
from trainvitals.sources.training.processes import Exit
from trainvitals.sources.training.rates import measure_progress, measure_rates
from trainvitals.sources.training.reading import RankReading, RunReading, RunsReading
from trainvitals.sources.training.stalls import judge_stall
from trainvitals.sources.training.stragglers import LOCAL_PHASES, STRAGGLER_RATIO, Slowness

# So long an ended process stays on the page.
_SHOWN_SECONDS = 900.0
_PIDS_EACH_ROUND = 16


class Run:
    """A run on one machine.

    Args:
        job: What is trained.
        script: When what happens, in the stages of `pace.py`.
        start: From when on there is a run, Unix seconds.
        outcome: How each round ends; None for a run whose script has no death.
        steps_before: What was done before the first round.
        slowdown: A rank that slows the others down, at times.
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
        self._job, self._outcome = job, outcome
        self._pace = Pace(job, script, start, outcome, steps_before, slowdown)

    def load(self, now: float) -> float:
        """Tell which share of the time its devices compute."""
        name = self._pace.scene(now).name
        if name == "train":
            return (1 - self._job.data_wait) * (0.97 + 0.03 * ripple(self._job.pid, now))
        # A rank that waits for another one spins.
        return {"validation": 0.75, "compile": 0.1, "hung": 1.0}.get(name, 0.0)

    def held_bytes(self, now: float) -> float:
        """Tell what it holds of the memory of each device."""
        name = self._pace.scene(now).name
        return {DEAD: 0.0, "init": 0.2}.get(name, 1.0) * self._job.reserved_bytes

    def pids(self, rank: int, now: float) -> tuple[int, ...]:
        """Give the processes of a rank that live."""
        return (self._pid(rank, now),) if self._lives(now) else ()

    def is_shown(self, now: float) -> bool:
        """Whether it is still told of."""
        return self._lives(now) or now - self._pace.scene(now).start < _SHOWN_SECONDS

    def read(self, now: float) -> tuple[RunReading, tuple[RankReading, ...]]:
        """Tell of the run, and of its ranks."""
        ranks = range(len(self._job.devices))
        return self._read_run(now), tuple(self._read_rank(rank, now) for rank in ranks)

    def _lives(self, now: float) -> bool:
        return self._pace.scene(now).name != DEAD

    def _pid(self, rank: int, now: float) -> int:
        return self._job.pid + _PIDS_EACH_ROUND * self._pace.attempt(now) + rank

    def _read_run(self, now: float) -> RunReading:
        job, lives, attempt = self._job, self._lives(now), self._pace.attempt(now)
        framework, version = job.framework
        exits: dict[str, int] = {}
        losses = Losses()
        if self._outcome is not None:
            exits[self._outcome.reason] = (attempt + (not lives)) * len(job.devices)
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
            world_size=len(job.devices),
            ranks_alive=len(job.devices) if lives else 0,
            exits=exits,
            losses=losses,
        )

    def _read_rank(self, rank: int, now: float) -> RankReading:
        pace, lives = self._pace, self._lives(now)
        pid = self._pid(rank, now)
        record = write_record(pace, rank, pid, now)
        moment = Moment(now, tell_monotonic(pace, now), BOOT)
        return RankReading(
            run=self._job.run,
            rank=str(rank),
            source="client",
            record=record,
            liveness=self._judge_life(pid, now),
            ending=self._tell_end(now),
            start_timestamp_seconds=pace.began(now),
            gpu_uuids=(self._job.devices[rank],),
            stall=judge_stall(record, moment, is_stopped=False) if lives else None,
            rates=measure_rates(record, moment),
            progress=measure_progress(record, is_alive=lives),
            slowness=self._compare(rank, now) if lives else None,
            alerts_seen=self._job.alerts,
        )

    def _judge_life(self, pid: int, now: float) -> Liveness:
        if self._lives(now) or self._outcome is None:
            return Liveness(is_alive=True, evidence="lock", host_pid=pid, state="S")
        return Liveness(
            is_alive=False,
            evidence="lock",
            host_pid=pid,
            exit=Exit(self._outcome.exit_code, self._outcome.signal),
            oom_killed=self._outcome.reason == "oom",
        )

    def _tell_end(self, now: float) -> Ending | None:
        out, scene = self._outcome, self._pace.scene(now)
        if out is None or scene.name != DEAD:
            return None
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


def read_runs(runs: Sequence[Run], now: float) -> RunsReading:
    """Tell of all runs of a machine that are still told of."""
    read = [run.read(now) for run in runs if run.is_shown(now)]
    ranks = tuple(rank for _, members in read for rank in members)
    return RunsReading(ranks=ranks, runs=tuple(run for run, _ in read))
