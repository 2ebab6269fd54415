"""Writes `docs/metrics.md`, the list of all metrics, from the golden scrapes of the tests."""
# ruff: noqa: INP001 - a script

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = (ROOT / "tests/golden/metrics.prom", ROOT / "tests/golden/failing.prom")
PAGE = ROOT / "docs/metrics.md"

# Labels whose values are fixed in the code; values of other labels depend on the machine.
LISTED = (
    "cause",
    "clock",
    "constraint",
    "direction",
    "level",
    "mode",
    "phase",
    "reason",
    "resource",
    "sensor",
    "statistic",
    "type",
    "what",
    "where",
)

# The labels that together name an accelerator or a rank come first, in this order.
IDENTITIES = (("kind", "device", "uuid"), ("run", "rank"))

HEAD = """\
# Metrics

<!-- Written by `make docs` from tests/golden; change the HELP in the code instead. -->

This page lists every metric of the exporter, by collector.
If a machine does not have a value, or if the value cannot be read, the series is absent.
The exporter does not replace a missing value by 0, NaN or the last known value.
The parameters `collect[]=NAME` and `exclude[]=NAME` of `/metrics` select collectors.
`--no-collector.NAME` disables a collector.

The label `uuid` identifies an accelerator, `device` is the index that the driver assigns, and `kind` is `gpu` or `hpu`.
The label `run` is the name of a training run, and `rank` is the number of the process in the run.
The series of a process are exported for 15 minutes after the process has ended.
A counter decreases only if it is reset, for example because the exporter, the machine, or the process or container that the counter describes has been restarted.
"""


@dataclass(slots=True)
class Section:
    """A collector and its metrics.

    Attributes:
        collector: The name of the collector.
        subject: A description of the collected data.
        metrics: The families by their names on the page, in the order of the page.
    """

    collector: str
    subject: str
    metrics: dict[str, Metric] = field(default_factory=dict)


def read_sections(pages: list[str]) -> dict[str, Section]:
    """Return the sections of golden pages, in which a comment begins each collector."""
    sections: dict[str, Section] = {}
    for page in pages:
        _, *parts = re.split(r"^# Collector ", page, flags=re.MULTILINE)
        for part in parts:
            head, _, text = part.partition("\n")
            name, _, subject = head.partition(": ")
            section = sections.setdefault(name, Section(name, subject))
            for metric in text_string_to_metric_families(text):
                full = metric.name + ("_total" if metric.type == "counter" else "")
                section.metrics.setdefault(full, metric)
    return sections


def write_page(sections: dict[str, Section]) -> str:
    """Return the whole document."""
    return "\n\n".join([HEAD, *map(_write_section, sections.values())]) + "\n"


def _write_section(section: Section) -> str:
    title = "The collectors themselves" if section.collector == "trainvitals" else None
    head = f"## {title}" if title else f"## {section.collector}\n\nCollects {section.subject}."
    rows = ["| name | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for name, metric in sorted(section.metrics.items(), key=lambda item: _place(item[0])):
        type_ = "info" if name.endswith("_info") else metric.type
        meaning = re.sub(r"\||\*|__", _escape, metric.documentation)
        rows.append(f"| `{name}` | {type_} | {_write_labels(metric)} | {meaning} |")
    return "\n".join([head, "", *rows])


def _escape(found: re.Match[str]) -> str:
    """Escape characters that have a meaning in Markdown."""
    return "".join(f"\\{character}" for character in found[0])


def _place(name: str) -> tuple[bool, bool]:
    """Return a sort key that moves metrics of single vendors, which repeat others, to the end."""
    return name.startswith("gpu_"), name.startswith("hpu_")


def _write_labels(metric: Metric) -> str:
    present = {label for sample in metric.samples for label in sample.labels}
    ordered = [name for names in IDENTITIES if names[-1] in present for name in names]
    ordered = [name for name in ordered if name in present]
    ordered += sorted(present - set(ordered))
    return ", ".join(_write_label(name, metric) for name in ordered)


def _write_label(name: str, metric: Metric) -> str:
    samples = [sample for sample in metric.samples if name in sample.labels]
    values = list(dict.fromkeys(sample.labels[name] for sample in samples))
    is_list = len(values) > 1 and name in LISTED
    if is_list and all(value.isidentifier() for value in values):
        return f"`{name}` ({', '.join(values)})"
    return f"`{name}`"


def main() -> None:
    """Write `docs/metrics.md`."""
    pages = [path.read_text(encoding="utf-8") for path in GOLDEN]
    PAGE.write_text(write_page(read_sections(pages)), encoding="utf-8")


if __name__ == "__main__":
    main()
