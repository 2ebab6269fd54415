"""Tests for the runner, which reads collectors independently and within a scrape's deadline."""

import logging
import os
import threading
import time
from contextlib import contextmanager

import pytest

from tests.support.waiting import wait_until
from trainvitals.errors import SourceError
from trainvitals.metrics import runner as scrape
from trainvitals.metrics.collector_state import CollectorState
from trainvitals.metrics.exposition import Exposition
from trainvitals.metrics.families import Block, Family
from trainvitals.metrics.runner import Runner
from trainvitals.workers import Outcome


class Probe:
    """A collector whose reading is made by a function of the test.

    Attributes:
        reads: The number of readings.
    """

    def __init__(self, name, act=lambda _: 1.0):
        self.name = name
        self.act = act
        self.reads = 0
        self.closed = False
        self.missing = None
        self.express_act = None

    def read(self, deadline):
        """Count the reading and return the result of the test's function."""
        self.reads += 1
        return self.act(deadline)

    def express(self, reading):
        """Return one gauge, or the result of the test's function."""
        if self.express_act is not None:
            return self.express_act(reading)
        family = Family(f"probe_{self.name}", "gauge", "What was read. Source: test.")
        return (Block((self.name,), lambda: (family,), [reading]),)

    def complaint(self, _):
        """Return the complaint that the test has set."""
        return self.missing

    def omitted(self, _):
        """Return 3 if the test has set a complaint, else 0."""
        return 3 if self.missing else 0

    def close(self):
        """Record the call."""
        self.closed = True


@contextmanager
def running(*probes):
    """Run collectors for the duration of the block."""
    runner = Runner(probes)
    try:
        yield runner
    finally:
        runner.close()


def raising(error):
    """Return a function that raises the error."""

    def act(_):
        raise error

    return act


def write(snapshot):
    """Return the metrics page of a snapshot."""
    return Exposition().write(snapshot.blocks).decode()


def report_of(snapshot, name):
    """Return one collector's report."""
    return next(report for report in snapshot.reports if report.collector == name)


def settle(runner, names=None, seconds=5.0):
    """Return a snapshot of new readings, as if earlier readings had expired."""
    reuse, scrape.REUSE_SECONDS = scrape.REUSE_SECONDS, -1.0
    try:
        return runner.snapshot(names, seconds=seconds)
    finally:
        scrape.REUSE_SECONDS = reuse


def seconds_of(function, *arguments, **keywords):
    """Call a function and return its duration and its result."""
    started_at = time.monotonic()
    value = function(*arguments, **keywords)
    return time.monotonic() - started_at, value


def runner_threads():
    """Return the number of threads of all runners and their pools."""
    names = [thread.name for thread in threading.enumerate()]
    return sum(name == "runner" or name.startswith("collector-") for name in names)


@pytest.fixture
def heal():
    """Yield an event that ends the hangs of a test, and is set after the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def logged(caplog):
    """Return a function that returns the messages logged at level INFO and above."""
    caplog.set_level(logging.INFO, "trainvitals")
    return lambda: [record.getMessage() for record in caplog.records]


# Sharing.


def test_a_snapshot_has_what_every_collector_read():
    """A snapshot has the readings, blocks and reports of all collectors, in their order."""
    with running(Probe("a"), Probe("b", lambda _: 2.5)) as runner:
        snapshot = runner.snapshot()
    assert snapshot.readings == {"a": 1.0, "b": 2.5}
    assert [report.collector for report in snapshot.reports] == ["a", "b"]
    assert all(report.success and report.reason is None for report in snapshot.reports)
    page = write(snapshot)
    assert "\nprobe_a 1.0\n" in page
    assert "\nprobe_b 2.5\n" in page
    assert 'trainvitals_collector_success{collector="b"} 1.0\n' in page


def test_requests_that_overlap_share_one_reading():
    """Fifty requests during one reading are all answered with this reading."""
    may_end = threading.Event()
    slow = Probe("slow", lambda _: may_end.wait() and 1.0)
    snapshots = []
    with running(slow) as runner:
        for _ in range(50):
            runner.request(("slow",), 60.0, snapshots.append)
        wait_until(lambda: len(runner._pending) == 50)
        may_end.set()
        wait_until(lambda: len(snapshots) == 50)
    assert slow.reads == 1
    assert len({id(snapshot) for snapshot in snapshots}) == 1


def test_a_reading_serves_for_a_fifth_of_a_second(monkeypatch):
    """A request within 0.2 s of another gets the same snapshot, a later request a new one."""
    probe = Probe("a")
    with running(probe) as runner:
        with monkeypatch.context() as patch:
            patch.setattr(scrape, "REUSE_SECONDS", 60.0)
            first, again = runner.snapshot(), runner.snapshot()
        assert first is again
        assert probe.reads == 1
        time.sleep(0.21)
        assert runner.snapshot() is not first
        assert probe.reads == 2


def test_only_requested_collectors_are_read():
    """Only the requested collectors are read, and each only once."""
    a, b = Probe("a"), Probe("b")
    with running(a, b) as runner:
        snapshot = runner.snapshot(["b", "b"])
    assert (a.reads, b.reads) == (0, 1)
    assert list(snapshot.readings) == ["b"]
    assert 'collector="a"' not in write(snapshot)


def test_kept_snapshots_are_bounded():
    """The number of cached snapshots is limited, however many combinations are requested."""
    probes = [Probe(letter) for letter in "abcdef"]
    with running(*probes) as runner:
        for number in range(64):
            runner.snapshot([p.name for bit, p in enumerate(probes) if number >> bit & 1])
        assert len(runner._kept) <= 2 * len(probes) + 1


def test_snapshots_of_earlier_readings_are_not_kept():
    """Cached snapshots are dropped if their readings are outdated."""
    probes = [Probe(letter) for letter in "abc"]
    with running(*probes) as runner:
        for names in (["a"], ["b"], ["a", "b"], ["b", "c"], ["c"]):
            settle(runner, names)
        settle(runner)
        assert list(runner._kept) == [("a", "b", "c")]


def test_unknown_names_are_refused_and_the_runner_lives():
    """A request for an unknown collector raises an error that lists the existing collectors."""
    with running(Probe("a"), Probe("b")) as runner:
        with pytest.raises(ValueError, match="no collector 'gpu'; there are a, b"):
            runner.snapshot(["a", "gpu"])
        assert runner.snapshot(["a"]).readings == {"a": 1.0}


# Hanging.


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # machine load only adds time
def test_the_first_scrape_of_a_hung_collector_ends_at_its_deadline(heal):
    """If a collector hangs at the first scrape, the scrape ends at its deadline without it."""
    with running(Probe("hung", lambda _: heal.wait()), Probe("quick")) as runner:
        seconds, snapshot = seconds_of(runner.snapshot, seconds=0.3)
        assert 0.3 <= seconds < 10
        assert snapshot.readings == {"quick": 1.0}
        report = report_of(snapshot, "hung")
        assert not report.success
        assert not report.answered
        assert report.timeouts == 1
        assert report.reason == "did not answer in time and is left alone until it does"
        assert 0.2 < report.seconds < 10
        assert report.last_success is None


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # machine load only adds time
def test_a_collector_that_hangs_costs_half_a_second_once_and_heals(heal):
    """A quick collector that hangs delays one scrape by 0.4 s, and its late reading is dropped."""
    values = iter(range(1, 100))

    def act(_):
        value = float(next(values))
        if value == 2.0:
            heal.wait()
        return value

    with running(Probe("patient", act), Probe("quick")) as runner:
        whole = runner.snapshot()
        assert whole.readings["patient"] == 1.0
        success = report_of(whole, "patient").last_success
        seconds, snapshot = seconds_of(settle, runner, seconds=30.0)
        assert 0.4 < seconds < 15
        assert snapshot.readings == {"quick": 1.0}
        assert "probe_patient" not in write(snapshot)
        assert 'trainvitals_collector_duration_seconds{collector="patient"} 0.4' in write(snapshot)
        for _ in range(3):
            seconds, snapshot = seconds_of(settle, runner, seconds=30.0)
            assert seconds < 15
            assert "patient" not in snapshot.readings
            report = report_of(snapshot, "patient")
            assert (report.timeouts, report.success) == (1, False)
            assert report.answered
            assert report.last_success == success
        heal.set()
        wait_until(lambda: not runner._pool.is_running("patient"))
        healed = settle(runner)
        assert healed.readings["patient"] == 3.0
        assert report_of(healed, "patient").success
        assert report_of(healed, "patient").timeouts == 1


def test_a_late_reading_is_not_served_even_without_a_request_in_between(heal):
    """A reading that finished after its scrape is not used for the next scrape."""
    probe = Probe("late", lambda _: heal.wait() and 1.0)
    with running(probe) as runner:
        runner.snapshot(seconds=0.1)
        probe.act = lambda _: 2.0
        heal.set()
        wait_until(lambda: not runner._pool.is_running("late"))
        assert runner.snapshot().readings == {"late": 2.0}


def test_an_old_outcome_does_not_pass_for_a_fresh_one(heal):
    """The age of a reading is measured from its end, not from the next request."""
    quick, hung = Probe("quick"), Probe("hung", lambda _: heal.wait() and 1.0)
    with running(quick, hung) as runner:
        runner.snapshot(seconds=0.05)
        time.sleep(0.21)
        heal.set()
        runner.snapshot()
        assert quick.reads == 2


def test_threads_do_not_grow_while_collectors_hang(heal):
    """Repeated scrapes of hung collectors start no additional threads."""
    before = runner_threads()
    probes = [Probe(name, lambda _: heal.wait()) for name in "abc"]
    with running(*probes, Probe("quick")) as runner:
        for _ in range(20):
            assert runner.snapshot(seconds=0.02).readings.keys() <= {"quick"}
        assert runner_threads() - before <= 5
        wait_until(lambda: all(probe.reads for probe in probes))
        assert [probe.reads for probe in probes] == [1, 1, 1]


def test_a_collector_that_became_slow_is_waited_for_again(heal):
    """After a late reading within the scrape's deadline, the next scrape waits longer."""
    probe = Probe("growing", lambda _: 1.0)
    with running(probe) as runner:
        runner.snapshot()
        probe.act = lambda _: heal.wait() and 2.0
        assert settle(runner, seconds=30.0).readings == {}
        heal.set()
        wait_until(lambda: not runner._pool.is_running("growing"))
        probe.act = lambda _: time.sleep(0.6) or 2.0
        assert settle(runner, seconds=30.0).readings == {"growing": 2.0}


def test_a_collector_that_is_always_too_slow_is_not_waited_for_each_time():
    """A late reading beyond the scrape's deadline does not make the next scrape wait longer."""
    state = CollectorState(Probe("hopeless"))
    state.start(0.0, deadline=5.0)
    state.finish(Outcome("hopeless", seconds=0.01, ended_at=0.01))
    for begin in (10.0, 20.0):
        state.start(begin, deadline=begin + 0.7)
        assert state.give_up_at == pytest.approx(begin + 0.4)
        state.give_up(begin + 0.4)
        state.finish(Outcome("hopeless", seconds=0.8, ended_at=begin + 0.8))


def test_a_short_request_does_not_end_the_reading_of_a_longer_one(heal):
    """A reading continues for a longer request after a shorter request has timed out."""
    probe = Probe("slow", lambda _: heal.wait() and 1.0)
    longer = []
    with running(probe) as runner:
        runner.request(("slow",), 60.0, longer.append)
        wait_until(lambda: probe.reads)
        seconds, short = seconds_of(runner.snapshot, seconds=0.1)
        assert seconds < 30
        assert short.readings == {}
        assert report_of(short, "slow").reason == "did not answer in time"
        assert not report_of(short, "slow").success
        assert 0.1 < report_of(short, "slow").seconds < 30
        heal.set()
        wait_until(lambda: longer)
        assert longer[0].readings == {"slow": 1.0}
        assert report_of(longer[0], "slow").success
        assert report_of(longer[0], "slow").timeouts == 0
        assert probe.reads == 1


def test_quick_collectors_do_not_wait_for_a_slow_one_of_another_request(heal):
    """A request for a quick collector is answered while another request waits for a slow one."""
    with running(Probe("quick"), Probe("slow", lambda _: heal.wait() and 1.0)) as runner:
        runner.request(("quick", "slow"), 60.0, lambda _: None)
        seconds, snapshot = seconds_of(runner.snapshot, ["quick"], seconds=50.0)
        assert seconds < 30
        assert snapshot.readings == {"quick": 1.0}


# Failing.


def test_a_bug_costs_only_its_collector(caplog):
    """A collector with a bug is omitted with a reason, and its traceback is logged once."""
    buggy = Probe("buggy", lambda _: 1 / 0)
    with running(buggy, Probe("good")) as runner:
        runner.snapshot()
        snapshot = settle(runner)
    assert snapshot.readings == {"good": 1.0}
    report = report_of(snapshot, "buggy")
    assert not report.success
    assert report.answered
    assert report.reason == "failed by a bug (ZeroDivisionError); see the log"
    assert report.timeouts == 0
    records = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in records] == [
        "collector buggy: failed by a bug: ZeroDivisionError('division by zero')"
    ]
    assert records[0].exc_info[0] is ZeroDivisionError
    assert records[0].collector == "buggy"


@pytest.mark.parametrize(
    ("express", "reason"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError"),
        (lambda _: None, "TypeError"),
        (
            lambda _: (Block("s", lambda: (Family("f", "gauge", "F."),), [1, 2]),),
            "ValueError",
        ),
        (lambda _: (Block("s", lambda: (Family("f", "gauge", "F."),), []),), "ValueError"),
        (lambda _: (Block("s", lambda: (Family("f", "gauge", "F."),), [None]),), "TypeError"),
        (lambda _: (Block("s", lambda: (Family("f", "gauge", "F."),), ["1"]),), "TypeError"),
        (lambda _: (Block([], lambda: (Family("f", "gauge", "F."),), [1]),), "TypeError"),
        (lambda _: (Block("s", lambda: 1 / 0, [1]),), "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_written_costs_only_its_collector(express, reason):
    """A collector whose blocks are invalid is omitted, and the page of the others is written."""
    buggy = Probe("buggy")
    buggy.express_act = express
    with running(buggy, Probe("good")) as runner:
        snapshot = runner.snapshot()
    assert report_of(snapshot, "buggy").reason == f"failed by a bug ({reason}); see the log"
    assert "probe_good 1.0\n" in write(snapshot)


def test_a_foreseen_failure_has_its_own_reason(logged, caplog):
    """The message of a SourceError is the reason of the failure, without a traceback."""
    error = SourceError("cannot read /proc/stat: Permission denied; run as a user that may")
    with running(Probe("cpu", raising(error))) as runner:
        snapshot = runner.snapshot()
    assert report_of(snapshot, "cpu").reason == str(error)
    assert logged() == [f"collector cpu: {error}"]
    assert caplog.records[0].exc_info is None


def test_failures_are_logged_when_they_change_and_not_for_each_scrape(logged):
    """The start, the change, the pause and the end of a failure are logged in one line each."""
    probe = Probe("disk", raising(SourceError("no first")))
    acts = [raising(SourceError("no second")), lambda _: 1.0]
    with running(probe) as runner:
        for _ in range(4):
            settle(runner)
        for probe.act in acts:
            runner._states["disk"]._paused_until = float("-inf")
            settle(runner)
        settle(runner)
    assert logged() == [
        "collector disk: no first",
        "collector disk failed 3 times in a row and is asked less often",
        "collector disk: no second",
        "collector disk: reads again",
    ]


def test_a_bug_whose_message_differs_each_time_is_one_failure(logged):
    """A bug whose message changes has one reason and one log line."""
    counter = iter(range(100))

    def act(_):
        raise KeyError(next(counter))

    with running(Probe("odd", act)) as runner:
        reasons = {report_of(settle(runner), "odd").reason for _ in range(2)}
    assert reasons == {"failed by a bug (KeyError); see the log"}
    assert len(logged()) == 1


def test_a_collector_that_keeps_failing_is_asked_less_often_and_says_so():
    """From the third failure on, a collector is paused, each time for longer, until a success."""
    probe = Probe("weak", raising(SourceError("no")))
    with running(probe) as runner:
        state = runner._states["weak"]
        for _ in range(2):
            assert report_of(settle(runner), "weak").reason == "no"
        pauses = []
        for _ in range(7):
            state._paused_until = state._ended_at = float("-inf")
            reads = probe.reads
            snapshot = runner.snapshot()
            assert probe.reads == reads + 1
            assert report_of(snapshot, "weak").reason == "no; asked less often until it succeeds"
            pauses.append(round(state._paused_until - state._ended_at, 6))
            settle(runner)
            assert probe.reads == reads + 1
        assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
        probe.act = lambda _: 1.0
        state._paused_until = float("-inf")
        report = report_of(settle(runner), "weak")
        assert (report.success, report.reason) == (True, None)
        probe.act = raising(SourceError("no"))
        assert report_of(settle(runner), "weak").reason == "no"
        reads = probe.reads
        settle(runner)
        assert probe.reads == reads + 1


def test_what_is_not_whole_is_served_with_its_complaint():
    """A reading with a complaint is exported, but does not count as a success."""
    probe = Probe("half")
    with running(probe) as runner:
        success = report_of(runner.snapshot(), "half").last_success
        probe.missing = "cannot ask /data; check its server"
        report = report_of(settle(runner), "half")
        assert runner.snapshot().readings == {"half": 1.0}
    assert not report.success
    assert report.reason == "cannot ask /data; check its server"
    assert report.last_success == success
    assert report.omitted == 3


def test_the_page_describes_a_failed_collector():
    """The page has the success, durations, timeouts, omissions and reason of each collector."""
    probe = Probe("weak")
    with running(probe) as runner:
        before = time.time()
        runner.snapshot()
        probe.act = raising(SourceError('no "such" thing'))
        lines = write(settle(runner)).splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    label = '{collector="weak"}'
    duration = float(samples.pop(f"trainvitals_collector_duration_seconds{label}"))
    assert 0 <= duration < 30
    last = float(samples.pop(f"trainvitals_collector_last_success_timestamp_seconds{label}"))
    assert before <= last <= time.time()
    samples = {name: value for name, value in samples.items() if "build_info" not in name}
    assert samples == {
        f"trainvitals_collector_success{label}": "0.0",
        f"trainvitals_collector_timeouts_total{label}": "0.0",
        f"trainvitals_collector_omitted_labels{label}": "0.0",
        'trainvitals_collector_failure_info{collector="weak",reason="no \\"such\\" thing"}': "1.0",
    }


# Delivering and closing.


def test_a_delivery_that_raises_does_not_stop_the_runner(caplog):
    """A callback that raises is logged once with its traceback, and later requests work."""

    def deliver(_):
        raise LookupError("nobody is there")

    with running(Probe("a")) as runner:
        runner.request(("a",), 5.0, deliver)
        runner.request(("a",), 5.0, deliver)
        assert runner.snapshot().readings == {"a": 1.0}
    assert [record.getMessage() for record in caplog.records] == [
        "a snapshot could not be delivered"
    ]
    assert caplog.records[0].exc_info[0] is LookupError


def test_close_returns_while_a_collector_hangs(heal):
    """On close, pending requests are answered with the finished readings despite a hang."""
    hung, quick = Probe("hung", lambda _: heal.wait()), Probe("quick")
    runner = Runner([hung, quick])
    answers = []
    runner.request(("hung", "quick"), 60.0, answers.append)
    wait_until(lambda: hung.reads and runner._states["quick"].result is not None)
    seconds, _ = seconds_of(runner.close)
    assert seconds < 30
    assert answers[0].readings == {"quick": 1.0}
    assert (hung.closed, quick.closed) == (False, True)
    runner.close()


def test_a_closed_runner_refuses_requests():
    """A request to a closed runner raises an error instead of waiting."""
    with running(Probe("a")) as runner:
        pass
    with pytest.raises(RuntimeError, match="was closed, or created before a fork"):
        runner.snapshot()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_no_runner():
    """In a forked process, a request to the runner raises an error instead of hanging."""
    with running(Probe("a")) as runner:
        runner.snapshot()
        pid = os.fork()
        if pid == 0:
            try:
                runner.snapshot()
            except RuntimeError:
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7


def test_a_runner_at_rest_waits_without_a_timer():
    """A runner without pending requests has no timer."""
    with running(Probe("a"), Probe("b")) as runner:
        runner.snapshot()
        wait_until(lambda: runner._nearest_moment() == float("inf"))
