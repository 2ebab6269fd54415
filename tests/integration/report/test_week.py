"""The weekly report has the figures that were calculated by hand in `past_week`."""

import time
from zoneinfo import ZoneInfo

import pytest

from tests.integration.report.past_week import BEGIN, HOUR, at
from trainvitals.report import choose_period, format_text, make_report


@pytest.fixture(scope="module")
def report(week):
    """Return the report of the week."""
    period = choose_period("weekly", now=time.time(), zone=ZoneInfo("UTC"), day="2026-03-05")
    return make_report(week, period, now=time.time())


def test_the_week_has_the_figures_that_were_worked_out(report):
    """The report has 336 h of accelerators, 54 h of training, 51 h of busy time and 48 kWh."""
    found = report.accelerators
    assert (report.begin, report.end) == (BEGIN, at(168))
    assert found.seconds == 336 * HOUR
    assert {use.cause: use.seconds / HOUR for use in found.uses} == {"training": 54, "idle": 282}
    assert found.busy_seconds / HOUR == pytest.approx(51)
    assert found.energy_joules / 3.6e6 == pytest.approx(48)
    assert not found.is_energy_estimated


def test_runs_of_the_week_are_reported(report):
    """The run a is reported as completed and b as failed, with the best accuracy of the week."""
    found = [(each.run, each.outcome, each.exit_code, each.ended) for each in report.runs.attempts]
    assert found == [("b", "failed", 1, at(42)), ("a", "completed", 0, at(48))]
    assert [(best.name, best.value) for best in report.runs.best] == [("accuracy", 0.61)]


def test_the_week_is_compared_with_the_one_before(report):
    """The report compares the week with the one before, in which both cards were idle."""
    before = report.before
    assert (before.completed, before.failed, before.busy_ratio) == (0, 0, 0)
    assert before.wasted_ratio == 1
    assert before.energy_joules / 3.6e6 == pytest.approx(33.6)
    text = format_text(report)
    assert "- Accelerator time wasted: 84%, down from 100%" in text


def test_the_alert_of_the_week_is_reported_with_its_end(report):
    """The alert of the failed run has its times, its verdict and its resolution."""
    (incident,) = report.incidents
    assert incident.spans == ((at(42) + 300, at(42.25) + 300),)
    assert incident.verdict == "failed (exit code 1)"
    assert incident.resolution == "the run was not started again"


def test_the_text_has_the_headings_of_the_template_in_their_order(report):
    """Each heading of the weekly template follows the one before it, and days have names."""
    text = format_text(report)
    places = [
        text.index(f"\n{heading}")
        for heading in (
            *("Training Efficiency:", "- Experiments completed: 1", "Model Performance:"),
            *("- Best metrics achieved: 0.61", "System Utilization:"),
            *("- Resource usage patterns: busiest on Tuesday (56%)", "Issues Resolved:"),
            *("- Problems and solutions: 1 resolved", "Improvements:", "Next Actions:"),
        )
    ]
    assert places == sorted(places)


def test_what_is_not_recorded_is_unknown_and_not_nothing(report):
    """Temperature, power, disks and GPU memory are reported as unknown if they are not recorded."""
    text = format_text(report)
    for words in (
        "- GPU Memory: unknown: no accelerator reports its memory at the end",
        "- Disk Space: unknown: no machine reports its disks at the end (collector filesystem)",
        "- Temperature: unknown: no accelerator reports its temperature",
        "- Power: unknown: no accelerator reports its power",
        "- Lost to restarts: unknown: no run was seen from its start",
    ):
        assert words in text
