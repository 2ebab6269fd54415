"""A training run as a real Prometheus sees it, which scrapes the real exporter."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from bisect import bisect
from pathlib import Path

import pytest

from tests.exporter_process import ExporterProcess
from tests.trainers import Loop

CONFIGURATION = """
global:
  scrape_interval: 500ms
scrape_configs:
  - job_name: trainvitals
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""
RUN = '{run="instrumented",rank="0"}'
TRAINED_SECONDS = 8.0
STARTED_WITHIN_SECONDS = 20.0


class PrometheusProcess:
    """A Prometheus on a free port that scrapes one exporter.

    Args:
        program: Its path.
        directory: Where it keeps everything.
        port: The exporter's.
    """

    def __init__(self, program: Path, directory: Path, port: int) -> None:
        directory.mkdir()
        (directory / "prometheus.yml").write_text(CONFIGURATION.format(port=port))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._log = directory / "prometheus.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={directory}/prometheus.yml",
                    f"--storage.tsdb.path={directory}/data",
                    f"--web.listen-address={self._address}",
                ],
                stdout=log,
                stderr=log,
            )

    def ask(self, query: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """Give the labels and values of an instant vector.

        Args:
            query: PromQL.
            at: When, in Unix seconds; now when None.

        Raises:
            OSError: It does not answer.
        """
        when = {} if at is None else {"time": f"{at:.3f}"}
        words = urllib.parse.urlencode({"query": query, **when})
        with urllib.request.urlopen(f"http://{self._address}/api/v1/query?{words}") as answer:
            found = json.load(answer)["data"]["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def ask_for_one(self, query: str, at: float | None = None) -> float:
        """Give the value of a vector that has one sample."""
        ((_, value),) = self.ask(query, at)
        return value

    def wait_until_it_scrapes(self) -> None:
        """Wait until the exporter is up in it."""
        until = time.monotonic() + STARTED_WITHIN_SECONDS
        while True:
            try:
                if any(value == 1 for _, value in self.ask("up")):
                    return
            except OSError:
                pass
            assert time.monotonic() < until, self._log.read_text()
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.1)

    def __enter__(self) -> PrometheusProcess:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def test_rates_and_quantiles_are_those_of_the_loop(tmp_path: Path, prometheus: Path):
    """Counters, the histogram and the info metrics answer what dashboards and rules ask."""
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
        about = {"rel": 0.1}
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
        assert shares["backward"] == pytest.approx(0.03 * per_second, rel=0.2)
        assert 0.9 < sum(shares.values()) < 1.1
        joined = "training_samples_per_second * on(run) group_left(source) training_run_info"
        ((labels, value),) = server.ask(joined, at)
        assert labels == {
            "run": "instrumented",
            "rank": "0",
            "source": "client",
            "instance": f"127.0.0.1:{exporter.port}",
            "job": "trainvitals",
        }
        assert value == pytest.approx(32 * per_second, **about)
