"""What the ranks of a run would have written into their run files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from demo.course import ripple
from demo.jobs import DEAD
from demo.pace import Pace
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
    "validation": Phase.VALIDATION,
    "checkpoint": Phase.CHECKPOINT,
    "hung": Phase.BACKWARD,
    DEAD: Phase.FORWARD,
}
# How the time of a step is spent that is not spent waiting for data.
_SHARES = {
    "h2d": 0.02,
    "forward": FORWARD_SHARE,
    "backward": 0.55,
    "optimizer": 0.1,
    "other": 0.03,
}
_OUTSIDE_STEPS = ("init", "compile", "validation", "checkpoint")


def write_record(pace: Pace, rank: int, pid: int, now: float) -> Record:
    """Write what a rank has told by a moment."""
    job, scene, outcome = pace.job, pace.scene(now), pace.outcome
    marked = pace.last_step(now) if scene.name == "train" else scene.start
    is_first = rank == 0
    return Record(
        step=_fill(EMPTY_STEP, STEP, _tell_step(pace, rank, now)),
        state=_fill(
            EMPTY_STATE,
            STATE,
            {**_tell_state(pace, now), **(_tell_evaluations(pace, now) if is_first else {})},
        ),
        live=(tell_monotonic(pace, marked), _PHASES[scene.name]),
        metrics=tuple((name, "validation") for name in job.metrics) if is_first else (),
        identity=Identity(
            run=job.run,
            rank=rank,
            local_rank=rank,
            node_rank=0,
            world_size=len(job.devices),
            attempt=pace.attempt(now),
            pid=pid,
            boot_id=BOOT,
            created_time=pace.began(now),
            created_mono_ns=tell_monotonic(pace, pace.began(now)),
        ),
        last_words=outcome.exception if outcome and scene.name == DEAD else "",
    )


def tell_monotonic(pace: Pace, moment: float) -> int:
    """Give a moment on the machine's other clock, in nanoseconds."""
    return int((moment - pace.start) * 1e9)


def _tell_step(pace: Pace, rank: int, now: float) -> dict[str, float]:
    job, scene, told_at = pace.job, pace.scene(now), pace.last_step(now)
    step_seconds, steps, seconds = pace.step_seconds(now), pace.steps(now), pace.train_seconds(now)
    window = min(steps, max(1, round(_WINDOW_SECONDS / step_seconds)))
    global_step = pace.first_step(now) + steps
    told: dict[str, float] = {
        "mono_ns": tell_monotonic(pace, told_at),
        "wall_time": told_at,
        "last_progress_time": told_at,
        "steps": steps,
        "samples": steps * job.samples,
        "global_step": global_step,
        "epoch_step": global_step % job.epoch_steps,
        "train_seconds": seconds,
        "phase": _PHASES[scene.name],
        # A step that hangs is still training.
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
        told["tokens"] = told["samples"] * job.tokens
        told["window_tokens"] = told["window_samples"] * job.tokens
    counts = enumerate(pace.steps_by_duration(now))
    told |= {f"step_bucket_{index}": count for index, count in counts}
    told |= _tell_phases(pace, rank, now)
    return told | (_tell_learning(pace, rank, now) | _tell_durations(pace, now) if steps else {})


def _tell_phases(pace: Pace, rank: int, now: float) -> dict[str, float]:
    """Share the time of the steps out; the others wait for the slow rank in `backward`."""
    lost = pace.lost_seconds(now)
    usual, wait = pace.train_seconds(now) - lost, pace.job.data_wait
    spent = {name: share * usual * (1 - wait) for name, share in _SHARES.items()}
    spent["data_wait"] = usual * wait
    spent["forward" if rank == pace.slowdown.rank else "backward"] += lost
    spent |= {name: pace.stage_seconds(name, now) for name in _OUTSIDE_STEPS}
    return {f"total_{name}": spent.get(name, 0.0) for name in PHASE_NAMES}


def _tell_learning(pace: Pace, rank: int, now: float) -> dict[str, float]:
    job, done = pace.job, pace.learned(now)
    wander = ripple(job.pid + 5 + rank, now, seconds=90)
    loss = _tend(job.loss, done)
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


def _tell_durations(pace: Pace, now: float) -> dict[str, float]:
    step_seconds = pace.step_seconds(now)
    computing = pace.job.step_seconds * (1 - pace.job.data_wait)
    return {
        "step_seconds": step_seconds,
        "slowest_step_seconds": 1.6 * step_seconds,
        **{
            f"{name}_seconds": _SHARES[name] * computing
            for name in ("forward", "backward", "optimizer")
        },
    }


def _tell_state(pace: Pace, now: float) -> dict[str, float]:
    job, first = pace.job, pace.first_step(now)
    told: dict[str, float] = {
        "wall_time": pace.last_step(now),
        "state": _tell_standing(pace, now),
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
        **dict.fromkeys(("loss_spikes", "loss_spike"), 0.0),
        **dict.fromkeys(("memory_alloc_retries", "memory_ooms"), 0.0),
    }
    if job.nan_filter is not None:
        told["nan_filter_active"] = job.nan_filter
    if job.peak_flops:
        told |= {"flops_per_sample": job.flops_per_sample, "peak_flops": job.peak_flops}
    return told


def _tell_standing(pace: Pace, now: float) -> State:
    if pace.scene(now).name != DEAD or pace.outcome is None:
        return State.RUNNING
    said = {"finished": State.FINISHED, "exception": State.FAILED}
    return said.get(pace.outcome.reason, State.RUNNING)


def _tell_evaluations(pace: Pace, now: float) -> dict[str, float]:
    """Tell what the first rank alone knows: checkpoints and evaluations."""
    job, evaluations = pace.job, pace.count("validation", now)
    told: dict[str, float] = {
        "checkpoints": pace.count("checkpoint", now),
        "evaluations": evaluations,
    }
    saved = pace.script.last_end("checkpoint", now)
    if saved is not None and saved > pace.began(now):
        told["last_checkpoint_time"] = saved
    if job.checkpoint_age_seconds is not None:
        told["checkpoint_max_age_seconds"] = job.checkpoint_age_seconds
    evaluated = pace.script.last_end("validation", now)
    if not evaluations or evaluated is None:
        return told
    done = pace.learned(evaluated)
    best = evaluations if job.stale_after is None else min(evaluations, job.stale_after)
    told |= {
        "validation_loss": 1.06 * _tend(job.loss, done),
        "evaluations_since_improvement": evaluations - best,
        "longest_validation_seconds": 90,
        "longest_checkpoint_seconds": 45,
        "names": len(job.metrics),
    }
    courses = enumerate(job.metrics.values())
    told |= {f"metric_{number}": _tend(course, done) for number, course in courses}
    if job.accuracy is not None:
        told["validation_accuracy"] = 0.97 * _tend(job.accuracy, done)
    return told


def _tend(course: tuple[float, float], done: float) -> float:
    first, last = course
    return last + (first - last) * math.exp(-4 * done)


def _fill(
    empty: Sequence[float], places: Mapping[str, int], told: Mapping[str, float]
) -> tuple[float, ...]:
    """Put words into their places; the first two are the record's number and its length."""
    words = list(empty)
    words[0], words[1] = 1.0, float(len(words))
    for name, value in told.items():
        words[places[name]] = float(value)
    return tuple(words)
