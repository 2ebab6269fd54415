"""Diverged and stalled training runs, and a run's state at its end according to the run file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from trainvitals.sources.containers.evidence import Training
from trainvitals.units import count_noun, format_bytes, format_duration
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.frameworks import Framework, find_framework
from trainvitals.verdicts.causes.log_matches import (
    LogMatch,
    find_match,
)
from trainvitals.verdicts.causes.signs import contains, matches, matches_words
from trainvitals.verdicts.causes.verdict import Cause, Finding
from trainvitals.verdicts.causes.words import NOT_COUNTED

# Above this ratio of non-finite losses, a run has diverged; a gradient scaler causes a few such
# losses.
_DIVERGED_RATIO = 0.05
_SIGKILL = 9
_LONG_WAIT_SECONDS, _LONG_WAIT_STEPS = 5.0, 3.0
_IN_A_STEP = frozenset({"forward", "backward", "optimizer"})
_PHASES = {
    "init": "The run file shows no first step: check paths, settings and the loading of model and"
    " data.",
    "compile": "By its run file it was compiling.",
    "checkpoint": "By its run file it was writing a checkpoint: the newest file may be truncated;"
    " check it, or resume from the previous one.",
}
_STOPPED = matches_words(
    r"[Ll]oss is (?:nan|NaN|inf)|returned nan values|contains either `inf`, `nan`"
    r"|The loss returned in `training_step` is nan|loss scale already at minimum"
    r"|Minimum loss scale reached|NaN or Inf found in input tensor|Loss became infinite or NaN"
    r"|NanLossDuringTrainingError|Model diverged with loss = NaN|NaN loss during training"
    r"|[Ff]ound NaN in |found invalid values: ?(?:tensor\()?|Invalid loss, terminating training"
    r"|[Nn]on-?finite (?:loss|grad)|[Ll]oss (?:is|was|became) (?:not finite|infinite|non-finite)|Tensor had NaN"
    r"|FloatingPointError: invalid value \(nan\)|[Nn]an in summary histogram|Unexpected result nan"
    r"|NaN (?:was )?(?:found|detected|encountered)|[Ll]oss (?:exploded|diverged)|nan or inf in (?:the )?loss"
    r"|(?:[Nn]a[Nn]|NAN|[Ii]nf|[Ii]nfinite) loss encountered|encountered (?:a )?(?:nan|NaN|non-finite) (?:loss|gradient)",
    r"(?i:(?:loss|grad(?:ient)?(?:s| norm)?|logits|weights?|parameters?|activations?|outputs?|scores?)\b.{0,24}"
    r"\b(?=[iawbcht])(?:is|are|was|were|become|became|becomes|contains?|has|have|went|turned)\b.{0,16}\b(?=[ni])(?:nan|inf(?:inite|inity)?|not finite)\b)",
    r"(?i:(?:nan|inf|non-?finite)\b.{0,24}\b(?:in|of|for|as) (?:\w{1,12} ){0,2}(?:loss|grad(?:ient)?s?|logits|weights)\b.{0,32}\b(?=[saetdr])"
    r"(?:stop|abort|exit|terminat|diverg|rais))",
    r"[Tt]raining (?:has |is )?diverged|Monitored metric .{1,80} = nan is not finite|Encountered bad values in tensor",
    r"norm of order .{1,40} is non-finite|matrix contains invalid numeric entries|[Nn]on-?finite (?:values?|weights?|param)",
    r"Tensor had Inf|Inf or NaN in tensor|[Ff]ound NaN in local|Rank [0-9]{1,6}: found NaN|LossTensor is inf or nan",
    r"NaN(?:s)? (?:or|and|/) ?[Ii]nf.{0,30}(?:found|detected)|cannot decrease scale anymore|Input contains NaN",
    r"cannot convert float (?:NaN|infinity) to integer|AssertionError: (?:.{0,40}\b)?[Ll]oss.{0,20}\bnan\b",
    r"[Tt]oo many consecutive (?:NaN|non-?finite)|Invalid [Ll]oss.{0,40}(?:nan|stop|terminat)|check_numerics|invalid value \(nan\)",
)
_NAN = r"-?nan(?![A-Za-z_])"
_NAN_LOSS = matches(
    rf"loss[\"'\])]{{0,3}} {{0,4}}[=:]? {{0,4}}[\"'(]{{0,2}}(?:tensor\()?{_NAN}"
    rf"|\bloss(?:es)?: [^\]\n]{{0,100}}(?<![\w-])nan(?![\w-]){NOT_COUNTED}|\btotal[ _]?(?:loss)?[ =:]{{1,3}}{_NAN}",
    ignore_case=True,
)
_SCALE = re.compile(r"reducing (?:loss scale )?to (\d[\d.e+-]{0,20})")
_OVERFLOWS = ("Gradient overflow", "OVERFLOW!")
_OVERFLOW = contains(*_OVERFLOWS)
_MANY_OVERFLOWS = 12
# Half-precision training uses loss scales of several thousand; a scale of 1 has no effect.
_TINY_SCALE = 1.0
_LOSS_ALONE = "A NaN or infinite loss alone does not end a process."
_DIVERGED_STEPS = (
    "Resume from the last checkpoint before it, with a third of the learning rate.",
    (
        "Clip gradients: `clip_grad_norm_(model.parameters(), 1.0)` (`max_grad_norm=1.0`), and use a"
        " longer warm-up."
    ),
    "Use `bf16` instead of `fp16`, which overflows at 65504.",
    (
        "Find the first operation that returns NaN: `torch.autograd.set_detect_anomaly(True)` for a few"
        " steps before; examine that batch."
    ),
)


_DIVERGED_IN: dict[Framework, tuple[str, ...]] = {
    "tensorflow": (
        "Clip gradients: `Adam(clipnorm=1.0)`; with `mixed_float16` use a `LossScaleOptimizer`.",
        "Find the first operation that returns NaN: `tf.debugging.enable_check_numerics()`.",
    ),
    "jax": (
        "Clip gradients: `optax.clip_by_global_norm(1.0)`; train in `bfloat16`, not `float16`.",
        "Find the first operation that returns NaN: `JAX_DEBUG_NANS=True`.",
    ),
    "paddle": (
        "Clip gradients: `grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0)`.",
        "Find the first operation that returns NaN: `FLAGS_check_nan_inf=1`.",
    ),
    "mxnet": (
        "Clip gradients: `clip_gradient=1.0` of the optimizer, `gluon.utils.clip_global_norm`.",
    ),
    "chainer": (
        "Clip gradients: `optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(1.0))`.",
        "Find the first operation that returns NaN: `chainer.set_debug(True)`.",
    ),
}


def _has_diverged(training: Training) -> bool:
    """Return whether a run's last loss, or more than 5% of all losses, were NaN or infinite."""
    bad, steps = training.nonfinite_losses or 0, training.steps or 0
    return training.is_loss_finite is False or bad > _DIVERGED_RATIO * steps


def add_circumstances(case: Case, finding: Finding) -> Finding:
    """Return a finding about a run's end, with the run's state from the run file as evidence."""
    training = case.evidence.training
    if training is None or not case.has_ended or finding.reason == "finished":
        return finding
    steps = (*finding.steps, *_advise(case, training))
    return replace(
        finding,
        speaks_for=(*finding.speaks_for, *_describe(case, training)),
        steps=tuple(dict.fromkeys(steps)),
    )


def _describe(case: Case, training: Training) -> Iterator[str]:
    if training.source:
        yield training.source
    if training.is_switched_off:
        yield "The monitor had disabled itself after ten errors; the state after that is unknown."
    idle, limit = training.idle_seconds, training.idle_limit_seconds
    if idle is not None and limit is not None and idle > limit:
        yield f"The run file shows no progress for {format_duration(idle)} before the end."
        if training.phase in _IN_A_STEP and (training.world_size or 0) > 1:
            yield (
                f"In the phase {training.phase} a rank usually waits for another rank in a collective"
                " operation."
            )
    if training.phase in _PHASES:
        yield _PHASES[training.phase]
    if training.phase == "data_wait" and _has_waited_long(training):
        yield "By its run file it was waiting for data: check the storage and the loader's workers."
    yield from _describe_memory(case)


def _has_waited_long(training: Training) -> bool:
    """Return whether a run's last phase lasted at least 5 s and three times the slowest step."""
    seconds, slowest = training.phase_seconds, training.slowest_step_seconds
    longest = max(_LONG_WAIT_SECONDS, _LONG_WAIT_STEPS * (slowest or 0.0))
    return seconds is not None and seconds >= longest


def _describe_memory(case: Case) -> Iterator[str]:
    host = case.evidence.host
    if host is None or host.memory_available_bytes is None or not host.memory_total_bytes:
        return
    used_ratio = 1 - host.memory_available_bytes / host.memory_total_bytes
    if used_ratio > case.thresholds["host_high_memory_usage:used_ratio"]:
        left = format_bytes(host.memory_available_bytes)
        may_be_killed = case.signal == _SIGKILL and case.evidence.oom_kills is None
        likely = ", so an OOM kill is likely" if may_be_killed else ""
        yield f"The host had only {left} of memory available{likely}."


def _advise(case: Case, training: Training) -> Iterator[str]:
    if not training.is_end_seen and case.signal is None:
        yield "Keep `trainvitals serve` running: it records the signal that ends a process."
    missing = (training.world_size or 0) - (training.ranks_here or 0)
    if training.ranks_here and missing > 0:
        ranks = count_noun(missing, "rank")
        yield f"Check the other machines too: {ranks} left no run file on this one."


def _detect_stalled(case: Case) -> Finding | None:
    """Detect a run whose process is alive but makes no progress."""
    training = case.evidence.training
    if training is None or training.stall is None or case.has_ended:
        return None
    pid = training.pid or "PID"
    if training.stall == "stopped":
        return Finding(
            "stalled",
            "The run's process is stopped, by SIGSTOP, Ctrl-Z or a debugger.",
            "high",
            ("The kernel reports the process state T (/proc/PID/stat).",),
            (),
            (f"Continue it: `kill -CONT {pid}`.",),
        )
    return Finding(
        "stalled",
        f"The run has made no progress for {format_duration(training.idle_seconds)}.",
        "high",
        (
            (
                f"The limit for this phase ({training.phase or 'unknown'}), learned from the run's own"
                f" steps, is {format_duration(training.idle_limit_seconds)}."
            ),
        ),
        (),
        (f"Find where it hangs: `py-spy dump --pid {pid}`.",),
    )


def _detect_nan_loss(case: Case) -> Finding | None:
    """Detect a loss that is NaN or infinite, or a loss scale that collapsed."""
    match = find_match(case, _STOPPED)
    if match is None:
        match = _find_nan_line(case)
    collapsed = _describe_overflows(case.lines)
    if match is None and collapsed:
        match = find_match(case, _OVERFLOW)
    if match is None:
        return _detect_in_run_file(case)
    first = ""
    if _NAN_LOSS.may_be_in(case.lines):
        first = next((line.strip() for line in case.lines if _NAN_LOSS(line)), "")
    steps = _DIVERGED_IN.get(find_framework(case, match.text), _DIVERGED_STEPS[1:])
    return match.conclude(
        "nan-loss",
        "Training diverged: the loss or a gradient is NaN or infinite.",
        (_DIVERGED_STEPS[0], *steps),
        speaks_for=(
            *((f"The first log line with a NaN loss is `{first[:200]}`.",) if first else ()),
            *collapsed,
        ),
    )


def _detect_in_run_file(case: Case) -> Finding | None:
    training = case.evidence.training
    if training is None or not _has_diverged(training):
        return None
    return Finding(
        "nan-loss",
        "Training had diverged: losses were NaN or infinite.",
        "low",
        (
            (
                "The run file counts"
                f" {count_noun(training.nonfinite_losses or 1, 'NaN or infinite loss')}."
            ),
        ),
        (_LOSS_ALONE,),
        ("Resume from a checkpoint before the first NaN.", *_DIVERGED_STEPS[1:]),
    )


def _find_nan_line(case: Case) -> LogMatch | None:
    match = find_match(case, _NAN_LOSS)
    return match and match.cap("medium", _LOSS_ALONE)


def _describe_overflows(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return a sentence if gradients overflowed often and the loss scale fell to 1 or less."""
    if not _OVERFLOW.may_be_in(lines):
        return ()
    overflows = [line for line in lines if _OVERFLOW(line)]
    scales = [float(found[1]) for line in overflows if (found := _match_scale(line))]
    if len(overflows) < _MANY_OVERFLOWS or not scales or scales[-1] > _TINY_SCALE:
        return ()
    return (f"Gradients overflowed {len(overflows)} times; the loss scale fell to {scales[-1]:g}.",)


def _match_scale(line: str) -> re.Match[str] | None:
    found = _SCALE.search(line)
    if found is None:
        return None
    try:
        float(found[1])
    except ValueError:
        return None
    return found


DIVERGED = Cause(
    "nan-loss",
    "The loss is NaN or infinite",
    "The log contains `loss nan`, `Loss is nan, stopping`, `returned nan values`, or many"
    " `Gradient overflow` until the loss scale is 1 or less; a few at the start are normal.",
    "The learning rate is too high, `fp16` overflowed, or a sample is invalid.",
    (
        "Lower the learning rate, clip gradients (`max_grad_norm=1.0`), use `bf16`.",
        "Find the operation with `torch.autograd.set_detect_anomaly(True)`.",
    ),
    "high",
    _detect_nan_loss,
)
STALLED = Cause(
    "stalled",
    "A run makes no progress",
    "A run whose process lives and whose run file shows no progress for longer than its steps,"
    " validations or checkpoints take, or whose process is stopped.",
    "The run waits for another rank, for data or for a file system; or its process was stopped.",
    ("Find where it hangs: `py-spy dump --pid PID`.", "Continue a stopped one: `kill -CONT PID`."),
    "high",
    _detect_stalled,
)
