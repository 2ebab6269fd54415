"""Tests that the documentation is complete and that its references exist."""

from __future__ import annotations

import argparse
import inspect
import re
import runpy
from pathlib import Path

import pytest

from tests.support.rulebook import read_rulebook
from trainvitals.cli import build_parser
from trainvitals.http.endpoints import Endpoints
from trainvitals.metrics.collectors import COLLECTORS
from trainvitals.metrics.machine import Machine, MachineOptions
from trainvitals.runfile import ALERTS
from trainvitals.sources.accelerators.reading import State
from trainvitals.sources.accelerators.xids import XIDS
from trainvitals.training.resourcemonitor import ResourceMonitor
from trainvitals.verdicts.causes.judge import REASONS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "exporter/trainvitals"
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
PROSE = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
SOURCES = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def documents(pattern: str) -> set[str]:
    """Return all matches of a pattern in the documentation."""
    return set(re.findall(pattern, PROSE))


def page(name: str) -> str:
    """Return the text of one page."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command, by name."""
    (choice,) = (
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(choice.choices)


def flags() -> list[str]:
    """Return every flag of every command, without aliases that the help does not show."""
    parsers = [build_parser(), *commands().values()]
    return sorted(
        {
            flag
            for parser in parsers
            for flag, action in parser._option_string_actions.items()
            if flag != "-h" and action.help != argparse.SUPPRESS
        }
    )


def test_the_list_of_metrics_is_up_to_date():
    """`docs/metrics.md` is the output of `make docs` for the golden scrape."""
    generator = runpy.run_path(str(ROOT / "docs/build/metrics.py"))
    golden = [path.read_text(encoding="utf-8") for path in generator["GOLDEN"]]
    written = generator["write_page"](generator["read_sections"](golden))
    assert page("metrics.md").splitlines() == written.splitlines(), "run `make docs`"


def test_the_list_of_metrics_has_a_row_for_each_of_them():
    """The row of a metric contains its type, labels and help text."""
    rows = page("metrics.md").splitlines()
    (row,) = [row for row in rows if row.startswith("| `accelerator_clock_hertz` |")]
    assert row.startswith(
        "| `accelerator_clock_hertz` | gauge"
        " | `kind`, `device`, `uuid`, `clock` (core, memory) | Clock of"
    )
    assert row.endswith("Source: nvmlDeviceGetClockInfo. |")


def test_the_list_of_alerts_is_up_to_date():
    """`docs/alerts.md` is the output of `make docs` for the alerting rules."""
    generator = runpy.run_path(str(ROOT / "docs/build/alerts.py"))
    written = generator["write_page"](generator["read_groups"]())
    assert page("alerts.md").splitlines() == written.splitlines(), "run `make docs`"


def test_the_list_of_causes_is_up_to_date():
    """`docs/diagnosis.md` is the output of `make docs` for the causes of death."""
    generator = runpy.run_path(str(ROOT / "docs/build/diagnosis.py"))
    assert page("diagnosis.md").splitlines() == generator["write_page"]().splitlines(), (
        "run `make docs`"
    )


def test_the_table_of_log_formats_is_up_to_date():
    """The table in `docs/training.md` is the output of `make docs` for the log formats."""
    generator = runpy.run_path(str(ROOT / "docs/build/formats.py"))
    training = page("training.md")
    assert training == generator["rewrite"](training), "run `make docs`"


def test_every_reason_has_a_row_with_what_to_do():
    """The row of a reason contains its signs, its meaning and a command or setting."""
    rows = [line for line in page("diagnosis.md").splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(REASONS)
    for row in rows:
        cells = re.split(r"(?<!\\) \| ", row.strip("| "))
        assert len(cells) == 6, row
        assert "`" in cells[4], row


def test_the_list_of_alerts_has_a_row_for_each_of_them():
    """The row of an alert contains its runbook, severity, durations and explained thresholds."""
    rows = page("alerts.md").splitlines()
    listed = [found[1] for row in rows if (found := re.match(r"\| \[(\w+)\]\(runbooks/", row))]
    assert sorted(listed) == sorted(alert.name for alert in read_rulebook().alerts)
    (row,) = [row for row in rows if row.startswith("| [HPUHighTemperature]")]
    assert row.startswith(
        "| [HPUHighTemperature](runbooks/HPUHighTemperature.md) | critical"
        " | HPU temperature too high | 30s | 5m | `headroom_celsius` 2: Within 2 °C of"
    )
    assert "`threshold:accelerator_temperature_near_limit:assumed_slowdown_celsius` 87: " in row


def test_the_records_named_in_the_documents_exist():
    """Every recorded series that the documentation names has a recording rule."""
    named = documents(r"\b(?:accelerator|run|instance|threshold):[a-z_]+:[a-z0-9_]+")
    assert len(named) > 10
    assert named - {rule.name for rule in read_rulebook().records} == set()


@pytest.mark.parametrize("command", commands())
def test_a_command_is_documented(command):
    """Every command is mentioned with the program's name, and its help contains examples."""
    assert f"trainvitals {command}" in PROSE
    assert "Examples:" in (commands()[command].epilog or "")


@pytest.mark.parametrize("flag", flags())
def test_a_flag_is_documented(flag):
    """Every flag appears in code formatting; the flags of all collectors share one entry."""
    stem = re.sub(r"^--(no-)?collector\..*", r"--\1collector.NAME", flag)
    assert re.search(rf"`[^`\n]*{re.escape(stem)}\b[^`\n]*`", PROSE), stem


@pytest.mark.parametrize("entry", COLLECTORS, ids=lambda entry: entry.name)
def test_a_collector_is_documented(entry):
    """Every collector has a row in `exporter.md` and a section in `metrics.md`."""
    assert f"\n| `{entry.name}` |" in page("exporter.md")
    assert f"\n## {entry.name}\n" in page("metrics.md")


def test_every_endpoint_is_documented():
    """Every endpoint has a row in `exporter.md`."""
    machine = Machine(MachineOptions(disabled=["accelerator"]))
    try:
        for path in Endpoints(machine)._paths:
            assert f"\n| `{path}` |" in page("exporter.md")
    finally:
        machine.close()


def test_every_exit_code_is_documented():
    """Every exit code of the commands has a row in `exporter.md`."""
    codes = re.search(
        r"^FINE, FOUND_A_PROBLEM, CANNOT_RUN = (.*)$",
        SOURCES[PACKAGE / "commands/parsing.py"],
        re.MULTILINE,
    )
    assert codes
    assert codes[1] == "0, 1, 2"
    rows = page("exporter.md").partition("## Exit codes")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (\d) \|", rows, re.MULTILINE) == ["0", "1", "2"]


def test_every_signal_that_is_acted_on_is_documented():
    """Every signal for which the code installs a handler is mentioned in the documentation."""
    acted_on = re.compile(r"signal\.signal\(\s*signal\.(SIG[A-Z0-9]+)")
    used = {name for text in SOURCES.values() for name in acted_on.findall(text)}
    assert used >= {"SIGTERM", "SIGUSR1"}
    assert used | {"SIGHUP"} <= documents(r"\bSIG[A-Z0-9]+\b")


def test_every_environment_variable_is_documented():
    """Every environment variable that the code reads or sets is named in code formatting."""
    text = "\n".join(SOURCES.values())
    read = set(re.findall(r"environ(?:\.get\(|\[)\s*\"([A-Z_]+)\"", text))
    ours = set(re.findall(r"\bTRAINVITALS_[A-Z_]+\b", text))
    stack = "\n".join(text for path, text in SOURCES.items() if path.parent.name == "stack")
    ports = set(re.findall(r"\"([A-Z]+_PORT)\"", stack))
    assert read >= {"XDG_STATE_HOME", "TRAINVITALS_RUN_DIR", "PATH"}
    assert ports == {"EXPORTER_PORT", "PROMETHEUS_PORT", "ALERTMANAGER_PORT", "GRAFANA_PORT"}
    assert read | ours | ports <= documents(r"`([A-Z_]+)`")


def test_every_state_of_an_accelerator_is_documented():
    """Every state of an accelerator has a row in `accelerators.md`."""
    for state in State.__args__:  # type: ignore[attr-defined]  # of a Literal
        assert f"\n| `{state}` |" in page("accelerators.md")


def test_the_table_of_xids_is_that_of_the_code():
    """The table of Xid codes in `accelerators.md` equals the table in the code."""
    rows = re.findall(r"^\| (\d+ \| .*) \|$", page("accelerators.md"), re.MULTILINE)
    assert rows == [f"{x.code} | {x.meaning} | {x.severity} | {x.action}" for x in XIDS]


def test_the_calls_of_the_vendors_are_those_of_the_code():
    """Every vendor function and `hl-smi` field that `accelerators.md` names is used in the code."""
    readers = "\n".join(
        text
        for path, text in SOURCES.items()
        if path.is_relative_to(PACKAGE / "sources/accelerators")
    )
    named = re.findall(r"`((?:nvml|hlml)[A-Z]\w+)`", page("accelerators.md"))
    named += re.findall(
        r"`((?:clocks|ecc|memory|pcie|power|temperature|utilization)\.[\w.]+)`",
        page("accelerators.md"),
    )
    assert len(named) > 50
    assert [name for name in named if name not in readers] == []


def test_the_metrics_named_in_the_documents_exist():
    """Every metric that the documentation names is part of a golden scrape."""
    golden = (ROOT / "tests/golden/metrics.prom").read_text(encoding="utf-8")
    golden += (ROOT / "tests/golden/failing.prom").read_text(encoding="utf-8")
    known = set(re.findall(r"^# TYPE (\w+)", golden, re.MULTILINE))
    prose = PROSE.replace(page("metrics.md"), "")
    prefixes = "accelerator|gpu|hpu|host|trainvitals_collector"
    pattern = rf"(?<![\w/.:])((?:{prefixes})_[a-z][a-z0-9_]+[a-z0-9])(?![\w*])"
    named = set(re.findall(pattern, prose))
    checks = {"hpu_available", "hpu_count", "gpu_available", "gpu_count", "hpu_initialized"}
    checks |= {"gpu_memory_utilization"}  # a setting of vLLM
    parameters = set(inspect.signature(ResourceMonitor).parameters)
    assert len(named) > 15
    assert named - known - checks - parameters - set(ALERTS) == set()


def test_the_excerpt_in_the_readme_is_from_the_golden_scrape():
    """The samples that the README shows are part of the golden scrape."""
    golden = (ROOT / "tests/golden/metrics.prom").read_text(encoding="utf-8").splitlines()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^[a-z_]+(?:\{.*\})? [0-9.e+]+$", readme, re.MULTILINE)
    assert len(shown) == 10
    assert set(shown) <= set(golden)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    """Every relative link leads to an existing file and an existing heading."""
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, heading = target.partition("#")
        there = path.parent / file if file else path
        assert there.exists(), target
        assert not heading or heading in _headings(there.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_prose_has_one_sentence_on_a_line(path):
    """A line of a paragraph has only one sentence; tables, lists and code are exempt."""
    text = re.sub(
        r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    exempt = re.compile(r"\||#|<!--|- |[0-9]+\. ")
    lines = [line for line in text.splitlines() if not exempt.match(line)]
    second = re.compile(r"[a-z0-9)`]{3}[.!?] +[A-Z]")
    assert [line for line in lines if second.search(line)] == []


def _headings(text: str) -> set[str]:
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in found}
