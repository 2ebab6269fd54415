"""Daily and weekly reports, derived from Prometheus data.

    Archive (Prometheus) -> runs, hardware, waste, incidents -> Report -> text, Markdown, HTML

A `Report` contains only figures. `daily`, `weekly` and `details` turn the figures into sections,
which all formats share. `document` stores a report as JSON, from which the report can be rendered
again.
"""

from trainvitals.report.archive import Filters
from trainvitals.report.best import read_targets
from trainvitals.report.document import format_document, read_document, write_file
from trainvitals.report.figures import Price, Report
from trainvitals.report.gathering import ReportOptions, make_report
from trainvitals.report.html import format_html
from trainvitals.report.period import Period, choose_period, find_zone
from trainvitals.report.text import format_markdown, format_text, make_message

__all__ = [
    "Filters",
    "Period",
    "Price",
    "Report",
    "ReportOptions",
    "choose_period",
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
