"""Requested ends of containers, by the order of the engine's events."""

from __future__ import annotations

import pytest

from tests.support.deaths import tell
from tests.unit.verdicts.causes.evidences import DIED, death, event
from trainvitals.sources.containers.evidence import Evidence, State
from trainvitals.verdicts.causes.case import open_case
from trainvitals.verdicts.causes.judge import judge
from trainvitals.verdicts.causes.requests import read_request

TERM, KILL = event(2.1, "kill", signal=15), event(0.1, "kill", signal=9)


@pytest.mark.parametrize(
    ("code", "events", "kind"),
    [
        (137, (KILL,), "kill"),
        (137, (TERM, KILL), "timeout"),
        (137, (TERM, KILL, event(0.05, "stop")), "timeout"),
        (137, (event(40, "kill", signal=10), event(30, "kill", signal=15)), None),
        (137, (event(2.1, "kill", signal=10), KILL), "kill"),
        (137, (event(2.1, "kill", signal=28), KILL, event(0.05, "stop")), "timeout"),
        (143, (TERM,), "stop"),
        (0, (TERM,), "stop"),
        (1, (TERM,), "stop"),
        (0, (event(0.2, "stop"),), "stop"),
        (130, (event(0.1, "kill", signal=2),), "interrupt"),
        (0, (event(0.1, "kill", signal=10),), None),
        (143, (), None),
        (137, (event(0.1, "kill"),), "kill"),
        (137, (event(10, "kill"), event(0.1, "kill")), "timeout"),
        (143, (event(0.1, "kill"),), "stop"),
    ],
)
def test_the_order_of_events_decides_the_request(code, events, kind):
    """SIGKILL alone is a kill, SIGKILL after a stop signal is a timeout, SIGTERM is a stop."""
    request = read_request(open_case(death(code, *events)))
    assert (request.kind if request else None) == kind


def test_a_sigterm_of_hours_ago_did_not_end_it():
    """A SIGTERM two hours before an end with exit code 0 is not its cause."""
    old = event(7200, "kill", signal=15)
    evidence = death(0, old, started=DIED - 8000)
    events = (event(8000, "start"), old, event(0, "die", exit_code=0))
    members = {name: getattr(evidence, name) for name in evidence.__dataclass_fields__}
    assert judge(Evidence(**{**members, "events": events})).reason == "finished"


def test_a_kill_before_the_last_start_is_of_an_earlier_death():
    """A kill event from before the last `start` event is ignored."""
    evidence = death(137)
    events = (
        event(70, "kill", signal=9),
        event(69, "die", exit_code=137),
        *(evidence.events or ()),
    )
    members = {name: getattr(evidence, name) for name in evidence.__dataclass_fields__}
    assert judge(Evidence(**{**members, "events": events})).reason == "kill-outside"


def test_a_slow_end_after_a_kill_is_evidence_against_it():
    """A delay of 31 s between the kill and the end is reported as evidence against the kill."""
    text = tell(judge(death(137, event(31, "kill", signal=9))).finding)
    assert "The end came 31s after the request" in text


def test_an_unknown_signal_makes_a_kill_less_sure():
    """A Podman kill has medium confidence, because Podman does not report the signal."""
    finding = judge(death(137, event(0.1, "kill"), engine="podman 4.3.1")).finding
    assert (finding.reason, finding.confidence) == ("kill-operator", "medium")
    assert "`podman kill`" in finding.summary


def test_without_events_a_137_is_open():
    """Without events, exit code 137 has low confidence, because a kill or stop is possible."""
    evidence = Evidence("container", "a", ended=DIED, exit_code=137, state=State("exited", 137))
    finding = judge(evidence).finding
    assert (finding.reason, finding.confidence) == ("kill-outside", "low")
    assert "`kill` or `stop` cannot be ruled out" in tell(finding)


def test_a_stop_with_a_failing_exit_code_has_doubts():
    """Exit code 1 after SIGTERM is still a stop, with the code as evidence against it."""
    finding = judge(death(1, TERM)).finding
    assert finding.reason == "stop-graceful"
    assert "Exit code 1 is neither 0 nor 143" in tell(finding)


def test_an_engine_that_was_restarted_is_named():
    """The report names an engine start that shortly follows a SIGKILL."""
    text = tell(judge(death(137, engine_started=DIED + 3)).finding)
    assert "The engine was started 3s after the end" in text


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "oom-cgroup"),
        ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "time-limit"),
    ],
)
def test_a_scheduler_that_interrupts_at_a_limit_is_no_person(line, reason):
    """Exit code 130 after LSF's limit message is the limit's, not an interrupt by a user."""
    log = ("step 1 loss 2.1", "step 2 loss 2.0", line, "Exited with exit code 130.")
    assert judge(Evidence("process", "fit", log=log, exit_code=130)).reason == reason
