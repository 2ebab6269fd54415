"""The report compares the expected pace and memory of runs with the measured values.

It is Thursday, 12 March 2026, from 0:00 to 4:00 UTC, on one machine with two accelerators.

    seg     trains 18 epochs an hour for two hours and ends; 20 are expected. It holds accelerator
            A, with 6 GB at first and 6.5 GB at the end; 7 GB are expected.
    log     is known from a log, which has only whole epochs: one every ten minutes
    again   trains 12 epochs an hour, as expected, and begins again after an hour
    silent  reports no epoch and holds no accelerator
    other   has no expected values; it holds accelerator B
"""

import re
import time
from zoneinfo import ZoneInfo

import pytest

from tests.integration.report.stage import Past
from trainvitals.report import choose_period, format_text, make_report
from trainvitals.report.html import format_html

BEGIN = 1773273600
GB = 10**9


def at(minutes):
    """Return the Unix time of a number of minutes after `BEGIN`."""
    return BEGIN + 60 * minutes


def train(past, run, begin, end, epochs_per_hour, *, shown=0, is_whole=False):
    """Write the epochs of a run; its last values are shown for `shown` minutes after its end."""
    rank = {"run": run, "rank": "0"}

    def count(moment):
        return (min(moment, at(end)) - at(begin)) / 3600 * epochs_per_hour

    past.add("training_epoch", lambda t: float(int(count(t))), at(begin), at(end + shown), **rank)
    if not is_whole:
        past.add("training_epoch_progress_ratio", lambda t: count(t) % 1, at(begin), at(end + shown),
                 **rank)  # fmt: skip


def write():
    """Write the samples of all runs and accelerators."""
    past = Past(60)
    past.add("memory_total_bytes", 2**36, BEGIN, at(240))
    past.add("training_client_incompatible_files", 0, BEGIN, at(240))
    for run, seconds in (("seg", 180), ("log", 300), ("again", 300), ("silent", 300)):
        past.add("training_run_info", 1, BEGIN, at(240), run=run, source="client")
        past.add("training_expected_epoch_seconds", seconds, BEGIN, at(240), run=run)
    for run in ("seg", "silent"):
        past.add("training_expected_memory_bytes", 7 * GB, BEGIN, at(240), run=run)
    train(past, "seg", 30, 150, 18, shown=15)
    train(past, "log", 0, 180, 6, shown=60, is_whole=True)
    train(past, "again", 0, 60, 12)
    train(past, "again", 61, 121, 12)
    train(past, "other", 0, 60, 1)
    for run, uuid in (("seg", "A"), ("other", "B")):
        held = {"run": run, "uuid": uuid}
        past.add("run:accelerator_held:bool", 1, at(30), at(150), **held)
        card = {"kind": "gpu", "device": uuid, "uuid": uuid}
        past.add("accelerator_up", 1, BEGIN, at(240), **card)
        past.add("accelerator_memory_used_bytes",
                 lambda t, run=run: {"seg": 6 * GB + GB // 2 * (t > at(90)), "other": 9 * GB}[run],
                 BEGIN, at(240), **card)  # fmt: skip
    return past


@pytest.fixture(scope="module")
def report(promtool, prometheus, tmp_path_factory):
    """Return the report of the day with these hours."""
    with write().open(promtool, prometheus, tmp_path_factory.mktemp("expected")) as kept:
        period = choose_period("daily", now=time.time(), zone=ZoneInfo("UTC"), day="2026-03-12",
                               until=None)  # fmt: skip
        yield make_report(kept, period, None, now=time.time())


def find(report, run, figure):
    """Return the only comparison of a run's figure."""
    (found,) = [each for each in report.runs.expected if (each.run, each.figure) == (run, figure)]
    return found


def test_the_pace_is_that_of_the_time_until_the_last_progress(report):
    """The time in which a run is still shown after its end does not lower its pace."""
    pace = find(report, "seg", "pace")
    assert (pace.expected, pace.instance) == (20.0, "node-1")
    assert pace.measured == pytest.approx(18.0)
    assert [(int(moment - BEGIN) // 3600, value) for moment, value in pace.by_hour] == [
        (1, pytest.approx(18.0)),
        (2, pytest.approx(18.0)),
        (3, pytest.approx(18.0)),
    ]


def test_whole_epochs_have_a_pace_too(report):
    """A run whose log has only whole epochs gets its pace within one percent."""
    assert find(report, "log", "pace").measured == pytest.approx(6.0, rel=0.01)


def test_a_run_that_begins_anew_loses_nothing(report):
    """The restart of a run, which resets its epochs, does not change its pace."""
    assert find(report, "again", "pace").measured == pytest.approx(12.0)


def test_the_memory_is_the_most_that_its_own_accelerators_had_in_use(report):
    """The measured memory of a run does not include the accelerator of another run."""
    memory = find(report, "seg", "memory")
    assert (memory.expected, memory.measured) == (7e9, 6.5e9)
    assert [value for _, value in memory.by_hour] == [6e9, 6.5e9, 6.5e9]


def test_what_was_not_measured_is_unknown(report):
    """A value that was not measured is None, and a run without expected values is not listed."""
    assert [find(report, "silent", figure).measured for figure in ("pace", "memory")] == [None] * 2
    assert {each.run for each in report.runs.expected} == {"seg", "log", "again", "silent"}


def test_the_report_shows_both(report):
    """The text shows expected values in a table, and the HTML page in charts with a dashed line."""
    text = format_text(report)
    rows = text.split("Expected Pace and Memory:")[1].split("\n\n")[0].splitlines()
    table = [re.split(r"\s{2,}", row.strip()) for row in rows if row.strip()]
    assert table[0] == ["Run", "Host", "Figure", "Measured", "Expected", "Share"]
    assert ["seg", "node-1", "Epochs per hour", "18", "20", "90%"] in table
    memory = ["seg", "node-1", "Memory of the fullest accelerator", "6.1 GiB", "6.5 GiB", "93%"]
    assert memory in table
    assert ["silent", "node-1", "Epochs per hour", "unknown", "12"] in table
    page = format_html(report)
    assert "Epochs per hour of seg on node-1" in page
    assert "<title>target: 20</title>" in page
    assert "stroke-dasharray" in page
