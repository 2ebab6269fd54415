"""Implements the command `trainvitals doctor`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, FOUND_A_PROBLEM, add_engine, add_json, say
from trainvitals.errors import ConfigurationError

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse

    from trainvitals.doctor import Check, Options
    from trainvitals.http.listen import Address

_EXAMPLES = """\
Examples:
  trainvitals doctor                              all checks, in less than 5 s
  trainvitals doctor --quick                      in 1 s: accelerators, containers, disks, network
  trainvitals doctor --python .venv/bin/python --requirements requirements.txt
  trainvitals doctor --checkpoints /data/runs --checkpoint-size 14GB --reach gpu-07:29500
  trainvitals doctor --checks                     list the checks, and why they matter
  trainvitals doctor --checks ports,disks --json | jq -r '.checks[] | .status + " " + .name'

It changes nothing, and does not import PyTorch.

Exit codes: 0 no problem (there may be warnings), 1 a problem, 2 the command cannot run.
"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals doctor`."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--quick",
        action="store_true",
        help="check only accelerators, containers, disks and network, in less than a second",
    )
    parser.add_argument(
        "--checks",
        metavar="NAMES",
        nargs="?",
        const=True,
        help="run only these checks, by name or subject, separated by commas; without NAMES, list "
        "them",
    )
    parser.add_argument("--all", action="store_true", help="show why a check does not apply")
    add_json(parser)
    run = parser.add_argument_group("what the run needs")
    run.add_argument(
        "--python",
        metavar="PATH",
        type=Path,
        help="its Python interpreter (default that of $VIRTUAL_ENV or $CONDA_PREFIX, that of your "
        "live run that was last seen, or this one)",
    )
    run.add_argument(
        "--requirements",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a requirements file that its packages must satisfy; repeatable",
    )
    run.add_argument(
        "--checkpoints",
        metavar="DIR",
        type=Path,
        default=Path(),
        help="the directory of checkpoints (default the current one)",
    )
    run.add_argument(
        "--checkpoint-size", metavar="SIZE", help="the size of a checkpoint, as 14GB, 3GiB or bytes"
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
        help="an address that must accept connections; repeatable",
    )
    run.add_argument(
        "--need",
        metavar="NAME",
        action="append",
        default=[],
        help="a variable that must be set, as HF_TOKEN, whose value is not shown; repeatable",
    )
    add_engine(parser)
    parser.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from trainvitals.doctor import (  # noqa: PLC0415 - only this command needs it
        CHECKS,
        QUICK_TIMEOUT_SECONDS,
        TIMEOUT_SECONDS,
        format_json,
        format_list,
        format_report,
        run_checks,
    )

    if options.checks is True:
        say(format_list(CHECKS))
        return FINE
    run_options = _read_options(options)
    timeout_seconds = QUICK_TIMEOUT_SECONDS if options.quick else TIMEOUT_SECONDS
    results = run_checks(run_options, _choose(options), timeout_seconds=timeout_seconds)
    if options.json:
        say(format_json(results))
    else:
        width = shutil.get_terminal_size().columns
        style = {"has_colour": _has_colour(), "is_plain": _is_plain(), "has_all": options.all}
        say(format_report(results, width=width, **style))
    return FOUND_A_PROBLEM if results.status == "problem" else FINE


def _choose(options: argparse.Namespace) -> tuple[Check, ...]:
    from trainvitals.doctor import choose_checks  # noqa: PLC0415

    names = [name.strip() for name in (options.checks or "").split(",") if name.strip()]
    if options.checks is not None and not names:
        raise ConfigurationError(f"--checks={options.checks}: separate names by commas")
    return choose_checks(names, is_quick=options.quick)


def _read_options(options: argparse.Namespace) -> Options:
    from trainvitals.doctor import Options  # noqa: PLC0415
    from trainvitals.sources.accelerators.limits import parse_size  # noqa: PLC0415
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
            raise ConfigurationError(f"--port={port}: write a port from 1 to 65535")
    for name in options.need:
        if not _NAME.fullmatch(name):  # the text may be a secret
            raise ConfigurationError(
                "--need: not the name of a variable; write it without its value, as HF_TOKEN"
            )
    return Options(
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
        raise ConfigurationError(f"--python={python}: there is no program that can be run")
    for file in options.requirements:
        if not os.access(file, os.R_OK) or file.is_dir():
            raise ConfigurationError(f"--requirements={file}: there is no file that can be read")
    try:
        options.checkpoints.expanduser().absolute()
    except (OSError, RuntimeError) as error:  # RuntimeError: the home directory is unknown
        raise ConfigurationError(
            f"--checkpoints={options.checkpoints}: cannot resolve this path ({error}); write an absolute path"
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
    from trainvitals.http.listen import parse_address  # noqa: PLC0415

    try:
        address = parse_address(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"--reach={text}: write HOST:PORT, as gpu-07:29500") from error
    if not address.host or not address.port:
        raise ConfigurationError(f"--reach={text}: write HOST:PORT, as gpu-07:29500")
    return address
