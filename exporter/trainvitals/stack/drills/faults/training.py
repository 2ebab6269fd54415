"""Simulated faults of training runs."""

from __future__ import annotations

import math

from trainvitals.stack.drills.fault import (
    Fault,
    Series,
    constant,
    duration,
    instant,
    rate,
    recent,
    turn,
)

_RUN = {"run": "drill"}
_RANK = {**_RUN, "rank": "0"}
_STEP = constant("training_global_step", 4242, **_RANK)
_ALIVE = (constant("training_process_up", 1, **_RANK), _STEP)
_TRAINING = (*_ALIVE, constant("training_phase", 1, **_RANK, phase="train"))


def _death(reason: str, exit_code: float) -> tuple[Series, ...]:
    return (
        constant("training_process_up", 0, **_RANK),
        instant("training_process_end_timestamp_seconds", 0, **_RANK, reason=reason),
        constant("training_process_exit_code", exit_code, **_RANK),
        _STEP,
    )


FAULTS = (
    Fault(
        "TrainingStalled",
        "a run makes no further steps",
        (
            *_TRAINING,
            constant("training_stalled", 0, **_RANK),
            recent("training_last_progress_timestamp_seconds", 0, **_RANK),
        ),
        (
            *_TRAINING,
            constant("training_stalled", 1, **_RANK),
            instant("training_last_progress_timestamp_seconds", 300, **_RANK),
        ),
    ),
    Fault("TrainingRunLost", "a run is killed by SIGKILL", _ALIVE, _death("signal", 137)),
    Fault(
        "TrainingRunVanished",
        "a run's directory is removed",
        _ALIVE,
        (constant("training_client_incompatible_files", 0),),
    ),
    Fault("TrainingRunFailed", "a run ends with an exception", _ALIVE, _death("exception", 1)),
    Fault("TrainingRunTerminated", "a run is ended by SIGTERM", _ALIVE, _death("signal", 143)),
    Fault(
        "TrainingOutOfMemory",
        "a run ends for want of device memory",
        _ALIVE,
        (
            *_death("exception", 1),
            instant("training_oom_last_timestamp_seconds", 0, **_RANK, where="device"),
        ),
    ),
    turn(
        "TrainingLossNotFinite", "the loss is NaN", "training_loss", 1.5, math.nan, *_ALIVE, **_RANK
    ),
    turn(
        "TrainingLossDiverging",
        "the loss has had 5 spikes",
        "training_loss_spikes_total",
        0,
        5,
        *_ALIVE,
        **_RANK,
    ),
    turn(
        "ValidationNotImproving",
        "12 evaluations have brought nothing",
        "training_evaluations_since_improvement",
        1,
        12,
        *_ALIVE,
        **_RANK,
    ),
    turn(
        "SlowBatchProcessing",
        "a batch takes 12 s",
        "batch_processing_time",
        2,
        12,
        **_RANK,
    ),
    Fault(
        "TrainingThroughputDrop",
        "a run processes half the samples",
        (*_TRAINING, rate("training_samples_total", 1000, **_RANK)),
        (*_TRAINING, rate("training_samples_total", 500, **_RANK)),
        history_seconds=4500,
    ),
    Fault(
        "TrainingStragglerRank",
        "one rank takes twice as long",
        (
            *_ALIVE,
            constant("training_rank_slowdown_ratio", 1, **_RANK, phase="forward"),
            constant("training_rank_straggler", 0, **_RANK),
        ),
        (
            *_ALIVE,
            constant("training_rank_slowdown_ratio", 2, **_RANK, phase="forward"),
            constant("training_rank_straggler", 1, **_RANK),
        ),
    ),
    Fault(
        "DataLoaderBottleneck",
        "half of each step is waiting for data",
        (
            *_ALIVE,
            rate("training_phase_seconds_total", 0.05, **_RANK, phase="data_wait"),
            rate("training_step_duration_seconds_sum", 1, **_RANK),
        ),
        (
            *_ALIVE,
            rate("training_phase_seconds_total", 0.5, **_RANK, phase="data_wait"),
            rate("training_step_duration_seconds_sum", 1, **_RANK),
        ),
    ),
    turn(
        "TrainingDataErrors",
        "the data loader has failed 3 times",
        "training_data_errors_total",
        0,
        3,
        *_ALIVE,
        **_RANK,
    ),
    Fault(
        "CheckpointStale",
        "the last checkpoint is 2 hours old where 1 is allowed",
        (
            *_ALIVE,
            recent("training_checkpoint_last_timestamp_seconds", 60, **_RANK),
            duration("training_checkpoint_max_age_seconds", 3600, **_RANK),
        ),
        (
            *_ALIVE,
            recent("training_checkpoint_last_timestamp_seconds", 7200, **_RANK),
            duration("training_checkpoint_max_age_seconds", 3600, **_RANK),
        ),
    ),
    turn(
        "TrainingRestartLoop",
        "a run has been restarted 4 times",
        "training_restarts_total",
        0,
        4,
        **_RUN,
    ),
    Fault(
        "TrainingOverdue",
        "a run should have ended 2 hours ago",
        (*_ALIVE, recent("training_eta_timestamp_seconds", -3600, **_RANK)),
        (*_ALIVE, recent("training_eta_timestamp_seconds", 7200, **_RANK)),
    ),
    turn(
        "TrainingClientOverhead",
        "the client takes 5 % of the time",
        "training_client_overhead_ratio",
        0.001,
        0.05,
        *_ALIVE,
        **_RANK,
    ),
    turn(
        "TrainingClientIncompatible",
        "2 run files cannot be read",
        "training_client_incompatible_files",
        0,
        2,
    ),
    turn(
        "TrainingRanksOmitted",
        "3 living ranks are left out",
        "training_ranks_omitted",
        0,
        3,
    ),
    turn(
        "TrainingMonitorAlert",
        "a callback finds its GPU too hot",
        "training_alert_active",
        0,
        1,
        *_ALIVE,
        **_RANK,
        alert="gpu_temperature",
    ),
)
