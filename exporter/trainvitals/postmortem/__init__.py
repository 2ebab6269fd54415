"""What the run files still tell of runs that ended, and what that usually means."""

from trainvitals.postmortem.cases import is_well
from trainvitals.postmortem.document import format_json
from trainvitals.postmortem.findings import choose_run, read_findings
from trainvitals.postmortem.screen import format_screen

__all__ = ["choose_run", "format_json", "format_screen", "is_well", "read_findings"]
