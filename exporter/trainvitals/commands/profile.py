"""Implements the command `trainvitals profile`."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, FOUND_A_PROBLEM, add_json, add_run_dir, say
from trainvitals.errors import ConfigurationError

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse

    from trainvitals.record.profiling import Target
    from trainvitals.runfile.traces import TraceAnswer

_EXAMPLES = """\
Examples:
  trainvitals profile bert                          the next 5 steps of the lowest rank here
  trainvitals profile bert --steps 20 --rank 3
  trainvitals profile bert --with-stack --record-shapes
  trainvitals profile bert --json | jq -r .trace    the file for Perfetto or chrome://tracing

The run writes the files into $TRAINVITALS_PROFILE_DIR of its environment, or into
trainvitals-profiles in the directory in which it was started.

Exit codes: 0 a trace was written, 1 the run could not take one, 2 it cannot be asked.
"""
_MOST_STEPS = 100


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals profile`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("name", metavar="RUN", help="the run's name, or its beginning")
    parser.add_argument(
        "--steps",
        metavar="N",
        type=int,
        default=5,
        help="the number of steps, 1 to 100 (default 5)",
    )
    parser.add_argument(
        "--rank", metavar="N", type=int, help="the rank (default the lowest on this machine)"
    )
    parser.add_argument(
        "--record-shapes", action="store_true", help="record the shapes of operators' inputs"
    )
    parser.add_argument(
        "--with-stack", action="store_true", help="record the source lines that called them; slow"
    )
    parser.add_argument(
        "--no-memory", action="store_true", help="do not record allocations; faster"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=120.0,
        help="how long to wait without progress (default 120)",
    )
    add_json(parser)
    add_run_dir(parser)
    parser.set_defaults(run=_profile)


def _profile(options: argparse.Namespace) -> int:
    from trainvitals.record.profiling import ask, find_target, follow  # noqa: PLC0415 - only this needs it
    from trainvitals.runfile.traces import TraceRequest  # noqa: PLC0415

    if not 1 <= options.steps <= _MOST_STEPS:
        raise ConfigurationError(f"--steps={options.steps}: write a number from 1 to 100")
    if not options.timeout > 0:
        raise ConfigurationError(f"--timeout={options.timeout:g}: write a number of seconds")
    target = find_target(options.run_dir, options.name, options.rank)
    request = TraceRequest(
        number=int.from_bytes(os.urandom(7), "little") + 1,
        steps=options.steps,
        record_shapes=options.record_shapes,
        profile_memory=not options.no_memory,
        with_stack=options.with_stack,
    )
    with ask(target, request) as read:
        answer = follow(
            target,
            request,
            read,
            timeout_seconds=options.timeout,
            report=(lambda _: None) if options.json else _report,
        )
    return _show(target, answer, as_json=options.json)


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _show(target: Target, answer: TraceAnswer, *, as_json: bool) -> int:
    from trainvitals.runfile.traces import TraceStage  # noqa: PLC0415

    is_done = answer.stage is TraceStage.DONE
    path, _, note = answer.text.partition("\t")
    if as_json:
        document = {
            "run": target.run,
            "rank": target.rank,
            "steps": answer.steps,
            "trace": f"{path}/trace.json.gz" if is_done else None,
            "summary": f"{path}/summary.txt" if is_done else None,
            "note": note or None,
            "error": None if is_done else answer.text,
        }
        say(json.dumps(document, indent=2))
    elif is_done:
        steps = f"{answer.steps} step" + ("s" if answer.steps != 1 else "")
        say(f"{steps} of run {target.run}, rank {target.rank}" + (f" ({note})" if note else ""))
        say(f"{path}/trace.json.gz    for https://ui.perfetto.dev or chrome://tracing")
        say(f"{path}/summary.txt")
    else:
        say(f"run {target.run}, rank {target.rank}, took no trace: {answer.text}")
    return FINE if is_done else FOUND_A_PROBLEM
