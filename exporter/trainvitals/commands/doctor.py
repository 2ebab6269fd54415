"""The command `trainvitals doctor`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, FOUND_A_PROBLEM, add_command, say
from trainvitals.errors import ConfigurationError

if TYPE_CHECKING:  # what the command needs is imported when it runs
    import argparse

    from trainvitals.commands.parsing import Commands
    from trainvitals.doctor import Check, Wishes
    from trainvitals.listen import Address

_EXAMPLES = """\
Examples:
  trainvitals doctor                              everything, in less than 5 s
  trainvitals doctor --quick                      accelerators, containers, disks, network: 1 s
  trainvitals doctor --python .venv/bin/python --requirements requirements.txt
  trainvitals doctor --checkpoints /data/runs --checkpoint-size 14GB --reach gpu-07:29500
  trainvitals doctor --checks                     what is checked, and what for
  trainvitals doctor --checks ports,disks --json | jq -r '.checks[] | .status + " " + .name'

It changes nothing, and imports no PyTorch.

Exit codes: 0 no problem (there may be warnings), 1 a problem, 2 it cannot run.
"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def add_doctor(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands, "doctor", "tell what is wrong with this machine before a run starts", _EXAMPLES
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="accelerators, containers, disks and network alone, in less than a second",
    )
    parser.add_argument(
        "--checks",
        metavar="NAMES",
        nargs="?",
        const=True,
        help="make these checks alone, by name or subject, with commas between; without NAMES: "
        "list them",
    )
    parser.add_argument(
        "--all", action="store_true", help="say of each check that does not apply why that is"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    run = parser.add_argument_group("the run that is to come")
    run.add_argument(
        "--python",
        metavar="PATH",
        type=Path,
        help="the Python that trains (default that of $VIRTUAL_ENV or $CONDA_PREFIX, or this one)",
    )
    run.add_argument(
        "--requirements",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="what must be installed for it, as pip reads it; repeatable",
    )
    run.add_argument(
        "--checkpoints",
        metavar="DIR",
        type=Path,
        default=Path(),
        help="where checkpoints go (default this folder)",
    )
    run.add_argument(
        "--checkpoint-size", metavar="SIZE", help="how large one is, as 14GB, 3GiB or bytes"
    )
    run.add_argument(
        "--port",
        metavar="N",
        type=int,
        action="append",
        default=[],
        help="a port that must be free, besides those of the stack and $MASTER_PORT; repeatable",
    )
    run.add_argument(
        "--reach",
        metavar="HOST:PORT",
        action="append",
        default=[],
        help="what must be reached; repeatable",
    )
    run.add_argument(
        "--need",
        metavar="NAME",
        action="append",
        default=[],
        help="a variable that must be set, as HF_TOKEN; repeatable; its value is not shown",
    )
    parser.add_argument(
        "--engine",
        metavar="ADDRESS",
        help="the container engine, as unix:///PATH, tcp://HOST:PORT or none (default "
        "$DOCKER_HOST, or the usual sockets of Docker and Podman)",
    )
    parser.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from trainvitals.doctor import (  # noqa: PLC0415 - only this command needs it
        CHECKS,
        PATIENCE_SECONDS,
        QUICK_SECONDS,
        examine,
        format_json,
        format_list,
        format_report,
    )

    if options.checks is True:
        say(format_list(CHECKS))
        return FINE
    wishes = _read_wishes(options)
    checks = _choose(options)
    examination = examine(
        wishes, checks, patience_seconds=QUICK_SECONDS if options.quick else PATIENCE_SECONDS
    )
    if options.json:
        say(format_json(examination))
    else:
        width = shutil.get_terminal_size().columns
        look = {"has_colour": _has_colour(), "is_plain": _is_plain(), "has_all": options.all}
        say(format_report(examination, width=width, **look))
    return FOUND_A_PROBLEM if examination.status == "problem" else FINE


def _choose(options: argparse.Namespace) -> tuple[Check, ...]:
    from trainvitals.doctor import choose_checks  # noqa: PLC0415

    names = [name.strip() for name in (options.checks or "").split(",") if name.strip()]
    if options.checks is not None and not names:
        raise ConfigurationError(f"--checks={options.checks}: write names with commas between")
    return choose_checks(names, is_quick=options.quick)


def _read_wishes(options: argparse.Namespace) -> Wishes:
    from trainvitals.doctor import Wishes  # noqa: PLC0415
    from trainvitals.sources.accelerators.memory_limit import parse_size  # noqa: PLC0415
    from trainvitals.sources.containers.address import parse_address  # noqa: PLC0415

    size = None
    if options.checkpoint_size is not None:
        size = parse_size(options.checkpoint_size)
        if size is None:
            raise ConfigurationError(
                f"--checkpoint-size={options.checkpoint_size!r}: write a size such as 14GB or 3GiB"
            )
    if options.engine and options.engine != "none":
        parse_address(options.engine, os.environ)
    _check_files(options)
    for port in options.port:
        if not 0 < port < 1 << 16:
            raise ConfigurationError(f"--port={port}: write a number from 1 to 65535")
    for name in options.need:
        if not _NAME.fullmatch(name):  # what stands there may be a secret
            raise ConfigurationError(
                "--need: write the name of a variable alone, as HF_TOKEN, without its value"
            )
    return Wishes(
        python=options.python,
        requirements=tuple(options.requirements),
        checkpoints=options.checkpoints,
        checkpoint_bytes=size,
        ports=tuple(options.port),
        reach=tuple(map(_parse_target, options.reach)),
        needed=tuple(options.need),
        engine=options.engine,
    )


def _check_files(options: argparse.Namespace) -> None:
    python = options.python
    if python is not None and not (python.is_file() and os.access(python, os.X_OK)):
        raise ConfigurationError(f"--python={python}: there is no such program")
    for file in options.requirements:
        if not os.access(file, os.R_OK) or file.is_dir():
            raise ConfigurationError(f"--requirements={file}: there is no such file to read")
    try:
        options.checkpoints.expanduser().absolute()
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody has the home directory
        raise ConfigurationError(
            f"--checkpoints={options.checkpoints}: there is no such place to start from ({error}); "
            "write the whole path"
        ) from error


def _has_colour() -> bool:
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def _is_plain() -> bool:
    try:
        "✗✓".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def _parse_target(text: str) -> Address:
    from trainvitals.listen import parse_address  # noqa: PLC0415

    try:
        address = parse_address(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"--reach={text}: write HOST:PORT, as gpu-07:29500") from error
    if not address.host or not address.port:
        raise ConfigurationError(f"--reach={text}: write HOST:PORT, as gpu-07:29500")
    return address
