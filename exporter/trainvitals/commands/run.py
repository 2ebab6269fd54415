"""Implements the command `trainvitals run`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import add_run_dir, warn
from trainvitals.errors import ConfigurationError

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse

_EXAMPLES = """\
Examples:
  trainvitals run -- python train.py --epochs 3
  trainvitals run --name bert -- torchrun --nproc-per-node 8 train.py
  trainvitals run --name resnet -- accelerate launch train.py
  TRAINVITALS_AUTOLOG=0 trainvitals run -- python train.py     started, and not observed

Every Python process below the command reports its training: steps, samples, loss and phases of
PyTorch, and the callbacks of Transformers, Lightning and Keras. A line at the end says how many
processes were seen and how many reported.

Exit codes: 0 the command succeeded, 2 the command cannot be started, otherwise that of the
command; a signal that ended the command also ends this one.
"""


def add_run(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals run`."""
    parser.epilog = _EXAMPLES
    parser.usage = "trainvitals run [-h] [--name NAME] [--quiet] [--run-dir DIR] -- COMMAND ..."
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="the name of the run (default $TRAINVITALS_RUN, or what the launcher, the tracker or"
        " the script is called)",
    )
    parser.add_argument("--quiet", action="store_true", help="write no line at the end")
    add_run_dir(parser)
    parser.add_argument("command", metavar="COMMAND", nargs="...", help="the program to run")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from trainvitals.runner.command import end_alike, make_environment, run_command  # noqa: PLC0415 - only this needs it
    from trainvitals.runner.coverage import Coverage  # noqa: PLC0415

    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise ConfigurationError(
            "run: which command? Write it after --: trainvitals run -- python train.py"
        )
    coverage = Coverage()
    environ = make_environment(os.environ, name=options.name, run_dir=options.run_dir)
    code = run_command(command, environ, look=coverage.look)
    if not options.quiet:
        warn(coverage.describe(options.run_dir))
    return end_alike(code)
