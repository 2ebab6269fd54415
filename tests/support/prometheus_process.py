"""A real Prometheus as a separate process that scrapes one exporter.

with PrometheusProcess(program, tmp_path / "prometheus", exporter.port) as server:
    server.wait_until_it_scrapes()
    assert server.ask_for_one("up") == 1
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.processes import ENDS_WITH_PARENT
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from trainvitals.sources.prometheus import Prometheus, PrometheusError
from trainvitals.stack.programs import find_free_ports

INSTANCE = "node-1"
_CONFIGURATION = """
global:
  scrape_interval: {interval}
  evaluation_interval: {interval}
rule_files: [{rules}]
scrape_configs:
  - job_name: trainvitals
    static_configs:
      - targets: ["127.0.0.1:{port}"]
        labels: {{instance: "{instance}"}}
"""
_STARTED_WITHIN_SECONDS = 60.0


class PrometheusProcess:
    """A Prometheus on a free port that scrapes one exporter.

    Args:
        program: The path of the program `prometheus`.
        directory: The directory for the configuration, the data and the log.
        port: The port of the exporter.
        interval: The interval of scrapes and rule evaluations, as a Prometheus duration.
        rules: A pattern of the rule files; empty for no rules.
    """

    def __init__(
        self,
        program: Path,
        directory: Path,
        port: int,
        *,
        interval: str = "500ms",
        rules: str = "",
    ) -> None:
        directory.mkdir()
        (directory / "prometheus.yml").write_text(
            _CONFIGURATION.format(port=port, interval=interval, rules=rules, instance=INSTANCE)
        )
        self._address = f"127.0.0.1:{find_free_ports(1)[0]}"
        self._prometheus = Prometheus(f"http://{self._address}")
        self._log = directory / "prometheus.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *ENDS_WITH_PARENT,
                    program,
                    f"--config.file={directory}/prometheus.yml",
                    f"--storage.tsdb.path={directory}/data",
                    f"--web.listen-address={self._address}",
                ],
                stdout=log,
                stderr=log,
            )

    def ask(self, query: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """Return the labels and values of an instant vector.

        Args:
            query: The PromQL query.
            at: The evaluation time in Unix seconds; None for now.

        Raises:
            PrometheusError: Prometheus does not answer.
        """
        return [(dict(each.labels), each.last) for each in self._prometheus.query(query, at)]

    def ask_for_one(self, query: str, at: float | None = None) -> float:
        """Return the value of an instant vector with exactly one sample."""
        ((_, value),) = self.ask(query, at)
        return value

    def list_firing(self, component: str) -> dict[str, Mapping[str, Mapping[str, str]]]:
        """Return the labels and annotations of the firing alerts of a component, by name.

        Args:
            component: The value of the label `component`.

        Raises:
            PrometheusError: Prometheus does not answer.
        """
        return {
            alert.labels["alertname"]: {"labels": alert.labels, "annotations": alert.annotations}
            for alert in self._prometheus.list_alerts()
            if alert.state == "firing" and alert.labels.get("component") == component
        }

    def wait_until_it_scrapes(self) -> None:
        """Wait until Prometheus has scraped the exporter successfully."""
        until = time.monotonic() + _STARTED_WITHIN_SECONDS
        while True:
            try:
                if any(value == 1 for _, value in self.ask("up")):
                    return
            except PrometheusError:
                pass
            assert time.monotonic() < until, self._log.read_text()
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.1)

    def wait_for(self, query: str, seconds: float = PATIENCE_SECONDS) -> float:
        """Wait until a query returns a result, and return its first value.

        Raises:
            AssertionError: The query returned no result within the given seconds.
        """
        found = wait_until(lambda: self.ask(query), seconds, pause=0.1, describe=lambda: query)
        return found[0][1]

    def __enter__(self) -> PrometheusProcess:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
