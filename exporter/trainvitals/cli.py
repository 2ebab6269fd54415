"""The command-line interface of the command `trainvitals`.

The exit code is 0 for success, 1 if a problem was found, and 2 if the usage is incorrect or the
command cannot run.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `main` does not handle Ctrl-C during the imports of this module
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

# For each command, the function that declares it and a summary, in the order of the help text.
# Only the module of the requested command is imported.
_COMMANDS = {
    "serve": ("serve:add_serve", "run the exporter"),
    "up": ("stack:add_up", "start the whole stack and wait until it works"),
    "down": ("stack:add_down", "stop what `up` started"),
    "status": ("stack:add_status", "show what runs and what works"),
    "logs": ("stack:add_logs", "follow what the programs log"),
    "notify": ("notify:add_notify", "set up the receivers of alerts from .env, and test them"),
    "drill": (
        "drill:add_drill",
        "simulate a fault and measure how long its message takes",
    ),
    "doctor": (
        "doctor:add_doctor",
        "check this machine before a run starts",
    ),
    "top": ("top:add_top", "show accelerators, runs, containers and the host, live"),
    "diagnose": ("diagnose:add_diagnose", "show why a container, run or process died"),
    "postmortem": ("postmortem:add_postmortem", "show how a training run ended, and why"),
    "run": (
        "run:add_run",
        "run a training that reports by itself, with nothing changed but the command",
    ),
    "runs": ("runs:add_runs", "show which lines of a file of a run are understood"),
    "profile": ("profile:add_profile", "trace the next steps of a live PyTorch run"),
    "record": ("record:add_record", "record what the machine looks like, at an interval"),
    "plot": ("plot:add_plot", "draw what a run or a machine used, from what was recorded"),
    "report": ("report:add_report", "report on a day or a week from what Prometheus keeps"),
    "docker-logging": (
        "docker_logging:add_docker_logging",
        "check how Docker stores the logs of containers, and correct it",
    ),
}
_EXAMPLES = """\
Examples:
  trainvitals doctor       is this machine fit for a run?
  trainvitals top          how is it doing?
  trainvitals diagnose     why did the container die?
  trainvitals serve        the exporter, with a live page at http://127.0.0.1:9200/
  trainvitals up           Prometheus, Alertmanager and Grafana besides

Exit codes: 0 fine, 1 it found a problem, 2 wrong usage or it cannot run.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested command and return its exit code."""
    try:
        _open_closed_streams()
        words = sys.argv[1:] if arguments is None else arguments
        if words[:1] == ["serve"]:
            from trainvitals.commands.serve_signals import ignore_hangup  # noqa: PLC0415

            ignore_hangup()  # this call precedes any slow operation
        return _run(words)
    except KeyboardInterrupt:
        return 2


def _run(arguments: Sequence[str]) -> int:
    from trainvitals.commands.parsing import CANNOT_RUN, warn  # noqa: PLC0415
    from trainvitals.errors import TrainvitalsError  # noqa: PLC0415

    try:
        options = build_parser(arguments[0] if arguments else "").parse_args(arguments)
        code: int = options.run(options)
    except TrainvitalsError as error:
        warn(str(error))
        return CANNOT_RUN
    return code


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the shell closed (`<&-`, `>&-` or `2>&-`).

    Otherwise, the next opened file would receive the descriptor of the closed stream, and printed
    text would be written to this file.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def build_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """Return the command-line parser of trainvitals.

    Args:
        chosen: The name of the command to declare with its arguments. If the name is unknown, every
            command is declared with its name and summary only. If the name is None, every command
            is declared with its arguments.
    """
    from argparse import RawDescriptionHelpFormatter  # noqa: PLC0415

    from trainvitals import __version__  # noqa: PLC0415
    from trainvitals.commands.parsing import CommandParser  # noqa: PLC0415

    parser = CommandParser(
        prog="trainvitals",
        description="Vital signs of a machine that trains models.",
        epilog=_EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trainvitals {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in [chosen] if chosen in _COMMANDS else _COMMANDS:
        entry, summary = _COMMANDS[name]
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if chosen in {name, None}:
            _load(entry)(command)
    return parser


def _load(entry: str) -> Callable[[argparse.ArgumentParser], None]:
    from importlib import import_module  # noqa: PLC0415

    module, _, function = entry.partition(":")
    declare: Callable[[argparse.ArgumentParser], None] = getattr(
        import_module(f"trainvitals.commands.{module}"), function
    )
    return declare
