"""The metrics of a rank, each with the field that contains the metric's value.

A rank has at most `MOST_SERIES` series. Metrics are ordered by importance: the series of the last
metrics are left out first. User-defined metrics use the remaining series. The first `LEAST_FREE`
user-defined metrics are always included.
"""

from __future__ import annotations

from trainvitals.metrics.collectors.tables import Metric, by, counter, gauge
from trainvitals.runfile import ALERTS, BUCKET_BOUNDS, COARSE_PHASES, PHASE_NAMES
from trainvitals.sources.runs.endings import REASONS
from trainvitals.sources.runs.stragglers import LOCAL_PHASES

# The fields are fields of the run file, or values that `training_row.py` derives from these fields.

MOST_SERIES = 80
LEAST_FREE = 8

_BOUNDS = (*(repr(bound) for bound in BUCKET_BOUNDS), "+Inf")

_STEP_DURATIONS = Metric(
    "training_step_duration_seconds",
    "histogram",
    "How long steps took, waiting for data included. Source: run file, words step_bucket_0 to step_bucket_10.",
    (*(f"bucket_{index}" for index in range(len(_BOUNDS))), "step_count", "train_seconds"),
    (*(("_bucket", (("le", bound),)) for bound in _BOUNDS), ("_count", ()), ("_sum", ())),
)

METRICS: tuple[Metric, ...] = (
    gauge(
        "training_process_up",
        "up",
        "Whether the rank's process lives. Source: lock of the run file.",
    ),
    gauge(
        "training_process_start_time_seconds",
        "start_time",
        "When the process started. Source: run file, header.",
    ),
    Metric(
        "training_process_end_timestamp_seconds",
        "gauge",
        "When the process ended, by reason. Source: run file, pidfd, cgroup memory.events.",
        tuple(f"end_{reason}" for reason in REASONS),
        by("reason", REASONS),
    ),
    gauge(
        "training_process_exit_code",
        "exit_code",
        "How the process ended, 128 and the signal for one that was killed. Source: pidfd.",
    ),
    gauge(
        "training_process_stopped",
        "stopped",
        "Whether the process is stopped. Source: /proc/PID/stat.",
    ),
    gauge(
        "training_samples_per_second",
        "samples_per_second",
        "Samples trained on, mean of the last 10 to 20 s of training, or of two steps that take longer. Source: run file, word samples.",
    ),
    gauge(
        "training_tokens_per_second",
        "tokens_per_second",
        "Tokens trained on, mean of the last 10 to 20 s of training, or of two steps that take longer. Source: run file, word tokens.",
    ),
    counter(
        "training_samples_total",
        "samples",
        "Samples that this process trained on. Source: run file, word samples.",
    ),
    counter(
        "training_steps_total",
        "steps",
        "Steps that this process did. Source: run file, word steps.",
    ),
    counter(
        "training_tokens_total",
        "tokens",
        "Tokens that this process trained on. Source: run file, word tokens.",
    ),
    gauge(
        "training_loss",
        "loss",
        "Loss of the latest step. Source: run file, word loss.",
    ),
    gauge(
        "training_accuracy",
        "accuracy",
        "Accuracy of the latest step. Source: run file, word accuracy.",
    ),
    gauge(
        "validation_loss",
        "validation_loss",
        "Loss of the latest evaluation. Source: run file, word validation_loss.",
    ),
    gauge(
        "validation_accuracy",
        "validation_accuracy",
        "Accuracy of the latest evaluation. Source: run file, word validation_accuracy.",
    ),
    gauge(
        "batch_processing_time",
        "step_seconds",
        "Seconds that the latest step took, waiting for data included. Source: run file, word step_seconds.",
    ),
    gauge(
        "model_forward_time",
        "forward_seconds",
        "Seconds that a step spends in forward passes, mean of the steps of the last second. Source: run file, word forward_seconds.",
    ),
    gauge(
        "backward_pass_time",
        "backward_seconds",
        "Seconds that a step spends in backward passes, mean of the steps of the last second. Source: run file, word backward_seconds.",
    ),
    gauge(
        "optimizer_step_time",
        "optimizer_seconds",
        "Seconds that a step spends in the optimizer, mean of the steps of the last second. Source: run file, word optimizer_seconds.",
    ),
    gauge(
        "training_stalled",
        "stalled",
        "Whether the rank stands still for longer than its phase may take. Source: run file, live word.",
    ),
    gauge(
        "training_stall_threshold_seconds",
        "stall_threshold",
        "How long the phase may take without progress. Source: run file, word slowest_step_seconds.",
    ),
    gauge(
        "training_last_progress_timestamp_seconds",
        "last_progress",
        "When the training thread last got on. Source: run file, word last_progress_time.",
    ),
    Metric(
        "training_phase",
        "gauge",
        "1 for the phase that the rank is in. Source: run file, live word.",
        tuple(f"phase_{phase}" for phase in COARSE_PHASES),
        by("phase", COARSE_PHASES),
    ),
    gauge(
        "training_phase_start_timestamp_seconds",
        "phase_start_time",
        "When the phase began that the rank is in. Source: run file, word phase_start_time.",
    ),
    gauge(
        "training_global_step",
        "global_step",
        "Steps of the whole run, those before a resume included. Source: run file, word global_step.",
    ),
    gauge(
        "training_epoch",
        "epoch",
        "Current epoch. Source: run file, word epoch.",
    ),
    gauge(
        "training_epoch_progress_ratio",
        "epoch_progress",
        "Share of the epoch's steps that are done. Source: run file, word epoch_step.",
    ),
    gauge(
        "training_progress_ratio",
        "progress",
        "Share of the run's steps that are done. Source: run file, word total_steps.",
    ),
    gauge(
        "training_eta_timestamp_seconds",
        "eta",
        "When the last step will be done at the present pace. Source: run file, word total_steps.",
    ),
    _STEP_DURATIONS,
    Metric(
        "training_phase_seconds_total",
        "counter",
        "Time spent in each phase that the rank was ever in. Source: run file, words total_init to total_idle.",
        tuple(f"seconds_{phase}" for phase in PHASE_NAMES),
        by("phase", PHASE_NAMES),
    ),
    Metric(
        "training_nonfinite_total",
        "counter",
        "Values that were NaN or infinite. Source: run file, word nonfinite_losses.",
        ("nonfinite_losses", "nonfinite_gradients", "nonfinite_evaluations"),
        by("what", ("loss", "grad_norm", "eval")),
    ),
    gauge(
        "training_nonfinite_last_timestamp_seconds",
        "last_nonfinite_time",
        "When a value was last NaN or infinite. Source: run file, word last_nonfinite_time.",
    ),
    Metric(
        "training_oom_last_timestamp_seconds",
        "gauge",
        "When memory last ran out, on the device or by the kernel's word on the host. Source: run file, cgroup memory.events.",
        ("last_oom_time", "end_oom"),
        by("where", ("device", "host")),
    ),
    gauge(
        "training_gradient_norm",
        "gradient_norm",
        "Norm of the latest gradients. Source: run file, word gradient_norm.",
    ),
    gauge(
        "training_learning_rate",
        "learning_rate",
        "Learning rate. Source: run file, word learning_rate.",
    ),
    gauge(
        "training_evaluations_since_improvement",
        "evaluations_since_improvement",
        "Evaluations since the best one. Source: run file, word evaluations_since_improvement.",
    ),
    gauge(
        "training_checkpoint_last_timestamp_seconds",
        "last_checkpoint_time",
        "When a checkpoint was last saved. Source: run file, word last_checkpoint_time.",
    ),
    gauge(
        "training_checkpoint_max_age_seconds",
        "checkpoint_max_age_seconds",
        "How old the last checkpoint may be, as the run says. Source: run file, word checkpoint_max_age_seconds.",
    ),
    gauge(
        "training_memory_allocated_bytes",
        "memory_allocated_bytes",
        "Device memory that tensors take. Source: torch.cuda.memory_stats.",
    ),
    gauge(
        "training_memory_reserved_bytes",
        "memory_reserved_bytes",
        "Device memory that the framework's allocator holds. Source: torch.cuda.memory_stats.",
    ),
    gauge(
        "training_memory_peak_bytes",
        "memory_peak_bytes",
        "Most device memory that tensors ever took. Source: torch.cuda.memory_stats.",
    ),
    gauge(
        "training_model_flops_utilization_ratio",
        "flops_utilization",
        "Share of the device's peak that the model's operations take. Source: run file, word peak_flops.",
    ),
    gauge(
        "training_rank_straggler",
        "straggler",
        "Whether the rank takes a third longer than the fastest here, three windows in a row. Source: run file, words total_data_wait to total_optimizer.",
    ),
    Metric(
        "training_rank_slowdown_ratio",
        "gauge",
        "Time of a phase as a multiple of the fastest rank's here. Source: run file, words total_data_wait to total_optimizer.",
        tuple(f"slowdown_{phase}" for phase in LOCAL_PHASES),
        by("phase", LOCAL_PHASES),
    ),
    counter(
        "training_data_errors_total",
        "data_errors",
        "Exceptions of the data loader. Source: run file, word data_errors.",
    ),
    counter(
        "training_memory_oom_total",
        "memory_ooms",
        "How often device memory ran out. Source: torch.cuda.memory_stats.",
    ),
    counter(
        "training_memory_alloc_retries_total",
        "memory_alloc_retries",
        "Allocations that first had to empty the cache. Source: torch.cuda.memory_stats.",
    ),
    counter(
        "training_evaluations_total",
        "evaluations",
        "Evaluations. Source: run file, word evaluations.",
    ),
    counter(
        "training_checkpoints_total",
        "checkpoints",
        "Checkpoints saved. Source: run file, word checkpoints.",
    ),
    counter(
        "training_loss_spikes_total",
        "loss_spikes",
        "Times that the loss rose far above its course. Source: run file, word loss_spikes.",
    ),
    gauge(
        "training_loss_spike",
        "loss_spike",
        "Whether the loss is far above its course. Source: run file, word loss_spike.",
    ),
    gauge(
        "training_loss_ema",
        "loss_ema",
        "Moving average of the finite losses. Source: run file, word loss_ema.",
    ),
    gauge(
        "training_nan_filter_active",
        "nan_filter_active",
        "Whether the framework hides losses that are NaN. Source: run file, word nan_filter_active.",
    ),
    gauge(
        "training_client_overhead_ratio",
        "overhead",
        "Share of the run's time that the client takes. Source: run file, word overhead_seconds.",
    ),
    counter(
        "training_client_errors_total",
        "errors",
        "Errors inside the client. Source: run file, word errors.",
    ),
    Metric(
        "training_alert_active",
        "gauge",
        "Whether an alert of the run itself is active, for those that ever were. Source: run file, word alerts.",
        tuple(f"alert_{alert}" for alert in ALERTS),
        by("alert", ALERTS),
    ),
    gauge(
        "training_model_flops_per_second",
        "flops_per_second",
        "Operations per second that the model needs. Source: run file, word flops_per_sample or flops_per_token.",
    ),
    counter(
        "training_client_dropped_metrics_total",
        "dropped_names",
        "Values for whose names there was no room. Source: run file, word dropped_names.",
    ),
    gauge(
        "training_baseline_step_seconds",
        "baseline_step_seconds",
        "Step time that the run learned to expect. Source: run file, word baseline_step_seconds.",
    ),
    gauge(
        "training_baseline_samples_per_second",
        "baseline_samples_per_second",
        "Throughput that the run learned to expect. Source: run file, word baseline_samples_per_second.",
    ),
    gauge(
        "training_baseline_utilization_ratio",
        "baseline_utilization_ratio",
        "Utilization that the run learned to expect. Source: run file, word baseline_utilization_ratio.",
    ),
)
