"""Built-in patterns for the log lines of common frameworks and conventions."""

from __future__ import annotations

from trainvitals.sources.runs.formats import FORMATS
from trainvitals.sources.runs.formats.entry import list_patterns
from trainvitals.sources.runs.patterns import Pattern

# The built-in patterns, in the order in which they are tried.
PROFILES: tuple[Pattern, ...] = tuple(
    pattern for entry in FORMATS for pattern in list_patterns(entry)
)
