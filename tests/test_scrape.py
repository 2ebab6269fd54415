"""The runner: collectors apart from each other, timed, and never longer than the scrape may take."""

import logging
import os
import threading
import time
from contextlib import contextmanager

import pytest

from trainvitals import scrape
from trainvitals.errors import SourceError
from trainvitals.exposition import Exposition
from trainvitals.families import Block, Family
from trainvitals.scrape import Runner


class Probe:
    """A collector that does as it is told.

    Attributes:
        reads: How often it was read.
    """

    def __init__(self, name, act=lambda _: 1.0):
        self.name = name
        self.act = act
        self.reads = 0
        self.closed = False
        self.missing = None
        self.express_act = None

    def read(self, deadline):
        """Act."""
        self.reads += 1
        return self.act(deadline)

    def express(self, reading):
        """Give one gauge, or what the test wants."""
        if self.express_act is not None:
            return self.express_act(reading)
        family = Family(f"probe_{self.name}", "gauge", "What was read. Source: test.")
        return (Block((self.name,), lambda: (family,), [reading]),)

    def complaint(self, _):
        """Say what the test wants."""
        return self.missing

    def omitted(self, _):
        """Count three when something is missing."""
        return 3 if self.missing else 0

    def close(self):
        """Note it."""
        self.closed = True


@contextmanager
def running(*probes):
    """Run collectors, and end them."""
    runner = Runner(probes)
    try:
        yield runner
    finally:
        runner.close()


def raising(error):
    """Give an act that raises."""

    def act(_):
        raise error

    return act


def write(snapshot):
    """Give a snapshot's page."""
    return Exposition().write(snapshot.blocks).decode()


def report_of(snapshot, name):
    """Give one collector's report."""
    return next(report for report in snapshot.reports if report.collector == name)


def settle(runner, names=None, seconds=5.0):
    """Take a snapshot that no reading made before can serve, as if some time had passed."""
    reuse, scrape.REUSE_SECONDS = scrape.REUSE_SECONDS, -1.0
    try:
        return runner.snapshot(names, seconds=seconds)
    finally:
        scrape.REUSE_SECONDS = reuse


def seconds_of(function, *arguments, **keywords):
    """Give how long a call takes and what it returns."""
    started_at = time.monotonic()
    value = function(*arguments, **keywords)
    return time.monotonic() - started_at, value


def runner_threads():
    """Give how many threads the runners and their crews have."""
    names = [thread.name for thread in threading.enumerate()]
    return sum(name == "runner" or name.startswith("collector-") for name in names)


@pytest.fixture
def heal():
    """Sets free what hangs, at the latest when the test ends."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def logged(caplog):
    """Gives the text of what was logged at INFO and above."""
    caplog.set_level(logging.INFO, "trainvitals")
    return lambda: [record.getMessage() for record in caplog.records]


# Sharing.


def test_a_snapshot_has_what_every_collector_read():
    """Readings, blocks and reports are all there, in the order of the collectors."""
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
    """Fifty who ask while a reading is under way are all answered by it."""
    slow = Probe("slow", lambda _: time.sleep(0.1) or 1.0)
    snapshots = []
    with running(slow) as runner:
        askers = [
            threading.Thread(target=lambda: snapshots.append(runner.snapshot())) for _ in range(50)
        ]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
    assert slow.reads == 1
    assert len({id(snapshot) for snapshot in snapshots}) == 1


def test_a_reading_serves_for_a_fifth_of_a_second():
    """Who asks again at once gets the same snapshot, who asks later another one."""
    probe = Probe("a")
    with running(probe) as runner:
        first, again = runner.snapshot(), runner.snapshot()
        assert first is again
        assert probe.reads == 1
        time.sleep(0.21)
        assert runner.snapshot() is not first
        assert probe.reads == 2


def test_only_who_is_asked_is_read():
    """A request for some collectors leaves the others alone, named twice or not."""
    a, b = Probe("a"), Probe("b")
    with running(a, b) as runner:
        snapshot = runner.snapshot(["b", "b"])
    assert (a.reads, b.reads) == (0, 1)
    assert list(snapshot.readings) == ["b"]
    assert 'collector="a"' not in write(snapshot)


def test_kept_snapshots_are_bounded():
    """However many combinations are asked for, few snapshots are kept."""
    probes = [Probe(letter) for letter in "abcdef"]
    with running(*probes) as runner:
        for number in range(64):
            runner.snapshot([p.name for bit, p in enumerate(probes) if number >> bit & 1])
        assert len(runner._kept) <= 2 * len(probes) + 1


def test_unknown_names_are_refused_and_the_runner_lives():
    """Who asks for a collector that does not exist is told which there are."""
    with running(Probe("a"), Probe("b")) as runner:
        with pytest.raises(ValueError, match="no collector 'gpu'; there are a, b"):
            runner.snapshot(["a", "gpu"])
        assert runner.snapshot(["a"]).readings == {"a": 1.0}


# Hanging.


def test_the_first_scrape_of_a_hung_collector_ends_at_its_deadline(heal):
    """What hangs from the start is missing after the time that the request gave."""
    with running(Probe("hung", lambda _: heal.wait()), Probe("quick")) as runner:
        seconds, snapshot = seconds_of(runner.snapshot, seconds=0.3)
        assert 0.3 <= seconds < 0.6
        assert snapshot.readings == {"quick": 1.0}
        report = report_of(snapshot, "hung")
        assert not report.success
        assert not report.answered
        assert report.timeouts == 1
        assert report.reason == "did not answer in time and is left alone until it does"
        assert report.seconds == pytest.approx(0.3, abs=0.1)
        assert report.last_success is None


def test_a_collector_that_hangs_costs_half_a_second_once_and_heals(heal):
    """Known to be quick it is waited for 0.4 s, later not at all, and what it brings is not used."""
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
        assert 0.4 < seconds < 1.2
        assert snapshot.readings == {"quick": 1.0}
        assert "probe_patient" not in write(snapshot)
        assert 'trainvitals_collector_duration_seconds{collector="patient"} 0.4' in write(snapshot)
        for _ in range(3):
            seconds, snapshot = seconds_of(settle, runner, seconds=30.0)
            assert seconds < 0.2
            assert "patient" not in snapshot.readings
            report = report_of(snapshot, "patient")
            assert (report.timeouts, report.success) == (1, False)
            assert report.answered
            assert report.last_success == success
        heal.set()
        time.sleep(0.05)
        healed = settle(runner)
        assert healed.readings["patient"] == 3.0
        assert report_of(healed, "patient").success
        assert report_of(healed, "patient").timeouts == 1


def test_a_late_reading_is_not_served_even_when_nobody_asked_meanwhile(heal):
    """A reading that came late and waited for the next scrape is thrown away."""
    probe = Probe("late", lambda _: heal.wait() and 1.0)
    with running(probe) as runner:
        runner.snapshot(seconds=0.1)
        probe.act = lambda _: 2.0
        heal.set()
        time.sleep(0.05)
        assert runner.snapshot().readings == {"late": 2.0}


def test_an_old_outcome_does_not_pass_for_a_fresh_one(heal):
    """A reading's age counts from its end, not from when the runner saw it."""
    quick, hung = Probe("quick"), Probe("hung", lambda _: heal.wait() and 1.0)
    with running(quick, hung) as runner:
        runner.snapshot(seconds=0.05)
        time.sleep(0.21)
        heal.set()
        runner.snapshot()
        assert quick.reads == 2


def test_threads_do_not_grow_while_collectors_hang(heal):
    """Twenty scrapes of three hung collectors need no more threads than there are collectors."""
    before = runner_threads()
    probes = [Probe(name, lambda _: heal.wait()) for name in "abc"]
    with running(*probes, Probe("quick")) as runner:
        for _ in range(20):
            assert runner.snapshot(seconds=0.02).readings.keys() <= {"quick"}
        assert runner_threads() - before <= 5
        until = time.monotonic() + 10
        while not all(probe.reads for probe in probes) and time.monotonic() < until:
            time.sleep(0.01)
        assert [probe.reads for probe in probes] == [1, 1, 1]


def test_a_collector_that_became_slow_is_waited_for_again():
    """A late reading that its scrape had time for teaches patience."""
    probe = Probe("growing", lambda _: 1.0)
    with running(probe) as runner:
        runner.snapshot()
        probe.act = lambda _: time.sleep(0.6) or 2.0
        assert settle(runner, seconds=10.0).readings == {}
        time.sleep(0.3)
        assert settle(runner, seconds=10.0).readings == {"growing": 2.0}


def test_a_collector_that_is_always_too_slow_is_not_waited_for_each_time():
    """A reading that took longer than its scrape had does not make the next one wait longer."""
    probe = Probe("hopeless", lambda _: 1.0)
    with running(probe) as runner:
        runner.snapshot()
        probe.act = lambda _: time.sleep(0.8) or 2.0
        for _ in range(2):
            seconds, snapshot = seconds_of(runner.snapshot, seconds=0.7)
            while probe.reads == 1:
                seconds, snapshot = seconds_of(runner.snapshot, seconds=0.7)
            assert seconds < 0.65
            assert snapshot.readings == {}
            time.sleep(0.6)


def test_who_has_little_time_does_not_take_it_from_others():
    """At the end of the shorter request the reading goes on for the longer one."""
    probe = Probe("slow", lambda _: time.sleep(0.4) or 1.0)
    longer = []
    with running(probe) as runner:
        asker = threading.Thread(target=lambda: longer.append(runner.snapshot(seconds=5.0)))
        asker.start()
        time.sleep(0.05)
        seconds, short = seconds_of(runner.snapshot, seconds=0.1)
        asker.join()
        assert seconds < 0.3
        assert short.readings == {}
        assert report_of(short, "slow").reason == "did not answer in time"
        assert not report_of(short, "slow").success
        assert report_of(short, "slow").seconds == pytest.approx(0.15, abs=0.1)
        assert longer[0].readings == {"slow": 1.0}
        assert report_of(longer[0], "slow").success
        assert report_of(longer[0], "slow").timeouts == 0
        assert probe.reads == 1


def test_quick_collectors_do_not_wait_for_a_slow_one_that_others_asked_for(heal):
    """A request for a quick collector is answered while a slow one keeps another request."""
    with running(Probe("quick"), Probe("slow", lambda _: heal.wait() and 1.0)) as runner:
        runner.request(("quick", "slow"), 10.0, lambda _: None)
        seconds, snapshot = seconds_of(runner.snapshot, ["quick"])
        assert seconds < 0.3
        assert snapshot.readings == {"quick": 1.0}


# Failing.


def test_a_bug_costs_only_its_collector(caplog):
    """It is missing with the reason, counted, and logged once with its traceback."""
    buggy = Probe("buggy", lambda _: 1 / 0)
    with running(buggy, Probe("good")) as runner:
        runner.snapshot()
        snapshot = settle(runner)
    assert snapshot.readings == {"good": 1.0}
    report = report_of(snapshot, "buggy")
    assert not report.success
    assert report.answered
    assert report.reason == "failed by a bug (ZeroDivisionError); see the log"
    assert report.failures == 2
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
    """A bug in naming a reading is found before the page is written."""
    buggy = Probe("buggy")
    buggy.express_act = express
    with running(buggy, Probe("good")) as runner:
        snapshot = runner.snapshot()
    assert report_of(snapshot, "buggy").reason == f"failed by a bug ({reason}); see the log"
    assert "probe_good 1.0\n" in write(snapshot)


def test_a_foreseen_failure_tells_its_own_reason(logged, caplog):
    """A SourceError is the reason, word for word, and has no traceback in the log."""
    error = SourceError("cannot read /proc/stat: Permission denied; run as a user that may")
    with running(Probe("cpu", raising(error))) as runner:
        snapshot = runner.snapshot()
    assert report_of(snapshot, "cpu").reason == str(error)
    assert logged() == [f"collector cpu: {error}"]
    assert caplog.records[0].exc_info is None


def test_failures_are_logged_when_they_change_and_not_for_each_scrape(logged):
    """Beginning, change and end of a failure are one line each, and so is asking less often."""
    probe = Probe("disk", raising(SourceError("no first")))
    with running(probe) as runner:
        for _ in range(4):
            settle(runner)
        probe.act = raising(SourceError("no second"))
        time.sleep(0.5)
        settle(runner)
        probe.act = lambda _: 1.0
        time.sleep(1.0)
        settle(runner)
        settle(runner)
    assert logged() == [
        "collector disk: no first",
        "collector disk failed 3 times in a row and is asked less often",
        "collector disk: no second",
        "collector disk: reads again",
    ]


def test_a_bug_whose_message_differs_each_time_is_one_failure(logged):
    """A number in the message makes no new label value and no new line."""
    counter = iter(range(100))

    def act(_):
        raise KeyError(next(counter))

    with running(Probe("odd", act)) as runner:
        reasons = {report_of(settle(runner), "odd").reason for _ in range(2)}
    assert reasons == {"failed by a bug (KeyError); see the log"}
    assert len(logged()) == 1


def test_a_collector_that_keeps_failing_is_asked_less_often_and_says_so():
    """From the third failure on it rests, longer each time, its reason tells, and success resets."""
    probe = Probe("weak", raising(SourceError("no")))
    with running(probe) as runner:
        post = runner._posts["weak"]
        for _ in range(2):
            assert report_of(settle(runner), "weak").reason == "no"
        pauses = []
        for _ in range(7):
            post._paused_until = post._ended_at = float("-inf")
            reads = probe.reads
            snapshot = runner.snapshot()
            assert probe.reads == reads + 1
            assert report_of(snapshot, "weak").reason == "no; asked less often until it succeeds"
            pauses.append(round(post._paused_until - post._ended_at, 6))
            settle(runner)
            assert probe.reads == reads + 1
        assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
        probe.act = lambda _: 1.0
        post._paused_until = float("-inf")
        report = report_of(settle(runner), "weak")
        assert (report.success, report.reason, report.failures) == (True, None, 9)
        probe.act = raising(SourceError("no"))
        assert report_of(settle(runner), "weak").reason == "no"
        reads = probe.reads
        settle(runner)
        assert probe.reads == reads + 1


def test_what_is_not_whole_is_served_with_its_complaint():
    """A reading with a complaint is on the page, and is no success."""
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
    assert report.failures == 0


def test_the_page_tells_all_about_a_failed_collector():
    """Success, duration, last success, timeouts, omissions and the reason are there."""
    probe = Probe("weak")
    with running(probe) as runner:
        before = time.time()
        runner.snapshot()
        probe.act = raising(SourceError('no "such" thing'))
        lines = write(settle(runner)).splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    label = '{collector="weak"}'
    duration = float(samples.pop(f"trainvitals_collector_duration_seconds{label}"))
    assert 0 <= duration < 0.1
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
    """It is logged once with its traceback, and the next request is answered."""

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
    """Those who wait are answered with what is there, and only the hung one is not closed."""
    hung, quick = Probe("hung", lambda _: heal.wait()), Probe("quick")
    runner = Runner([hung, quick])
    waiting = []
    asker = threading.Thread(target=lambda: waiting.append(runner.snapshot(seconds=60.0)))
    asker.start()
    time.sleep(0.1)
    seconds, _ = seconds_of(runner.close)
    asker.join(5)
    assert seconds < 0.5
    assert waiting[0].readings == {"quick": 1.0}
    assert (hung.closed, quick.closed) == (False, True)
    runner.close()


def test_who_asks_a_closed_runner_is_told():
    """Nobody waits for ever for a runner that has ended."""
    with running(Probe("a")) as runner:
        pass
    with pytest.raises(RuntimeError, match="nobody reads here"):
        runner.snapshot()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_is_told_that_it_has_no_runner():
    """A process that was forked after the runner was made gets an error instead of hanging."""
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
    """Once everybody is answered there is no moment to wake up at."""
    with running(Probe("a"), Probe("b")) as runner:
        runner.snapshot()
        time.sleep(0.05)
        assert runner._nearest_moment() == float("inf")
