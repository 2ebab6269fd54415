"""What is wrong with this machine before a run starts: checks, what they found, how it is told."""

from trainvitals.doctor.checks import CHECKS
from trainvitals.doctor.examination import (
    PATIENCE_SECONDS,
    QUICK_SECONDS,
    Examination,
    choose_checks,
    examine,
)
from trainvitals.doctor.finding import Check, Finding
from trainvitals.doctor.report import format_json, format_list, format_report
from trainvitals.doctor.surroundings import Surroundings, Wishes

__all__ = [
    "CHECKS",
    "PATIENCE_SECONDS",
    "QUICK_SECONDS",
    "Check",
    "Examination",
    "Finding",
    "Surroundings",
    "Wishes",
    "choose_checks",
    "examine",
    "format_json",
    "format_list",
    "format_report",
]
