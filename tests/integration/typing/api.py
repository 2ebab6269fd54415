"""The public API as programs use it. Type checkers read this file, and no test runs it.

A type checker must refuse each line with a `type: ignore`; otherwise it reports the comment.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from typing_extensions import assert_type

import trainvitals
from trainvitals import (
    CircuitBreaker,
    CircuitState,
    MemoryMonitor,
    TrainingMonitor,
    get_gpu_memory_usage,
    log_gpu_memory,
    retry_with_backoff,
)
from trainvitals.huggingface import TrainvitalsCallback as HuggingFaceCallback
from trainvitals.keras import TrainvitalsCallback as KerasCallback
from trainvitals.lightning import ResourceMonitorCallback
from trainvitals.logs import StructuredFormatter, log_time, setup_logger
from trainvitals.views.plot import plot


class Batch:
    """A batch of a data loader."""

    def __len__(self) -> int:
        return 32


class Tensor:
    """A value that can be converted to a float, as tensors can."""

    def __float__(self) -> float:
        return 0.5


def train(loader: list[Batch], loss: Tensor) -> None:
    """Instrument a loop with all parameters and methods of a monitor."""
    with TrainingMonitor(
        "resnet",
        total_epochs=3,
        total_steps=300,
        epoch_steps=100,
        global_step=0,
        rank=0,
        world_size=8,
        attempt=1,
        framework="pytorch",
        framework_version="2.13",
        flops_per_sample=1e9,
        flops_per_token=None,
        peak_flops=9.89e14,
        watch="val_iou",
        watch_mode="max",
        checkpoint_max_age_seconds=3600,
        run_dir=Path("/dev/shm/runs"),
        enabled=True,
    ) as monitor:
        assert_type(monitor, TrainingMonitor)
        monitor.set_totals(epochs=3, steps=300, epoch_steps=100)
        monitor.resume(200)
        monitor.start_epoch()
        monitor.start_epoch(1, steps=100)
        assert_type(monitor.batches(loader), Iterator[Batch])
        for batch in monitor.batches(loader):
            monitor.mark("forward")
            monitor.update_batch(len(batch))
            monitor.update_batch(len(batch), 512)
            monitor.update_batch(
                batch_size=len(batch),
                sequence_length=None,
                loss=loss,
                accuracy=0.9,
                learning_rate=1e-3,
                gradient_norm=loss,
                tokens=4096,
                global_step=7,
            )
        assert_type(monitor.phase("checkpoint"), AbstractContextManager[None])
        with monitor.phase("checkpoint"):
            monitor.checkpoint_saved()
        monitor.log({"val_iou": 0.09, "val_dice": loss}, split="validation")
        monitor.log(learning_rate=1e-3)
        monitor.log_validation(0.4, 0.9, iou=0.09)
        monitor.log_validation(loss=loss)
        monitor.count_data_error()
        monitor.count_nonfinite("gradient")
        monitor.set_nan_filter(active=True)
        monitor.raise_alert("io_bottleneck")
        monitor.clear_alert("io_bottleneck")
        monitor.set_baseline(step_seconds=0.25, deviations=1)


def read_monitor(monitor: TrainingMonitor) -> None:
    """Read the properties of a monitor."""
    throughput = monitor.get_throughput()
    assert_type(throughput, dict[str, float] | None)
    if throughput is not None:
        assert_type(throughput["samples_per_second"], float)
    assert_type(monitor.run, str)
    assert_type(monitor.rank, int)
    assert_type(monitor.world_size, int)
    assert_type(monitor.path, Path | None)
    assert_type(monitor.samples_processed, int)
    assert_type(monitor.tokens_processed, int)
    assert_type(monitor.start_time, float | None)
    assert_type(monitor.last_step_seconds, float | None)
    monitor.fail(ValueError("no data"))
    monitor.fail()
    monitor.finish()


def misuse_monitor(monitor: TrainingMonitor) -> None:
    """Use a monitor in ways that type checkers must refuse."""
    TrainingMonitor("resnet", 3)  # type: ignore[call-arg]
    TrainingMonitor(watch_mode="lowest")  # type: ignore[arg-type]
    monitor.update_batch()  # type: ignore[call-arg]
    monitor.update_batch(32, 512, 0.5)  # type: ignore[call-arg]
    monitor.count_nonfinite("accuracy")  # type: ignore[arg-type]
    monitor.log({"val_iou": [0.09]})  # type: ignore[dict-item]
    monitor.set_totals(3)  # type: ignore[call-arg]


def add_callbacks(monitor: TrainingMonitor) -> None:
    """Create the callbacks of frameworks."""
    HuggingFaceCallback()
    HuggingFaceCallback("resnet")
    HuggingFaceCallback(monitor=monitor)
    KerasCallback("resnet", batch_size=32, flops_per_sample=1e9)
    KerasCallback(monitor=monitor)
    KerasCallback(batch_size="32")  # type: ignore[arg-type]


def monitor_resources(monitor: TrainingMonitor) -> None:
    """Create and call the resource monitor for Lightning."""
    ResourceMonitorCallback()
    ResourceMonitorCallback(True, 5)  # noqa: FBT003 - the order of its parameters is published
    callback = ResourceMonitorCallback(
        enabled=True,
        log_interval=10,
        gpu_monitoring=True,
        cpu_monitoring=True,
        io_monitoring=True,
        alert_gpu_underutilization=True,
        alert_memory_pressure=True,
        alert_io_bottleneck=True,
        gpu_util_threshold=0.5,
        memory_threshold=0.9,
        io_wait_threshold=0.3,
        export_timeseries=True,
        timeseries_path="resource_logs",
        run="resnet",
        monitor=monitor,
        adaptive_alerts=True,
    )
    metrics = callback.get_gpu_metrics()
    assert_type(metrics, dict[str, float])
    assert_type(callback.get_cpu_memory_metrics(), dict[str, float])
    assert_type(callback.get_io_metrics(), dict[str, float])
    assert_type(callback.check_alerts(metrics), list[str])
    callback.export_timeseries(metrics, step=50)
    ResourceMonitorCallback(log_interval="often")  # type: ignore[arg-type]


def watch_memory(logger: logging.Logger) -> None:
    """Read the memory that tensors use."""
    memory = MemoryMonitor()
    assert_type(memory.update(), float)
    assert_type(memory.max_allocated, float)
    memory.reset()
    assert_type(get_gpu_memory_usage(), tuple[float, float])
    log_gpu_memory()
    log_gpu_memory(logger)
    log_gpu_memory("gpu")  # type: ignore[arg-type]


def log_lines() -> None:
    """Log as a training script does."""
    logger = setup_logger("training", "training.log")
    assert_type(logger, logging.Logger)
    setup_logger("training", log_file=Path("training.log"), level=logging.DEBUG)
    setup_logger("training", level="debug")
    setup_logger()  # type: ignore[call-arg]
    with log_time(logger, "Data loading"):
        logger.info("Training started", extra={"hpu_id": 0, "batch_idx": 1})
    with log_time(logging.LoggerAdapter(logger, {"rank": 0}), "Model forward pass"):
        pass

    @log_time(logger, "Validation")
    def validate(batches: int) -> float:
        return batches / 2

    assert_type(validate(3), float)
    log_time("training", "Data loading")  # type: ignore[arg-type]

    handler = logging.StreamHandler()
    handler.setFormatter(StructuredFormatter())
    logger.addHandler(handler)


def draw_timeline() -> None:
    """Draw the resources that a run used."""
    plot([Path("epoch_0.csv")], Path("resource_timeline.png"))


assert_type(trainvitals.__version__, str)


def call_services() -> None:
    """Retry calls, and pause calls of a service that keeps failing."""

    @retry_with_backoff(max_retries=5)
    def download(name: str) -> int:
        return len(name)

    assert_type(download("bert"), int)
    download(7)  # type: ignore[arg-type]
    breaker = CircuitBreaker(failure_threshold=3, timeout=30)
    assert_type(breaker.call(download, "bert"), int)
    breaker.call(download, 7)  # type: ignore[arg-type]
    assert_type(breaker.state, CircuitState)
    assert_type(breaker.failures, int)
    retry_with_backoff(max_retries="many")  # type: ignore[arg-type]
