"""The metrics of a training run in a real Prometheus that scrapes a real exporter."""

from __future__ import annotations

import time
from bisect import bisect
from pathlib import Path

import pytest

from tests.support.exporter_process import ExporterProcess
from tests.support.prometheus_process import INSTANCE, PrometheusProcess
from tests.support.trainers import Loop

RUN = '{run="instrumented",rank="0"}'
TRAINED_SECONDS = 8.0


# A delay of seconds in the loop or in Prometheus changes the rate in such a short window.
@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")
def test_rates_and_quantiles_are_those_of_the_loop(tmp_path: Path, prometheus: Path):
    """Rates, quantiles and joins in Prometheus agree with the loop's own measurements."""
    with (
        ExporterProcess(tmp_path) as exporter,
        PrometheusProcess(prometheus, tmp_path / "prometheus", exporter.port) as server,
    ):
        server.wait_until_it_scrapes()
        with Loop(tmp_path / "runs") as loop:
            time.sleep(TRAINED_SECONDS)
            at, monotonic_at = time.time(), time.monotonic()
            ended = loop.accounts()["ended"]
        # A step ends about every 75 ms, and the latest scrape may be half a second old.
        steps = bisect(ended, monotonic_at - 0.5) - bisect(ended, monotonic_at - 6.5)
        per_second = steps / 6
        about = {"rel": 0.4}
        assert server.ask_for_one(f"rate(training_samples_total{RUN}[6s])", at) == pytest.approx(
            32 * per_second, **about
        )
        duration = "training_step_duration_seconds"
        buckets = f"rate({duration}_bucket{RUN}[6s])"
        assert 0.05 < server.ask_for_one(f"histogram_quantile(0.5, {buckets})", at) <= 0.1
        mean = server.ask_for_one(
            f"rate({duration}_sum{RUN}[6s]) / rate({duration}_count{RUN}[6s])", at
        )
        assert mean == pytest.approx(1 / per_second, **about)
        shares = {
            labels["phase"]: value
            for labels, value in server.ask(f"rate(training_phase_seconds_total{RUN}[6s])", at)
        }
        assert shares["backward"] == pytest.approx(0.03 * per_second, rel=0.5)
        assert 0.6 < sum(shares.values()) < 1.4
        joined = "training_samples_per_second * on(run) group_left(source) training_run_info"
        ((labels, value),) = server.ask(joined, at)
        assert labels == {
            "run": "instrumented",
            "rank": "0",
            "source": "client",
            "instance": INSTANCE,
            "job": "trainvitals",
        }
        assert value == pytest.approx(32 * per_second, **about)
