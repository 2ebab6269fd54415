"""How incidents are explained and how they ended, with the rules that are shipped."""

import shutil
import time
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.report.stage import Past
from trainvitals.report import choose_period, format_markdown, format_text, make_report

ROOT = Path(__file__).parents[2]
BEGIN = 1773273600  # 2026-03-12 00:00 UTC
ENDS = (("back", "oom-cgroup", True), ("down", "exception", False))


def at(minutes):
    """Give a moment."""
    return BEGIN + 60 * minutes


def write():
    """Write two containers that died at 0:30, of which one runs again, and what fired."""
    past = Past(60)
    past.tell("memory_total_bytes", 2**36, BEGIN, at(120))
    died = {"alertname": "ContainerDied", "severity": "warning", "alertstate": "firing"}
    for name, reason, runs in ENDS:
        past.tell("container_state", float(runs), BEGIN, at(120), name=name, state="running")
        past.tell("container_last_death_info", 1, at(31), at(120), name=name, reason=reason)
        moments = {at(30): at(30), at(60): at(59)}  # "back" dies a second time
        past.tell(
            "container_last_death_timestamp_seconds",
            lambda t, runs=runs, moments=moments: moments[
                at(60) if runs and t >= at(60) else at(30)
            ],
            at(31),
            at(120),
            name=name,
        )
        past.tell("ALERTS", 1, at(31), at(46), name=name, **died)
    # It is gone for a minute, as when Prometheus is started anew.
    hot = {**died, "alertname": "GPUHighTemperature", "severity": "critical", "kind": "gpu"}
    for begin, end in ((10, 20), (22, 40), (80, 90)):
        past.tell("ALERTS", 1, at(begin), at(end), device="3", **hot)
    return past


@pytest.fixture(scope="module")
def report(promtool, prometheus, tmp_path_factory):
    """Give the report, from a Prometheus that has the shipped rules."""
    place = tmp_path_factory.mktemp("incidents")
    shutil.copytree(ROOT / "prometheus/rules", place / "rules")
    now = time.time()
    period = choose_period("daily", now=now, zone=ZoneInfo("UTC"), until="2026-03-12T02:00")
    with write().open(promtool, prometheus, place) as kept:
        return make_report(kept, period, now=now)


def test_the_verdict_is_the_summary_of_the_rule_with_the_reason(report):
    """The rule says what it means, the container why it died and how often."""
    told = {each.subject: (each.verdict, each.resolution) for each in report.incidents}
    assert told["back"] == ("A container died: oom-cgroup 2 times", "the container runs again")
    assert told["down"] == ("A container died: exception", "the container does not run")
    assert told["gpu 3"] == ("GPU temperature too high", "it holds no longer")


def test_a_short_pause_is_none(report):
    """A minute without the alert does not make two of one."""
    (hot,) = [each for each in report.incidents if each.subject == "gpu 3"]
    assert hot.spans == ((at(10), at(41)), (at(80), at(91)))
    assert "2 times, 42m00s in all, last from Thu 01:20 until Thu 01:31" in format_text(report)


def test_deaths_are_told_in_a_table(report):
    """With how often, and whether the container runs at the end."""
    text = format_markdown(report)
    assert "| back | node-1 | oom-cgroup | 2 | Thu 00:59 | runs |" in text
    assert "| down | node-1 | exception | 1 | Thu 00:30 | does not run |" in text
