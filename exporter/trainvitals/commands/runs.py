"""Implements the command `trainvitals runs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import CANNOT_RUN, FINE, FOUND_A_PROBLEM, add_json, say, warn

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse
    from collections.abc import Mapping

    from trainvitals.sources.runs.explaining import ExplainedLine, Explanation

_EXAMPLES = """\
Examples:
  trainvitals runs explain train.log
  trainvitals runs explain train.log --patterns patterns.yml --all
  trainvitals runs explain runs/detect/train/results.csv
  trainvitals runs explain train.log --json | jq '.lines[] | select(.format == null)'

A file is a log, a CSV file, a file of JSON lines, trainer_state.json, an event file of TensorBoard
or a metric of MLflow.

Exit codes: 0 a line was understood, 1 no line was understood, 2 the file cannot be read.
"""
_SHOWN_LINES = 40
_LONGEST_LINE, _LONGEST_NUMBERS = 72, 400


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals runs`."""
    from argparse import RawDescriptionHelpFormatter  # noqa: PLC0415

    parser.epilog = _EXAMPLES
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    explain = commands.add_parser(
        "explain",
        help="show line by line what is read from a file, and why the rest is not",
        description="Show line by line what is read from a file, and why the rest is not.",
        epilog=_EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    explain.add_argument("file", metavar="FILE", type=Path, help="a file that a run writes")
    explain.add_argument(
        "--patterns",
        metavar="FILE",
        type=Path,
        help="regular expressions for the lines of logs, as for --trainlog.patterns",
    )
    explain.add_argument(
        "--all", action="store_true", help=f"show all lines (default the last {_SHOWN_LINES})"
    )
    add_json(explain)
    explain.set_defaults(run=_explain)


def _explain(options: argparse.Namespace) -> int:
    from trainvitals.foreign_files import explain_refusal  # noqa: PLC0415
    from trainvitals.sources.runs.explaining import explain_file  # noqa: PLC0415
    from trainvitals.sources.runs.patterns import read_patterns  # noqa: PLC0415
    from trainvitals.sources.runs.profiles import PROFILES  # noqa: PLC0415

    own = read_patterns(options.patterns, flag="--patterns") if options.patterns else ()
    try:
        found = explain_file(options.file, (*own, *PROFILES))
    except (OSError, ValueError) as error:
        reason = explain_refusal(error) if isinstance(error, OSError) else str(error)
        warn(f"cannot read {options.file}: {reason}")
        return CANNOT_RUN
    say(_write_json(found) if options.json else _write_text(found, shows_all=options.all))
    return FINE if found.understood else FOUND_A_PROBLEM


def _write_text(found: Explanation, *, shows_all: bool) -> str:
    from trainvitals.foreign_text import clean_text  # noqa: PLC0415

    shown = found.lines if shows_all else found.lines[-_SHOWN_LINES:]
    left = len(found.lines) - len(shown)
    lines = [*_summarize(found), ""]
    if left:
        lines.append(f"(the last {len(shown)} lines follow; --all shows all {len(found.lines)})")
    for line in shown:
        lines += [f"{line.number:>6}  {clean_text(line.text, most=_LONGEST_LINE)}"]
        lines += [f"        {clean_text(part)}" for part in _describe(line)]
    return "\n".join(lines)


def _summarize(found: Explanation) -> list[str]:
    from trainvitals.foreign_text import clean_text  # noqa: PLC0415
    from trainvitals.units import count_noun, format_value  # noqa: PLC0415

    counted = f"{found.understood} of {count_noun(len(found.lines), 'line')} understood"
    lines = [f"{clean_text(found.path)}: {found.kind}, {counted}"]
    if found.is_cut:
        lines.append("the file is too long; only its beginning was read")
    reasons: dict[str, int] = {}
    for line in found.lines:
        if not line.is_understood:
            reason = line.reason or f"no number in what {line.format} matches"
            reasons[reason] = reasons.get(reason, 0) + 1
    lines += [
        f"not read: {count_noun(count, 'line')}, {clean_text(r)}" for r, count in reasons.items()
    ]
    numbers = {**found.values, **found.metrics}
    last = [f"{name} {format_value(value)}" for name, value in numbers.items()]
    if found.step is not None:
        last.insert(0, f"step {found.step}{_describe_progress(found.step, found.values)}")
    if last:
        lines.append(f"last values: {clean_text(', '.join(last), most=_LONGEST_NUMBERS)}")
    return lines


def _describe_progress(step: int, values: Mapping[str, float]) -> str:
    """Return the number of steps of the run and the completed share; "" if it is unknown."""
    from trainvitals.units import format_percent  # noqa: PLC0415

    total = values.get("total_steps")
    return f" of {total:.0f} ({format_percent(step / total)})" if total else ""


def _describe(line: ExplainedLine) -> list[str]:
    from trainvitals.units import format_value  # noqa: PLC0415

    if not line.format:
        return [f"not read: {line.reason}"]
    numbers = ", ".join(f"{name} {format_value(value)}" for name, value in line.numbers.items())
    words = f"{line.format}: {numbers}" if numbers else line.format
    return [words[:_LONGEST_NUMBERS], *([f"left out: {line.reason}"] if line.reason else [])]


def _write_json(found: Explanation) -> str:
    from trainvitals.views.death.run_document import name_numbers  # noqa: PLC0415

    document = {
        "file": found.path,
        "kind": found.kind,
        "lines_read": len(found.lines),
        "lines_understood": found.understood,
        "is_cut": found.is_cut,
        "step": found.step,
        "values": found.values,
        "metrics": found.metrics,
        "lines": [_write_line(line) for line in found.lines],
    }
    return json.dumps(name_numbers(document), indent=2, allow_nan=False)


def _write_line(line: ExplainedLine) -> dict[str, object]:
    return {
        "line": line.number,
        "text": line.text,
        "format": line.format or None,
        "numbers": dict(line.numbers),
        "reason": line.reason or None,
    }
