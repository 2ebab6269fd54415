"""The past of the rules: what they would have recorded, and which alerts they would have raised.

A Prometheus that scrapes nothing holds the machines' past and evaluates the expression of every rule
over it: of recording rules those first that others need, then of alerts. How long an alert must
hold, and how long it goes on when it no longer does (`for`, `keep_firing_for`), is applied here,
and kept as Prometheus keeps it: in `ALERTS` and `ALERTS_FOR_STATE`. By the latter a Prometheus that
is started knows since when an alert has held, so that one that has held for long enough fires as
soon as the demo goes live.

(`promtool tsdb create-blocks-from rules` would leave a block for each rule and each two hours, and
knows no alerts.)
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
Results = Mapping[Labels, Sequence[tuple[int, float]]]  # moments and values


@dataclass(frozen=True, slots=True)
class Tools:
    """The programs.

    Attributes:
        prometheus: The server.
        promtool: Evaluates rules and makes blocks.
    """

    prometheus: Path
    promtool: Path


class PastOfRules:
    """Makes the blocks of what rules would have recorded and raised.

    Args:
        rules: The directory of the rule files.
        tools: The programs.
        directory: Where files may be left for a while.
        blocks: Where the blocks are: Prometheus' data directory.
    """

    def __init__(self, rules: Path, *, tools: Tools, directory: Path, blocks: Path) -> None:
        written = read_rules(rules)
        self._records = list(sort_records([rule for rule in written if "record" in rule]))
        self._alerts = [AlertPast(rule) for rule in written if "alert" in rule]
        self._tools, self._directory, self._blocks = tools, directory, blocks

    def write(self, moments: Sequence[int]) -> None:
        """Make the blocks of some moments, in order, later than those before.

        Args:
            moments: The machines' past has them.

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
        """Return a file for samples of which a block is made, and who answers for what there is."""
        path = self._directory / f"rules-{len(rules)}.txt"
        with (
            serve_blocks(self._tools.prometheus, self._blocks, self._directory) as port,
            path.open("w", encoding="utf-8") as file,
        ):
            yield file, port
            file.write("# EOF\n")
        Making(path, promtool=self._tools.promtool, blocks=self._blocks).wait()


def read_rules(directory: Path) -> list[Rule]:
    """Read all rules of a directory of rule files."""
    documents = (
        yaml.safe_load(path.read_text("utf-8")) for path in sorted(directory.glob("*.yml"))
    )
    return [
        rule for document in documents for group in document["groups"] for rule in group["rules"]
    ]


def sort_records(rules: Sequence[Rule]) -> Iterator[Sequence[Rule]]:
    """Sort recording rules into layers, each of which needs only those before it."""
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
    """The state of an alert: since when it is active (0: not), when it last was, whether it fires."""

    since: int = 0
    last: int = 0
    is_firing: bool = False


class AlertPast:
    """The past of an alert.

    Args:
        rule: Its rule.

    Attributes:
        rule: The same.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._waits = read_duration(rule.get("for", "0s"))
        self._stays = read_duration(rule.get("keep_firing_for", "0s"))
        self._courses: dict[Labels, _Course] = {}

    def write(self, results: Results, moments: Sequence[int]) -> Iterator[str]:
        """Write some moments as lines of samples.

        Args:
            results: What its expression gave, by labels.
            moments: All moments, in order, later than those before.
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
    """Start a Prometheus without targets on blocks, and return its port.

    Raises:
        StackError: It does not start.
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
            # So that what ends the demo finds it, whatever became of us.
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
    """Return what an expression evaluates to at all moments, by labels."""
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
