"""The past of rules: the series that the rules would have recorded, and the past alerts.

A Prometheus server without targets loads the machines' past and evaluates the expression of every
rule over it: first the recording rules, in the order of their dependencies, then the alerting
rules. The durations `for` and `keep_firing_for` are applied by this module. The results are stored
as Prometheus stores them, in `ALERTS` and `ALERTS_FOR_STATE`. From `ALERTS_FOR_STATE`, Prometheus
determines at its start since when an alert's condition has been true, so that an alert whose `for`
duration has elapsed fires as soon as the demo goes live.

`promtool tsdb create-blocks-from rules` is not used, because it would write one block per rule and
two hours, and does not support alerts.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml

from fleet.history import LOOKBACK, STEP_SECONDS, Making
from trainvitals.errors import StackError
from trainvitals.metrics.exposition import escape_value
from trainvitals.sources import external_program
from trainvitals.sources.http_client import fetch_page
from trainvitals.sources.prometheus import Prometheus, PrometheusError
from trainvitals.stack.drills.speed import read_duration
from trainvitals.stack.programs import HOST, find_free_ports, last_lines
from trainvitals.stack.supervision import MARK

_TIMEOUT_SECONDS = 120.0
_START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_NAME = re.compile(r"[a-zA-Z_:][\w:]*")

Labels = tuple[tuple[str, str], ...]
Rule = Mapping[str, Any]  # as parsed from YAML
Results = Mapping[Labels, Sequence[tuple[int, float]]]  # times and values


@dataclass(frozen=True, slots=True)
class Tools:
    """The paths of the programs.

    Attributes:
        prometheus: The path of the Prometheus server.
        promtool: The path of promtool, which creates blocks.
    """

    prometheus: Path
    promtool: Path


class PastOfRules:
    """A writer of blocks with the past recorded series and alerts of rules.

    Args:
        rules: The directory of the rule files.
        tools: The paths of the programs.
        directory: A directory for temporary files.
        blocks: The directory of the blocks, which is Prometheus' data directory.
    """

    def __init__(self, rules: Path, *, tools: Tools, directory: Path, blocks: Path) -> None:
        written = read_rules(rules)
        self._records = list(sort_records([rule for rule in written if "record" in rule]))
        self._alerts = [AlertPast(rule) for rule in written if "alert" in rule]
        self._tools, self._directory, self._blocks = tools, directory, blocks

    def write(self, moments: Sequence[int]) -> None:
        """Create the blocks for ascending sample times, later than those of previous calls.

        Args:
            moments: The sample times, which the machines' past must include.

        Raises:
            StackError: A program fails.
        """
        for layer in self._records:
            with self._block_from(layer) as (file, port):
                for rule in layer:
                    file.writelines(_write_record(rule, _ask(rule["expr"], moments, port)))
        with self._block_from(self._alerts) as (file, port):
            for alert in self._alerts:
                results = _ask(alert.rule["expr"], moments, port)
                file.writelines(alert.write(results, moments))

    @contextmanager
    def _block_from(self, rules: Sequence[object]) -> Iterator[tuple[TextIO, int]]:
        """Yield a file for samples, which becomes a block, and a port for querying blocks."""
        path = self._directory / f"rules-{len(rules)}.txt"
        with (
            serve_blocks(self._tools.prometheus, self._blocks, self._directory) as port,
            path.open("w", encoding="utf-8") as file,
        ):
            yield file, port
            file.write("# EOF\n")
        Making(path, promtool=self._tools.promtool, blocks=self._blocks).wait()


def read_rules(directory: Path) -> list[Rule]:
    """Read all rules from a directory of rule files."""
    documents = (
        yaml.safe_load(path.read_text("utf-8")) for path in sorted(directory.glob("*.yml"))
    )
    return [
        rule for document in documents for group in document["groups"] for rule in group["rules"]
    ]


def sort_records(rules: Sequence[Rule]) -> Iterator[Sequence[Rule]]:
    """Sort recording rules into layers, each of which depends only on previous layers."""
    left = list(rules)
    while left:
        missing = {rule["record"] for rule in left}
        layer = [rule for rule in left if missing.isdisjoint(_NAME.findall(rule["expr"]))]
        if not layer:
            raise StackError(f"these rules need each other: {', '.join(sorted(missing))}")
        yield layer
        left = [rule for rule in left if rule not in layer]


@dataclass(slots=True)
class _Course:
    """An alert's state: active since (0: inactive), last active at, and whether it fires."""

    since: int = 0
    last: int = 0
    is_firing: bool = False


class AlertPast:
    """The past of an alert.

    Args:
        rule: The alerting rule.

    Attributes:
        rule: The argument `rule`.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._waits = read_duration(rule.get("for", "0s"))
        self._stays = read_duration(rule.get("keep_firing_for", "0s"))
        self._courses: dict[Labels, _Course] = {}

    def write(self, results: Results, moments: Sequence[int]) -> Iterator[str]:
        """Return the alert's samples at some times, as lines.

        Args:
            results: The results of the alert's expression, by labels.
            moments: All sample times in ascending order, later than those of previous calls.
        """
        for labels in results.keys() | self._courses.keys():
            course = self._courses.setdefault(labels, _Course())
            held = {moment for moment, _ in results.get(labels, ())}
            about = _write_labels(
                {**dict(labels), **self.rule.get("labels", {}), "alertname": self.rule["alert"]}
            )
            for moment in moments:
                self._follow(course, moment, holds=moment in held)
                if course.since:
                    state = "firing" if course.is_firing else "pending"
                    yield f'ALERTS{{alertstate="{state}",{about}}} 1 {moment}\n'
                    yield f"ALERTS_FOR_STATE{{{about}}} {course.since} {moment}\n"

    def _follow(self, course: _Course, moment: int, *, holds: bool) -> None:
        if holds:
            course.since, course.last = course.since or moment, moment
            course.is_firing = course.is_firing or moment - course.since >= self._waits
        elif not course.is_firing or moment - course.last > self._stays:
            course.since, course.is_firing = 0, False


def _write_record(rule: Rule, results: Results) -> Iterator[str]:
    for labels, values in results.items():
        about = _write_labels({**dict(labels), **rule.get("labels", {})})
        for moment, value in values:
            yield f"{rule['record']}{{{about}}} {value} {moment}\n"


@contextmanager
def serve_blocks(prometheus: Path, blocks: Path, directory: Path) -> Iterator[int]:
    """Start a Prometheus server without targets on existing blocks, and yield its port.

    Raises:
        StackError: The server does not start.
    """
    (port,), log = find_free_ports(1), directory / "past.log"
    (directory / "past.yml").write_text("global: {}\n")
    with log.open("wb") as output:
        process = subprocess.Popen(
            (
                str(prometheus),
                f"--config.file={directory / 'past.yml'}",
                f"--storage.tsdb.path={blocks}",
                f"--web.listen-address={HOST}:{port}",
                f"--query.lookback-delta={LOOKBACK}",
                "--storage.tsdb.retention.time=15d",
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # The mark allows `down` to find the process even if this process has ended.
            env={**os.environ, MARK: str(blocks.parent)},
        )
    try:
        _wait_until_ready(process, port, log)
        yield port
    finally:
        external_program.stop(process, timeout_seconds=_STOP_SECONDS)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while fetch_page(port, "/-/ready") is None:
        if process.poll() is not None or time.monotonic() > deadline:
            words = last_lines(log, 1) or ["its log is empty"]
            raise StackError(f"the Prometheus of the past does not start: {words[0]}")
        time.sleep(0.05)


def _ask(expression: str, moments: Sequence[int], port: int) -> Results:
    """Return the results of an expression at all sample times, by labels."""
    prometheus = Prometheus(f"http://{HOST}:{port}", _TIMEOUT_SECONDS)
    try:
        found = prometheus.query_range(expression, moments[0], moments[-1], STEP_SECONDS)
    except PrometheusError as error:
        raise StackError(f"cannot evaluate {expression!r} over the past: {error}") from error
    return {
        tuple((name, value) for name, value in series.labels.items() if name != "__name__"): [
            (int(moment), value) for moment, value in series.points
        ]
        for series in found
    }


def _write_labels(labels: Mapping[str, str]) -> str:
    return ",".join(
        f'{name}="{escape_value(str(value))}"' for name, value in sorted(labels.items())
    )
