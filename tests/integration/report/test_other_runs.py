"""Reports of runs with unusual ends, on several machines, or with accelerators of unknown owner.

It is Thursday, 12 March 2026, from 0:00 to 2:00 UTC; n1, n2 and n3 are machines.
"""

import time
from zoneinfo import ZoneInfo

import pytest

from tests.integration.report.stage import Past
from trainvitals.report import Filters, ReportOptions, choose_period, format_text, make_report
from trainvitals.report.daily import describe_training_time

BEGIN = 1773273600
HOUR = 3600


def at(minutes):
    """Return the Unix time of a number of minutes after `BEGIN`."""
    return BEGIN + 60 * minutes


def run_one(past, run, instance, begin, end, *, rank="0", uuid="", ended=None, world="1"):
    """Write a rank that trains; `ended` is a reason and an exit code, or None if it vanishes."""
    rank_ = {"run": run, "rank": rank, "instance": instance}
    until = at(end) + (900 if ended else 0)
    past.add("training_run_info", 1, at(begin), until, run=run, instance=instance, source="client")
    past.add("training_world_size", int(world), at(begin), until, run=run, instance=instance)
    past.add("training_rank_info", 1, at(begin), until, gpu_uuid=uuid, **rank_)
    past.add("training_process_up", lambda t: float(t <= at(end)), at(begin), until, **rank_)
    past.add("training_process_start_time_seconds", at(begin), at(begin), until, **rank_)
    past.add("training_phase", 1, at(begin), at(end), phase="train", **rank_)
    if ended:
        reason, code = ended
        labels = {**rank_, "reason": reason}
        past.add("training_process_end_timestamp_seconds", at(end), at(end) + 60, until, **labels)
        past.add("training_process_exit_code", code, at(end) + 60, until, **rank_)


def run_within(past, run, began, end, *, shown=15):
    """Write a run that begins long after its process started at 1:20; `shown` is in minutes."""
    rank = {"run": run, "rank": "0", "instance": "n2"}
    begin, until = at(began), at(end + shown)
    past.add("training_run_info", 1, begin, until, run=run, instance="n2", source="client")
    past.add("training_process_up", lambda t: float(t < at(end)), begin, until, **rank)
    past.add("training_process_start_time_seconds", at(80), begin, until, **rank)
    for phase, share in (("init", 0.25), ("forward", 0.75)):
        past.add(
            "training_phase_seconds_total",
            lambda t, share=share: share * (min(t, at(end)) - begin),
            begin,
            until,
            phase=phase,
            **rank,
        )
    past.add("training_process_end_timestamp_seconds", at(end), at(end), until, reason="finished",
              **rank)  # fmt: skip


def run_briefly(past, run, began, ended):
    """Write a run that was killed before it was first scraped; times in seconds since midnight."""
    rank = {"run": run, "rank": "0", "instance": "n2"}
    shown, until = at(ended // 60 + 1), at(ended // 60 + 10)
    for name, value in (
        ("training_process_up", 0),
        ("training_process_start_time_seconds", BEGIN + began),
        ("training_process_exit_code", 137),
    ):
        past.add(name, value, shown, until, **rank)
    past.add("training_phase_seconds_total", ended - began, shown, until, phase="train", **rank)
    end = "training_process_end_timestamp_seconds"
    past.add(end, BEGIN + ended, shown, until, reason="signal", **rank)


def write():
    """Write all runs."""
    past = Past(60)
    for instance, end in (("n1", 120), ("n2", 120), ("n3", 60)):
        past.add("memory_total_bytes", 2**36, BEGIN, at(end), instance=instance, env="lab")
        past.add("training_client_incompatible_files", 0, BEGIN, at(end), instance=instance)
    for rank, instance in (("0", "n1"), ("1", "n2")):
        run_one(past, "wide", instance, 10, 70, rank=rank, ended=("finished", 0), world="2")
        run_one(past, "twin", instance, 20, 30, ended=("finished", 0))
    run_one(past, "gone", "n1", 1, 30)
    run_one(past, "asked", "n1", 5, 60, ended=("signal", 143))
    run_one(past, "stopped", "n1", 5, 50, ended=("exception", 130))
    run_one(past, "quiet", "n1", 5, 55, ended=("unknown", 1))
    run_one(past, "cut", "n3", 5, 60)
    run_briefly(past, "brief", 80 * 60 + 1, 80 * 60 + 18)
    run_within(past, "first", 100, 102)
    run_within(past, "second", 108, 110)
    run_within(past, "again", 92, 94, shown=3)
    run_within(past, "again", 98, 102)
    board = {"run": "board", "instance": "n2"}
    past.add("training_run_info", 1, at(1), at(120), source="tensorboard", **board)
    moved = "training_last_progress_timestamp_seconds"
    past.add(moved, lambda t: t - 7, at(1), at(90), rank="0", **board)
    return past


def write_cards():
    """Write a rank with two cards, and one without the label of its card."""
    past = Past(60)
    for uuid, instance, processes in (
        ("A", "n2", 1),
        ("B", "n2", 1),
        ("C", "n1", 1),
        ("D", "n1", 0),
    ):
        card = {"kind": "gpu", "device": uuid, "uuid": uuid, "instance": instance}
        past.add("accelerator_up", 1, at(1), at(120), **card)
        past.add("accelerator_processes", processes, at(1), at(120), **card)
    run_one(past, "pair", "n2", 1, 120, uuid="A,B")
    run_one(past, "blind", "n1", 1, 120)
    return past


def make(kept, options=None):
    """Make the report of the day that ends at 2:00."""
    now = time.time()
    period = choose_period("daily", now=now, zone=ZoneInfo("UTC"), until="2026-03-12T02:00")
    return make_report(kept, period, options, now=now)


@pytest.fixture(scope="module")
def kept(promtool, prometheus, tmp_path_factory):
    """Start a Prometheus with the samples of all runs."""
    with write().open(promtool, prometheus, tmp_path_factory.mktemp("runs")) as kept:
        yield kept


@pytest.fixture(scope="module")
def report(kept):
    """Return the report of all runs."""
    return make(kept)


@pytest.mark.parametrize(
    ("run", "instances", "outcome", "minutes"),
    [
        ("wide", ("n1", "n2"), "completed", 70),
        ("gone", ("n1",), "vanished", None),
        ("asked", ("n1",), "terminated", 60),
        ("stopped", ("n1",), "interrupted", 50),
        ("quiet", ("n1",), "unknown", 55),
        ("cut", ("n3",), "unknown", None),
    ],
)
def test_each_end_has_its_outcome(report, run, instances, outcome, minutes):
    """Each end of a run has its outcome; the outcome of a run on a lost machine is unknown."""
    (attempt,) = [each for each in report.runs.attempts if each.run == run]
    assert (attempt.instances, attempt.outcome) == (instances, outcome)
    assert attempt.ended == (None if minutes is None else at(minutes))


def test_a_run_takes_as_long_as_it_does_and_not_as_its_process(report):
    """The duration of a run does not include the earlier time of its process."""
    spans = {
        each.run: (each.started, each.ended)
        for each in report.runs.attempts
        if each.run in {"first", "second"}
    }
    assert spans == {"first": (at(100), at(102)), "second": (at(108), at(110))}
    # 2, 2, 60, 10, 10, 2 and 4 minutes.
    assert describe_training_time(report) == "0.21 h, the mean of 7 runs that finished"


def test_a_run_that_ends_before_it_is_scraped_lasted_as_long_as_its_process(report):
    """A run that ended before its first scrape starts when its process started."""
    (attempt,) = [each for each in report.runs.attempts if each.run == "brief"]
    assert (attempt.started, attempt.ended) == (at(80) + 1, at(80) + 18)


def test_a_run_that_is_started_twice_in_one_process_is_two_starts(report):
    """A run that is started twice in one process is reported as two attempts."""
    starts = [
        (each.started, each.ended, each.outcome, each.is_resumed)
        for each in report.runs.attempts
        if each.run == "again"
    ]
    assert starts == [
        (at(98), at(102), "completed", False),
        (at(92), at(94), "completed", True),
    ]


def test_runs_of_one_name_on_two_machines_are_two(report):
    """Two runs of one name on two machines are two runs if each has a world size of 1."""
    twins = [each.instances for each in report.runs.attempts if each.run == "twin"]
    assert sorted(twins) == [("n1",), ("n2",)]


def test_a_run_of_event_files_is_reported_as_such(report):
    """A run known only from event files is reported with its source and its last progress."""
    (observed,) = report.runs.observed
    assert (observed.run, observed.instance, observed.source) == ("board", "n2", "tensorboard")
    assert observed.progressed == at(90) - 7
    text = format_text(report)
    assert "- Active Experiments: 1\n    board on n2, known from its tensorboard\n" in text
    assert "- Failed: 4\n" in text
    assert "- Ended on request: 2\n" in text


def test_the_environment_is_that_of_the_targets(report):
    """The report's environment is the value of the target label `env`."""
    assert "Environment: lab; 3 machines (n1, n2, n3), 0 accelerators" in format_text(report)


def test_one_machine_alone_is_reported(kept):
    """A report of one instance has only the runs and the name of that machine."""
    report = make(kept, ReportOptions(Filters(instances=("n3",))))
    assert {each.run for each in report.runs.attempts} == {"cut"}
    assert report.hosts.names == ("n3",)


def test_cards_are_those_of_lists_and_else_all_that_are_held(promtool, prometheus, tmp_path):
    """A rank's cards are those it lists; without a list, they are the cards that processes hold."""
    with write_cards().open(promtool, prometheus, tmp_path) as kept:
        report = make(kept)
    hours = {use.cause: use.seconds / HOUR for use in report.accelerators.uses}
    assert hours == {"training": 6, "idle": 2}
