"""A diagnosis as Markdown, for a report in an issue tracker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timezone

from trainvitals.causes.lines import clean
from trainvitals.diagnosis.diagnosis import Diagnosis
from trainvitals.diagnosis.report import (
    DEFAULT_LINES,
    list_contributing,
    list_gaps,
    tell_end,
)
from trainvitals.diagnosis.rows import Row, list_host, list_memory, list_setup, list_timeline
from trainvitals.diagnosis.text import begin, make_harmless, part_commands

_SPECIAL = re.compile(r"([\\*_\[\]<>|#~])")
_CODE = re.compile("(`[^`]*`)")


def format_markdown(diagnosis: Diagnosis, *, lines: int = DEFAULT_LINES) -> str:
    """Write a diagnosis to be pasted into an issue; times are UTC.

    Args:
        diagnosis: What is told.
        lines: How many of the log's last lines are shown.
    """
    evidence, finding = diagnosis.evidence, diagnosis.verdict.finding
    zone = timezone.utc
    parts = [
        f"## {_escape(tell_end(diagnosis, zone))}",
        f"**{_escape(finding.summary)}**",
        f"Verdict: `{finding.reason}`, confidence {finding.confidence}.",
        *_write_section("Why", _list(finding.speaks_for)),
        *_write_section("What speaks against it", _list(finding.speaks_against)),
        *_write_section("What to do", _list_steps(finding.steps)),
        *_write_section("What could not be read", _list(list_gaps(diagnosis))),
        *_write_section("What else contributed", _list(list_contributing(diagnosis))),
        *_write_section("What happened", _write_table(list_timeline(evidence, zone))),
        *_write_section("What it was", _write_table(list_setup(evidence, zone))),
        *_write_section(
            "Limits and last use", _write_table(list_memory(evidence.sample, evidence.settings))
        ),
    ]
    if evidence.host is not None:
        parts += _write_section("The machine", _write_table(list_host(evidence.host)))
    for title, log in (
        ("The kernel log", evidence.kernel_lines),
        ("The engine's log", evidence.engine_errors),
        ("The last lines of its log", (evidence.log or ())[-lines:] if lines > 0 else ()),
    ):
        parts += _write_section(title, _fence(log))
    return "\n\n".join(parts)


def _write_section(title: str, body: str) -> list[str]:
    return [f"### {title}", body] if body else []


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_escape(text)}" for text in texts)


def _list_steps(steps: Iterable[str]) -> str:
    shown = []
    for number, step in enumerate(steps, 1):
        first = f"{number}. "
        for part, is_command in part_commands(begin(step)):
            if is_command:
                shown += ["   ```", f"   {make_harmless(part)}", "   ```"]
            else:
                shown.append(f"{first}{_escape(part)}")
            first = "   "
    return "\n".join(shown)


def _write_table(rows: Iterable[Row]) -> str:
    body = [f"| {_escape(label)} | {_escape(text)} |" for label, text in rows]
    return "\n".join(["| | |", "| --- | --- |", *body]) if body else ""


def _fence(lines: Sequence[str]) -> str:
    """Put a log between fences that are longer than any in it."""
    shown = [make_harmless(line) for line in clean(lines)]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *shown, fence]) if shown else ""


def _escape(text: str) -> str:
    """Keep what stands in code as it is, and have nothing else mean anything to Markdown."""
    parts = _CODE.split(make_harmless(text))
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in parts)
