"""Formats a diagnosis as Markdown, for a report in an issue tracker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timezone

from trainvitals.foreign_text import clean_text, escape_markdown
from trainvitals.masking import mask_text
from trainvitals.verdicts.causes.diagnosis import Diagnosis
from trainvitals.verdicts.causes.lines import redraw
from trainvitals.views.death.report import (
    DEFAULT_LINES,
    describe_outcome,
    list_contributing,
    list_gaps,
)
from trainvitals.views.death.rows import Row, list_host, list_memory, list_setup, list_timeline
from trainvitals.views.death.text import begin, part_commands


def format_markdown(diagnosis: Diagnosis, *, lines: int = DEFAULT_LINES) -> str:
    """Return a diagnosis as Markdown, with secrets masked and times in UTC.

    Args:
        diagnosis: The diagnosis to format.
        lines: The maximum number of log lines.
    """
    evidence, finding = diagnosis.evidence, diagnosis.verdict.finding
    zone = timezone.utc
    parts = [
        f"## {escape_markdown(describe_outcome(diagnosis, zone))}",
        f"**{escape_markdown(finding.summary)}**",
        f"Verdict: `{finding.reason}`, confidence {finding.confidence}.",
        *_write_section("Evidence", _list(finding.speaks_for)),
        *_write_section("Evidence against it", _list(finding.speaks_against)),
        *_write_section("What to do", _list_steps(finding.steps)),
        *_write_section("What could not be read", _list(list_gaps(diagnosis))),
        *_write_section("Contributing causes", _list(list_contributing(diagnosis))),
        *_write_section("Timeline", _write_table(list_timeline(evidence, zone))),
        *_write_section("Configuration", _write_table(list_setup(evidence, zone))),
        *_write_section(
            "Limits and last usage", _write_table(list_memory(evidence.sample, evidence.settings))
        ),
    ]
    if evidence.host is not None:
        parts += _write_section("The machine", _write_table(list_host(evidence.host)))
    for title, log in (
        ("The kernel log", evidence.kernel_lines),
        ("The engine's log", evidence.engine_errors),
        ("The last log lines", (evidence.log or ())[-lines:] if lines > 0 else ()),
    ):
        parts += _write_section(title, _fence(log))
    # Secrets in the evidence were masked line by line; the combined text is masked again.
    return mask_text("\n\n".join(parts))


def _write_section(title: str, body: str) -> list[str]:
    return [f"### {title}", body] if body else []


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {escape_markdown(text)}" for text in texts)


def _list_steps(steps: Iterable[str]) -> str:
    shown = []
    for number, step in enumerate(steps, 1):
        first = f"{number}. "
        for part, is_command in part_commands(begin(step)):
            if is_command:
                shown += ["   ```", f"   {clean_text(part)}", "   ```"]
            else:
                shown.append(f"{first}{escape_markdown(part)}")
            first = "   "
    return "\n".join(shown)


def _write_table(rows: Iterable[Row]) -> str:
    body = [f"| {escape_markdown(label)} | {escape_markdown(text)} |" for label, text in rows]
    return "\n".join(["| | |", "| --- | --- |", *body]) if body else ""


def _fence(lines: Sequence[str]) -> str:
    """Return a log between code fences that are longer than any row of backticks in the log."""
    shown = [clean_text(line) for line in redraw(lines)]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *shown, fence]) if shown else ""
