"""Flags, output and exit codes that commands share."""

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

Parser = argparse._ActionsContainer  # noqa: SLF001 - parsers and groups have no other common name


class CommandParser(argparse.ArgumentParser):
    """A parser that reports an error if its help or version cannot be written."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if file is sys.stdout:
            say(message.removesuffix("\n"))
        else:
            super()._print_message(message, file)


def add_engine(parser: Parser, default: str = "$DOCKER_HOST, or the socket that is there") -> None:
    """Declare `--containers.engine`, with `--engine` as an alias.

    Args:
        parser: The parser of the command.
        default: The engine that is used without the flag, for the help.
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
    """Declare `--containers.journal`, with `--journal` as an alias."""
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
    help: str,  # noqa: A002 - argparse's name
    type: Callable[[str], object] = str,  # noqa: A002 - argparse's name
) -> None:
    parser.add_argument(flag, dest=dest, metavar=metavar, type=type, help=help)
    parser.add_argument(alias, dest=dest, type=type, help=argparse.SUPPRESS)


def add_json(parser: Parser) -> None:
    """Declare `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def add_roots(parser: Parser, *, has_defaults: bool = True) -> None:
    """Declare `--path.procfs`, `--path.sysfs` and `--path.rootfs`.

    Args:
        parser: The parser of the command.
        has_defaults: Whether the default is the usual path rather than None.
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
    """Declare `--run-dir`.

    Args:
        parser: The parser of the command.
        has_default: Whether the default is the usual directory rather than None.
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
    """Declare `--state-dir`."""
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        type=Path,
        help="data, logs and sockets of the stack",
    )


def choose_report(options: argparse.Namespace) -> Callable[[str], None]:
    """Return a function that prints progress, or that prints nothing with `--json`."""
    return (lambda _: None) if options.json else say


def warn(text: str) -> None:
    """Print a line to standard error, without what would steer a terminal: it may quote a file."""
    from trainvitals.foreign_text import clean_lines  # noqa: PLC0415 - the help does not need it

    print(f"trainvitals: {clean_lines(text)}", file=sys.stderr)


def say(text: str) -> None:
    """Print to standard output; unencodable characters and a closed pipe are not errors.

    Raises:
        TrainvitalsError: The text cannot be written.
    """
    try:
        try:
            print(text, flush=True)
        except UnicodeEncodeError:  # The encoding of the terminal is ASCII.
            print(text.encode("ascii", "replace").decode(), flush=True)
    except OSError as error:
        # The text stays in the buffer, and the interpreter flushes it again when it ends: that would
        # fail too, and the exit code be 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # A broken pipe is no error: its reader, such as head, has exited.
        if not isinstance(error, BrokenPipeError):
            raise TrainvitalsError(f"cannot write the output: {error.strerror}") from error
