"""Writes RESULTS.md from the result files of the benchmarks."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.figures import RESULTS
from bench.goals import GOALS
from bench.subjects import find_program

REPORT = Path(__file__).parent / "RESULTS.md"
_PYTHON_PACKAGES = ("prometheus_client", "nvitop-exporter", "nvidia-ml-py", "h11")
_HEAD = """\
# Results

Written by `make bench`; [README.md](README.md) says how to read it.
Every figure is better when it is lower.
Times depend on the machine, so the ratios are what counts: the median of pairs that were measured next to each other, with the 10th and 90th percentile in brackets.
The accelerators are fake: a driver call takes no time unless the row says so, so these are the exporter's own costs.
"""


def main() -> None:
    """Write RESULTS.md."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    lines = [_HEAD, *describe_machine(results), *list_goals(results), *list_details(results)]
    REPORT.write_text("\n".join(lines) + "\n")
    print(f"wrote {REPORT}")


def describe_machine(results: dict[str, Any]) -> list[str]:
    """Return lines that name the machine, the versions and the time of the measurements."""
    model = read_value("/proc/cpuinfo", "model name")
    memory = int(read_value("/proc/meminfo", "MemTotal").split()[0]) / 2**20
    packages = ", ".join(f"{name} {version(name)}" for name in _PYTHON_PACKAGES)
    dates = sorted(result["taken_at"] for result in results.values())
    quick = [name for name, result in results.items() if result["quick"]]
    return [
        f"- Machine: {os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {platform.release()}",
        f"- Python {platform.python_version()}; {packages}",
        f"- {program_version('prometheus-node-exporter')}; {program_version('prometheus')}",
        f"- Measured: {dates[0]} to {dates[-1]}"
        + (f"; quick: {', '.join(quick)}" if quick else ""),
        "",
    ]


def read_value(path: str, key: str) -> str:
    """Return the value of a key in a file such as `/proc/cpuinfo`."""
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def program_version(name: str) -> str:
    """Return the name and version of a Prometheus program."""
    done = subprocess.run(
        [find_program(name), "--version"], capture_output=True, text=True, check=False
    )
    words = (done.stdout + done.stderr).split()
    return f"{words[0].rstrip(',')} {words[2]}"


def list_goals(results: dict[str, Any]) -> list[str]:
    """Return a table row for each goal, and the notes."""
    lines = [
        "| # | figure | peer | ours | measured | goal | moonshot | met |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    reached = {key: one for result in results.values() for key, one in result["goals"].items()}
    for number, goal in GOALS.items():
        one = reached.get(number)
        if one is None:
            lines.append(
                f"| {number} | {goal.figure} | | | not measured | {bar(goal.goal)} | {bar(goal.moonshot)} | |"
            )
            continue
        cells = (
            number,
            goal.figure,
            one["peer"],
            one["ours"],
            f"**{one['shown']}**",
            bar(goal.goal),
            bar(goal.moonshot),
            judge(one["value"], goal.goal, goal.moonshot),
        )
        lines.append("| " + " | ".join(cells) + " |")
    notes = [f"- {number}: {one['note']}." for number, one in reached.items() if one["note"]]
    return [
        *lines,
        "",
        *sorted(notes, key=lambda note: list(GOALS).index(note[2:].split(":")[0])),
        "",
    ]


def bar(value: float | None) -> str:
    """Return the text of a goal's limit."""
    return "" if value is None else f"{value:g}"


def judge(value: float, goal: float | None, moonshot: float | None) -> str:
    """Return which limit the value meets."""
    if moonshot is not None and value <= moonshot:
        return "moonshot"
    if goal is not None and value <= goal:
        return "goal"
    return "**no**"


def list_details(results: dict[str, Any]) -> list[str]:
    """Return the additional details of all benchmarks."""
    lines = ["## Side by side", ""]
    exporters = {
        name: one
        for name, one in results.get("scrape", {}).get("details", {}).items()
        if isinstance(one, dict)
    }
    if exporters:
        columns = list(next(iter(exporters.values())))
        lines.append(f"| exporter | {' | '.join(columns)} |")
        lines.append("| --- " * (len(columns) + 1) + "|")
        for name, one in exporters.items():
            lines.append(f"| {name} | {' | '.join(str(one[column]) for column in columns)} |")
        lines.append("")
    for name, result in results.items():
        for key, one in result["details"].items():
            if key not in exporters:
                lines.append(f"- {name}: {key}: {one}")
    return lines


if __name__ == "__main__":
    main()
