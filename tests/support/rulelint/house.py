"""Everything that the rules must agree with, read once."""

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
    """What rules and runbooks name already and a later part will bring.

    Attributes:
        metrics: Its metrics by name.
        dashboards: The uids of its dashboards.
        commands: Its commands, as `trainvitals top` or `make demo`.
    """

    metrics: Mapping[str, Metric] = field(default_factory=dict)
    dashboards: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class House:
    """The rules and what they must agree with.

    Attributes:
        book: The rules.
        served: The exporter's metrics by name.
        elsewhere: What others serve, by name.
        awaited: What is not there yet.
        jobs: The jobs that Prometheus scrapes.
        scrape_interval_seconds: How often it does.
        tests: The tests of the rules by file name without its ending.
        runbooks: The text of each runbook page by file name without its ending.
        dashboards: The uids of the dashboards.
        commands: The flags of each command, by `trainvitals NAME`; of `make NAME`, none.
        alertmanager: Alertmanager's configuration and templates, as text.
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
        """Find a metric of the exporter, of others or of a later part; records are no metrics."""
        places = (self.served, self.elsewhere, self.awaited.metrics)
        return next((place[name] for place in places if name in place), None)


def read_house() -> House:
    """Read the product as it is."""
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
    """Read the list of what is not there yet; no file: nothing is missing."""
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
    """Return every command and its flags, and every target of the Makefile."""
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
