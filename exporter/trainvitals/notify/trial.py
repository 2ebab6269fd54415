"""Test messages: an alert of each severity, through the running Alertmanager, to every channel."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from trainvitals.notify.alertmanager import Alertmanager, Counts, PostedAlert, name_channels
from trainvitals.notify.destinations import Destination, Destinations

_STEP_SECONDS = 0.1
_ANYBODY = "anybody"
_UNKNOWN = "the running Alertmanager does not send there; `trainvitals up` starts it anew"
_LOG_SECONDS = 3.0
# Alertmanager writes either which attempt failed, or what all channels of a receiver ended with.
_ATTEMPT = re.compile(r"\breceiver=([\w.-]+) .*?\bintegration=(\w+)\[")
_FAILED = re.compile(r"([\w.-]+)/(\w+)\[\d+\]: (.*)")
_NEXT = re.compile(r"(?:; | )(?=[\w.-]+/\w+\[\d+\]: )")
_PREFACE = re.compile(r"^notify retry canceled [^:]*: ")
_ERROR = re.compile(r"\berr=(?:\"((?:[^\"\\]|\\.)*)\"|(\S+))")
_URL = re.compile(r"(https?://[^/\s\"\\]+)/[^\s\"\\]*")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of one test message.

    Attributes:
        severity: `critical` or `warning`.
        team: Whose; None for everybody.
        channel: The name of the channel, as `Slack`.
        is_delivered: Whether the service behind it took the message.
        reason: Why not; None where it was delivered.
    """

    severity: str
    team: str | None
    channel: str
    is_delivered: bool
    reason: str | None = None

    def describe(self) -> str:
        """Say it in one line."""
        whose = self.severity if self.team is None else f"{self.severity} of team {self.team}"
        fate = "delivered" if self.is_delivered else f"failed: {self.reason}"
        return f"{whose} to {self.channel}: {fate}"


def send_test_messages(
    alertmanager: Alertmanager,
    destinations: Destinations,
    *,
    log: Path | None = None,
    patience_seconds: float = 60.0,
    report: Callable[[Delivery], None] = lambda _: None,
) -> tuple[Delivery, ...]:
    """Send a test message of each severity that goes somewhere, and wait what becomes of it.

    Each is resolved again, so that its end is sent too.

    Args:
        alertmanager: The one that runs.
        destinations: Where alerts go; of a configuration written by hand, whose groups may wait
            for minutes between two messages, only critical alerts are tried.
        log: Where it logs, for the reasons of failures; None where that is not known.
        patience_seconds: How long one severity may take.
        report: Told each outcome as soon as it is known.

    Raises:
        StackError: Alertmanager does not answer.
    """
    tried = [each for each in destinations.by_severity if each.channels]
    if destinations.written_by_hand is not None:
        tried = [Destination("critical", None, ())]
    found: list[Delivery] = []
    for destination in tried:
        trial = _Trial(alertmanager, destination, log)
        for delivery in trial.run(patience_seconds):
            report(delivery)
            found.append(delivery)
    return tuple(found)


class _Trial:
    def __init__(
        self, alertmanager: Alertmanager, destination: Destination, log: Path | None
    ) -> None:
        self._alertmanager, self._destination, self._log = alertmanager, destination, log
        self._id = str(time.time_ns())
        self._log_start = log.stat().st_size if log is not None and log.exists() else 0

    def run(self, patience_seconds: float) -> list[Delivery]:
        before = self._alertmanager.read_counts()
        deadline = time.monotonic() + patience_seconds
        started = datetime.now(timezone.utc)
        self._alertmanager.post([self._make_alert(started)])
        try:
            receivers, silenced = self._find_receivers(deadline)
            if silenced:
                return [self._judge(each, silenced) for each in self._destination.channels]
            wanted = self._count_wanted(receivers)
            after = self._wait_for_attempts(before, wanted, deadline)
            found = [
                self._judge(
                    name_channels([integration])[integration],
                    self._find_fault(integration, before, after, wanted, receivers),
                )
                for integration in self._sort(wanted)
            ]
            return found + [self._judge(name, _UNKNOWN) for name in self._find_missing(wanted)]
        finally:
            self._alertmanager.post([self._make_alert(started, ended=datetime.now(timezone.utc))])

    def _find_missing(self, integrations: Iterable[str]) -> list[str]:
        """Name the channels that should have been tried, and that the running one does not have."""
        tried = name_channels(integrations)
        expected = self._destination.channels or ((_ANYBODY,) if not tried else ())
        return [name for name in expected if name not in tried.values()]

    def _sort(self, integrations: Iterable[str]) -> list[str]:
        """Put them in the order in which the destination names them."""
        names = name_channels(integrations)
        order = {name: place for place, name in enumerate(self._destination.channels)}
        return sorted(names, key=lambda each: order.get(names[each], len(order)))

    def _make_alert(self, started: datetime, ended: datetime | None = None) -> PostedAlert:
        severity, team = self._destination.severity, self._destination.team
        labels = {
            "alertname": "TestMessage",
            "severity": severity,
            "component": "meta",
            "instance": socket.gethostname(),
            "test": self._id,
        }
        alert: PostedAlert = {
            "labels": {**labels, **({"team": team} if team else {})},
            "annotations": {
                "summary": "Test message",
                "description": f"This tries where alerts of severity {severity} go. Nothing is "
                "wrong and nothing needs to be done.",
                "resolved": "The test is over.",
            },
            "startsAt": started.isoformat(),
        }
        if ended is not None:
            alert["endsAt"] = ended.isoformat()
        return alert

    def _find_receivers(self, deadline: float) -> tuple[tuple[str, ...], str | None]:
        while True:
            for alert in self._alertmanager.find_alerts(test=self._id):
                by = [*_strings(alert["status"].get("silencedBy"))]
                reason = (
                    f"silenced by {', '.join(by)}; `amtool silence expire` ends it" if by else None
                )
                return tuple(each["name"] for each in alert["receivers"]), reason
            if time.monotonic() > deadline:
                return (), None
            time.sleep(_STEP_SECONDS)

    def _count_wanted(self, receivers: tuple[str, ...]) -> Counter[str]:
        listed = self._alertmanager.list_integrations()
        return Counter(each for name in receivers for each in listed.get(name, ()))

    def _wait_for_attempts(self, before: Counts, wanted: Counter[str], deadline: float) -> Counts:
        while True:
            now = self._alertmanager.read_counts()
            if all(now.tried[each] - before.tried[each] >= wanted[each] for each in wanted):
                return now
            if time.monotonic() > deadline:
                return now
            time.sleep(_STEP_SECONDS)

    def _find_fault(
        self,
        integration: str,
        before: Counts,
        after: Counts,
        wanted: Counter[str],
        receivers: tuple[str, ...],
    ) -> str | None:
        if after.tried[integration] - before.tried[integration] < wanted[integration]:
            return "nothing was sent in time; `trainvitals logs` may say why"
        if after.failed[integration] == before.failed[integration]:
            return None
        if self._log is None or not self._log.exists():
            return "Alertmanager's log says why: `trainvitals logs`"
        reasons = self._wait_for_reasons(self._log, integration)
        told = [reason for receiver, reason in reasons if receiver in receivers]
        if told:
            return told[-1]
        # The dead man's switch is a webhook, too, and counted with the others.
        return None if reasons else "Alertmanager's log says why: `trainvitals logs`"

    def _wait_for_reasons(self, log: Path, integration: str) -> list[tuple[str, str]]:
        """Wait for the log, which says what failed when all channels of a receiver are done."""
        deadline = time.monotonic() + _LOG_SECONDS
        while True:
            reasons = [
                (receiver, reason)
                for receiver, name, reason in _read_failures(log, self._log_start)
                if name == integration
            ]
            if reasons or time.monotonic() > deadline:
                return reasons
            time.sleep(_STEP_SECONDS)

    def _judge(self, channel: str, fault: str | None) -> Delivery:
        severity, team = self._destination.severity, self._destination.team
        return Delivery(severity, team, channel, fault is None, fault)


def _read_failures(log: Path, start: int) -> Iterator[tuple[str, str, str]]:
    """Give receiver, integration and reason of each failure that stands in a log from a place on."""
    try:
        with log.open("rb") as file:
            file.seek(start)
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        error = _ERROR.search(line)
        if error is None:
            continue
        text = (error[1] or error[2]).replace('\\"', '"').replace("\\n", " ")
        for part in _NEXT.split(text):
            failed = _FAILED.fullmatch(part)
            attempt = _ATTEMPT.search(line)
            if failed:
                yield failed[1], failed[2], _shorten(failed[3])
            elif attempt:
                yield attempt[1], attempt[2], _shorten(part)


def _shorten(reason: str) -> str:
    # An address may be the secret itself: its host says enough.
    return _URL.sub(r"\1/…", " ".join(_PREFACE.sub("", reason).split()))


def _strings(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
