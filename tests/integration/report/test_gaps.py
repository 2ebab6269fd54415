"""Reports from a Prometheus that has no data, refuses queries or lacks metrics."""

import time
from zoneinfo import ZoneInfo

import pytest

from tests.integration.report.past_day import at, write_day
from tests.integration.report.stage import Past, run_prometheus
from trainvitals.errors import StackError
from trainvitals.report import Filters, ReportOptions, choose_period, format_text, make_report
from trainvitals.sources.prometheus import find_prometheus

DAY = choose_period("daily", now=time.time(), zone=ZoneInfo("UTC"), day="2026-03-10")


def test_an_empty_prometheus_is_said_to_be_empty(prometheus, tmp_path):
    """The error for an empty Prometheus names the period and possible reasons."""
    with run_prometheus(prometheus, tmp_path) as url:
        words = "has no data from 2026-03-10 00:00 to 2026-03-11 00:00: it was not running, does not scrape"
        with pytest.raises(StackError, match=words):
            make_report(find_prometheus(url), DAY, now=time.time())


def test_a_machine_that_is_not_there_is_named(day):
    """A machine or a run without any data is named in the error."""
    with pytest.raises(StackError, match="has no data of node-7 from"):
        make_report(day, DAY, ReportOptions(Filters(instances=("node-7",))), now=time.time())
    with pytest.raises(StackError, match="no run nix was seen in this period"):
        make_report(day, DAY, ReportOptions(Filters(runs=("nix",))), now=time.time())


def test_metrics_that_are_missing_are_unknown_with_the_reason(promtool, prometheus, tmp_path):
    """A machine that reports only its memory has unknown runs, accelerators and disks, not 0."""
    past = Past(60)
    past.add("memory_total_bytes", 2**36, at(0), at(24))
    with past.open(promtool, prometheus, tmp_path) as kept:
        text = format_text(make_report(kept, DAY, now=time.time()))
    for words in (
        "- Active Experiments: unknown: no exporter reports runs (collector training)",
        "- Best IoU Today: unknown: no exporter reports runs",
        "- GPU Memory: unknown: no accelerator was seen",
        "- System Memory: unknown: no machine reports its memory at the end",
        "- Temperature: unknown: no accelerator reports its temperature",
        "Wasted Accelerator-Hours:\n- unknown: no accelerator was seen",
    ):
        assert words in text
    assert "- no alert fired" in text


def test_a_machine_without_available_memory_does_not_count_as_full(promtool, prometheus, tmp_path):
    """A machine without `memory_available_bytes` is left out of the sums of memory."""
    past = Past(60)
    past.add("memory_total_bytes", 2**36, at(0), at(24))
    past.add("memory_available_bytes", 48 * 2**30, at(0), at(24))
    past.add("memory_total_bytes", 2**36, at(0), at(24), instance="node-2")
    with past.open(promtool, prometheus, tmp_path) as kept:
        hosts = make_report(kept, DAY, now=time.time()).hosts
    assert (hosts.memory_used_bytes, hosts.memory_total_bytes) == (16 * 2**30, 2**36)
    assert hosts.names == ("node-1", "node-2")


def test_a_prometheus_that_refuses_is_a_gap_and_not_the_end(promtool, prometheus, tmp_path):
    """The report is made even if Prometheus refuses some queries, and lists these at its end."""
    with write_day().open(promtool, prometheus, tmp_path, "--query.max-samples=8000") as kept:
        report = make_report(kept, DAY, now=time.time())
    assert report.gaps
    assert report.accelerators.uses == ()  # a part of the causes would not add up to the total
    assert report.accelerators.energy_joules == pytest.approx(23.4 * 3.6e6)
    assert len(report.runs.attempts) == 3
    text = format_text(report)
    assert "Wasted Accelerator-Hours:\n- unknown: its uses could not be determined, or" in text
    assert "What Is Not Known:" in text
    assert "Prometheus refused the query: query processing would load too many samples" in text


def test_names_that_look_like_patterns_are_names(promtool, prometheus, tmp_path):
    """Names of runs and machines with special characters of PromQL are matched literally."""
    name = 'a.b|c"} or vector(1) # \\'
    past = Past(60, instance=name)
    past.add("training_run_info", 1, at(1), at(2), run=name, source="client")
    past.add("training_run_info", 1, at(1), at(2), run="aXb", source="client")
    past.add("training_process_start_time_seconds", at(1), at(1), at(2), run=name, rank="0")
    past.add("training_process_start_time_seconds", at(1), at(1), at(2), run="aXb", rank="0")
    with past.open(promtool, prometheus, tmp_path) as kept:
        report = make_report(
            kept, DAY, ReportOptions(Filters(instances=(name,), runs=(name,))), now=time.time()
        )
    assert [each.run for each in report.runs.attempts] == [name]
    assert report.gaps == ()
