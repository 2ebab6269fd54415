"""What the exporter serves about the training runs of a machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random

from tests.week.runs import SHOWN_MINUTES_AFTER_DEATH, Attempt, Job, Stage
from tests.week.series import Page

PHASES = ("init", "compile", "train", "validation", "checkpoint", "idle")
_OUTSIDE_STEPS = ("init", "compile", "validation", "checkpoint", "idle")
_ENDINGS = ("finished", "exception", "signal", "oom", "unknown")
_CHUNK_MINUTES = 15
# Shares of a step that does not wait for data.
_PARTS = {"h2d": 0.01, "forward": 0.32, "backward": 0.58, "optimizer": 0.07, "other": 0.02}


def write_training(page: Page, kind: str, attempts: Sequence[Attempt]) -> None:
    """Write the series of all attempts of a machine's runs, in order of their start.

    Args:
        page: Where to.
        kind: Of the cards; only a GPU's driver tells which process it belongs to.
        attempts: In order of their start.
    """
    for run in dict.fromkeys(attempt.job.run for attempt in attempts):
        of_run = [attempt for attempt in attempts if attempt.job.run == run]
        trained = 0
        for number, attempt in enumerate(of_run):
            trained = trained if attempt.resumes else 0
            following = of_run[number + 1].start if number + 1 < len(of_run) else math.inf
            until = int(min(attempt.end + SHOWN_MINUTES_AFTER_DEATH, following))
            resumed = attempt.start < _shown_until(of_run[number - 1]) if number else False
            _write_run(page, attempt, until, restarts=number, goes_on=resumed)
            for rank, device in attempt.job.ranks:
                uuid = name_uuid(page.instance, kind, device) if kind == "gpu" else ""
                _Rank(page, attempt, rank, number, uuid, trained).write(until)
            trained += attempt.trained_minutes


def _shown_until(attempt: Attempt) -> int:
    return attempt.end + SHOWN_MINUTES_AFTER_DEATH


def _write_run(page: Page, attempt: Attempt, until: int, *, restarts: int, goes_on: bool) -> None:
    job = attempt.job
    start, end, here = attempt.start, attempt.end, len(job.devices)
    page.hold("training_world_size", start, until, job.world_size, run=job.run)
    page.hold("training_ranks_seen", start, end, here, run=job.run)
    page.hold("training_ranks_seen", end, until, 0, run=job.run)
    info = {"framework": "torch", "source": "client", "clock": "host"}
    page.hold("training_run_info", start, until, 1, run=job.run, **info)
    ended = dict.fromkeys(_ENDINGS, 0)
    for rank, _ in job.ranks if attempt.ending != "running" else ():
        ended[attempt.name_ending(rank)[0]] += 1
    for reason in _ENDINGS:
        name, labels = "training_process_exits_total", {"run": job.run, "reason": reason}
        page.count(name, start, end - 1, 0, anew=not goes_on, **labels)
        page.count(name, end - 1, end, ended[reason], **labels)
        page.count(name, end, until, 0, **labels)
    count = restarts if goes_on else 0
    page.hold("training_restarts_total", start, until, count, run=job.run)
    page.hold("training_lost_seconds_total", start, until, count * 900, run=job.run)
    page.hold("training_lost_steps_total", start, until, count * 600, run=job.run)


class _Rank:
    """Writes what one rank of one attempt tells.

    Args:
        page: Where to.
        attempt: Whose.
        rank: Its number.
        number: Of the attempt.
        uuid: Of its card, as far as it is known.
        trained: Minutes of training before it, from which it goes on.
    """

    def __init__(
        self, page: Page, attempt: Attempt, rank: str, number: int, uuid: str, trained: int
    ) -> None:
        self._page, self._attempt, self._job = page, attempt, attempt.job
        self._labels = {"run": attempt.job.run, "rank": rank}
        self._rank = rank
        self._info = {"attempt": str(number), "gpu_uuid": uuid, "local_rank": rank}
        self._random = Random(f"{attempt.job.run} {number}")
        self._trained = trained
        self._begun: set[str] = set()
        self._evaluations = self._best = 0
        self._checkpoint: float | None = None
        self._lasting: dict[str, float] = {}
        self._longest: dict[str, int] = {}

    def write(self, until: int) -> None:
        """Write the whole attempt, and what stays on the page after its end."""
        attempt, start = self._attempt, self._attempt.start
        self._hold("training_process_up", start, attempt.end, 1)
        self._hold("training_process_stopped", start, attempt.end, 0)
        self._hold("training_rank_info", start, until, 1, **self._info)
        self._hold("training_process_start_time_seconds", start, until, start * 60 - 15)
        for stage in attempt.stages:
            self._write_stage(stage, start)
            start += stage.minutes
        if attempt.ending != "running":
            self._write_end(until)

    def _write_end(self, until: int) -> None:
        end = self._attempt.end
        reason, code = self._attempt.name_ending(self._rank)
        self._hold("training_process_up", end, until, 0)
        name = "training_process_end_timestamp_seconds"
        self._hold(name, end, until, end * 60 - 20, reason=reason)
        self._hold("training_process_exit_code", end, until, code)
        self._hold("training_last_progress_timestamp_seconds", end, until, end * 60 - 21)
        self._write_last_step(end, until)
        self._write_state(end, until)

    def _write_stage(self, stage: Stage, start: int) -> None:
        end = start + stage.minutes
        self._write_phase(stage, start, end)
        for chunk_start, chunk_end in _split(start, end):
            self._write_chunk(stage, chunk_start, chunk_end)
        if stage.phase == "validation":
            self._evaluations += 1
            job = self._job
            if job.best_evaluation is None or self._evaluations <= job.best_evaluation:
                self._best = self._evaluations - (self._evaluations % 3 == 2)
        if stage.phase == "checkpoint":
            self._checkpoint = end * 60 - 5

    def _write_phase(self, stage: Stage, start: int, end: int) -> None:
        self._begun.add(stage.phase)
        for phase in PHASES:
            if phase in self._begun:
                value = float(phase == stage.phase)
                self._hold("training_phase", start, end, value, phase=phase)
        self._hold("training_phase_start_timestamp_seconds", start, end, start * 60 - 5)
        gets_on = stage.phase == "train" and not stage.hung
        threshold = self._learn_threshold(stage)
        stalled = end
        if threshold is not None:
            self._hold("training_stall_threshold_seconds", start, end, threshold)
            stalled = end if gets_on else min(end, start + math.ceil(threshold / 60))
        self._hold("training_stalled", start, stalled, 0)
        self._hold("training_stalled", stalled, end, 1)
        name = "training_last_progress_timestamp_seconds"
        if gets_on:
            behind = min(self._job.step_seconds / 2, 30)
            self._page.climb(name, start, end, start * 60 - behind, 60, **self._labels)
        else:
            self._hold(name, start, end, start * 60 - 5)
        longest = self._longest.get(stage.phase, 0)
        self._longest[stage.phase] = max(longest, stage.minutes * 60)

    def _learn_threshold(self, stage: Stage) -> float | None:
        if stage.phase in {"init", "compile"}:
            return 3600
        if stage.phase in {"validation", "checkpoint"}:
            return max(1800, 3 * self._longest.get(stage.phase, 0))
        if stage.phase == "idle":
            return None
        slowest = max(self._job.slowest_step_seconds, self._job.step_seconds / stage.pace)
        return min(max(6 * slowest, 60), max(1800, 2 * slowest))

    def _write_chunk(self, stage: Stage, start: int, end: int) -> None:
        trains = stage.phase == "train" and not stage.hung
        if trains:
            self._write_steps(stage, start, end)
            self._trained += end - start
        else:
            self._write_last_step(start, end)
        self._count_phases(stage, start, end, trains=trains)
        self._write_state(start, end)
        self._hold("training_client_overhead_ratio", start, end, 0.0008)
        left = self._attempt.end - start
        self._hold("training_eta_timestamp_seconds", start, end, (start + 0.95 * left) * 60 + 300)

    def _write_steps(self, stage: Stage, start: int, end: int) -> None:
        job, noise = self._job, self._random.uniform(0.97, 1.04)
        seconds = job.step_seconds / stage.pace * noise
        self._count_steps(start, end, 60 / seconds, 60)
        busy = job.step_seconds * noise * 0.98
        self._lasting = {
            "batch_processing_time": seconds,
            "model_forward_time": busy * _PARTS["forward"],
            "backward_pass_time": busy * _PARTS["backward"],
            "optimizer_step_time": busy * _PARTS["optimizer"],
            "training_loss": self._judge_loss(),
        }
        for name, value in self._lasting.items():
            self._hold(name, start, end, value)
        self._hold("training_samples_per_second", start, end, job.samples / seconds)
        self._hold("training_tokens_per_second", start, end, 2048 * job.samples / seconds)
        for phase in ("data_wait", "forward", "optimizer"):
            ratio = self._random.uniform(1.0, 1.15)
            self._hold("training_rank_slowdown_ratio", start, end, ratio, phase=phase)
        self._hold("training_rank_straggler", start, end, 0)

    def _write_last_step(self, start: int, end: int) -> None:
        if "steps" in self._begun:
            self._count_steps(start, end, 0, 0)
        for name, value in self._lasting.items():
            self._hold(name, start, end, value)

    def _count_steps(self, start: int, end: int, steps: float, seconds: float) -> None:
        anew = "steps" not in self._begun
        self._begun.add("steps")
        count = self._page.count
        for name, per_minute in (
            ("training_steps_total", steps),
            ("training_samples_total", steps * self._job.samples),
            ("training_tokens_total", steps * self._job.samples * 2048),
            ("training_step_duration_seconds_sum", seconds),
            ("training_step_duration_seconds_count", steps),
        ):
            count(name, start, end, per_minute, anew=anew, **self._labels)

    def _count_phases(self, stage: Stage, start: int, end: int, *, trains: bool) -> None:
        spent = dict.fromkeys([phase for phase in _OUTSIDE_STEPS if phase in self._begun], 0.0)
        if "steps" in self._begun:
            share = stage.data_wait if trains else 0.0
            spent["data_wait"] = 60 * share
            for part, of_step in _PARTS.items():
                spent[part] = 60 * (1 - share) * of_step if trains else 0.0
        if stage.phase in spent:
            spent[stage.phase] = 60
        for phase, seconds in spent.items():
            anew = f"seconds in {phase}" not in self._begun
            self._begun.add(f"seconds in {phase}")
            name, labels = "training_phase_seconds_total", self._labels
            self._page.count(name, start, end, seconds, anew=anew, phase=phase, **labels)

    def _write_state(self, start: int, end: int) -> None:
        """Write what a dead rank shows as well."""
        job = self._job
        for what in ("loss", "grad_norm", "eval"):
            grows = what == "grad_norm" and job.overflow_minutes and start < self._attempt.end
            each = 1 / job.overflow_minutes if grows else 0.0
            first = f"nonfinite {what}" not in self._begun
            self._begun.add(f"nonfinite {what}")
            name, labels = "training_nonfinite_total", self._labels
            self._page.count(name, start, end, each, anew=first, what=what, **labels)
        if job.overflow_minutes and self._trained:
            self._hold("training_nonfinite_last_timestamp_seconds", start, end, start * 60 - 40)
        if self._evaluations:
            since = self._evaluations - self._best
            self._hold("training_evaluations_since_improvement", start, end, since)
            self._hold("validation_loss", start, end, self._judge_loss() * 1.05)
        if self._checkpoint is not None:
            self._hold("training_checkpoint_last_timestamp_seconds", start, end, self._checkpoint)
        oldest = job.checkpoint_max_age_minutes * 60
        self._hold("training_checkpoint_max_age_seconds", start, end, oldest)
        self._hold("training_data_errors_total", start, end, 0)
        self._hold("training_memory_oom_total", start, end, 0)
        self._hold("training_loss_spikes_total", start, end, 0)
        self._hold("training_loss_spike", start, end, 0)
        self._hold("training_nan_filter_active", start, end, 0)
        self._hold("training_client_errors_total", start, end, 0)
        self._hold("training_client_dropped_metrics_total", start, end, 0)

    def _judge_loss(self) -> float:
        first, last = self._job.loss
        value = last + (first - last) * math.exp(-self._trained / 300)
        if (every := self._job.warm_restart_minutes) and self._trained >= every:
            value *= 1 + 0.35 * math.exp(-(self._trained % every) / 40)
        return value * self._random.uniform(0.97, 1.03)

    def _hold(self, name: str, start: int, end: int, value: float, **labels: str) -> None:
        self._page.hold(name, start, end, value, **self._labels, **labels)


def name_uuid(instance: str, kind: str, device: int) -> str:
    """Name a card."""
    return f"{kind.upper()}-{instance}-{device}"


def _split(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Split a stretch where its readings change, at the same minutes for all ranks."""
    while start < end:
        after = min(end, start - start % _CHUNK_MINUTES + _CHUNK_MINUTES)
        yield start, after
        start = after


def list_holders(attempts: Sequence[Attempt], device: int) -> Iterator[tuple[int, int, Job, Stage]]:
    """List who uses a card, and when.

    Yields:
        From which minute, until which, the job and its stage.
    """
    for attempt in attempts:
        if device not in attempt.job.devices:
            continue
        start = attempt.start
        for stage in attempt.stages:
            yield start, start + stage.minutes, attempt.job, stage
            start += stage.minutes
