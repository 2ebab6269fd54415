"""What all commands share: how they are declared, how they speak, how they exit."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.errors import TrainvitalsError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - has no other name

FINE, FOUND_A_PROBLEM, CANNOT_RUN = 0, 1, 2


def add_command(
    commands: Commands, name: str, summary: str, examples: str
) -> argparse.ArgumentParser:
    """Declare a command.

    Args:
        commands: Where it is declared.
        name: Its name.
        summary: What it does, without a capital at the start and without a full stop.
        examples: The end of its help, headed "Examples:".
    """
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_run_dir(parser: argparse._ActionsContainer) -> None:
    """Declare `--run-dir`."""
    parser.add_argument(
        "--run-dir",
        dest="run_dir",
        metavar="DIR",
        type=Path,
        default=Path(os.environ.get("TRAINVITALS_RUN_DIR") or "/dev/shm/trainvitals"),  # noqa: S108 - the documented default
        help="where training runs leave their files (default $TRAINVITALS_RUN_DIR or "
        "/dev/shm/trainvitals)",
    )


def add_roots(parser: argparse._ActionsContainer, *, has_defaults: bool = True) -> None:
    """Declare `--path.procfs`, `--path.sysfs` and `--path.rootfs`.

    Args:
        parser: Where they are declared.
        has_defaults: Give what Linux has where nobody says; else None tells that nobody did.
    """
    for name, words in (("procfs", "/proc"), ("sysfs", "/sys"), ("rootfs", "/")):
        parser.add_argument(
            f"--path.{name}",
            dest=name,
            metavar="DIR",
            type=Path,
            default=Path(words) if has_defaults else None,
            help=f"where the host's {words} is mounted (default {words})",
        )


def say(text: str) -> None:
    """Print to standard output, whatever the terminal knows and however soon the reader leaves.

    Raises:
        TrainvitalsError: It cannot be written.
    """
    try:
        try:
            print(text, flush=True)
        except UnicodeEncodeError:  # a terminal that knows ASCII alone
            print(text.encode("ascii", "replace").decode(), flush=True)
    except OSError as error:
        # What Python still holds must not raise again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # whoever reads may stop when it has enough
            raise TrainvitalsError(f"cannot write the output: {error.strerror}") from error
