"""Sends test alerts of each severity through the running Alertmanager to every channel."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainvitals.alerting.alertmanager import Alertmanager, Counts
from trainvitals.alerting.channels import CHANNELS
from trainvitals.alerting.receivers import Destination, Destinations
from trainvitals.units import format_iso

Value = TypeVar("Value")

_TITLES = {name: kind.title for kind in CHANNELS for name, _ in kind.integrations}
_STEP_SECONDS = 0.1
_LOG_SECONDS = 3.0
_NOT_CONFIGURED = "the running Alertmanager has no such channel; `trainvitals up` restarts it"
_SEE_LOG = "see Alertmanager's log: `trainvitals logs`"
# Alertmanager logs either one failed attempt, or one line with the errors of all integrations.
_RECEIVER = re.compile(r"\breceiver=([\w.-]+)")
_INTEGRATION = re.compile(r"\bintegration=(\w+)\[")
_FAILED = re.compile(r"([\w.-]+)/(\w+)\[\d+\]: (.*)")
_NEXT = re.compile(r"(?:; | )(?=[\w.-]+/\w+\[\d+\]: )")
_PREFACE = re.compile(r"^notify retry canceled [^:]*: ")
_ERROR = re.compile(r"\berr=(?:\"((?:[^\"\\]|\\.)*)\"|(\S+))")
_URL = re.compile(r"(https?://[^/\s\"\\]+)/[^\s\"\\]*")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of a test message to one channel.

    Attributes:
        severity: The severity of the test alert: `critical` or `warning`.
        team: The team to which the channel belongs; None for the default channels.
        channel: The channel's title, such as `Slack`.
        is_delivered: Whether the service accepted the message.
        reason: The reason why the message was not delivered; None if the message was delivered.
    """

    severity: str
    team: str | None
    channel: str
    is_delivered: bool
    reason: str | None = None

    def describe(self) -> str:
        """Return the result of the test message as one line for the terminal."""
        outcome = "delivered" if self.is_delivered else f"failed: {self.reason}"
        return f"{Destination(self.severity, self.team, ())} to {self.channel}: {outcome}"


def send_test_messages(
    alertmanager: Alertmanager,
    destinations: Destinations,
    *,
    log: Path | None = None,
    timeout_seconds: float = 60.0,
    report: Callable[[Delivery], None] = lambda _: None,
) -> tuple[Delivery, ...]:
    """Send a test alert of each severity that has channels, and wait for the results.

    Each alert is resolved after the test, so that Alertmanager also sends the notification about
    the resolution.

    Args:
        alertmanager: The running Alertmanager.
        destinations: The channels for all alerts. If the configuration was edited manually, only
            critical alerts are tested, because the groups of such a configuration may wait for
            minutes between two notifications.
        log: The path of Alertmanager's log, which contains the reasons for failures; None if the
            path is unknown.
        timeout_seconds: The timeout for each severity, in seconds.
        report: Called with each result as soon as the result is known.

    Raises:
        StackError: Alertmanager does not respond.
    """
    tried = [each for each in destinations.by_severity if each.channels]
    if destinations.written_by_hand is not None:
        tried = [Destination("critical", None, ())]
    found: list[Delivery] = []
    for destination in tried:
        for delivery in _Trial(alertmanager, destination, log).run(timeout_seconds):
            report(delivery)
            found.append(delivery)
    return tuple(found)


class _Trial:
    """A test message to the channels of one destination."""

    def __init__(
        self, alertmanager: Alertmanager, destination: Destination, log: Path | None
    ) -> None:
        self._alertmanager, self._destination, self._log = alertmanager, destination, log
        self._id = str(time.time_ns())
        self._log_start = log.stat().st_size if log is not None and log.exists() else 0

    def run(self, timeout_seconds: float) -> list[Delivery]:
        before = self._alertmanager.read_counts()
        deadline = time.monotonic() + timeout_seconds
        started = time.time()
        self._alertmanager.post([self._make_alert(started)])
        try:
            receivers, silences = self._find_receivers(deadline)
            if silences:
                reason = (
                    f"silenced by {', '.join(silences)}; `amtool silence expire` ends a silence"
                )
                return [self._judge(each, reason) for each in self._destination.channels]
            wanted = self._count_wanted(receivers)
            after = self._wait_for_attempts(before, wanted, deadline)
            found = [
                self._judge(
                    _name(integration),
                    self._find_fault(integration, before, after, wanted, receivers),
                )
                for integration in sorted(wanted, key=self._find_place)
            ]
            return found + [
                self._judge(each, _NOT_CONFIGURED) for each in self._list_missing(wanted)
            ]
        finally:
            self._alertmanager.post([self._make_alert(started, ended=time.time())])

    def _find_place(self, integration: str) -> int:
        """Return an integration's position among the destination's channels, for sorting."""
        channels = self._destination.channels
        name = _name(integration)
        return channels.index(name) if name in channels else len(channels)

    def _list_missing(self, integrations: Iterable[str]) -> list[str]:
        """Return the channels that the running Alertmanager's configuration lacks."""
        tried = {_name(each) for each in integrations}
        expected = self._destination.channels or (() if tried else ("any channel",))
        return [name for name in expected if name not in tried]

    def _make_alert(self, started: float, ended: float | None = None) -> dict[str, object]:
        severity, team = self._destination.severity, self._destination.team
        labels = {
            "alertname": "TestMessage",
            "severity": severity,
            "component": "meta",
            "instance": socket.gethostname(),
            "test": self._id,
        }
        alert: dict[str, object] = {
            "labels": {**labels, **({"team": team} if team else {})},
            "annotations": {
                "summary": "Test message",
                "description": f"This tests the channels for alerts of severity {severity}. Nothing is wrong, "
                "and nothing needs to be done.",
                "resolved": "The test is over.",
            },
            "startsAt": format_iso(started),
        }
        if ended is not None:
            alert["endsAt"] = format_iso(ended)
        return alert

    def _find_receivers(self, deadline: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the receivers of the test alert, and the silences that apply to this alert."""
        found = _poll(lambda: self._alertmanager.find_alerts(test=self._id), bool, deadline)
        if not found:
            return (), ()
        silences = found[0]["status"].get("silencedBy")
        return (
            tuple(each["name"] for each in found[0]["receivers"]),
            tuple(map(str, silences)) if isinstance(silences, list) else (),
        )

    def _count_wanted(self, receivers: tuple[str, ...]) -> Counter[str]:
        listed = self._alertmanager.list_integrations()
        return Counter(each for name in receivers for each in listed.get(name, ()))

    def _wait_for_attempts(self, before: Counts, wanted: Counter[str], deadline: float) -> Counts:
        def are_all_tried(now: Counts) -> bool:
            return all(now.tried[each] - before.tried[each] >= wanted[each] for each in wanted)

        return _poll(self._alertmanager.read_counts, are_all_tried, deadline)

    def _find_fault(
        self,
        integration: str,
        before: Counts,
        after: Counts,
        wanted: Counter[str],
        receivers: tuple[str, ...],
    ) -> str | None:
        if after.tried[integration] - before.tried[integration] < wanted[integration]:
            return "nothing was sent in time; see `trainvitals logs`"
        if after.failed[integration] == before.failed[integration]:
            return None
        if self._log is None or not self._log.exists():
            return _SEE_LOG
        reasons = self._wait_for_reasons(self._log, integration)
        matching = [reason for receiver, reason in reasons if receiver in receivers]
        if matching:
            return matching[-1]
        # The dead man's switch is a webhook, so its failures are counted with those of other
        # webhooks.
        return None if reasons else _SEE_LOG

    def _wait_for_reasons(self, log: Path, integration: str) -> list[tuple[str, str]]:
        """Wait until Alertmanager logs failures; return their receivers and reasons."""

        def read() -> list[tuple[str, str]]:
            failures = _read_failures(log, self._log_start)
            return [(receiver, why) for receiver, name, why in failures if name == integration]

        return _poll(read, bool, time.monotonic() + _LOG_SECONDS)

    def _judge(self, channel: str, fault: str | None) -> Delivery:
        severity, team = self._destination.severity, self._destination.team
        return Delivery(severity, team, channel, fault is None, fault)


def _name(integration: str) -> str:
    return _TITLES.get(integration, integration)


def _poll(read: Callable[[], Value], is_done: Callable[[Value], bool], deadline: float) -> Value:
    """Poll a value until the value is final or the deadline has passed; return the last value."""
    while True:
        value = read()
        if is_done(value) or time.monotonic() > deadline:
            return value
        time.sleep(_STEP_SECONDS)


def _read_failures(log: Path, start: int) -> Iterator[tuple[str, str, str]]:
    """Yield the receiver, integration and reason of each failure after an offset in a log."""
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
            receiver, integration = _RECEIVER.search(line), _INTEGRATION.search(line)
            if failed:
                yield failed[1], failed[2], _shorten(failed[3])
            elif receiver and integration:
                yield receiver[1], integration[1], _shorten(part)


def _shorten(reason: str) -> str:
    # The path in a webhook URL is a secret, so only the host is shown.
    return _URL.sub(r"\1/…", " ".join(_PREFACE.sub("", reason).split()))
