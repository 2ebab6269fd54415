"""The framework-independent part of a resource callback: sampling, alerts, console and CSV."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainvitals.training.alerts import Alerts, Changes, Thresholds, find_alarming
from trainvitals.training.gpus import GPUSampler
from trainvitals.training.guard import Errors, guard
from trainvitals.training.pace import Baseline, Pace, Stretch
from trainvitals.training.resourcelog import (
    WARNING_SIGN,
    Console,
    Timeseries,
    write_alerts,
    write_block,
    write_cleared,
)
from trainvitals.training.resources import HostSampler

if TYPE_CHECKING:
    from trainvitals.alerting.channels import DirectChannel
    from trainvitals.training.monitor import TrainingMonitor

_LAST_HOOKS = ("on_exception", "teardown")


class ResourceMonitor:
    """A monitor that samples the resources of a training process every few batches.

    Args:
        enabled: Whether resources are sampled; if False, the callback does nothing.
        log_interval: The number of batches between two samples.
        gpu_monitoring: Whether to sample the GPUs.
        cpu_monitoring: Whether to sample CPU and memory use.
        io_monitoring: Whether to sample disk and network use and the wait for data.
        alert_gpu_underutilization: Whether to raise an alert when a GPU is underutilized.
        alert_memory_pressure: Whether to raise an alert when the machine's memory is nearly full.
        alert_io_bottleneck: Whether to raise an alert when the run spends much of its time waiting
            for data.
        gpu_util_threshold: The utilization below which a GPU is underutilized, 0 to 1.
        memory_threshold: The share of memory in use above which memory is nearly full, 0 to 1.
        io_wait_threshold: The share of time above which waiting for data is a bottleneck, 0 to 1.
        export_timeseries: Whether to write each sample to the epoch's CSV file.
        timeseries_path: The directory in which CSV files are written.
        run: The run name. If None, `TrainingMonitor` derives the name from the environment.
        monitor: An existing monitor of the run, which the caller finishes. If None, each fit
            creates its own monitor.
        notify: The channels to which messages are sent, with the same special values as for
            `TrainingMonitor`. This argument is ignored if `monitor` is passed.
        temperature_threshold_celsius: The GPU temperature above which an alert is raised. If None,
            no alert about temperatures is raised.
        alert_seconds: The time for which a GPU must be underutilized, or for which step time,
            throughput or utilization must be unusual, before an alert is raised.
        adaptive_alerts: Whether to print alerts about step time, throughput or utilization that is
            unusual for this run. The exporter shows these alerts in any case.
        sample_seconds: The minimum time between two readings, so that reading does not slow down
            fast batches. A sample within this time repeats the previous values, as the console and
            the CSV column `sample` show. If it is 0, the values are read for every sample.
        write: A function that receives the printed text. If None, the text is written to standard
            output.
        clock: A function that returns the time of a monotonic clock, in seconds.

    Attributes:
        monitor: The monitor of the current fit. Unless a monitor was passed in, the value is None
            before and after a fit.
        current_epoch: The epoch whose CSV file is being written.
        errors: The counter of internal errors, which are logged once and never raised in the
            training loop.
    """

    _hooks: ClassVar[tuple[str, ...]] = ()
    _host: HostSampler | None
    _gpus: GPUSampler | None
    _timeseries: Timeseries | None

    def __init__(
        self,
        enabled: bool = True,  # noqa: FBT001, FBT002 - as published
        log_interval: int = 10,
        gpu_monitoring: bool = True,  # noqa: FBT001, FBT002
        cpu_monitoring: bool = True,  # noqa: FBT001, FBT002
        io_monitoring: bool = True,  # noqa: FBT001, FBT002
        alert_gpu_underutilization: bool = True,  # noqa: FBT001, FBT002
        alert_memory_pressure: bool = True,  # noqa: FBT001, FBT002
        alert_io_bottleneck: bool = True,  # noqa: FBT001, FBT002
        gpu_util_threshold: float = 0.5,
        memory_threshold: float = 0.9,
        io_wait_threshold: float = 0.3,
        export_timeseries: bool = True,  # noqa: FBT001, FBT002
        timeseries_path: str = "resource_logs",
        *,
        run: str | None = None,
        monitor: TrainingMonitor | None = None,
        notify: bool | Sequence[DirectChannel] | None = None,
        temperature_threshold_celsius: float | None = 80.0,
        alert_seconds: float = 60.0,
        adaptive_alerts: bool = False,
        sample_seconds: float = 1.0,
        write: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.enabled = enabled
        self.log_interval = max(1, log_interval)
        self.gpu_monitoring = gpu_monitoring
        self.cpu_monitoring = cpu_monitoring
        self.io_monitoring = io_monitoring
        self.alert_gpu_underutilization = alert_gpu_underutilization
        self.alert_memory_pressure = alert_memory_pressure
        self.alert_io_bottleneck = alert_io_bottleneck
        self.gpu_util_threshold = gpu_util_threshold
        self.memory_threshold = memory_threshold
        self.io_wait_threshold = io_wait_threshold
        self.timeseries_path = timeseries_path
        self.temperature_threshold_celsius = temperature_threshold_celsius
        self.alert_seconds = alert_seconds
        self.adaptive_alerts = adaptive_alerts
        self.monitor = monitor
        self.current_epoch = 0
        self._run = run
        self._notify = notify
        self._exports = export_timeseries
        self._sample_seconds = sample_seconds
        self._clock = clock
        self._console = Console(write)
        self.errors = Errors("the resource monitor", self._switch_off)
        self._begin(rank=0)
        if enabled:
            self._start_rates()
        else:
            self._silence(self._hooks)

    def _begin(self, *, rank: int) -> None:
        """Reset the state of this monitor for a new fit."""
        self._rank = rank
        self._host = None
        self._gpus = None
        self._gpu_ordinals: Sequence[int] | None = None
        self._timeseries = None
        self._paused_at: float | None = None
        self._paused_seconds = 0.0
        self._pace = Pace(clock=self._clock)
        self._io_seen = self._baseline_seen = Stretch()
        self._alerts = Alerts(clock=self._read_training_clock)
        self._changes = Changes()
        self._baseline = Baseline(
            lasting_seconds=self.alert_seconds, clock=self._read_training_clock
        )
        self._reported: frozenset[str] = frozenset()
        self._metrics: dict[str, float] = {}
        self._samples = 0
        self._sampled_at = float("-inf")

    def __getstate__(self) -> dict[str, object]:
        """Return the state without process-specific members, so that a Trainer can be pickled."""
        left = ("_host", "_gpus", "_timeseries", "monitor")
        return {**self.__dict__, **dict.fromkeys(left)}

    # Methods for users.

    def get_gpu_metrics(self) -> dict[str, float]:
        """Return the current values of all GPUs of this process; see `GPUSampler.read`.

        Returns:
            `gpu_0_util`, `gpu_0_memory_used_mb`, `gpu_0_memory_total_mb`, `gpu_0_memory_pct`,
            `gpu_0_temp_c`, `gpu_0_power_w` and the corresponding values of each further GPU; an
            empty dictionary if no GPU or driver is found.
        """
        if self._gpus is None:
            self._gpus = GPUSampler()
            self._gpus.follow(self._gpu_ordinals)
        return self._gpus.read()

    def get_cpu_memory_metrics(self) -> dict[str, float]:
        """Return the current use of CPU and memory; see `HostSampler.read_cpu_memory`.

        Returns:
            `cpu_percent`, `cpu_process_percent`, `memory_system_mb`, `memory_available_mb`,
            `memory_percent` and `memory_process_mb`.
        """
        return self._open_host().read_cpu_memory()

    def get_io_metrics(self) -> dict[str, float]:
        """Return disk use, network use and the wait for data; see `HostSampler.read_io`.

        Returns:
            `disk_read_mb`, `disk_write_mb`, `io_read_rate_mbps`, `io_write_rate_mbps`,
            `net_sent_mbps`, `net_recv_mbps`, `io_pressure_pct`, and `io_wait_pct`: the share of the
            time since the last call in which training waited for data, or the I/O pressure if no
            batch has ended since then.
        """
        values = self._open_host().read_io()
        total = self._pace.total
        waited = (total - self._io_seen).data_wait_percent
        self._io_seen = total
        if waited is None:
            waited = values.get("io_pressure_pct")
        if waited is not None:
            values["io_wait_pct"] = waited
        return values

    def check_alerts(self, metrics: Mapping[str, float]) -> list[str]:
        """Return a message for each value of a reading that is beyond its threshold.

        The result depends only on this reading. During a fit, by contrast, each alert is raised
        once. The alert about a GPU is raised only after the GPU has been underutilized for
        `alert_seconds` of training.
        """
        findings = find_alarming(metrics, self._gather_thresholds())
        return [f"{WARNING_SIGN} {finding.text}" for finding in findings if finding.is_alarming]

    def export_timeseries(self, metrics: Mapping[str, float], step: int) -> None:
        """Append a reading to the CSV file of the current epoch; see `resourcelog`."""
        if self._timeseries is None:
            self._timeseries = Timeseries(Path(self.timeseries_path), rank=self._rank)
        self._timeseries.append(self.current_epoch, step, metrics)

    # Methods for callbacks.

    def _switch_off(self) -> None:
        """Stop all activity in this fit except the cleanup at the end of the fit."""
        self._silence(name for name in self._hooks if name not in _LAST_HOOKS)

    def _silence(self, hooks: Iterable[str]) -> None:
        self.__dict__.update(dict.fromkeys(hooks, _do_nothing))

    def _follow_gpus(self, ordinals: Sequence[int] | None) -> None:
        """Sample only the GPUs with these device numbers; None for all usable GPUs."""
        self._gpu_ordinals = ordinals
        if self._gpus is not None:
            self._gpus.follow(ordinals)

    def _sample_batch(self, batch: int, step: int, *, prints: bool) -> None:
        """Sample the resources after a batch, write and print the sample, and report alerts."""
        is_fresh = self._sample()
        news = self._judge() if is_fresh else ""
        if self._exports:
            self.export_timeseries(self._metrics, step)
        if prints:
            block = write_block(batch, self._metrics, is_repeated=not is_fresh)
            self._console.show(block + news)

    def _judge(self) -> str:
        """Report alerts to the monitor, and return the lines to print about these alerts."""
        findings = find_alarming(
            self._metrics, self._gather_thresholds(), is_training=self._paused_at is None
        )
        self._changes = self._alerts.judge(findings)
        raised = [finding.text for finding in self._changes.raised]
        cleared = [finding.text for finding in self._changes.cleared]
        unusual = self._compare_with_usual()
        if self.adaptive_alerts:
            raised += [finding.text for finding in unusual.raised]
            cleared += [finding.text for finding in unusual.cleared]
        self._report_alerts(unusual)
        return (write_alerts(raised) if raised else "") + write_cleared(cleared)

    def _pause(self) -> None:
        """Record that the run starts an activity other than training."""
        self._pace.pause()
        if self._paused_at is None:
            self._paused_at = self._clock()

    def _go_on(self) -> None:
        """Record that the run resumes training and waits for its next batch."""
        self._pace.wait()
        if self._paused_at is not None:
            self._paused_seconds += self._clock() - self._paused_at
            self._paused_at = None

    def _end(self) -> None:
        """Close the CSV file and end the sampling threads."""
        if self._timeseries is not None:
            self._timeseries.close()
        if self._gpus is not None:
            self._gpus.close()
            self._gpus = None

    @guard
    def _start_rates(self) -> None:
        """Read the resource counters once, so that the first sample contains rates."""
        self._open_host()

    def _open_host(self) -> HostSampler:
        if self._host is None:
            self._host = HostSampler(clock=self._clock)
        return self._host

    def _read_training_clock(self) -> float:
        """Return the monotonic time in seconds, excluding all pauses in training."""
        now = self._clock() if self._paused_at is None else self._paused_at
        return now - self._paused_seconds

    def _gather_thresholds(self) -> Thresholds:
        return Thresholds(
            gpu_utilization_percent=(
                100 * self.gpu_util_threshold if self.alert_gpu_underutilization else None
            ),
            memory_percent=100 * self.memory_threshold if self.alert_memory_pressure else None,
            io_wait_percent=100 * self.io_wait_threshold if self.alert_io_bottleneck else None,
            temperature_celsius=self.temperature_threshold_celsius,
            alert_seconds=self.alert_seconds,
        )

    def _sample(self) -> bool:
        """Read all values, unless the last reading is recent; return whether they were read."""
        now = self._clock()
        if now - self._sampled_at < self._sample_seconds:
            return False
        self._sampled_at = now
        metrics: dict[str, float] = {}
        if self.gpu_monitoring:
            metrics |= self.get_gpu_metrics()
        if self.cpu_monitoring:
            metrics |= self.get_cpu_memory_metrics()
        if self.io_monitoring:
            metrics |= self.get_io_metrics()
        self._samples += 1
        self._metrics = {**metrics, "sample": self._samples}
        return True

    def _compare_with_usual(self) -> Changes:
        total = self._pace.total
        stretch = total - self._baseline_seen
        if not stretch.steps:
            return Changes()
        self._baseline_seen = total
        utilizations = [
            value / 100
            for name, value in self._metrics.items()
            if name.startswith("gpu_") and name.endswith("_util")
        ]
        return self._baseline.compare(
            step_seconds=stretch.step_seconds,
            samples_per_second=stretch.samples_per_second,
            utilization_ratio=sum(utilizations) / len(utilizations) if utilizations else None,
        )

    def _report_alerts(self, unusual: Changes) -> None:
        monitor = self.monitor
        if monitor is None:
            return
        active = self._alerts.active | self._baseline.active
        # Messages contain only the printed alerts; the run file contains all alerts.
        texts = dict.fromkeys(self._baseline.active | self._reported, "")
        changes = self._changes + unusual if self.adaptive_alerts else self._changes
        for finding in changes.raised + changes.cleared:
            before = texts.get(finding.name)
            texts[finding.name] = f"{before}; {finding.text}" if before else finding.text
        for name in active - self._reported:
            monitor.raise_alert(name, texts.get(name))
        for name in self._reported - active:
            monitor.clear_alert(name, texts.get(name))
        self._reported = active
        usual = self._baseline.usual
        monitor.set_baseline(
            step_seconds=usual.step_seconds,
            samples_per_second=usual.samples_per_second,
            utilization_ratio=usual.utilization_ratio,
            deviations=usual.deviations,
        )


def _do_nothing(*_: object, **__: object) -> None:
    pass
