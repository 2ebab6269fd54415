"""Implements the command `trainvitals docker-logging`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, FOUND_A_PROBLEM, add_engine, add_json, say
from trainvitals.homes import expand_home

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse

    from trainvitals.doctor.docker_logging import Findings

_EXAMPLES = """\
Examples:
  trainvitals docker-logging                  check daemon.json, and show what would be changed
  sudo trainvitals docker-logging --apply     500 MB of logs for each container, and live-restore
  sudo trainvitals docker-logging --revert    restore the newest backup
  trainvitals docker-logging --file ~/.config/docker/daemon.json     of a rootless Docker

It restarts nothing, and lists the steps to apply a change.

Exit codes: 0 correct or written, 1 a problem was found, 2 the command cannot run.
"""


def add_docker_logging(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals docker-logging`."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--file",
        metavar="FILE",
        type=Path,
        default=Path("/etc/docker/daemon.json"),
        help="the configuration file of dockerd (default /etc/docker/daemon.json)",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--apply", action="store_true", help="write the file, and keep a backup beside it"
    )
    what.add_argument(
        "--revert", action="store_true", help="restore the newest backup, byte for byte"
    )
    parser.add_argument(
        "--max-size",
        metavar="SIZE",
        default="100m",
        help="the size at which a log file is rotated (default 100m)",
    )
    parser.add_argument(
        "--max-file",
        metavar="N",
        type=int,
        default=5,
        help="the number of log files for each container (default 5)",
    )
    parser.add_argument(
        "--driver",
        choices=("json-file",),
        help="replace another log driver by json-file; it is not changed otherwise",
    )
    parser.add_argument(
        "--no-live-restore",
        dest="has_live_restore",
        action="store_false",
        help="do not change live-restore",
    )
    add_engine(parser, "that of this machine if --file is the default")
    add_json(parser)
    parser.set_defaults(run=_docker_logging)


def _docker_logging(options: argparse.Namespace) -> int:
    from trainvitals.doctor.docker_logging import (  # noqa: PLC0415 - only this command needs it
        LogSettings,
        format_findings,
        format_json,
        inspect,
    )

    wanted = LogSettings(
        options.max_size,
        options.max_file,
        has_live_restore=options.has_live_restore,
        replaces_driver=options.driver is not None,
    )
    file = expand_home(options.file, "--file").absolute()
    findings = inspect(file, wanted, engine=options.engine)
    if options.apply:
        return _apply(findings, as_json=options.json)
    if options.revert:
        return _revert(findings, as_json=options.json)
    say(format_json(findings) if options.json else format_findings(findings))
    return FINE if findings.is_correct else FOUND_A_PROBLEM


def _apply(findings: Findings, *, as_json: bool) -> int:
    from trainvitals.doctor.docker_logging import apply, format_applied, format_json  # noqa: PLC0415

    backup = apply(findings, time=time.time())
    say(
        format_json(findings, action="apply", backup=backup)
        if as_json
        else format_applied(findings, backup)
    )
    return FINE


def _revert(findings: Findings, *, as_json: bool) -> int:
    from trainvitals.doctor.docker_logging import format_json, format_reverted, restore  # noqa: PLC0415

    used, kept = restore(findings.file, time=time.time())
    say(
        format_json(findings, action="revert", backup=used, kept=kept)
        if as_json
        else format_reverted(findings, used, kept)
    )
    return FINE
