"""Implements the command `trainvitals run`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import add_run_dir, warn
from trainvitals.errors import ConfigurationError

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse

    from trainvitals.runner.command import Observer
    from trainvitals.runner.output import OutputLog

_EXAMPLES = """\
Examples:
  trainvitals run -- python train.py --epochs 3
  trainvitals run --name bert -- torchrun --nproc-per-node 8 train.py
  trainvitals run --name resnet -- accelerate launch train.py
  trainvitals run --log train.log -- python train.py           and keep what it writes
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
    parser.usage = (
        "trainvitals run [-h] [--name NAME] [--log FILE] [--quiet] [--run-dir DIR] -- COMMAND ..."
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="the name of the run (default $TRAINVITALS_RUN, or what the launcher, the tracker or"
        " the script is called)",
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        type=Path,
        help="append what the command writes to this file as well; `diagnose` reads the file",
    )
    parser.add_argument("--quiet", action="store_true", help="write no line at the end")
    add_run_dir(parser)
    parser.add_argument("command", metavar="COMMAND", nargs="...", help="the program to run")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from trainvitals.runner.command import end_alike, make_environment, run_command  # noqa: PLC0415 - only this needs it
    from trainvitals.runner.supervision import Supervision  # noqa: PLC0415
    from trainvitals.training.failure import VARIABLE  # noqa: PLC0415

    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise ConfigurationError(
            "run: which command? Write it after --: trainvitals run -- python train.py"
        )
    output = _open_log(options.log)
    name = options.name or os.environ.get("TRAINVITALS_RUN")
    supervision = Supervision(options.run_dir, name=name, output=output)
    environ = make_environment(os.environ, name=options.name, run_dir=options.run_dir)
    if supervision.failures.path is not None:
        environ[VARIABLE] = str(supervision.failures.path)
    observers: list[Observer] = [supervision] if output is None else [output, supervision]
    streams = None if output is None else output.streams
    try:
        code = run_command(command, environ, observers=observers, streams=streams)
    except ConfigurationError:
        supervision.failures.close()
        raise
    if output is not None:
        output.end()
    said = supervision.end()
    if not options.quiet:
        warn(said)
    return end_alike(code)


def _open_log(path: Path | None) -> OutputLog | None:
    if path is None:
        return None
    from trainvitals.runner.output import OutputLog  # noqa: PLC0415

    return OutputLog(path, warn)
