"""A real Prometheus that serves hand-written samples.

past = Past(step_seconds=60)
past.add("accelerator_up", 1, begin, end, kind="gpu", device="0", uuid="G0")
with past.open(promtool, prometheus, directory) as kept:
    kept.url
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import requests

from tests.support.local_http import fetch_json, get
from tests.support.processes import ENDS_WITH_PARENT
from trainvitals.sources.prometheus import Prometheus, find_prometheus
from trainvitals.stack.programs import find_free_ports

_STARTED_WITHIN_SECONDS = 60.0


@dataclass(slots=True)
class Past:
    """Hand-written samples at every `step_seconds`, with the labels that Prometheus adds."""

    step_seconds: int
    instance: str = "node-1"
    _lines: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self,
        metric: str,
        value: float | Callable[[int], float | None],
        begin: int,
        end: int,
        **labels: str,
    ) -> None:
        """Add samples of a series from `begin` to `end`, inclusive; a value of None adds none."""
        every = {"instance": self.instance, "job": "trainvitals", **labels}
        named = ",".join(f"{name}={json.dumps(text)}" for name, text in every.items())
        first = -(-begin // self.step_seconds) * self.step_seconds
        for moment in range(first, end + 1, self.step_seconds):
            number = value(moment) if callable(value) else value
            if number is not None:
                self._lines[moment].append(f"{metric}{{{named}}} {number} {moment}")

    @contextlib.contextmanager
    def open(
        self, promtool: Path, prometheus: Path, directory: Path, *flags: str
    ) -> Iterator[Prometheus]:
        """Write the samples to blocks, and run a Prometheus with them until the block ends."""
        text, data = directory / "past.txt", directory / "data"
        lines = [line for moment in sorted(self._lines) for line in self._lines[moment]]
        text.write_text("\n".join([*lines, "# EOF", ""]), encoding="utf-8")
        if lines:
            blocks = (promtool, "tsdb", "create-blocks-from", "--max-block-duration=720h")
            command = (*blocks, "openmetrics", text, data)
            subprocess.run(command, check=True, capture_output=True, timeout=250)
        with run_prometheus(prometheus, directory, f"{self.step_seconds - 1}s999ms", *flags) as url:
            yield find_prometheus(url)


@contextlib.contextmanager
def run_prometheus(
    program: Path, directory: Path, lookback: str = "5m", *flags: str
) -> Iterator[str]:
    """Run a Prometheus with the data in `directory/data` and the rules in `directory/rules`."""
    (directory / "prometheus.yml").write_text("rule_files: [rules/*.yml]\n", encoding="utf-8")
    address = f"127.0.0.1:{find_free_ports(1)[0]}"
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *ENDS_WITH_PARENT,
                program,
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                "--storage.tsdb.retention.time=100y",
                f"--query.lookback-delta={lookback}",
                f"--web.listen-address={address}",
                *flags,
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _wait(f"http://{address}/-/ready", process, directory / "prometheus.log")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _STARTED_WITHIN_SECONDS
    while True:
        with contextlib.suppress(requests.RequestException):
            get(url, timeout=1).raise_for_status()
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)


def ask_one(url: str, query: str, moment: float) -> float:
    """Query a Prometheus for one value, without the code under test."""
    words = {"query": query, "time": str(moment)}
    answer = fetch_json(f"{url}/api/v1/query", words)
    ((sample,),) = [[each["value"] for each in answer["data"]["result"]]]
    return float(sample[1])
