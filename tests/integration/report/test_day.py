"""The daily report has the figures that were calculated by hand in `past_day`."""

import re
import time
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.integration.report.past_day import BEGIN, GIB, HOUR, at
from tests.integration.report.stage import ask_one
from trainvitals.report import (
    Filters,
    Price,
    ReportOptions,
    choose_period,
    format_text,
    make_report,
)
from trainvitals.report.daily import describe_best_of, describe_training_time
from trainvitals.report.figures import CAUSES, Coverage

UTC = ZoneInfo("UTC")


def make(day, options=None, *, date="2026-03-10", until=None):
    """Make the report of the day, or of another period of the same Prometheus."""
    period = choose_period(
        "daily", now=time.time(), zone=UTC, day=None if until else date, until=until
    )
    return make_report(day, period, options, now=time.time())


@pytest.fixture(scope="module")
def report(day):
    """Return the report of the day with a price and targets."""
    options = ReportOptions(targets={"iou": 0.75, "dice": 0.9}, price=Price(0.3, "EUR"))
    return make(day, options)


def test_each_hour_of_accelerators_has_one_cause(report):
    """The hours of each cause equal the table in `past_day` and add up to 96 hours."""
    hours = {use.cause: use.seconds / HOUR for use in report.accelerators.uses}
    assert hours == pytest.approx(
        {
            "training": 45,
            "data_wait": 1,
            "stalled": 1,
            "throttled": 1,
            "evaluation": 2.5,
            "starting": 1.5,
            "held": 6,
            "idle": 32,
            "lost": 6,
        }
    )
    assert report.accelerators.seconds == 4 * 24 * HOUR
    assert sum(hours.values()) == pytest.approx(96)


def test_a_threshold_that_is_edited_moves_the_report(day, tmp_path, monkeypatch):
    """A card whose memory is half used counts as idle if the threshold is raised to 0.6."""
    edited = tmp_path / "thresholds.yml"
    edited.write_text(
        "groups: [{name: thresholds, rules: [{record: "
        "'threshold:accelerator_held_idle:memory_ratio', expr: vector(0.6)}]}]\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("TRAINVITALS_THRESHOLDS_FILE", str(edited))
    hours = {use.cause: use.seconds / HOUR for use in make(day).accelerators.uses}
    assert "held" not in hours
    assert hours["idle"] == pytest.approx(38)


def test_the_course_of_a_cause_is_in_its_hours(report):
    """The stall of both bert cards counts 3600 seconds in the hour that ends at 9:00."""
    (stalled,) = [use for use in report.accelerators.uses if use.cause == "stalled"]
    assert [point for point in stalled.by_hour if point[1]] == [(at(9), 3600)]


def test_busy_time_goes_on_where_its_counter_began_anew(report):
    """The busy time is 50.5 h although a counter restarted at 0 with the exporter at 14:00."""
    assert report.accelerators.busy_seconds / HOUR == pytest.approx(50.5)
    assert report.accelerators.busy_ratio == pytest.approx(50.5 / 96)


def test_energy_is_counted_or_else_estimated(report):
    """Energy is 21.6 kWh from the counters of three cards plus 1.8 kWh from the fourth's power."""
    assert report.accelerators.energy_joules / 3.6e6 == pytest.approx(23.4)
    assert report.accelerators.is_energy_estimated
    assert "23.4 kWh, in part estimated from power, 7.02 EUR at 0.3 EUR a kWh" in format_text(
        report
    )


def test_power_is_the_mean_of_all_together(report):
    """The power is 975 W, the mean of 1000 W for 18 h and 900 W for 6 h."""
    assert report.accelerators.power_watts == pytest.approx(975)


def test_memory_is_reported_at_the_end_and_at_its_most(report):
    """The report has 120 of 240 GiB at the end, and a peak of 160 GiB in the afternoon."""
    found = report.accelerators
    assert (found.memory_used_bytes, found.memory_total_bytes) == (120 * GIB, 240 * GIB)
    assert found.memory_peak_bytes == 160 * GIB


def test_the_hottest_accelerator_has_a_name_and_an_hour(report):
    """GPU 2 is reported as the hottest card, with 85 degrees in the hour before 5:00."""
    hottest = report.accelerators.hottest
    assert (hottest.device, hottest.celsius, hottest.time) == ("gpu 2", 85, at(5))
    assert report.accelerators.celsius == 60


def test_runs_are_reported_with_each_start(report):
    """Each start of a run is reported; bert died of the OOM kill and not of the later SIGTERM."""
    found = [
        (each.run, each.started - BEGIN, each.outcome, each.exit_code, each.is_resumed)
        for each in report.runs.attempts
    ]
    assert found == [
        ("bert", 11 * HOUR, "active", None, False),
        ("seg", 30, "completed", 0, False),
        ("bert", -2 * HOUR, "out of memory", 137, True),
    ]
    assert report.runs.attempts[1].ended == at(6)
    assert describe_training_time(report) == "6.0 h, the mean of 1 run that finished"


def test_work_that_was_lost_is_reported(report):
    """The report has the 1800 seconds and 900 steps that bert lost by its restart."""
    assert (report.runs.lost_seconds, report.runs.lost_steps) == (1800, 900)


def test_the_best_of_each_metric_is_reported_with_its_target(report):
    """The best value may last only a minute, is the least for a loss, and is never NaN."""
    best = {each.name: (each.value, each.is_reached) for each in report.runs.best}
    assert best == {"val_iou": (0.78, True), "val_dice": (0.86, False), "loss": (0.25, None)}
    assert describe_best_of(report, "iou").startswith("0.78, val_iou (validation) of seg on node-1")


def test_machines_are_reported_at_the_end_and_at_their_fullest(report):
    """Host memory has its value at the end and its peak; the small boot disk is left out."""
    hosts = report.hosts
    assert (hosts.memory_used_bytes, hosts.memory_total_bytes) == (40 * GIB, 100 * GIB)
    assert hosts.memory_peak_ratio == pytest.approx(0.9)
    assert [(disk.mountpoint, disk.avail_bytes) for disk in hosts.disks] == [("/", 50 * GIB)]


def test_incidents_have_a_beginning_a_verdict_and_an_end(report):
    """Incidents have times, verdict and resolution; pending alerts and Watchdog are left out."""
    found = [
        (each.alert, each.subject, each.verdict, each.spans, each.resolution)
        for each in report.incidents
    ]
    death = "out of memory (exit code 137)"
    assert found == [
        ("AcceleratorLost", "gpu 3", "", ((at(18) + 60, at(24)),), "still fires"),
        ("TrainingStalled", "bert", "", ((at(8) + 120, at(8.5) + 60),), "the run did not end"),
        (
            "TrainingRunLost",
            "bert",
            death,
            ((at(10) + 60, at(10.25) + 60),),
            "the run was started again and trains",
        ),
        ("HostDiskSpaceLow", "/", "", ((at(-1), at(24)),), "still fires"),
    ]


def test_deaths_of_containers_are_reported_with_their_reason(report):
    """The death of the container is reported with its reason, and that the container runs again."""
    (death,) = report.deaths
    assert (death.name, death.reason, death.count) == ("trainer", "oom-cgroup", 1)
    assert death.last == at(10)
    assert death.is_running


def test_advice_follows_from_the_figures(report):
    """Advice begins with the firing alert and covers the disk, idle cards and a missed target."""
    every = [(each.urgency, each.what) for each in report.advice]
    assert every[0] == (
        0,
        "Deal with AcceleratorLost on node-1 gpu 3: see `/runbooks/AcceleratorLost` of the exporter",
    )
    words = "\n".join(what for _, what in every)
    for each in ("Make room on /", "Queue more runs", "Improve val_dice"):
        assert each in words
    assert "postmortem bert" not in words  # because bert runs again


def test_the_text_has_the_headings_of_the_template_in_their_order(report):
    """Each heading of the daily template occurs once, after the one before it."""
    text = format_text(report)
    places = [
        text.index(f"\n{heading}")
        for heading in (
            *("Date: 2026-03-10", "Environment:", "Training Status:", "- Active Experiments: 1"),
            *(
                "- Completed Today: 1",
                "- Failed: 1",
                "System Health:",
                "- GPU Memory: 120 / 240 GiB",
            ),
            *(
                "- System Memory: 40.0 / 100 GiB",
                "- Disk Space: node-1 /: 950",
                "- Temperature: 60 °C",
            ),
            *("Performance Metrics:", "- Average Training Time: 6.0 h", "- Best IoU Today: 0.78"),
            *("- Best Dice Today: 0.86", "Issues:", "Next Actions:"),
        )
    ]
    assert places == sorted(places)
    assert text.startswith("=== trainvitals Daily Monitoring Report ===\n")


def test_too_little_of_the_day_before_is_not_compared(report):
    """The report makes no comparison if only ten minutes of the day before have data."""
    assert report.before is None
    assert "The Day Before" not in format_text(report)


def test_whole_coverage_is_not_spoken_of(report):
    """The report does not mention its coverage if every minute has data."""
    assert report.coverage == Coverage(BEGIN, at(24), 24 * HOUR)
    assert "Figures for" not in format_text(report)


def test_a_part_of_a_day_is_said(day):
    """A report whose period lacks data states for which share of the time it has data."""
    report = make(day, until="2026-03-10T06:00")
    assert report.coverage.holes == ((at(-18), at(-1 / 6) - 60),)
    text = format_text(report)
    assert "Data: 26% of the time; none from" in text
    assert report.accelerators.seconds == 4 * (6 * HOUR + 660)


def test_an_alert_that_ends_with_the_period_is_over(day):
    """TrainingRunLost, which ends at 10:16, fires in a report until 10:15, but not until 10:16."""
    report = make(day, until="2026-03-10T10:16")
    assert {each.alert: each.is_firing for each in report.incidents} == {
        "TrainingRunLost": False,
        "TrainingStalled": False,
        "HostDiskSpaceLow": True,
    }
    assert {
        each.alert for each in make(day, until="2026-03-10T10:15").incidents if each.is_firing
    } == {
        "TrainingRunLost",
        "HostDiskSpaceLow",
    }


def test_one_run_alone_brings_its_machine(day):
    """A report of one run leaves out other runs and alerts, and has the hardware of its machine."""
    report = make(day, ReportOptions(Filters(runs=("seg",))))
    assert {each.run for each in report.runs.attempts} == {"seg"}
    assert report.incidents == ()
    assert report.hosts.names == ("node-1",)
    assert "Only: runs seg; hardware is that of their machines" in format_text(report)


def test_figures_are_those_of_a_query_of_its_own(day, report):
    """The accelerator time and the energy equal the results of direct Prometheus queries."""
    up = ask_one(day.url, "sum(count_over_time(accelerator_up[86399s]))", at(24))
    assert report.accelerators.seconds == 60 * up
    joules = ask_one(day.url, "sum(delta(accelerator_energy_joules_total[86399s]))", at(24))
    assert joules == pytest.approx(21.6 * 3.6e6, rel=1e-4)


def test_the_page_of_the_documentation_shows_this_day(report):
    """Each line of the example in docs/report.md is in the report of this day."""
    page = (Path(__file__).parents[3] / "docs/report.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```\n(=== .*?)^```$", page, re.MULTILINE | re.DOTALL)
    found = set(format_text(report).splitlines())
    assert [line for line in example.splitlines() if line not in found] == []
    for words in CAUSES.values():
        assert f"| {words} |" in page
