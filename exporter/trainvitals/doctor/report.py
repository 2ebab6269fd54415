"""What was found, as text for a person and as JSON for a program."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence

from trainvitals.causes.lines import clean
from trainvitals.doctor.examination import Examination, Result
from trainvitals.doctor.finding import Check, Status

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
    examination: Examination,
    *,
    width: int,
    has_colour: bool = False,
    is_plain: bool = False,
    has_all: bool = False,
) -> str:
    """Write what was found, a line for each check, the worst first.

    Args:
        examination: What was found.
        width: How many columns there are.
        has_colour: Whether the terminal shows colours; they say nothing that words do not.
        is_plain: Whether it knows ASCII alone.
        has_all: Whether it is said of each check why it does not apply; else they are only named.
    """
    width = min(max(width, _NARROWEST), _WIDEST)
    column = max((len(result.check.name) for result in examination.results), default=0) + 2
    lines: list[str] = []
    left_out = []
    for result in examination.results:
        if result.finding.status == "not applicable" and not has_all:
            left_out.append(result.check.name)
        else:
            lines += _write(result, width, column, has_colour=has_colour, is_plain=is_plain)
    if left_out:
        words = f"not applicable here (--all says why): {', '.join(left_out)}"
        lines += _wrap(words, width, "- n/a      ", " " * 11)
    return "\n".join([*lines, "", _summarise(examination)])


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
    if finding.status not in {"problem", "warning"}:
        return
    yield from _wrap(f"why: {result.check.why}", width, indent, indent + "     ")
    if finding.mend:
        yield f"{indent}$ {_make_harmless(finding.mend)}"
    if finding.advice:
        yield from _wrap(finding.advice, width, indent, indent)


def _wrap(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        _make_harmless(text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    ) or [first]


def _make_harmless(text: str) -> str:
    """Take out what would move the cursor or colour the screen: names come from anywhere."""
    plain = " ".join(clean((text.replace("\t", " "),)))
    return "".join(letter if letter.isprintable() else "?" for letter in plain)


def _summarise(examination: Examination) -> str:
    count = examination.count
    return (
        f"{_number(count('problem'), 'problem')}, {_number(count('warning'), 'warning')}, "
        f"{count('ok')} ok, {count('not applicable')} not applicable; "
        f"{examination.seconds:.1f} s"
    )


def _number(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def format_json(examination: Examination) -> str:
    """Write what was found for a program."""
    told = {
        "status": examination.status,
        "seconds": round(examination.seconds, 3),
        "problems": examination.count("problem"),
        "warnings": examination.count("warning"),
        "checks": [
            {
                "name": result.check.name,
                "subject": result.check.subject,
                "status": result.finding.status,
                "what": result.finding.what,
                "why": result.check.why,
                "mend": result.finding.mend,
                "advice": result.finding.advice,
                "seconds": round(result.seconds, 3),
            }
            for result in examination.results
        ],
    }
    return json.dumps(told, indent=2)


def format_list(checks: Sequence[Check]) -> str:
    """List the checks by their subjects, with what each complains of."""
    column = max(len(check.name) for check in checks) + 4
    lines: list[str] = []
    subject = ""
    for check in checks:
        if check.subject != subject:
            subject = check.subject
            lines.append(subject)
        lines += _wrap(
            check.finds.replace("`", ""),
            _LIST_COLUMNS,
            f"  {check.name:<{column - 2}}",
            " " * column,
        )
    return "\n".join(lines)
