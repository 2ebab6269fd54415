"""Which reading of a rank is served under which name, one line each.

The order is that of importance: a rank has at most `MOST_SERIES` series, and what stands last
gives way first. Free metrics take what is left, and there is always room for the first
`LEAST_FREE` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainvitals.families import Labels, MetricType
from trainvitals.runfile import ALERTS, BUCKET_BOUNDS, COARSE_PHASES, PHASE_NAMES
from trainvitals.sources.training.endings import REASONS
from trainvitals.sources.training.stragglers import LOCAL_PHASES

MOST_SERIES = 80
LEAST_FREE = 8


@dataclass(frozen=True, slots=True)
class Metric:
    """A family, and which numbers of a rank are its samples.

    Attributes:
        name: The family's name.
        type: Its type.
        help: Its HELP.
        fields: Words of the run file, or names of what is concluded from them (see
            `training_row.py`).
        samples: For each field, the sample's suffix and its labels beside `run` and `rank`.
    """

    name: str
    type: MetricType
    help: str
    fields: tuple[str, ...]
    samples: tuple[tuple[str, Labels], ...] = (("", ()),)


def _gauge(name: str, field: str, help_: str) -> Metric:
    return Metric(name, "gauge", help_, (field,))


def _counter(name: str, field: str, help_: str) -> Metric:
    return Metric(name, "counter", help_, (field,))


def _by(label: str, values: Sequence[str]) -> tuple[tuple[str, Labels], ...]:
    return tuple(("", ((label, value),)) for value in values)


_BOUNDS = (*(repr(bound) for bound in BUCKET_BOUNDS), "+Inf")

STEP_DURATIONS = Metric(
    "training_step_duration_seconds",
    "histogram",
    "How long steps took, waiting for data included. Source: run file, words step_bucket_0 to step_bucket_10.",
    (*(f"bucket_{index}" for index in range(len(_BOUNDS))), "step_count", "train_seconds"),
    (*(("_bucket", (("le", bound),)) for bound in _BOUNDS), ("_count", ()), ("_sum", ())),
)

METRICS: tuple[Metric, ...] = (
    _gauge(
        "training_process_up",
        "up",
        "Whether the rank's process lives. Source: lock of the run file.",
    ),
    _gauge(
        "training_process_start_time_seconds",
        "start_time",
        "When the process started. Source: run file, header.",
    ),
    Metric(
        "training_process_end_timestamp_seconds",
        "gauge",
        "When the process ended, by reason. Source: run file, pidfd, cgroup memory.events.",
        tuple(f"end_{reason}" for reason in REASONS),
        _by("reason", REASONS),
    ),
    _gauge(
        "training_process_exit_code",
        "exit_code",
        "How the process ended, 128 and the signal for one that was killed. Source: pidfd.",
    ),
    _gauge(
        "training_process_stopped",
        "stopped",
        "Whether the process is stopped. Source: /proc/PID/stat.",
    ),
    _gauge(
        "training_samples_per_second",
        "samples_per_second",
        "Samples trained on, mean of the last 10 to 20 s of training, or of two steps that take longer. Source: run file, word samples.",
    ),
    _gauge(
        "training_tokens_per_second",
        "tokens_per_second",
        "Tokens trained on, mean of the last 10 to 20 s of training, or of two steps that take longer. Source: run file, word tokens.",
    ),
    _counter(
        "training_samples_total",
        "samples",
        "Samples that this process trained on. Source: run file, word samples.",
    ),
    _counter(
        "training_steps_total",
        "steps",
        "Steps that this process did. Source: run file, word steps.",
    ),
    _counter(
        "training_tokens_total",
        "tokens",
        "Tokens that this process trained on. Source: run file, word tokens.",
    ),
    _gauge(
        "training_loss",
        "loss",
        "Loss of the latest step. Source: run file, word loss.",
    ),
    _gauge(
        "training_accuracy",
        "accuracy",
        "Accuracy of the latest step. Source: run file, word accuracy.",
    ),
    _gauge(
        "validation_loss",
        "validation_loss",
        "Loss of the latest evaluation. Source: run file, word validation_loss.",
    ),
    _gauge(
        "validation_accuracy",
        "validation_accuracy",
        "Accuracy of the latest evaluation. Source: run file, word validation_accuracy.",
    ),
    _gauge(
        "batch_processing_time",
        "step_seconds",
        "Seconds that the latest step took, waiting for data included. Source: run file, word step_seconds.",
    ),
    _gauge(
        "model_forward_time",
        "forward_seconds",
        "Seconds that a step spends in forward passes, mean of the steps of the last second. Source: run file, word forward_seconds.",
    ),
    _gauge(
        "backward_pass_time",
        "backward_seconds",
        "Seconds that a step spends in backward passes, mean of the steps of the last second. Source: run file, word backward_seconds.",
    ),
    _gauge(
        "optimizer_step_time",
        "optimizer_seconds",
        "Seconds that a step spends in the optimizer, mean of the steps of the last second. Source: run file, word optimizer_seconds.",
    ),
    _gauge(
        "training_stalled",
        "stalled",
        "Whether the rank stands still for longer than its phase may take. Source: run file, live word.",
    ),
    _gauge(
        "training_stall_threshold_seconds",
        "stall_threshold",
        "How long the phase may take without progress. Source: run file, word slowest_step_seconds.",
    ),
    _gauge(
        "training_last_progress_timestamp_seconds",
        "last_progress",
        "When the training thread last got on. Source: run file, word last_progress_time.",
    ),
    Metric(
        "training_phase",
        "gauge",
        "1 for the phase that the rank is in. Source: run file, live word.",
        tuple(f"phase_{phase}" for phase in COARSE_PHASES),
        _by("phase", COARSE_PHASES),
    ),
    _gauge(
        "training_phase_start_timestamp_seconds",
        "phase_start_time",
        "When the phase began that the rank is in. Source: run file, word phase_start_time.",
    ),
    _gauge(
        "training_global_step",
        "global_step",
        "Steps of the whole run, those before a resume included. Source: run file, word global_step.",
    ),
    _gauge(
        "training_epoch",
        "epoch",
        "Current epoch. Source: run file, word epoch.",
    ),
    _gauge(
        "training_epoch_progress_ratio",
        "epoch_progress",
        "Share of the epoch's steps that are done. Source: run file, word epoch_step.",
    ),
    _gauge(
        "training_progress_ratio",
        "progress",
        "Share of the run's steps that are done. Source: run file, word total_steps.",
    ),
    _gauge(
        "training_eta_timestamp_seconds",
        "eta",
        "When the last step will be done at the present pace. Source: run file, word total_steps.",
    ),
    STEP_DURATIONS,
    Metric(
        "training_phase_seconds_total",
        "counter",
        "Time spent in each phase that the rank was ever in. Source: run file, words total_init to total_idle.",
        tuple(f"seconds_{phase}" for phase in PHASE_NAMES),
        _by("phase", PHASE_NAMES),
    ),
    Metric(
        "training_nonfinite_total",
        "counter",
        "Values that were NaN or infinite. Source: run file, word nonfinite_losses.",
        ("nonfinite_losses", "nonfinite_gradients", "nonfinite_evaluations"),
        _by("what", ("loss", "grad_norm", "eval")),
    ),
    _gauge(
        "training_nonfinite_last_timestamp_seconds",
        "last_nonfinite_time",
        "When a value was last NaN or infinite. Source: run file, word last_nonfinite_time.",
    ),
    Metric(
        "training_oom_last_timestamp_seconds",
        "gauge",
        "When memory last ran out, on the device or by the kernel's word on the host. Source: run file, cgroup memory.events.",
        ("last_oom_time", "end_oom"),
        _by("where", ("device", "host")),
    ),
    _gauge(
        "training_gradient_norm",
        "gradient_norm",
        "Norm of the latest gradients. Source: run file, word gradient_norm.",
    ),
    _gauge(
        "training_learning_rate",
        "learning_rate",
        "Learning rate. Source: run file, word learning_rate.",
    ),
    _gauge(
        "training_evaluations_since_improvement",
        "evaluations_since_improvement",
        "Evaluations since the best one. Source: run file, word evaluations_since_improvement.",
    ),
    _gauge(
        "training_checkpoint_last_timestamp_seconds",
        "last_checkpoint_time",
        "When a checkpoint was last saved. Source: run file, word last_checkpoint_time.",
    ),
    _gauge(
        "training_checkpoint_max_age_seconds",
        "checkpoint_max_age_seconds",
        "How old the last checkpoint may be, as the run says. Source: run file, word checkpoint_max_age_seconds.",
    ),
    _gauge(
        "training_memory_allocated_bytes",
        "memory_allocated_bytes",
        "Device memory that tensors take. Source: torch.cuda.memory_stats.",
    ),
    _gauge(
        "training_memory_reserved_bytes",
        "memory_reserved_bytes",
        "Device memory that the framework's allocator holds. Source: torch.cuda.memory_stats.",
    ),
    _gauge(
        "training_memory_peak_bytes",
        "memory_peak_bytes",
        "Most device memory that tensors ever took. Source: torch.cuda.memory_stats.",
    ),
    _gauge(
        "training_model_flops_utilization_ratio",
        "flops_utilization",
        "Share of the device's peak that the model's operations take. Source: run file, word peak_flops.",
    ),
    _gauge(
        "training_rank_straggler",
        "straggler",
        "Whether the rank takes a third longer than the fastest here, three windows in a row. Source: run file, words total_data_wait to total_optimizer.",
    ),
    Metric(
        "training_rank_slowdown_ratio",
        "gauge",
        "Time of a phase as a multiple of the fastest rank's here. Source: run file, words total_data_wait to total_optimizer.",
        tuple(f"slowdown_{phase}" for phase in LOCAL_PHASES),
        _by("phase", LOCAL_PHASES),
    ),
    _counter(
        "training_data_errors_total",
        "data_errors",
        "Exceptions of the data loader. Source: run file, word data_errors.",
    ),
    _counter(
        "training_memory_oom_total",
        "memory_ooms",
        "How often device memory ran out. Source: torch.cuda.memory_stats.",
    ),
    _counter(
        "training_memory_alloc_retries_total",
        "memory_alloc_retries",
        "Allocations that first had to empty the cache. Source: torch.cuda.memory_stats.",
    ),
    _counter(
        "training_evaluations_total",
        "evaluations",
        "Evaluations. Source: run file, word evaluations.",
    ),
    _counter(
        "training_checkpoints_total",
        "checkpoints",
        "Checkpoints saved. Source: run file, word checkpoints.",
    ),
    _counter(
        "training_loss_spikes_total",
        "loss_spikes",
        "Times that the loss rose far above its course. Source: run file, word loss_spikes.",
    ),
    _gauge(
        "training_loss_spike",
        "loss_spike",
        "Whether the loss is far above its course. Source: run file, word loss_spike.",
    ),
    _gauge(
        "training_loss_ema",
        "loss_ema",
        "Moving average of the finite losses. Source: run file, word loss_ema.",
    ),
    _gauge(
        "training_nan_filter_active",
        "nan_filter_active",
        "Whether the framework hides losses that are NaN. Source: run file, word nan_filter_active.",
    ),
    _gauge(
        "training_client_overhead_ratio",
        "overhead",
        "Share of the run's time that the client takes. Source: run file, word overhead_seconds.",
    ),
    _counter(
        "training_client_errors_total",
        "errors",
        "Errors inside the client. Source: run file, word errors.",
    ),
    Metric(
        "training_alert_active",
        "gauge",
        "Whether an alert of the run itself is active, for those that ever were. Source: run file, word alerts.",
        tuple(f"alert_{alert}" for alert in ALERTS),
        _by("alert", ALERTS),
    ),
    _gauge(
        "training_model_flops_per_second",
        "flops_per_second",
        "Operations per second that the model needs. Source: run file, word flops_per_sample or flops_per_token.",
    ),
    _counter(
        "training_client_dropped_metrics_total",
        "dropped_names",
        "Values for whose names there was no room. Source: run file, word dropped_names.",
    ),
    _gauge(
        "training_baseline_step_seconds",
        "baseline_step_seconds",
        "Step time that the run learned to expect. Source: run file, word baseline_step_seconds.",
    ),
    _gauge(
        "training_baseline_samples_per_second",
        "baseline_samples_per_second",
        "Throughput that the run learned to expect. Source: run file, word baseline_samples_per_second.",
    ),
    _gauge(
        "training_baseline_utilization_ratio",
        "baseline_utilization_ratio",
        "Utilization that the run learned to expect. Source: run file, word baseline_utilization_ratio.",
    ),
)
