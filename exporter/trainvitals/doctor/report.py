"""Formats the results of `trainvitals doctor` as text or JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence

from trainvitals.doctor.checks import CheckRun, Result
from trainvitals.doctor.finding import Check, Status
from trainvitals.foreign_text import clean_text
from trainvitals.units import count_noun, format_duration

_NARROWEST, _WIDEST = 60, 110
_LIST_COLUMNS = 100
_SYMBOLS: dict[Status, tuple[str, str]] = {
    "problem": ("✗", "x"),
    "warning": ("!", "!"),
    "ok": ("✓", "+"),
    "not applicable": ("-", "-"),
}
_COLOURS: dict[Status, str] = {"problem": "31", "warning": "33", "ok": "32", "not applicable": "2"}
_WORDS: dict[Status, str] = {
    "problem": "problem",
    "warning": "warning",
    "ok": "ok",
    "not applicable": "n/a",
}


def format_report(
    run: CheckRun,
    *,
    width: int,
    has_colour: bool = False,
    is_plain: bool = False,
    has_all: bool = False,
) -> str:
    """Return the results of checks as text, the worst first.

    Args:
        run: The results of the checks.
        width: The number of columns in the terminal.
        has_colour: Whether to use colours in addition to words.
        is_plain: Whether to use only ASCII characters.
        has_all: Whether to show why checks do not apply; if False, only the names of these checks
            are shown.
    """
    width = min(max(width, _NARROWEST), _WIDEST)
    column = max((len(result.check.name) for result in run.results), default=0) + 2
    lines: list[str] = []
    left_out = []
    for result in run.results:
        if result.finding.status == "not applicable" and not has_all:
            left_out.append(result.check.name)
        else:
            lines += _write(result, width, column, has_colour=has_colour, is_plain=is_plain)
    if left_out:
        words = f"not applicable here (--all shows why): {', '.join(left_out)}"
        lines += _wrap(words, width, "- n/a      ", " " * 11)
    return "\n".join([*lines, "", _summarise(run)])


def _write(
    result: Result, width: int, column: int, *, has_colour: bool, is_plain: bool
) -> Iterator[str]:
    finding = result.finding
    mark = f"{_SYMBOLS[finding.status][is_plain]} {_WORDS[finding.status]:<8}"
    indent = " " * (len(mark) + column)
    first, *rest = _wrap(finding.what, width, f"{mark}{result.check.name:<{column}}", indent)
    if has_colour:
        first = f"\033[{_COLOURS[finding.status]}m{mark}\033[0m{first[len(mark) :]}"
    yield first
    yield from rest
    for line in finding.details:
        yield from _wrap(line, width, indent, indent + "  ")
    if finding.status not in {"problem", "warning"}:
        return
    yield from _wrap(f"why: {result.check.why}", width, indent, indent + "     ")
    if finding.command:
        yield f"{indent}$ {clean_text(finding.command)}"
    if finding.advice:
        yield from _wrap(finding.advice, width, indent, indent)


def _wrap(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        clean_text(text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    ) or [first]


def _summarise(run: CheckRun) -> str:
    count = run.count
    return (
        f"{count_noun(count('problem'), 'problem')}, {count_noun(count('warning'), 'warning')}, "
        f"{count('ok')} ok, {count('not applicable')} not applicable; "
        f"{format_duration(run.seconds)}"
    )


def format_json(run: CheckRun) -> str:
    """Return the results of checks as JSON; docs/doctor.md describes the keys."""
    document = {
        "status": run.status,
        "seconds": round(run.seconds, 3),
        "problems": run.count("problem"),
        "warnings": run.count("warning"),
        "checks": [
            {
                "name": result.check.name,
                "subject": result.check.subject,
                "status": result.finding.status,
                "what": result.finding.what,
                "why": result.check.why,
                "mend": result.finding.command,
                "advice": result.finding.advice,
                "details": list(result.finding.details),
                "seconds": round(result.seconds, 3),
            }
            for result in run.results
        ],
    }
    return json.dumps(document, indent=2)


def format_list(checks: Sequence[Check]) -> str:
    """Return the checks by subject, with their descriptions, as text."""
    column = max(len(check.name) for check in checks) + 4
    lines: list[str] = []
    subject = ""
    for check in checks:
        if check.subject != subject:
            subject = check.subject
            lines.append(subject)
        lines += _wrap(
            check.reports.replace("`", ""),
            _LIST_COLUMNS,
            f"  {check.name:<{column - 2}}",
            " " * column,
        )
    return "\n".join(lines)
