"""Docker's log settings: what `daemon.json` does now, and putting it right with a way back."""

from trainvitals.dockerlogging.findings import Findings, apply, look
from trainvitals.dockerlogging.flags import DEFAULT_FILE
from trainvitals.dockerlogging.placing import restore
from trainvitals.dockerlogging.report import (
    format_applied,
    format_json,
    format_look,
    format_reverted,
)
from trainvitals.dockerlogging.wanted import Wanted

__all__ = [
    "DEFAULT_FILE",
    "Findings",
    "Wanted",
    "apply",
    "format_applied",
    "format_json",
    "format_look",
    "format_reverted",
    "look",
    "restore",
]
