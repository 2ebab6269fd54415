"""Implements the command `trainvitals record`."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, add_engine, add_roots, add_run_dir, say
from trainvitals.errors import ConfigurationError
from trainvitals.homes import expand_home
from trainvitals.units import format_stamp

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse

    from trainvitals.metrics.machine import MachineOptions

_EXAMPLES = """\
Examples:
  trainvitals record                              every 30 s, below ~/runner-monitoring
  trainvitals record --interval 5 --output run.csv    numbers, for `trainvitals plot`
  trainvitals record --once --output -            one snapshot, on the terminal
  */5 * * * * trainvitals record --once --output /var/log/vitals.jsonl    by cron

Of processes, names, users and PIDs are written, never command lines.
SIGTERM, SIGINT and SIGHUP end it after a complete snapshot; SIGUSR1 closes the drivers of
accelerators for a minute.

Exit codes: 0 stopped by a signal or finished, 2 it cannot run, or the last snapshots of --once or
--count could not be written.
"""
FORMATS = ("text", "csv", "jsonl")
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.1, 86_400.0
_LONGEST_PATIENCE_SECONDS = 10.0


def add_record(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals record`."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=float,
        default=30.0,
        help="the time between snapshots, 0.1 to 86400 (default 30)",
    )
    much = parser.add_mutually_exclusive_group()
    much.add_argument("--once", action="store_true", help="take one snapshot and exit")
    much.add_argument(
        "--count", metavar="N", type=int, help="take N snapshots and exit (default: no limit)"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--output", metavar="FILE", help="the file to append to; - for standard output"
    )
    where.add_argument(
        "--directory",
        metavar="DIR",
        type=Path,
        default=Path("~/runner-monitoring"),
        help="the directory of a new file runner-HOST-TIME.log, .csv or .jsonl (default ~/runner-monitoring)",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="text for people, or CSV or JSON lines for programs (default: by the end of "
        "--output, .csv or .jsonl, else text)",
    )
    parser.add_argument(
        "--no-fsync",
        dest="fsync",
        action="store_false",
        help="let the kernel decide when a snapshot is written to disk; those of the last half "
        "minute may be lost when the machine crashes",
    )
    parser.add_argument(
        "--max-size",
        metavar="SIZE",
        default="100MB",
        help="the size at which the file is compressed and a new one is begun, as 100MB, 1GiB or "
        "bytes (default 100MB)",
    )
    parser.add_argument(
        "--keep",
        metavar="N",
        type=int,
        default=5,
        help="the number of compressed files to keep (default 5)",
    )
    machine = parser.add_argument_group("machine")
    add_engine(machine)
    add_roots(machine)
    add_run_dir(machine)
    parser.set_defaults(run=_record)


def _record(options: argparse.Namespace) -> int:
    from trainvitals.logs import set_up_logging  # noqa: PLC0415
    from trainvitals.metrics.malloc import use_one_arena  # noqa: PLC0415 - only this command needs them
    from trainvitals.record import (  # noqa: PLC0415
        Console,
        LogFile,
        RecordOptions,
        Watcher,
        make_format,
        name_format,
        record,
    )
    from trainvitals.sources.host.engine_log import find_engine_log  # noqa: PLC0415

    use_one_arena()
    set_up_logging("error", "text")  # the snapshots already contain failures and container exits
    _check(options)
    how = RecordOptions(
        interval_seconds=options.interval, count=1 if options.once else options.count
    )
    most = _parse_size(options.max_size)
    name = name_format(options.format, options.output)
    file: Console | LogFile = Console()
    if options.output != "-":
        file = LogFile(
            _choose_path(options, name),
            most,
            options.keep,
            is_durable=options.fsync,
            cuts_torn_line=name != "text",
        )
    format_ = make_format(name, file.read_first_line(), str(file.path))
    machine = _make_options(options)
    watcher = Watcher(
        machine,
        patience_seconds=min(_LONGEST_PATIENCE_SECONDS, 0.8 * options.interval),
        engine_log=find_engine_log(machine.roots.rootfs),
    )
    if options.output != "-":
        say(f"recording to {file.path}")
    record(watcher, file, how, format_=format_)
    return FINE


def _make_options(options: argparse.Namespace) -> MachineOptions:
    from trainvitals.metrics.machine import MachineOptions  # noqa: PLC0415
    from trainvitals.record import leave_out_the_rest  # noqa: PLC0415
    from trainvitals.sources.containers.source import ContainerOptions  # noqa: PLC0415
    from trainvitals.sources.files import Roots  # noqa: PLC0415
    from trainvitals.sources.runs.owners import read_users  # noqa: PLC0415
    from trainvitals.sources.runs.source import TrainingOptions  # noqa: PLC0415

    return MachineOptions(
        roots=Roots(options.procfs, options.sysfs, options.rootfs),
        disabled=leave_out_the_rest(),
        training=TrainingOptions(run_dir=options.run_dir, users=read_users()),
        containers=ContainerOptions(engine=options.engine),
    )


def _check(options: argparse.Namespace) -> None:
    if not _SHORTEST_SECONDS <= options.interval <= _LONGEST_SECONDS:
        raise ConfigurationError(
            f"--interval={options.interval:g}: write a number of seconds from 0.1 to 86400"
        )
    if options.count is not None and options.count < 1:
        raise ConfigurationError(f"--count={options.count}: write a number of 1 or more")
    if not 0 <= options.keep <= 1000:  # noqa: PLR2004 - a generous limit
        raise ConfigurationError(f"--keep={options.keep}: write a number from 0 to 1000")


def _parse_size(text: str) -> int:
    from trainvitals.sources.accelerators.limits import parse_size  # noqa: PLC0415

    size = parse_size(text)
    if size is None:
        raise ConfigurationError(f"--max-size={text!r}: write a size such as 100MB or 1GiB")
    return size


def _choose_path(options: argparse.Namespace, format_: str) -> Path:
    if options.output is not None:
        return Path(options.output)
    now = format_stamp(time.time(), None).replace("T", "-")
    directory = expand_home(options.directory, "--directory")
    suffix = "log" if format_ == "text" else format_
    return directory / f"runner-{socket.gethostname()}-{now}.{suffix}"
