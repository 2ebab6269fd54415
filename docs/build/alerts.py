"""Writes `docs/alerts.md`, the list of all alerts, from the rule files."""
# ruff: noqa: INP001 - a script

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "prometheus/rules"
RUNBOOKS = "runbooks"
PAGE = ROOT / "docs/alerts.md"

# The groups in the order of the page, each with its subject.
GROUPS: Mapping[str, str] = {
    "training": "Runs that stall, die, diverge or waste time.",
    "accelerator": "GPUs and Gaudi cards that are hot, slow, full, idle or broken.",
    "host": "The host: memory, disks, network, clock.",
    "container": "Containers that die, restart or run out of memory.",
    "meta": "The monitoring itself: the exporters, Prometheus, Alertmanager.",
}

HEAD = """\
# Alerts

<!-- Written by `make docs` from prometheus/rules; change the rules instead. -->

This page lists every alert of `prometheus/rules`, by group.
The rules are valid for Prometheus 2.42 to 3.x: their tests pass with `promtool` of 2.42 and of 3.5.

A `critical` alert means that work or hardware is being lost now, and pages someone.
A `warning` alert requires attention today.
An `info` alert is shown, but is sent only if `NOTIFY_INFO=1` is set.
"After" is how long the condition must hold before the alert fires.
"Then for" is how long the alert keeps firing after the condition has ended, so that a recurring condition causes only one notification.
The thresholds are set in `prometheus/rules/thresholds.yml`.
Both this file and this page state the reason for each threshold.
The series of a threshold is named `threshold:<alert>:<name>`, for example `threshold:hpu_high_temperature:headroom_celsius`.
The name of each alert links to the alert's runbook.
The exporter serves the runbooks at `/runbooks/`.


## Change a threshold

1. Change the number in `prometheus/rules/thresholds.yml`.
2. Check the file with `promtool check rules prometheus/rules/*.yml`.
3. Reload Prometheus: `kill -HUP` its process, or `trainvitals down` and `trainvitals up`.

The live page, `trainvitals top`, `/health` and `trainvitals doctor` read the same file and apply a change at once.
If Prometheus runs on another machine, pass the file with `trainvitals serve --thresholds.file`.

The expression of an alert compares a value with the series of the threshold, for example `threshold:training_throughput_drop:ratio`.
Queries and dashboards can use this series as well.
The durations are set by `for` and `keep_firing_for` in the rule of the alert.


## Silence an alert

```console
$ amtool silence add alertname=HPULowUtilization instance=node-7 --duration=2h --comment='profiling' --alertmanager.url=http://localhost:9093
$ amtool silence query --alertmanager.url=http://localhost:9093
$ amtool silence expire ID --alertmanager.url=http://localhost:9093
```

Silences can also be added, listed and expired in Alertmanager's web interface.
Match the alert, the machine and the run, so that no other alert is silenced.


## Load single groups

Each file contains one group and depends on at most two other files:

```yaml
rule_files:
  - rules/thresholds.yml
  - rules/recording.yml
  - rules/training.yml
  - rules/accelerator.yml
```

Always load `thresholds.yml` and `recording.yml`, because an alert whose threshold is missing does not fire.
The alert ThresholdsMissing in `meta.yml` reports missing thresholds.


## How quiet they are

A test evaluates these rules minute by minute for an ordinary week of eight machines, with runs that start, evaluate, save, are restarted and finish, idle nights, copies of datasets, and a planned reboot.
One page is sent, about a run whose validation no longer improves.
The planned reboot takes longer than ExporterDown waits, so a silence is added before the reboot.
Eight warnings are sent, one for every seven days of a machine.
Four are about a dataset that is copied during training, two about Gaudi memory that an allocator holds, one about a run that failed and was restarted, and one about a run that its owner canceled.
To keep the test short, most machines are simulated with one or two of their cards.
In the same week, the five expressions with which this project began send 384 pages, and 25 warnings for each machine and day.
The same test makes a rank hang and a card overheat, and each of these faults sends exactly one page.
"""

# An action of a template, such as a variable.
_ACTION = re.compile(r"{{.*?}}")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number with which alerts compare.

    Attributes:
        name: The name of its series.
        value: The number, as written in the rule file.
        reason: The reason for the number.
    """

    name: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert as listed on the page.

    Attributes:
        name: The alert's name.
        severity: The possible severities, joined by `or`.
        when: The alert's summary.
        after: The value of `for`, or an empty string.
        then: The value of `keep_firing_for`, or an empty string.
        thresholds: The thresholds in its expression and in the recorded expressions that it uses.
    """

    name: str
    severity: str
    when: str
    after: str
    then: str
    thresholds: tuple[Threshold, ...] = field(default_factory=tuple)


def read_thresholds(text: str) -> dict[str, Threshold]:
    """Return the thresholds of a rule file, each with the comment above it as the reason."""
    found: dict[str, Threshold] = {}
    comment: list[str] = []
    name = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("#"):
            comment = [] if "-----" in line else [*comment, line.lstrip("# ")]
        elif line.startswith("- record: "):
            name = line.removeprefix("- record: ")
        elif value := re.fullmatch(r"expr: vector\((.*)\)", line):
            found[name] = Threshold(name, value[1], " ".join(comment))
            comment = []
        else:
            comment = []
    return found


def read_alerts(
    rules: Iterable[Mapping[str, object]],
    recorded: Mapping[str, Sequence[str]],
    thresholds: Mapping[str, Threshold],
) -> list[Alert]:
    """Return the alerts of a group.

    Args:
        rules: The group's rules.
        recorded: The expressions that record each name.
        thresholds: The thresholds by name.
    """
    alerts = []
    for rule in rules:
        used = find_thresholds(str(rule["expr"]), recorded, thresholds)
        labels, annotations = _read_texts(rule, "labels"), _read_texts(rule, "annotations")
        alerts.append(
            Alert(
                name=str(rule["alert"]),
                severity=" or ".join(_ACTION.sub(" ", labels["severity"]).split()),
                when=annotations["summary"],
                after=str(rule.get("for", "")),
                then=str(rule.get("keep_firing_for", "")),
                thresholds=tuple(thresholds[name] for name in used),
            )
        )
    return alerts


def _read_texts(rule: Mapping[str, object], name: str) -> dict[str, str]:
    texts = rule[name]
    assert isinstance(texts, dict)  # noqa: S101 - each rule in a valid file has these
    return texts


def find_thresholds(
    expr: str, recorded: Mapping[str, Sequence[str]], thresholds: Iterable[str]
) -> list[str]:
    """Return the thresholds that an expression uses directly or through recorded expressions."""
    waiting, texts = [expr], [expr]
    seen: set[str] = set()
    while waiting:
        for name in set(re.findall(r"[a-z]+:[a-z0-9_]+:[a-z0-9_]+", waiting.pop())) - seen:
            seen.add(name)
            waiting += recorded.get(name, ())
            texts += recorded.get(name, ())
    return [name for name in thresholds if any(name in text for text in texts)]


def write_page(groups: Mapping[str, Sequence[Alert]]) -> str:
    """Return the whole document."""
    return (
        "\n\n".join([HEAD, *(_write_group(name, alerts) for name, alerts in groups.items())]) + "\n"
    )


def _write_group(name: str, alerts: Sequence[Alert]) -> str:
    rows = [
        "| alert | severity | when | after | then for | thresholds |",
        "| --- | --- | --- | --- | --- | --- |",
        *map(_write_row, alerts),
    ]
    return "\n".join([f"## {name.capitalize()}", "", GROUPS[name], "", *rows])


def _write_row(alert: Alert) -> str:
    thresholds = "<br>".join(_write_threshold(one, alert) for one in alert.thresholds)
    cells = [
        f"[{alert.name}]({RUNBOOKS}/{alert.name}.md)",
        alert.severity,
        alert.when,
        alert.after,
        alert.then,
        thresholds,
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _write_threshold(threshold: Threshold, alert: Alert) -> str:
    """Return a threshold and its reason; a name that contains the alert's name is shortened."""
    _, subject, what = threshold.name.split(":")
    is_own = subject.replace("_", "") == alert.name.lower()
    return f"`{what if is_own else threshold.name}` {threshold.value}: {threshold.reason}"


def read_groups(directory: Path = RULES) -> dict[str, list[Alert]]:
    """Return all alerts by group."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in directory.glob("*.yml")}
    rules = {
        name: [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
        for name, text in texts.items()
    }
    recorded: dict[str, list[str]] = {}
    for rule in rules["recording"]:
        recorded.setdefault(rule["record"], []).append(rule["expr"])
    thresholds = read_thresholds(texts["thresholds"])
    return {name: read_alerts(rules[name], recorded, thresholds) for name in GROUPS}


def main() -> None:
    """Write `docs/alerts.md`."""
    PAGE.write_text(write_page(read_groups()), encoding="utf-8")


if __name__ == "__main__":
    main()
