"""The flags, output functions and exit codes that several commands share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.errors import TrainvitalsError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

FINE, FOUND_A_PROBLEM, CANNOT_RUN = 0, 1, 2

Parser = argparse._ActionsContainer  # noqa: SLF001 - parsers and groups have no public common type


class CommandParser(argparse.ArgumentParser):
    """An argument parser that reports an error if the help text or version cannot be written."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if file is sys.stdout:
            say(message.removesuffix("\n"))
        else:
            super()._print_message(message, file)


def add_engine(parser: Parser, default: str = "$DOCKER_HOST, or the socket that is there") -> None:
    """Declare the flag `--containers.engine`, with the alias `--engine`.

    Args:
        parser: The command's parser.
        default: The description of the default engine in the help text.
    """
    _add_with_alias(
        parser,
        "--containers.engine",
        "--engine",
        dest="engine",
        metavar="ADDRESS",
        help="the container engine: unix:///run/podman/podman.sock, tcp://HOST:PORT or none "
        f"(default {default})",
    )


def add_journal(parser: Parser) -> None:
    """Declare the flag `--containers.journal`, with the alias `--journal`."""
    _add_with_alias(
        parser,
        "--containers.journal",
        "--journal",
        dest="journal",
        metavar="DIR",
        type=Path,
        help="the directory of the journal of deaths (default $TRAINVITALS_JOURNAL_DIR, for root "
        "/var/lib/trainvitals/deaths, else ~/.local/state/trainvitals/deaths)",
    )


def _add_with_alias(
    parser: Parser,
    flag: str,
    alias: str,
    *,
    dest: str,
    metavar: str,
    help: str,  # noqa: A002 - the name that argparse requires
    type: Callable[[str], object] = str,  # noqa: A002 - the name that argparse requires
) -> None:
    parser.add_argument(flag, dest=dest, metavar=metavar, type=type, help=help)
    parser.add_argument(alias, dest=dest, type=type, help=argparse.SUPPRESS)


def add_json(parser: Parser) -> None:
    """Declare the flag `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def add_roots(parser: Parser, *, has_defaults: bool = True) -> None:
    """Declare the flags `--path.procfs`, `--path.sysfs` and `--path.rootfs`.

    Args:
        parser: The command's parser.
        has_defaults: Whether the default of each flag is the usual path instead of None.
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


def add_run_dir(parser: Parser, *, has_default: bool = True) -> None:
    """Declare the flag `--run-dir`.

    Args:
        parser: The command's parser.
        has_default: Whether the default of the flag is the usual directory instead of None.
    """
    usual = Path(os.environ.get("TRAINVITALS_RUN_DIR") or "/dev/shm/trainvitals")  # noqa: S108 - the documented default
    parser.add_argument(
        "--run-dir",
        dest="run_dir",
        metavar="DIR",
        type=Path,
        default=usual if has_default else None,
        help="the directory of run files (default $TRAINVITALS_RUN_DIR or /dev/shm/trainvitals)",
    )


def add_state_dir(parser: Parser) -> None:
    """Declare the flag `--state-dir`."""
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        type=Path,
        help="data, logs and sockets of the stack",
    )


def choose_report(options: argparse.Namespace) -> Callable[[str], None]:
    """Return a function that prints progress lines; with `--json`, the function prints nothing."""
    return (lambda _: None) if options.json else say


def warn(text: str) -> None:
    """Print a text to standard error, without control characters from quoted files."""
    from trainvitals.foreign_text import clean_lines  # noqa: PLC0415 - not needed for the help

    print(f"trainvitals: {clean_lines(text)}", file=sys.stderr)


def say(text: str) -> None:
    """Print a text to standard output; unencodable characters or a closed pipe are not errors.

    Raises:
        TrainvitalsError: The text cannot be written.
    """
    try:
        try:
            print(text, flush=True)
        except UnicodeEncodeError:  # The terminal's encoding is ASCII.
            print(text.encode("ascii", "replace").decode(), flush=True)
    except OSError as error:
        # The text stays in the buffer, and the interpreter flushes the buffer again at exit. This
        # would also fail, with the exit code 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # A broken pipe is not an error: the reading process, such as head, has exited.
        if not isinstance(error, BrokenPipeError):
            raise TrainvitalsError(f"cannot write the output: {error.strerror}") from error
