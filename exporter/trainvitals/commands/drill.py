"""Implements the command `trainvitals drill`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import (
    FINE,
    FOUND_A_PROBLEM,
    add_json,
    add_state_dir,
    choose_report,
    say,
)
from trainvitals.commands.stack import interrupt_on_signals
from trainvitals.errors import ConfigurationError

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse

    from trainvitals.stack.drills import DrillResult, Fault

_EXAMPLES = """\
Examples:
  trainvitals drill GPUHighTemperature
  trainvitals drill TrainingRunLost --real
  trainvitals drill --list

Exit codes: 0 the message and the resolved message arrived, 1 one of them did not, or its receiver
has no channel, 2 the command cannot run.
"""


def add_drill(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals drill`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("alert", metavar="ALERT", nargs="?", help="the alert that should fire")
    parser.add_argument(
        "--real",
        action="store_true",
        help="use the real durations; by default they are divided by up to 60",
    )
    parser.add_argument("--list", action="store_true", help="list the alerts that can be drilled")
    add_json(parser)
    add_state_dir(parser)
    parser.set_defaults(run=_drill)


def _drill(options: argparse.Namespace) -> int:
    import logging  # noqa: PLC0415

    from trainvitals.stack.drills import FAULTS, find_fault, format_result  # noqa: PLC0415

    if options.list:
        say("\n".join(f"{fault.alert}: {fault.story}" for fault in FAULTS))
        return FINE
    if options.alert is None:
        raise ConfigurationError("no alert was named; see `trainvitals drill --list`")
    interrupt_on_signals()
    logging.disable(logging.WARNING)  # do not log the simulated faults
    result = _run_drill(find_fault(options.alert), options)
    say(format_result(result, as_json=options.json))
    return FINE if result.passed else FOUND_A_PROBLEM


def _run_drill(fault: Fault, options: argparse.Namespace) -> DrillResult:
    import tempfile  # noqa: PLC0415
    from functools import partial  # noqa: PLC0415

    from trainvitals.stack import read_settings  # noqa: PLC0415
    from trainvitals.stack.configuration import report_destinations  # noqa: PLC0415
    from trainvitals.stack.debian import find_program  # noqa: PLC0415
    from trainvitals.stack.drills import SPEED, drill, fit_speed, make_plan  # noqa: PLC0415

    report = choose_report(options)
    settings = read_settings(state_dir=options.state_dir)
    with tempfile.TemporaryDirectory(prefix="trainvitals-drill-") as directory:
        plan = make_plan(
            settings,
            Path(directory),
            speed=1.0 if options.real else SPEED,
            find=partial(find_program, report=report),
        )
        plan = fit_speed(fault, plan)
        report(
            "a second Prometheus and Alertmanager with the same rules and routes, "
            + ("at real durations" if options.real else f"all durations divided by {plan.speed:g}")
        )
        result = drill(fault, plan, report=report)
    report_destinations(settings.state_dir, report, head="the stack's own alerts go to")
    return result
