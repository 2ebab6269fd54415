"""A report as a message to the people who hear of alerts."""

from __future__ import annotations

from trainvitals.courier import Message, Severity
from trainvitals.report.amounts import read_clock
from trainvitals.report.composing import write_title
from trainvitals.report.figures import Report
from trainvitals.report.html import format_html
from trainvitals.report.text import format_summary


def make_message(report: Report) -> Message:
    """Make a message of a report: a summary for chats, and all of it for mail."""
    date = f"{read_clock(report, report.begin):%Y-%m-%d}"
    return Message(
        title=f"{write_title(report)}, {date}",
        text=format_summary(report),
        severity=_find_severity(report),
        key=f"report {report.kind} {date}",
        html=format_html(report),
    )


def _find_severity(report: Report) -> Severity:
    """Say how bad it is: as what still fires."""
    firing = {each.severity for each in report.incidents if each.is_firing}
    if "critical" in firing:
        return "critical"
    return "warning" if "warning" in firing else "info"
