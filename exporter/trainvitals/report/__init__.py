"""What happened in a day or a week, from what Prometheus keeps.

    Archive (Prometheus) -> runs, accelerators, hosts, incidents -> Report -> text, Markdown, HTML

A `Report` holds figures alone; `composing` turns them into parts, which the formats share, and
`document` keeps a report as JSON, so that it can be rendered again.
"""

from trainvitals.report.archive import Filters
from trainvitals.report.best import read_targets
from trainvitals.report.document import format_document, read_document
from trainvitals.report.figures import Price, Report
from trainvitals.report.gathering import Wishes, make_report
from trainvitals.report.html import format_html
from trainvitals.report.markdown import format_markdown
from trainvitals.report.message import make_message
from trainvitals.report.period import Period, choose_period, find_zone
from trainvitals.report.promapi import find_prometheus
from trainvitals.report.text import format_text
from trainvitals.report.writing import write_file

__all__ = [
    "Filters",
    "Period",
    "Price",
    "Report",
    "Wishes",
    "choose_period",
    "find_prometheus",
    "find_zone",
    "format_document",
    "format_html",
    "format_markdown",
    "format_text",
    "make_message",
    "make_report",
    "read_document",
    "read_targets",
    "write_file",
]
