"""The files of the project with which the rules must agree, read once."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from promql_parser import parse_duration

from tests.support.rulebook import ROOT, TESTS, Loader, Rulebook, read_rulebook
from tests.support.rulelint.metrics import ELSEWHERE, TARGET_LABELS, Metric, read_metrics
from trainvitals.cli import build_parser


@dataclass(frozen=True, slots=True)
class Awaited:
    """Planned parts that rules and runbooks already name.

    Attributes:
        metrics: The planned metrics by name.
        dashboards: The uids of the planned dashboards.
        commands: The planned commands, such as `trainvitals top` or `make demo`.
    """

    metrics: Mapping[str, Metric] = field(default_factory=dict)
    dashboards: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class House:
    """The rules, and the parts of the project with which they must agree.

    Attributes:
        book: The rules.
        served: The exporter's metrics by name.
        elsewhere: The metrics of other programs by name.
        awaited: The parts that are planned but do not exist yet.
        jobs: The jobs that Prometheus scrapes.
        scrape_interval_seconds: The scrape interval of Prometheus.
        tests: The test files of the rules, by file name without the extension.
        runbooks: The text of each runbook, by file name without the extension.
        dashboards: The uids of the dashboards.
        commands: The flags of each `trainvitals NAME`; the flags of a `make NAME` are empty.
        alertmanager: The text of Alertmanager's configuration and templates.
    """

    book: Rulebook
    served: Mapping[str, Metric]
    elsewhere: Mapping[str, Metric]
    awaited: Awaited
    jobs: frozenset[str]
    scrape_interval_seconds: float
    tests: Mapping[str, Mapping[str, object]]
    runbooks: Mapping[str, str]
    dashboards: frozenset[str]
    commands: Mapping[str, frozenset[str]]
    alertmanager: str = ""

    def find_metric(self, name: str) -> Metric | None:
        """Return a served, foreign or planned metric; recording rules are not included."""
        places = (self.served, self.elsewhere, self.awaited.metrics)
        return next((place[name] for place in places if name in place), None)


def read_house() -> House:
    """Read the rules and the other files from the checkout."""
    text = (ROOT / "prometheus/prometheus.yml").read_text(encoding="utf-8")
    prometheus = yaml.safe_load(text)
    return House(
        book=read_rulebook(),
        served=read_metrics(_read_all(ROOT / "tests/golden", "*.prom").values()),
        elsewhere=ELSEWHERE,
        awaited=read_awaited(ROOT / "tests/rules/awaited.yml"),
        jobs=frozenset(job["job_name"] for job in prometheus["scrape_configs"]),
        scrape_interval_seconds=parse_duration(
            prometheus["global"]["scrape_interval"]
        ).total_seconds(),
        tests={
            name: yaml.load(text, Loader) for name, text in _read_all(TESTS, "[A-Z]*.yml").items()
        },
        runbooks=_read_all(ROOT / "docs/runbooks", "[A-Z]*.md"),
        dashboards=frozenset(
            json.loads(text)["uid"]
            for text in _read_all(ROOT / "grafana/dashboards", "*.json").values()
        ),
        commands=read_commands((ROOT / "Makefile").read_text(encoding="utf-8")),
        alertmanager="\n".join(
            [
                *_read_all(ROOT / "alertmanager", "*.yml").values(),
                *_read_all(ROOT / "alertmanager/templates", "*.tmpl").values(),
            ]
        ),
    )


def _read_all(directory: Path, pattern: str) -> dict[str, str]:
    paths = sorted(directory.glob(pattern))
    return {path.stem: path.read_text(encoding="utf-8") for path in paths}


def read_awaited(path: Path) -> Awaited:
    """Read the list of planned parts; without the file, the list is empty."""
    if not path.exists():
        return Awaited()
    document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return Awaited(
        metrics={
            entry["name"]: Metric(
                "counter" if entry["name"].endswith("_total") else "gauge",
                TARGET_LABELS | frozenset(entry["labels"]),
            )
            for entry in document.get("metrics") or ()
        },
        dashboards=frozenset(entry["name"] for entry in document.get("dashboards") or ()),
        commands=frozenset(entry["name"] for entry in document.get("commands") or ()),
    )


def read_commands(makefile: str) -> dict[str, frozenset[str]]:
    """Return the commands with their flags, and the targets of the Makefile."""
    (choice,) = (
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    commands = {
        f"trainvitals {name}": frozenset(parser._option_string_actions)
        for name, parser in choice.choices.items()
    }
    targets = re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)
    return commands | {f"make {name}": frozenset() for name in targets}
