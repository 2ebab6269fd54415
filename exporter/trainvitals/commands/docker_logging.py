"""The command `trainvitals docker-logging`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, FOUND_A_PROBLEM, add_command, say
from trainvitals.homes import expand_home

if TYPE_CHECKING:  # what the command needs is imported when it runs
    import argparse

    from trainvitals.commands.parsing import Commands
    from trainvitals.dockerlogging import Findings

_EXAMPLES = """\
Examples:
  trainvitals docker-logging                  what daemon.json does, and what would be changed
  sudo trainvitals docker-logging --apply     500 MB of logs for each container, and live-restore
  sudo trainvitals docker-logging --revert    as it was before
  trainvitals docker-logging --file ~/.config/docker/daemon.json     of a rootless Docker

It restarts nothing, and says what needs a reload or a restart.

Exit codes: 0 it is right or was written, 1 something is wrong, 2 it cannot run.
"""


def add_docker_logging(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        "docker-logging",
        "show how Docker keeps the logs of containers, and put it right",
        _EXAMPLES,
    )
    parser.add_argument(
        "--file",
        metavar="FILE",
        type=Path,
        default=Path("/etc/docker/daemon.json"),
        help="the settings of dockerd (default /etc/docker/daemon.json)",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--apply", action="store_true", help="write it, and keep a backup beside it")
    what.add_argument(
        "--revert", action="store_true", help="put the newest backup back, byte for byte"
    )
    parser.add_argument(
        "--max-size", metavar="SIZE", default="100m", help="of one log file (default 100m)"
    )
    parser.add_argument(
        "--max-file",
        metavar="N",
        type=int,
        default=5,
        help="how many log files a container keeps (default 5)",
    )
    parser.add_argument(
        "--driver",
        choices=("json-file",),
        help="put json-file in the place of another log driver, which is left alone otherwise",
    )
    parser.add_argument(
        "--no-live-restore",
        dest="has_live_restore",
        action="store_false",
        help="leave live-restore as it is",
    )
    parser.add_argument(
        "--engine",
        metavar="ADDRESS",
        help="the engine to look at, as unix:///PATH, or none "
        "(default this machine's, where the file is the usual one)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=_docker_logging)


def _docker_logging(options: argparse.Namespace) -> int:
    from trainvitals.dockerlogging import (  # noqa: PLC0415 - only this command needs it
        Wanted,
        format_json,
        format_look,
        look,
    )

    wanted = Wanted(
        options.max_size,
        options.max_file,
        has_live_restore=options.has_live_restore,
        insists=options.driver is not None,
    )
    file = expand_home(options.file, "--file").absolute()
    findings = look(file, wanted, engine=options.engine)
    if options.apply:
        return _apply(findings, as_json=options.json)
    if options.revert:
        return _revert(findings, as_json=options.json)
    say(format_json(findings) if options.json else format_look(findings))
    return FINE if findings.is_right else FOUND_A_PROBLEM


def _apply(findings: Findings, *, as_json: bool) -> int:
    from trainvitals.dockerlogging import apply, format_applied, format_json  # noqa: PLC0415

    backup = apply(findings, time=time.time())
    say(
        format_json(findings, action="apply", backup=backup)
        if as_json
        else format_applied(findings, backup)
    )
    return FINE


def _revert(findings: Findings, *, as_json: bool) -> int:
    from trainvitals.dockerlogging import format_json, format_reverted, restore  # noqa: PLC0415

    used, kept = restore(findings.file, time=time.time())
    say(
        format_json(findings, action="revert", backup=used, kept=kept)
        if as_json
        else format_reverted(findings, used, kept)
    )
    return FINE
