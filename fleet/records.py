"""The simulated contents of the run files of a run's ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fleet.course import ripple
from fleet.jobs import DEAD
from fleet.pace import Pace
from trainvitals.runfile import (
    EMPTY_STATE,
    EMPTY_STEP,
    PHASE_NAMES,
    STATE,
    STEP,
    Identity,
    Phase,
    Record,
    State,
)

BOOT = bytes(range(16))
FORWARD_SHARE = 0.3

_WINDOW_SECONDS = 15.0
_CLIENT_SHARE = 0.0004
_PHASES = {
    "init": Phase.INIT,
    "compile": Phase.COMPILE,
    "train": Phase.FORWARD,
    "slow": Phase.DATA_WAIT,
    "validation": Phase.VALIDATION,
    "checkpoint": Phase.CHECKPOINT,
    "hung": Phase.BACKWARD,
    DEAD: Phase.FORWARD,
}
# The distribution of a step's time over phases, excluding the wait for data.
_SHARES = {
    "h2d": 0.02,
    "forward": FORWARD_SHARE,
    "backward": 0.55,
    "optimizer": 0.1,
    "other": 0.03,
}
_OUTSIDE_STEPS = ("init", "compile", "validation", "checkpoint")


def write_record(pace: Pace, rank: int, pid: int, now: float) -> Record:
    """Return the record that a rank has written to its run file by a time."""
    job, scene, outcome = pace.job, pace.scene(now), pace.outcome
    marked = pace.last_step(now) if pace.is_training(now) else scene.start
    is_first = rank == 0
    return Record(
        step=_fill(EMPTY_STEP, STEP, _write_step(pace, rank, now)),
        state=_fill(
            EMPTY_STATE,
            STATE,
            {
                **_write_state(pace, rank, now),
                **(_write_evaluations(pace, now) if is_first else {}),
            },
        ),
        live=(write_monotonic(pace, marked), _PHASES[scene.name]),
        metrics=tuple((name, "validation") for name in job.metrics) if is_first else (),
        identity=Identity(
            run=job.run,
            rank=job.first_rank + rank,
            local_rank=rank,
            node_rank=0,
            world_size=job.world_size or len(job.devices),
            attempt=pace.attempt(now),
            pid=pid,
            boot_id=BOOT,
            created_time=pace.began(now),
            created_mono_ns=write_monotonic(pace, pace.began(now)),
        ),
        last_words=outcome.of_rank(rank).exception if outcome and scene.name == DEAD else "",
    )


def write_monotonic(pace: Pace, moment: float) -> int:
    """Return a time on the machine's monotonic clock, in nanoseconds."""
    return int((moment - pace.start) * 1e9)


def _write_step(pace: Pace, rank: int, now: float) -> dict[str, float]:
    job, scene, told_at = pace.job, pace.scene(now), pace.last_step(now)
    step_seconds, steps, seconds = pace.step_seconds(now), pace.steps(now), pace.train_seconds(now)
    window = min(steps, max(1, round(_WINDOW_SECONDS / step_seconds)))
    global_step = pace.first_step(now) + steps
    words: dict[str, float] = {
        "mono_ns": write_monotonic(pace, told_at),
        "wall_time": told_at,
        "last_progress_time": told_at,
        "steps": steps,
        "samples": steps * job.samples,
        "global_step": global_step,
        "epoch_step": global_step % job.epoch_steps,
        "train_seconds": seconds,
        "phase": _PHASES[scene.name],
        # A hanging step still belongs to the training phase.
        "phase_start_time": pace.scene(scene.start - 1).start
        if scene.name == "hung"
        else scene.start,
        "window_train_seconds": seconds - window * step_seconds,
        "window_steps": steps - window,
        "window_samples": (steps - window) * job.samples,
        "overhead_seconds": _CLIENT_SHARE * (told_at - pace.began(now)),
        "errors": 0,
    }
    if job.tokens:
        words["tokens"] = words["samples"] * job.tokens
        words["window_tokens"] = words["window_samples"] * job.tokens
    counts = enumerate(pace.steps_by_duration(now))
    words |= {f"step_bucket_{index}": count for index, count in counts}
    words |= _write_phases(pace, rank, now)
    return words | (_write_learning(pace, rank, now) | _write_durations(pace, now) if steps else {})


def _write_phases(pace: Pace, rank: int, now: float) -> dict[str, float]:
    """Distribute the step time over phases; other ranks wait for the slow rank in `backward`."""
    lost = pace.lost_seconds(now)
    waited = pace.waited_seconds(now)
    computed = pace.train_seconds(now) - lost - waited
    spent = {name: share * computed for name, share in _SHARES.items()}
    spent["data_wait"] = waited
    spent["forward" if rank == pace.slowdown.rank else "backward"] += lost
    spent |= {name: pace.stage_seconds(name, now) for name in _OUTSIDE_STEPS}
    return {f"total_{name}": spent.get(name, 0.0) for name in PHASE_NAMES}


def _write_learning(pace: Pace, rank: int, now: float) -> dict[str, float]:
    job, done = pace.job, pace.learned(now)
    wander = ripple(job.pid + 5 + rank, now, seconds=90)
    loss = _tend(job.loss, done)
    if (every := job.warm_restart_seconds) and pace.train_seconds(now) >= every:
        loss *= 1 + 0.35 * math.exp(-(pace.train_seconds(now) % every) / 2400)
    learned: dict[str, float] = {
        "loss": loss * (1 + 0.04 * wander),
        "loss_ema": loss,
        "learning_rate": 3e-4 * (0.05 + 0.95 * (0.5 + 0.5 * math.cos(math.pi * done))),
        "gradient_norm": (1 - 0.4 * done) * (1 + 0.2 * wander),
        "nonfinite_losses": 0,
    }
    if job.accuracy is not None:
        learned["accuracy"] = min(1.0, _tend(job.accuracy, done) * (1 + 0.01 * wander))
    return learned


def _write_durations(pace: Pace, now: float) -> dict[str, float]:
    step_seconds = pace.step_seconds(now)
    computing = pace.job.step_seconds * (1 - pace.job.data_wait)
    return {
        "step_seconds": step_seconds,
        "slowest_step_seconds": pace.job.slowest * step_seconds,
        **{
            f"{name}_seconds": _SHARES[name] * computing
            for name in ("forward", "backward", "optimizer")
        },
    }


def _write_state(pace: Pace, rank: int, now: float) -> dict[str, float]:
    job, first = pace.job, pace.first_step(now)
    words: dict[str, float] = {
        "wall_time": pace.last_step(now),
        "state": _write_standing(pace, rank, now),
        "epoch": (first + pace.steps(now)) // job.epoch_steps,
        "total_steps": job.total_steps,
        "epoch_steps": job.epoch_steps,
        "first_global_step": first,
        "memory_allocated_bytes": 0.9 * job.memory_bytes,
        "memory_reserved_bytes": job.reserved_bytes,
        "memory_peak_bytes": job.memory_bytes,
        "alerts": job.alerts,
        "baseline_step_seconds": job.step_seconds,
        "baseline_samples_per_second": job.samples / job.step_seconds,
        "baseline_utilization_ratio": 1 - job.data_wait,
        "dropped_names": 0,
        **dict.fromkeys(("nonfinite_gradients", "nonfinite_evaluations", "data_errors"), 0.0),
        **_write_overflows(pace, now),
        **dict.fromkeys(("loss_spikes", "loss_spike"), 0.0),
        **dict.fromkeys(("memory_alloc_retries", "memory_ooms"), 0.0),
    }
    if job.nan_filter is not None:
        words["nan_filter_active"] = job.nan_filter
    if job.peak_flops:
        words |= {"flops_per_sample": job.flops_per_sample, "peak_flops": job.peak_flops}
    return words


def _write_overflows(pace: Pace, now: float) -> dict[str, float]:
    if not pace.job.overflow_seconds:
        return {}
    count = int(pace.train_seconds(now) / pace.job.overflow_seconds)
    when = {"last_nonfinite_time": now - now % pace.job.overflow_seconds} if count else {}
    return {"nonfinite_gradients": count, **when}


def _write_standing(pace: Pace, rank: int, now: float) -> State:
    if pace.scene(now).name != DEAD or pace.outcome is None:
        return State.RUNNING
    said = {"finished": State.FINISHED, "exception": State.FAILED}
    return said.get(pace.outcome.of_rank(rank).reason, State.RUNNING)


def _write_evaluations(pace: Pace, now: float) -> dict[str, float]:
    """Return the words that only the first rank writes: checkpoints and evaluations."""
    job, evaluations = pace.job, pace.count("validation", now)
    words: dict[str, float] = {
        "checkpoints": pace.count("checkpoint", now),
        "evaluations": evaluations,
    }
    saved = pace.script.last_end("checkpoint", now)
    if saved is not None and saved > pace.began(now):
        words["last_checkpoint_time"] = saved
        words["longest_checkpoint_seconds"] = pace.script.longest("checkpoint")
    if job.checkpoint_age_seconds is not None:
        words["checkpoint_max_age_seconds"] = job.checkpoint_age_seconds
    evaluated = pace.script.last_end("validation", now)
    if not evaluations or evaluated is None:
        return words
    done = pace.learned(evaluated)
    best = evaluations if job.stale_after is None else min(evaluations, job.stale_after)
    words |= {
        "validation_loss": 1.06 * _tend(job.loss, done),
        "evaluations_since_improvement": evaluations - best,
        "longest_validation_seconds": pace.script.longest("validation"),
        "names": len(job.metrics),
    }
    courses = enumerate(job.metrics.values())
    words |= {f"metric_{number}": _tend(course, done) for number, course in courses}
    if job.accuracy is not None:
        words["validation_accuracy"] = 0.97 * _tend(job.accuracy, done)
    return words


def _tend(course: tuple[float, float], done: float) -> float:
    first, last = course
    return last + (first - last) * math.exp(-4 * done)


def _fill(
    empty: Sequence[float], places: Mapping[str, int], given: Mapping[str, float]
) -> tuple[float, ...]:
    """Return a record's words in order; the first two are the record's number and length."""
    words = list(empty)
    words[0], words[1] = 1.0, float(len(words))
    for name, value in given.items():
        words[places[name]] = float(value)
    return tuple(words)
