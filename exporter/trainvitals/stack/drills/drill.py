"""Runs a drill: simulates a fault, and checks that Alertmanager reports its start and its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from trainvitals.alerting.channels import advise_variables
from trainvitals.alerting.receivers import INFO
from trainvitals.errors import StackError
from trainvitals.stack.drills.faults import Fault
from trainvitals.stack.drills.machine import SimulatedCollector, SimulatedMachine
from trainvitals.stack.drills.pipeline import (
    LEAST_SCRAPE_SECONDS,
    SCRAPE_SECONDS,
    Pipeline,
    Plan,
)
from trainvitals.stack.drills.speed import find_longest_duration, read_duration
from trainvitals.stack.drills.webhook import Delivery, Receiver, listen
from trainvitals.stack.programs import HOST, find_free_ports
from trainvitals.units import format_duration

Report = Callable[[str], None]

# The interval at which alert states are read, before the division by the drill's speed, and the
# minimum interval after the division.
_STEP_SECONDS, _LEAST_STEP_SECONDS = 0.5, 0.05
_SLACK_SECONDS = 20.0
# The maximum delay that scraping, evaluation and grouping add to the alert's own durations.
_ROUTING_SECONDS = 900.0
# Only baselines use longer ranges, and baselines do not need history for the whole range.
_HISTORY_SECONDS = 7200.0
_FEW_SCRAPES, _JUDGED_SCRAPES = 4, 2
# The number of missed scrapes before an alert about a silent target fires, as in the stack.
_MISSED_SCRAPES = 3
# The divisor of the speed if the machine is too busy for the speed.
_SLOWER = 4.0


class BusyError(StackError):
    """Scrapes of the simulated machine failed or were late, so alert states are unreliable."""


@dataclass(frozen=True, slots=True)
class DrillResult:
    """The result of a drill, with times in seconds since the start of the fault.

    Attributes:
        alert: The alert's name.
        speed: The factor by which every duration was divided.
        pending_seconds: The time at which the alert became pending; None if the state `pending` was
            not observed, as with an alert without `for`.
        firing_seconds: The time at which the alert began to fire; None if the alert did not fire.
        delivered_seconds: The time at which the firing notification arrived; None if no such
            notification arrived.
        mended_seconds: The time at which the fault was removed; None if no firing notification
            arrived.
        resolved_seconds: The time at which the resolved notification arrived; None if no such
            notification arrived.
        receivers: The receivers of the firing notification; empty if no such notification arrived.
        message: The text of the firing notification; empty if no such notification arrived.
        has_channel: Whether one of the receivers has a channel in the stack's configuration, so
            that the notification would be delivered outside the drill. The value is also True if no
            firing notification arrived.
    """

    alert: str
    speed: float
    pending_seconds: float | None
    firing_seconds: float | None
    delivered_seconds: float | None
    mended_seconds: float | None
    resolved_seconds: float | None
    receivers: tuple[str, ...]
    message: str
    has_channel: bool = True

    @property
    def arrived(self) -> bool:
        """Whether the firing and the resolved notification arrived."""
        return self.delivered_seconds is not None and self.resolved_seconds is not None

    @property
    def passed(self) -> bool:
        """Whether both notifications arrived, and a receiver of the alert has a channel."""
        return self.arrived and self.has_channel


def format_result(result: DrillResult, *, as_json: bool = False) -> str:
    """Return a drill's result as a sentence, or as JSON with its fields and `passed`."""
    if as_json:
        return json.dumps({"passed": result.passed, **asdict(result)}, indent=2)
    if result.firing_seconds is None:
        return f"failed: {result.alert} did not fire"
    if result.delivered_seconds is None:
        return f"failed: {result.alert} fired, but no message arrived"
    if result.mended_seconds is None or result.resolved_seconds is None:
        return f"failed: {result.alert} was delivered, but no resolved message arrived"
    if not result.has_channel:
        names = " and ".join(result.receivers)
        return (
            f"{result.alert} was delivered to {names}, which has no channel, so the message reaches "
            f"no one: {_advise(result.receivers)} in .env"
        )
    ended = result.resolved_seconds - result.mended_seconds
    faster = f" (durations divided by {result.speed:g})" if result.speed != 1 else ""
    return (
        f"passed: delivered {format_duration(result.delivered_seconds)} after the fault, and resolved "
        f"{format_duration(ended)} after its removal{faster}"
    )


def _write_event(seconds: float, words: str) -> str:
    return f"{format_duration(seconds):>8}  {words}"


@dataclass(slots=True)
class _Watch:
    """Records when an alert was first pending and first firing, in seconds since the fault."""

    alert: str
    step_seconds: float
    pipeline: Pipeline
    webhook: Receiver
    report: Report
    began: float
    pending: float | None = None
    firing: float | None = None

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def update(self) -> None:
        states = self.pipeline.list_alerts(self.alert)
        if self.pending is None and "pending" in states:
            self.pending = self.elapsed()
            self.report(_write_event(self.pending, "the alert is pending"))
        if self.firing is None and "firing" in states:
            self.firing = self.elapsed()
            self.report(_write_event(self.firing, "the alert fires"))

    def wait_for(self, status: str, timeout_seconds: float) -> tuple[Delivery, ...]:
        """Wait for notifications with a status and return them; an empty tuple after a timeout."""
        deadline = time.monotonic() + timeout_seconds
        while not self.webhook.find(self.alert, status):
            if time.monotonic() > deadline:
                return ()
            self.update()
            time.sleep(self.step_seconds)
        self.update()
        return self.webhook.find(self.alert, status)


def fit_speed(fault: Fault, plan: Plan) -> Plan:
    """Return a plan that is slow enough for an alert about a silent target.

    At a higher speed, a single late scrape would outlast the alert's `for`. The speed is limited so
    that several scrapes take place within `for`.

    Args:
        fault: The fault to simulate.
        plan: The plan with the requested speed.

    Raises:
        StackError: No rule file contains the alert.
    """
    if not fault.is_silent:
        return plan
    waits = read_duration(str(find_rule(fault.alert, plan).get("for", "")))
    most = waits / (_MISSED_SCRAPES * LEAST_SCRAPE_SECONDS)
    return replace(plan, speed=max(1.0, min(plan.speed, most)))


def drill(fault: Fault, plan: Plan, *, report: Report) -> DrillResult:
    """Run a drill: inject a fault, wait for the alert, remove the fault, wait for the resolution.

    If the machine is too busy for the plan's speed, the drill is repeated at a lower speed.

    Args:
        fault: The fault to simulate.
        plan: The programs and files of the drill's pipeline.
        report: Called with each line of progress.

    Raises:
        StackError: A program does not start, or the alert fires before the fault.
    """
    try:
        return _drill_at(fault, plan, report)
    except BusyError as busy:
        if plan.speed <= 1:
            raise
        speed = max(1.0, plan.speed / _SLOWER)
        report(f"{busy}; the drill begins again, durations divided by {speed:g}")
    slower = replace(plan, speed=speed, directory=plan.directory / "slower")
    return drill(fault, slower, report=report)


def _drill_at(fault: Fault, plan: Plan, report: Report) -> DrillResult:
    """Run a drill at the plan's speed, without retries.

    Raises:
        BusyError: The machine is too busy for this speed.
    """
    timeout = _find_timeout(find_rule(fault.alert, plan), plan.speed)
    names = [receiver["name"] for receiver in plan.routes["receivers"]]
    (port,) = find_free_ports(1)
    collector = SimulatedCollector(speed=plan.speed)
    machine = SimulatedMachine([collector], f"{HOST}:{port}")
    try:
        collector.enter(fault.healthy)
        machine.listen()
        with listen(names) as webhook:
            pipeline = Pipeline(
                plan, target_port=port, webhook_url=webhook.url, machines=fault.machines
            )
            with pipeline.running():
                _wait_until_healthy(fault, pipeline, plan.speed, report)
                result = _run(fault, collector, machine, pipeline, webhook, timeout, plan, report)
                if not result.arrived and not fault.is_silent:
                    _require_pace(pipeline)
                return result
    finally:
        machine.close()


def find_rule(alert: str, plan: Plan) -> dict[str, str]:
    """Return the rule that defines an alert, from the plan's rule files.

    Raises:
        StackError: No rule file contains the alert.
    """
    for document in plan.rules.values():
        for group in document["groups"]:
            for rule in group["rules"]:
                if rule.get("alert") == alert:
                    found: dict[str, str] = rule
                    return found
    raise StackError(f"no rule file has the alert {alert}; see `trainvitals drill --list`")


def _find_timeout(rule: dict[str, str], speed: float) -> float:
    own = read_duration(str(rule.get("for", ""))) + read_duration(
        str(rule.get("keep_firing_for", ""))
    )
    longest = min(find_longest_duration(str(rule["expr"])), _HISTORY_SECONDS)
    return (own + longest + _ROUTING_SECONDS) / speed + _SLACK_SECONDS


def _wait_until_healthy(fault: Fault, pipeline: Pipeline, speed: float, report: Report) -> None:
    report("a healthy simulated machine is scraped")
    until = time.monotonic() + fault.history_seconds / speed
    deadline = until + _FEW_SCRAPES * SCRAPE_SECONDS + _SLACK_SECONDS
    # The rules are evaluated from here on, and they need some scrapes of the healthy machine.
    least = max(pipeline.count_scrapes() + _JUDGED_SCRAPES, _FEW_SCRAPES)
    while True:
        states = pipeline.list_alerts(fault.alert)
        # On a busy machine, a late scrape may make the alert pending for a short time.
        is_late = time.monotonic() > deadline
        if "firing" in states or (states and is_late):
            _require_pace(pipeline)
            raise StackError(f"{fault.alert} fires before the fault, which is a bug in its rule")
        if is_late:
            raise StackError("the drill's prometheus does not scrape the simulated machine")
        is_scraped = time.monotonic() >= until and pipeline.count_scrapes() >= least
        if is_scraped and not states:
            return
        time.sleep(_find_step(speed))


def _require_pace(pipeline: Pipeline) -> None:
    """Raise BusyError if scrapes of the simulated machine failed or were late."""
    if missed := pipeline.count_missed_scrapes():
        raise BusyError(f"this machine is busy: {missed} scrapes failed or were late")


def _find_step(speed: float) -> float:
    return max(_STEP_SECONDS / speed, _LEAST_STEP_SECONDS)


def _run(
    fault: Fault,
    collector: SimulatedCollector,
    machine: SimulatedMachine,
    pipeline: Pipeline,
    webhook: Receiver,
    timeout: float,
    plan: Plan,
    report: Report,
) -> DrillResult:
    heard = {each["name"] for each in plan.routes["receivers"] if len(each) > 1}
    step = _find_step(plan.speed)
    watch = _Watch(fault.alert, step, pipeline, webhook, report, time.monotonic())
    report(_write_event(0, fault.story))
    if fault.is_silent:
        machine.fall_silent()
    collector.enter(fault.faulty, is_failing=fault.is_failing)
    firing = watch.wait_for("firing", timeout)
    for each in _first_of_each(firing):
        report(
            _write_event(each.at - watch.began, f"delivered to {each.receiver}: {each.description}")
        )
    mended = watch.elapsed()
    collector.enter(fault.healthy)
    if fault.is_silent:
        machine.listen()
    resolved: tuple[Delivery, ...] = ()
    if firing:
        report(_write_event(mended, "the fault is removed"))
        resolved = watch.wait_for("resolved", timeout)
    for each in _first_of_each(resolved):
        report(
            _write_event(each.at - watch.began, f"resolved message delivered to {each.receiver}")
        )
    return DrillResult(
        alert=fault.alert,
        speed=plan.speed,
        pending_seconds=watch.pending,
        firing_seconds=watch.firing,
        delivered_seconds=firing[0].at - watch.began if firing else None,
        mended_seconds=mended if firing else None,
        resolved_seconds=resolved[0].at - watch.began if resolved else None,
        receivers=tuple(dict.fromkeys(each.receiver for each in firing)),
        message=firing[0].description if firing else "",
        has_channel=not firing or any(each.receiver in heard for each in firing),
    )


def _advise(receivers: Sequence[str]) -> str:
    """Return which variables to set so that a receiver has a channel."""
    advice = advise_variables()
    if any(each.startswith(INFO) for each in receivers):
        return advice.replace("set ", "set NOTIFY_INFO=1 and ", 1)
    return advice


def _first_of_each(deliveries: Iterable[Delivery]) -> list[Delivery]:
    return list({each.receiver: each for each in reversed(tuple(deliveries))}.values())
