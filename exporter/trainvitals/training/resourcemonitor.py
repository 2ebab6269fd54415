"""What the resource callbacks do beside feeding the run file: sample, alert, print, write CSV."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainvitals.training.alerts import Alerts, Changes, Thresholds, find_alarming
from trainvitals.training.baseline import Baseline
from trainvitals.training.console import (
    WARNING_SIGN,
    Console,
    write_alerts,
    write_block,
    write_cleared,
)
from trainvitals.training.gpus import GPUSampler
from trainvitals.training.outer import Errors, guard
from trainvitals.training.pace import Pace, Stretch
from trainvitals.training.resources import HostSampler
from trainvitals.training.timeseries import Timeseries

if TYPE_CHECKING:
    from trainvitals.courier import Destination
    from trainvitals.training.monitor import TrainingMonitor

_LAST_HOOKS = ("on_exception", "teardown")


class ResourceMonitor:
    """Samples the resources of a training process every so many batches.

    Args:
        enabled: False makes the callback do nothing, at no cost.
        log_interval: Batches from one look at the resources to the next.
        gpu_monitoring: Look at the GPUs.
        cpu_monitoring: Look at CPU and memory.
        io_monitoring: Look at disk, network and the wait for data.
        alert_gpu_underutilization: Tell when a GPU is used little for long.
        alert_memory_pressure: Tell when the machine's memory is nearly full.
        alert_io_bottleneck: Tell when the run waits much for data.
        gpu_util_threshold: Little use is less than this, 0 to 1.
        memory_threshold: Nearly full is more than this, 0 to 1.
        io_wait_threshold: Much is more than this share of the time, 0 to 1.
        export_timeseries: Write each look into a CSV per epoch.
        timeseries_path: The directory of these files.
        run: The run's name; None: from the launcher's environment, as `TrainingMonitor` does it.
        monitor: A monitor of your own, which you finish yourself; None: each fit gets its own.
        notify: Whom to tell of alerts, as for `TrainingMonitor`; not looked at with a monitor of your
            own.
        temperature_threshold_celsius: Tell when a GPU is hotter; None: do not.
        alert_seconds: How long a GPU must be used little, and how long step time, throughput or
            utilisation must be unusual, to be told.
        adaptive_alerts: Print also when step time, throughput or utilisation leave what is usual
            for this run; the exporter is told in any case.
        sample_seconds: A look sooner than this after the last one repeats its values, so that
            quick batches are not slowed down; 0: read everything anew each time.
        write: Takes what is printed; standard output when None.
        clock: Seconds that never go back.

    Attributes:
        monitor: The monitor in use; None before a fit and, where it is not yours, after it.
        current_epoch: The epoch whose CSV is written.
        errors: What went wrong; it is logged once and never reaches the training loop.
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
        notify: bool | Sequence[Destination] | None = None,
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
        """Begin a fit, with nothing learned and nothing told."""
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
        self._told_monitor: frozenset[str] = frozenset()
        self._metrics: dict[str, float] = {}
        self._sampled_at = float("-inf")

    def __getstate__(self) -> dict[str, object]:
        """Leave what belongs to one process behind, so that a Trainer may spawn others."""
        left = ("_host", "_gpus", "_timeseries", "monitor")
        return {**self.__dict__, **dict.fromkeys(left)}

    # What the user may call.

    def get_gpu_metrics(self) -> dict[str, float]:
        """Read all GPUs of this process; see `GPUSampler.read`.

        Returns:
            `gpu_0_util`, `gpu_0_memory_used_mb`, `gpu_0_memory_total_mb`, `gpu_0_memory_pct`,
            `gpu_0_temp_c`, `gpu_0_power_w` and so on for each; empty without a GPU or driver.
        """
        if self._gpus is None:
            self._gpus = GPUSampler()
            self._gpus.follow(self._gpu_ordinals)
        return self._gpus.read()

    def get_cpu_memory_metrics(self) -> dict[str, float]:
        """Read CPU and memory; see `HostSampler.read_cpu_memory`.

        Returns:
            `cpu_percent`, `cpu_process_percent`, `memory_system_mb`, `memory_available_mb`,
            `memory_percent` and `memory_process_mb`.
        """
        return self._open_host().read_cpu_memory()

    def get_io_metrics(self) -> dict[str, float]:
        """Read disk, network and the wait for data; see `HostSampler.read_io`.

        Returns:
            `disk_read_mb`, `disk_write_mb`, `io_read_rate_mbps`, `io_write_rate_mbps`,
            `net_sent_mbps`, `net_recv_mbps`, `io_pressure_pct`, and `io_wait_pct`: the share of the
            time since the last call in which training waited for data, or the pressure where no
            batch ended since.
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
        """Compare a reading with the thresholds.

        Returns:
            What is new: each condition is told once, until it has cleared. Memory, I/O wait and
            temperature are told at first sight, a GPU that is used little after `alert_seconds`
            of training, and never during validation.
        """
        findings = find_alarming(
            metrics, self._gather_thresholds(), is_training=self._paused_at is None
        )
        self._changes = self._alerts.judge(findings)
        return [f"{WARNING_SIGN} {finding.text}" for finding in self._changes.raised]

    def export_timeseries(self, metrics: Mapping[str, float], step: int) -> None:
        """Append a reading to the CSV of the current epoch; see `timeseries`."""
        if self._timeseries is None:
            self._timeseries = Timeseries(Path(self.timeseries_path), rank=self._rank)
        self._timeseries.append(self.current_epoch, step, metrics)

    # What a callback calls.

    def _switch_off(self) -> None:
        """Do nothing more in this fit but end it."""
        self._silence(name for name in self._hooks if name not in _LAST_HOOKS)

    def _silence(self, hooks: Iterable[str]) -> None:
        self.__dict__.update(dict.fromkeys(hooks, _do_nothing))

    def _follow_gpus(self, ordinals: Sequence[int] | None) -> None:
        """Look at these GPUs only, numbered as in `cuda:1`; None for all that the process sees."""
        self._gpu_ordinals = ordinals
        if self._gpus is not None:
            self._gpus.follow(ordinals)

    def _look(self, batch: int, step: int, *, prints: bool) -> None:
        """Look at the resources after a batch, and tell everybody."""
        is_fresh = self._sample()
        news = self._judge() if is_fresh else ""
        if self._exports:
            self.export_timeseries(self._metrics, step)
        if prints:
            self._console.show(write_block(batch, self._metrics) + news)

    def _judge(self) -> str:
        """Tell the monitor what is alarming or unusual now; give what to print of it."""
        told = [text.removeprefix(f"{WARNING_SIGN} ") for text in self.check_alerts(self._metrics)]
        cleared = [finding.text for finding in self._changes.cleared]
        unusual = self._compare_with_usual()
        if self.adaptive_alerts:
            told += [finding.text for finding in unusual.raised]
            cleared += [finding.text for finding in unusual.cleared]
        self._tell_monitor(unusual)
        return (write_alerts(told) if told else "") + write_cleared(cleared)

    def _pause(self) -> None:
        """The run does something else than train."""
        self._pace.pause()
        if self._paused_at is None:
            self._paused_at = self._clock()

    def _go_on(self) -> None:
        """The run trains again, and waits for its next batch."""
        self._pace.wait()
        if self._paused_at is not None:
            self._paused_seconds += self._clock() - self._paused_at
            self._paused_at = None

    def _end(self) -> None:
        """Let go of files and threads."""
        if self._timeseries is not None:
            self._timeseries.close()
        if self._gpus is not None:
            self._gpus.close()
            self._gpus = None

    @guard
    def _start_rates(self) -> None:
        """Read what counts for the first time, so that the first look has rates."""
        self._open_host()

    def _open_host(self) -> HostSampler:
        if self._host is None:
            self._host = HostSampler(clock=self._clock)
        return self._host

    def _read_training_clock(self) -> float:
        """Tell the time, less that of validation."""
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
        """Read everything, unless the last values are young; tell whether it was read."""
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
        self._metrics = metrics
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
        return self._baseline.look(
            step_seconds=stretch.step_seconds,
            samples_per_second=stretch.samples_per_second,
            utilization_ratio=sum(utilizations) / len(utilizations) if utilizations else None,
        )

    def _tell_monitor(self, unusual: Changes) -> None:
        monitor = self.monitor
        if monitor is None:
            return
        active = self._alerts.active | self._baseline.active
        # People are told what is printed, the exporter everything.
        texts = dict.fromkeys(self._baseline.active | self._told_monitor, "")
        changes = self._changes + unusual if self.adaptive_alerts else self._changes
        for finding in changes.raised + changes.cleared:
            before = texts.get(finding.name)
            texts[finding.name] = f"{before}; {finding.text}" if before else finding.text
        for name in active - self._told_monitor:
            monitor.raise_alert(name, texts.get(name))
        for name in self._told_monitor - active:
            monitor.clear_alert(name, texts.get(name))
        self._told_monitor = active
        usual = self._baseline.usual
        monitor.set_baseline(
            step_seconds=usual.step_seconds,
            samples_per_second=usual.samples_per_second,
            utilization_ratio=usual.utilization_ratio,
            deviations=usual.deviations,
        )


def _do_nothing(*_: object, **__: object) -> None:
    pass
