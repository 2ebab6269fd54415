"""The verdicts and resolutions of incidents in a report, with the shipped alert rules."""

import shutil
import time
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.integration.report.stage import Past
from trainvitals.report import choose_period, format_markdown, format_text, make_report

ROOT = Path(__file__).parents[3]
BEGIN = 1773273600  # 2026-03-12 00:00 UTC
ENDS = (("back", "oom-cgroup", True), ("down", "exception", False))


def at(minutes):
    """Return the Unix time of a number of minutes after `BEGIN`."""
    return BEGIN + 60 * minutes


def write():
    """Write two containers that died at 0:30, one of which runs again, and the firing alerts."""
    past = Past(60)
    past.add("memory_total_bytes", 2**36, BEGIN, at(120))
    died = {"alertname": "ContainerDied", "severity": "warning", "alertstate": "firing"}
    for name, reason, runs in ENDS:
        past.add("container_state", float(runs), BEGIN, at(120), name=name, state="running")
        past.add("container_last_death_info", 1, at(31), at(120), name=name, reason=reason)
        moments = {at(30): at(30), at(60): at(59)}  # "back" dies a second time
        past.add(
            "container_last_death_timestamp_seconds",
            lambda t, runs=runs, moments=moments: moments[
                at(60) if runs and t >= at(60) else at(30)
            ],
            at(31),
            at(120),
            name=name,
        )
        past.add("ALERTS", 1, at(31), at(46), name=name, **died)
    # The alert is absent for a minute, as after a restart of Prometheus.
    hot = {**died, "alertname": "GPUHighTemperature", "severity": "critical", "kind": "gpu"}
    for begin, end in ((10, 20), (22, 40), (80, 90)):
        past.add("ALERTS", 1, at(begin), at(end), device="3", **hot)
    return past


@pytest.fixture(scope="module")
def report(promtool, prometheus, tmp_path_factory):
    """Return the report from a Prometheus with the shipped rules."""
    place = tmp_path_factory.mktemp("incidents")
    shutil.copytree(ROOT / "prometheus/rules", place / "rules")
    now = time.time()
    period = choose_period("daily", now=now, zone=ZoneInfo("UTC"), until="2026-03-12T02:00")
    with write().open(promtool, prometheus, place) as kept:
        return make_report(kept, period, now=now)


def test_the_verdict_is_the_summary_of_the_rule_with_the_reason(report):
    """The verdict of an incident is the rule's summary, with the causes of a container's death."""
    found = {each.subject: (each.verdict, each.resolution) for each in report.incidents}
    assert found["back"] == ("A container died: oom-cgroup 2 times", "the container runs again")
    assert found["down"] == ("A container died: exception", "the container does not run")
    assert found["gpu 3"] == ("GPU temperature too high", "resolved")


def test_a_short_pause_is_none(report):
    """An alert that is absent for a minute remains one incident."""
    (hot,) = [each for each in report.incidents if each.subject == "gpu 3"]
    assert hot.spans == ((at(10), at(41)), (at(80), at(91)))
    assert "2 times, 42m in all, last from Thu 01:20 until Thu 01:31" in format_text(report)


def test_deaths_are_in_a_table(report):
    """The Markdown report has a table of the deaths, with their counts and the final state."""
    text = format_markdown(report)
    assert "| back | node-1 | oom-cgroup | 2 | Thu 00:59 | runs |" in text
    assert "| down | node-1 | exception | 1 | Thu 00:30 | does not run |" in text
