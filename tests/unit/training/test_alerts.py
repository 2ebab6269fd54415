"""Tests for the training client's alerts."""

import pytest

from trainvitals.training.alerts import Alerts, Thresholds, find_alarming


class Watch:
    """A series of readings whose time the test sets, with the alerts that result."""

    def __init__(self, **thresholds):
        self.seconds = 0.0
        self.alerts = Alerts(clock=lambda: self.seconds)
        self.thresholds = Thresholds(**thresholds)

    def see(self, *, after=1.0, is_training=True, **metrics):
        """Return the texts of the alerts that are raised and of those that are cleared."""
        self.seconds += after
        found = find_alarming(metrics, self.thresholds, is_training=is_training)
        changes = self.alerts.judge(found)
        return [f.text for f in changes.raised], [f.text for f in changes.cleared]


def test_the_texts_are_the_published_ones():
    """The texts have the published form, with thresholds in percent and no unneeded decimals."""
    watch = Watch(alert_seconds=0)
    told, _ = watch.see(gpu_0_util=42.3, memory_percent=92.1, io_wait_pct=35.0, gpu_0_temp_c=85.0)
    assert told == [
        "GPU underutilized: 42.3% (threshold: 50%)",
        "High memory usage: 92.1% (threshold: 90%)",
        "I/O bottleneck: 35.0% wait time (threshold: 30%)",
        "GPU temperature high: 85°C",
    ]
    assert watch.alerts.active == {
        "gpu_underutilized",
        "memory_pressure",
        "io_bottleneck",
        "gpu_temperature",
    }


@pytest.mark.parametrize(
    ("name", "threshold", "is_told"),
    [
        ("memory_percent", 90.0, False),
        ("memory_percent", 90.1, True),
        ("io_wait_pct", 30.0, False),
        ("io_wait_pct", 30.1, True),
        ("gpu_0_temp_c", 80.0, False),
        ("gpu_0_temp_c", 81.0, True),
        ("gpu_0_util", 50.0, False),
        ("gpu_0_util", 49.9, True),
    ],
)
def test_a_value_at_its_threshold_is_not_alarming(name, threshold, is_told):
    """A value that equals its threshold raises no alert."""
    told, _ = Watch(alert_seconds=0).see(**{name: threshold})
    assert bool(told) is is_told


def test_an_alert_is_told_once_until_it_clears():
    """An alert is raised once, and clears only if its value falls below the threshold's margin."""
    watch = Watch()
    assert watch.see(memory_percent=92.0)[0] == ["High memory usage: 92.0% (threshold: 90%)"]
    assert watch.see(memory_percent=95.0) == ([], [])
    assert watch.see(memory_percent=89.5) == ([], [])
    assert watch.see(memory_percent=90.5) == ([], [])
    assert watch.see(memory_percent=88.9) == ([], ["High memory usage: 88.9% (threshold: 90%)"])
    assert watch.alerts.active == frozenset()
    assert watch.see(memory_percent=92.0)[0] == ["High memory usage: 92.0% (threshold: 90%)"]


def test_underutilisation_must_last():
    """Low utilization raises an alert only after 60 consecutive seconds, by default."""
    watch = Watch()
    assert watch.see(gpu_0_util=10.0) == ([], [])
    assert watch.see(after=59, gpu_0_util=10.0) == ([], [])
    assert watch.see(gpu_0_util=90.0) == ([], [])
    assert watch.see(gpu_0_util=10.0) == ([], [])
    assert watch.see(after=59, gpu_0_util=10.0) == ([], [])
    assert watch.see(gpu_0_util=12.0)[0] == ["GPU underutilized: 12.0% (threshold: 50%)"]
    assert watch.see(after=600, gpu_0_util=12.0) == ([], [])


def test_underutilisation_clears_after_a_quarter_of_that():
    """An alert about low utilization clears after 15 consecutive seconds of good utilization."""
    watch = Watch()
    watch.see(gpu_0_util=10.0)
    watch.see(after=60, gpu_0_util=10.0)
    assert watch.see(gpu_0_util=90.0) == ([], [])
    assert watch.see(gpu_0_util=10.0) == ([], [])
    assert watch.see(gpu_0_util=90.0) == ([], [])
    assert watch.see(after=15, gpu_0_util=91.0)[1] == ["GPU underutilized: 91.0% (threshold: 50%)"]


def test_idle_gpus_are_fine_outside_of_training():
    """Outside training, GPU utilization neither raises nor clears an alert."""
    watch = Watch(alert_seconds=0)
    assert watch.see(is_training=False, gpu_0_util=0.0, memory_percent=95.0)[0] == [
        "High memory usage: 95.0% (threshold: 90%)"
    ]
    assert watch.see(gpu_0_util=0.0)[0] == ["GPU underutilized: 0.0% (threshold: 50%)"]
    assert watch.see(is_training=False, gpu_0_util=90.0) == ([], [])


def test_several_gpus_are_named_and_told_apart():
    """Each of several GPUs has its own alert, which names the GPU."""
    watch = Watch(alert_seconds=0)
    told, _ = watch.see(gpu_0_util=90.0, gpu_1_util=5.0, gpu_2_util=6.0, gpu_1_temp_c=85.5)
    assert told == [
        "GPU 1 underutilized: 5.0% (threshold: 50%)",
        "GPU 2 underutilized: 6.0% (threshold: 50%)",
        "GPU 1 temperature high: 85.5°C",
    ]
    told, cleared = watch.see(gpu_0_util=90.0, gpu_1_util=95.0, gpu_2_util=6.0)
    assert (told, cleared) == ([], ["GPU 1 underutilized: 95.0% (threshold: 50%)"])
    assert watch.alerts.active == {"gpu_underutilized", "gpu_temperature"}


def test_the_only_gpu_of_another_rank_is_named():
    """If the only GPU is not GPU 0, its number is in the text."""
    told, _ = Watch(alert_seconds=0).see(gpu_3_util=5.0)
    assert told == ["GPU 3 underutilized: 5.0% (threshold: 50%)"]


def test_missing_values_change_nothing():
    """Missing values and NaN neither raise nor clear an alert."""
    watch = Watch(alert_seconds=0)
    assert watch.see() == ([], [])
    watch.see(memory_percent=95.0)
    assert watch.see() == ([], [])
    assert watch.see(memory_percent=float("nan")) == ([], [])
    assert watch.alerts.active == {"memory_pressure"}


def test_conditions_can_be_switched_off():
    """A threshold of None disables its alert."""
    watch = Watch(
        gpu_utilization_percent=None,
        memory_percent=None,
        io_wait_percent=None,
        temperature_celsius=None,
        alert_seconds=0,
    )
    told, _ = watch.see(gpu_0_util=1.0, memory_percent=99.0, io_wait_pct=99.0, gpu_0_temp_c=99.0)
    assert told == []
