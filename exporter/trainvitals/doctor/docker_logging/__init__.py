"""Checks, corrects and restores Docker's log settings in `daemon.json`."""

from trainvitals.doctor.docker_logging.backups import restore
from trainvitals.doctor.docker_logging.flags import DEFAULT_FILE
from trainvitals.doctor.docker_logging.inspection import Findings, apply, inspect
from trainvitals.doctor.docker_logging.plan import LogSettings
from trainvitals.doctor.docker_logging.report import (
    format_applied,
    format_findings,
    format_json,
    format_reverted,
)

__all__ = [
    "DEFAULT_FILE",
    "Findings",
    "LogSettings",
    "apply",
    "format_applied",
    "format_findings",
    "format_json",
    "format_reverted",
    "inspect",
    "restore",
]
