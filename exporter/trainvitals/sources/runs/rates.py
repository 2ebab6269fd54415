"""Calculate a rank's training speed, device utilization, progress and expected end time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainvitals.foreign_numbers import read_amount, read_time
from trainvitals.runfile import ABSENT, BUCKET_BOUNDS, STATE, STEP, Record, State
from trainvitals.sources.runs.moment import Moment, name_coarse_phase

# In sessions of at least this age, the session's mean varies less than the last window's mean, and
# the slow first steps hardly affect the session's mean.
YOUNG_SECONDS = 1800.0

_STEPS, _SAMPLES, _TOKENS = STEP["steps"], STEP["samples"], STEP["tokens"]
_TRAIN, _LAST = STEP["train_seconds"], STEP["step_seconds"]
_WINDOW_TRAIN, _WINDOW_STEPS = STEP["window_train_seconds"], STEP["window_steps"]
_WINDOW_SAMPLES, _WINDOW_TOKENS = STEP["window_samples"], STEP["window_tokens"]
_GLOBAL, _EPOCH_STEP, _WALL = STEP["global_step"], STEP["epoch_step"], STEP["wall_time"]
_BUCKETS = slice(STEP["step_bucket_0"], STEP["step_bucket_0"] + len(BUCKET_BOUNDS) + 1)
_PAUSES = tuple(STEP[f"total_{name}"] for name in ("validation", "checkpoint", "idle"))
_STATE, _PEAK = STATE["state"], STATE["peak_flops"]
_PER_TOKEN, _PER_SAMPLE = STATE["flops_per_token"], STATE["flops_per_sample"]
_TOTAL_STEPS, _TOTAL_EPOCHS = STATE["total_steps"], STATE["total_epochs"]
_EPOCH_STEPS = STATE["epoch_steps"]


@dataclass(frozen=True, slots=True)
class Rates:
    """A rank's training speed; an unknown value is None.

    Attributes:
        samples_per_second: The number of samples per second over the record's window of 10 to 20 s
            of training. The current step is included once it takes longer than the previous step,
            so the rate of a hanging run decreases.
        tokens_per_second: The number of tokens per second over the same window as
            `samples_per_second`.
        flops_per_second: The model's floating-point operations per second, calculated from the
            FLOPs per token or per sample that the trainer declared.
        flops_utilization_ratio: The ratio of `flops_per_second` to the peak performance of the
            rank's own device.
    """

    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    flops_per_second: float | None = None
    flops_utilization_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """A rank's training progress; an unknown value is None.

    Attributes:
        ratio: The share of the run's total steps that the rank has completed, 0 to 1.
        epoch_ratio: The share of the current epoch's steps that the rank has completed, 0 to 1.
        end_timestamp_seconds: The expected Unix time of the last step. The estimate includes
            validation, checkpoints and idle time, and does not change while the run hangs.
    """

    ratio: float | None = None
    epoch_ratio: float | None = None
    end_timestamp_seconds: float | None = None


_NO_RATES = Rates()


def measure_rates(record: Record, now: Moment) -> Rates:
    """Return the training speed of a living rank; outside the train phase, all values are None."""
    step, state = record.step, record.state
    seconds = step[_TRAIN] - step[_WINDOW_TRAIN]
    has_stepped = step[_STEPS] > step[_WINDOW_STEPS] != ABSENT and seconds > 0
    if not has_stepped or state[_STATE] > State.RUNNING or name_coarse_phase(record) != "train":
        return _NO_RATES
    seconds += max(0.0, (now.progress_age_seconds(record) or 0.0) - max(0.0, step[_LAST]))
    seconds *= _share_untimed(step)
    samples = _rate(step[_SAMPLES], step[_WINDOW_SAMPLES], seconds)
    tokens = _rate(step[_TOKENS], step[_WINDOW_TOKENS], seconds)
    flops = None
    if tokens is not None and state[_PER_TOKEN] > 0:
        flops = tokens * state[_PER_TOKEN]
    elif samples is not None and state[_PER_SAMPLE] > 0:
        flops = samples * state[_PER_SAMPLE]
    peak = state[_PEAK]
    ratio = flops / peak if flops is not None and peak > 0 else None
    return Rates(samples, tokens, read_amount(flops), read_amount(ratio))


def measure_progress(record: Record, *, is_alive: bool) -> Progress:
    """Return a rank's training progress, with the expected end time if the rank is alive."""
    step, state = record.step, record.state
    total = state[_TOTAL_STEPS]
    if total <= 0 and state[_TOTAL_EPOCHS] > 0:
        total = state[_TOTAL_EPOCHS] * state[_EPOCH_STEPS]
    ratio = _share(step[_GLOBAL], total)
    epoch_ratio = _share(step[_EPOCH_STEP], state[_EPOCH_STEPS])
    end = None
    if ratio is not None and is_alive and state[_STATE] <= State.RUNNING:
        pace = _measure_pace(step)
        if pace is not None and step[_WALL] != ABSENT:
            end = read_time(step[_WALL] + max(0.0, total - step[_GLOBAL]) * pace)
    return Progress(ratio, epoch_ratio, end)


def _measure_pace(step: Sequence[float]) -> float | None:
    """Return the mean time per step in seconds, including validation, checkpoints and idle time."""
    steps, seconds = step[_STEPS], step[_TRAIN]
    if steps <= 0 or seconds <= 0:
        return None
    pauses = sum([max(0.0, step[index]) for index in _PAUSES])
    recent = step[_STEPS] - step[_WINDOW_STEPS]
    if seconds < YOUNG_SECONDS and 0 < recent <= steps and step[_WINDOW_TRAIN] <= seconds:
        return (seconds - step[_WINDOW_TRAIN]) / recent + pauses / steps
    return (seconds + pauses) / steps


def _share_untimed(step: Sequence[float]) -> float:
    """Return the factor that corrects the time of a session's first window for untimed steps.

    If the start of the first step was not recorded, the step is counted, but its duration is
    missing.
    """
    steps, timed = step[_STEPS], sum(step[_BUCKETS])
    return steps / timed if step[_WINDOW_STEPS] == 0 and 0 < timed < steps else 1.0


def _rate(total: float, at_window: float, seconds: float) -> float | None:
    if ABSENT in (total, at_window) or total < at_window:
        return None
    return read_amount((total - at_window) / seconds)


def _share(part: float, whole: float) -> float | None:
    return min(1.0, part / whole) if whole > 0 and part >= 0 else None
