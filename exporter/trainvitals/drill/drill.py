"""One drill: a machine is well, has a fault, is well again, and the messages about it arrive."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from trainvitals.drill.faults import Fault
from trainvitals.drill.machine import SimulatedMachine
from trainvitals.drill.pipeline import SCRAPE_SECONDS, Pipeline, Plan, find_free_port
from trainvitals.drill.speed import find_longest_duration, read_duration
from trainvitals.drill.webhook import Delivery, Webhook, listen
from trainvitals.errors import StackError

Report = Callable[[str], None]

_STEP_SECONDS = 0.05
_SLACK_SECONDS = 20.0
# What grouping, evaluation and scraping may add to an alert's own durations.
_ROUTING_SECONDS = 900.0
# Longer ranges ask for what was usual, and are content with less of it.
_HISTORY_SECONDS = 7200.0
_FEW_SCRAPES = 4


@dataclass(frozen=True, slots=True)
class DrillResult:
    """How a drill went; times are seconds since the fault began, and None is what did not happen.

    Attributes:
        alert: The alert.
        speed: What every duration was divided by.
        pending_seconds: When Prometheus saw it; also None where an alert has no `for`.
        firing_seconds: When Prometheus fired.
        delivered_seconds: When the message came.
        mended_seconds: When the fault was taken away.
        resolved_seconds: When the message that it is over came.
        receivers: Who got the message; empty where nobody did.
        message: What it said; empty where none came.
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

    @property
    def passed(self) -> bool:
        """Whether both messages arrived."""
        return self.delivered_seconds is not None and self.resolved_seconds is not None


def format_result(result: DrillResult, *, as_json: bool = False) -> str:
    """Write how a drill went: a sentence for a person, or its fields and `passed` for a program."""
    if as_json:
        return json.dumps({"passed": result.passed, **asdict(result)}, indent=2)
    if result.firing_seconds is None:
        return f"{result.alert} did not fire"
    if result.delivered_seconds is None:
        return f"{result.alert} fired, and no message came"
    if result.mended_seconds is None or result.resolved_seconds is None:
        return f"{result.alert} was delivered, and the message that it is over never came"
    ended = result.resolved_seconds - result.mended_seconds
    faster = f" (at {result.speed:.0f} times the speed)" if result.speed != 1 else ""
    return (
        f"passed: delivered {result.delivered_seconds:.1f} s after the fault, "
        f"and its end {ended:.1f} s after that was mended{faster}"
    )


@dataclass(slots=True)
class _Watch:
    """Notes when things happen first, in seconds since the fault began."""

    alert: str
    pipeline: Pipeline
    webhook: Webhook
    report: Report
    began: float
    pending: float | None = None
    firing: float | None = None

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def look(self) -> None:
        states = self.pipeline.list_alerts(self.alert)
        if self.pending is None and "pending" in states:
            self.pending = self.elapsed()
            self.report(f"{self.pending:7.1f} s  prometheus sees it and waits (`for`)")
        if self.firing is None and "firing" in states:
            self.firing = self.elapsed()
            self.report(f"{self.firing:7.1f} s  the alert fires")

    def wait_for(self, status: str, patience_seconds: float) -> tuple[Delivery, ...]:
        """Give the messages that came, all those that come together; none where none came."""
        deadline = time.monotonic() + patience_seconds
        while not self.webhook.find(self.alert, status):
            if time.monotonic() > deadline:
                return ()
            self.look()
            time.sleep(_STEP_SECONDS)
        self.look()
        return self.webhook.find(self.alert, status)


def drill(fault: Fault, plan: Plan, *, report: Report) -> DrillResult:
    """Have a fault travel from a simulated machine to a webhook, and be mended.

    Args:
        fault: What happens.
        plan: The second Prometheus and Alertmanager.
        report: Told what happens, in one line at a time.

    Raises:
        StackError: A program does not start, or the alert fires before there is a fault.
    """
    rule = find_rule(fault.alert, plan)
    patience = _find_patience(rule, plan.speed)
    names = [receiver["name"] for receiver in plan.routes["receivers"]]
    port = find_free_port()
    machine = SimulatedMachine(speed=plan.speed, port=port)
    try:
        machine.collector.enter(fault.healthy)
        machine.listen()
        with listen(names) as webhook:
            pipeline = Pipeline(plan, target_port=port, webhook_url=webhook.url)
            with pipeline.running():
                _wait_until_well(fault, pipeline, plan.speed, report)
                return _run(fault, machine, pipeline, webhook, patience, plan.speed, report)
    finally:
        machine.close()


def find_rule(alert: str, plan: Plan) -> dict[str, str]:
    """Give an alert's rule.

    Raises:
        StackError: No rule file has it.
    """
    for document in plan.rules.values():
        for group in document["groups"]:
            for rule in group["rules"]:
                if rule.get("alert") == alert:
                    found: dict[str, str] = rule
                    return found
    raise StackError(f"no rule file has the alert {alert}: see `trainvitals drill --list`")


def _find_patience(rule: dict[str, str], speed: float) -> float:
    own = read_duration(str(rule.get("for", ""))) + read_duration(
        str(rule.get("keep_firing_for", ""))
    )
    longest = min(find_longest_duration(str(rule["expr"])), _HISTORY_SECONDS)
    return (own + longest + _ROUTING_SECONDS) / speed + _SLACK_SECONDS


def _wait_until_well(fault: Fault, pipeline: Pipeline, speed: float, report: Report) -> None:
    report("a simulated machine is scraped and well")
    until = time.monotonic() + fault.history_seconds / speed
    deadline = until + _FEW_SCRAPES * SCRAPE_SECONDS + _SLACK_SECONDS
    while time.monotonic() < until or pipeline.count_scrapes() < _FEW_SCRAPES:
        if pipeline.list_alerts(fault.alert):
            raise StackError(
                f"{fault.alert} fires although nothing is wrong yet: a bug in its rule"
            )
        if time.monotonic() > deadline:
            raise StackError("the drill's prometheus does not scrape the simulated machine")
        time.sleep(_STEP_SECONDS)


def _run(
    fault: Fault,
    machine: SimulatedMachine,
    pipeline: Pipeline,
    webhook: Webhook,
    patience: float,
    speed: float,
    report: Report,
) -> DrillResult:
    watch = _Watch(fault.alert, pipeline, webhook, report, time.monotonic())
    report(f"{0:7.1f} s  {fault.story}")
    if fault.is_silent:
        machine.fall_silent()
    machine.collector.enter(fault.faulty, is_failing=fault.is_failing)
    firing = watch.wait_for("firing", patience)
    for each in _first_of_each(firing):
        report(f"{each.at - watch.began:7.1f} s  delivered to {each.receiver}: {each.description}")
    mended = watch.elapsed()
    machine.collector.enter(fault.healthy)
    if fault.is_silent:
        machine.listen()
    resolved: tuple[Delivery, ...] = ()
    if firing:
        report(f"{mended:7.1f} s  the fault is taken away")
        resolved = watch.wait_for("resolved", patience)
    for each in _first_of_each(resolved):
        report(f"{each.at - watch.began:7.1f} s  its end is delivered to {each.receiver}")
    return DrillResult(
        alert=fault.alert,
        speed=speed,
        pending_seconds=watch.pending,
        firing_seconds=watch.firing,
        delivered_seconds=firing[0].at - watch.began if firing else None,
        mended_seconds=mended if firing else None,
        resolved_seconds=resolved[0].at - watch.began if resolved else None,
        receivers=tuple(dict.fromkeys(each.receiver for each in firing)),
        message=firing[0].description if firing else "",
    )


def _first_of_each(deliveries: Iterable[Delivery]) -> list[Delivery]:
    return list({each.receiver: each for each in reversed(tuple(deliveries))}.values())
