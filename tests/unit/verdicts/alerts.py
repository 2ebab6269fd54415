"""Evaluation of the alert rules on synthetic machines, and of Alertmanager's inhibition.

All machines of a batch are instances of one test file, so that promtool runs once. Their metrics
are the output of the real collectors at the beginning and at the end, and counters rise in between.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from tests.support.rulebook import ROOT, Rule, Rulebook, read_names, read_rulebook, write_rules
from tests.unit.verdicts.machines import NOW, Machine
from trainvitals.metrics.collector_metrics import express_reports
from trainvitals.metrics.collectors.accelerator import AcceleratorCollector
from trainvitals.metrics.collectors.container import ContainerCollector
from trainvitals.metrics.collectors.cpu import CpuCollector
from trainvitals.metrics.collectors.filesystem import FilesystemCollector
from trainvitals.metrics.collectors.kernel import KernelCollector
from trainvitals.metrics.collectors.memory import MemoryCollector
from trainvitals.metrics.collectors.pressure import PressureCollector
from trainvitals.metrics.collectors.training import TrainingCollector
from trainvitals.metrics.families import Block
from trainvitals.sources.prometheus import ActiveAlert

_STEP_SECONDS = 120
_STEPS = int(NOW) // _STEP_SECONDS
_SAMPLE = re.compile(r'\{(?P<labels>__name__=(?:[^"}]|"(?:[^"\\]|\\.)*")*)\} (?P<value>[^,\s]+)')
_LABEL = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')
_MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')

# The alerts that the package verdicts also assesses; only Prometheus reports the others.
JUDGED = frozenset(
    {
        "GPUHighTemperature", "HPUHighTemperature", "AcceleratorTemperatureOverLimit",
        "AcceleratorTemperatureNearLimit",
        "AcceleratorThermalThrottling", "AcceleratorPowerBrake", "GPULowUtilization",
        "HPULowUtilization", "AcceleratorHeldIdle", "HighMemoryUsage", "AcceleratorMemoryOverLimit",
        "AcceleratorMissing", "AcceleratorLost", "AcceleratorXidCritical", "AcceleratorXidWarning",
        "AcceleratorXidApplication", "AcceleratorRecoveryActionNeeded", "AcceleratorRowRemapFailed",
        "AcceleratorRowRemapPending", "AcceleratorLinkDegraded",
        "TrainingRunLost", "TrainingRunFailed", "TrainingRunTerminated", "TrainingOutOfMemory",
        "TrainingStalled", "TrainingLossNotFinite", "TrainingStragglerRank", "DataLoaderBottleneck",
        "ContainerOOMKilled", "ContainerDied", "ContainerMemoryNearLimit", "ContainerUnhealthy",
        "HostHighMemoryUsage", "HostMemoryPressure", "HostOOMKill", "HostDiskFull",
        "HostDiskSpaceLow", "HostInodesLow", "HostSharedMemoryLow", "HostFilesystemNotResponding",
        "HostIOBottleneck", "ExporterCollectorFailed",
    }
)  # fmt: skip

# Alerts that a machine cannot assess itself, because they need another clock.
REPORTED = frozenset({"HostClockSkew"})

RECORDS = ("run:training_state:number", "run:training_verdict:number")

Sample = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Ruled:
    """The result of the rules for a machine.

    Attributes:
        alerts: The firing alerts.
        numbers: The recorded state and verdict of each run, by record and run.
    """

    alerts: list[ActiveAlert] = field(default_factory=list)
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)


def evaluate(
    machines: Sequence[Machine], promtool: Path, directory: Path, rules: Path | None = None
) -> list[Ruled]:
    """Return the result of the rules for each machine.

    Args:
        machines: The machines.
        promtool: The program that evaluates the rules.
        directory: The directory for written files.
        rules: The directory of the rules, or None for the repository's rules.
    """
    names = write_judged_rules(rules, directory)
    series = [
        each for at, machine in enumerate(machines) for each in write_series(at, machine, names)
    ]
    document = {
        "rule_files": [f"{group}.yml" for group in _GROUPS],
        "evaluation_interval": "15m",
        # promtool evaluates a group that is not listed first, before the groups that it needs.
        "group_eval_order": _GROUPS,
        "tests": [
            {
                "interval": f"{_STEP_SECONDS}s",
                "input_series": series,
                "promql_expr_test": [
                    {"expr": expr, "eval_time": f"{int(NOW)}s", "exp_samples": []}
                    for expr in ('ALERTS{alertstate="firing"}', *RECORDS)
                ],
            }
        ],
    }
    path = directory / "machines.yml"
    path.write_text(json.dumps(document), encoding="utf-8")
    command = (promtool, "test", "rules", path)
    # Fewer garbage collections halve the run time of promtool.
    environ = {**os.environ, "GOGC": "400"}
    done = subprocess.run(
        command, env=environ, capture_output=True, check=False, text=True, timeout=600
    )
    # Exit code 1 means that samples are printed; any other failure omits or truncates them.
    is_whole = done.returncode == 0 or (done.returncode == 1 and "exp: nil" in done.stderr)
    assert is_whole, f"{done.returncode}: {done.stdout}{done.stderr[:4000]}"
    ruled = [Ruled() for _ in machines]
    for found in _SAMPLE.finditer(done.stderr):
        labels = {name: str(json.loads(text)) for name, text in _LABEL.findall(found["labels"])}
        said = ruled[int(labels["instance"])]
        if labels["__name__"] == "ALERTS":
            alert = ActiveAlert(labels, {"summary": labels["alertname"]}, "firing", "")
            said.alerts.append(alert)
        else:
            said.numbers[labels["__name__"], labels["run"]] = round(float(found["value"]))
    return ruled


_LEFT_OUT: Mapping[str, Any] = {"for_": "", "keep_firing_for": "", "annotations": {}}
_GROUPS = ("thresholds", "recording", "accelerator", "training", "container", "host", "meta")


def write_judged_rules(rules: Path | None, directory: Path) -> frozenset[str]:
    """Write the judged alerts and the rules they need, and return the metrics that they query.

    No alert begins or ends in these tests, so that `for` and `keep_firing_for` are left out.
    """
    chosen, names = _choose_shipped() if rules is None else _choose(read_rulebook(rules))
    write_rules((replace(rule, **_LEFT_OUT) for rule in chosen), directory)
    return names


@cache
def _choose_shipped() -> tuple[tuple[Rule, ...], frozenset[str]]:
    return _choose(read_rulebook())


def _choose(book: Rulebook) -> tuple[tuple[Rule, ...], frozenset[str]]:
    alerts = [rule for rule in book.alerts if rule.name in JUDGED | REPORTED]
    chosen = {rule.name for rule in alerts}
    records = [rule for rule in book.records if rule.name in RECORDS]
    for rule in (*alerts, *records):
        chosen |= {rule.name, *book.find_needs(rule)}
    chosen -= {rule.name for rule in book.alerts if rule.name not in JUDGED | REPORTED}
    rules = tuple(rule for rule in book.rules if rule.name in chosen)
    return rules, frozenset().union(*(read_names(rule.parse()) for rule in rules))


def write_series(number: int, machine: Machine, names: frozenset[str]) -> Iterator[dict[str, str]]:
    """Yield the series of a machine in promtool's format."""
    keys: dict[Hashable, list[Sample]] = {}
    first, last = (dict(express(machine, at, keys)) for at in (NOW, 2 * NOW))
    for key, value in first.items():
        name, labels = key
        if name not in names:
            continue
        all_labels = (("job", "trainvitals"), ("instance", str(number)), *labels)
        text = ",".join(f"{label}={json.dumps(each)}" for label, each in all_labels)
        yield {"series": f"{name}{{{text}}}", "values": _write_values(value, last.get(key))}


def _write_values(first: float, last: float | None) -> str:
    if last is None:  # the series has not been reported for 12 minutes
        return f"{first:.12g}x{_STEPS - 6}"
    if math.isnan(last):
        return " ".join(["NaN"] * (_STEPS + 1))
    return f"{first:.12g}+{(last - first) / _STEPS:.12g}x{_STEPS}"


def express(
    machine: Machine, time: float, keys: dict[Hashable, list[Sample]]
) -> Iterator[tuple[Sample, float]]:
    """Yield the samples that the real collectors make of a machine.

    Args:
        machine: The machine.
        time: The time of the readings.
        keys: The names and labels of the samples of each shape that is described already.
    """
    readings = machine.read(time, is_early=time == NOW)
    yield ("up", ()), 1.0
    for name, reading in readings.items():
        yield from _list_samples(_collectors()[name].express(reading), keys)
    yield from _list_samples([express_reports(machine.report())], keys)


@cache
def _collectors() -> Mapping[str, object]:
    source = SimpleNamespace(kinds=("gpu", "hpu"))
    made = (
        CpuCollector(), MemoryCollector(), FilesystemCollector(), PressureCollector(), KernelCollector(),
        AcceleratorCollector(source), ContainerCollector(source), TrainingCollector(source),
    )  # fmt: skip
    return {each.name: each for each in made}


def _list_samples(
    blocks: Iterable[Block], keys: dict[Hashable, list[Sample]]
) -> Iterator[tuple[Sample, float]]:
    for block in blocks:
        if block.shape not in keys:
            keys[block.shape] = [
                (f"{family.name}{suffix}", labels)
                for family in block.describe()
                for suffix, labels in family.samples
            ]
        yield from zip(keys[block.shape], block.values, strict=True)


def inhibit(alerts: Sequence[ActiveAlert]) -> list[ActiveAlert]:
    """Return the alerts that Alertmanager sends, without the inhibited ones."""
    return [
        each for each in alerts if not any(_is_inhibited(each, rule, alerts) for rule in _read())
    ]


def _is_inhibited(
    alert: ActiveAlert, rule: Mapping[str, list[str]], all_: Sequence[ActiveAlert]
) -> bool:
    return _matches(alert, rule["target_matchers"]) and any(
        _matches(source, rule["source_matchers"])
        and all(source.labels.get(name) == alert.labels.get(name) for name in rule["equal"])
        for source in all_
        if source is not alert
    )


def _matches(alert: ActiveAlert, matchers: Sequence[str]) -> bool:
    for matcher in matchers:
        label, operator, value = _MATCHER.fullmatch(matcher).groups()  # type: ignore[union-attr]
        own = alert.labels.get(label, "")
        if not (own == value if operator == "=" else re.fullmatch(value, own)):
            return False
    return True


@cache
def _read() -> list[Mapping[str, list[str]]]:
    text = (ROOT / "alertmanager/alertmanager.yml").read_text(encoding="utf-8")
    return list(yaml.safe_load(text)["inhibit_rules"])
