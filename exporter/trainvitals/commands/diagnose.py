"""Implements the command `trainvitals diagnose`, which explains why a run or container ended."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import (
    CANNOT_RUN,
    FINE,
    FOUND_A_PROBLEM,
    add_engine,
    add_journal,
    add_json,
    add_run_dir,
    say,
)
from trainvitals.errors import ConfigurationError
from trainvitals.sources.signals import HIGHEST_CODE, LOWEST_CODE

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse

    from trainvitals.sources.containers.evidence import Evidence
    from trainvitals.verdicts.causes.diagnosis import Diagnosis

_EXAMPLES = """\
Examples:
  trainvitals diagnose                      the container or run that last failed
  trainvitals diagnose train                a container by name, ID or Compose service, or a run
  trainvitals diagnose --since 24h          all deaths of the last 24 hours, one line each
  trainvitals diagnose --pid 4242           a process of this machine
  trainvitals diagnose train --save DIR     write the evidence into a folder, to share it
  trainvitals diagnose --evidence DIR       read such a folder instead of this machine
  trainvitals diagnose train.log            a log, a kernel log, `kubectl describe pod`, …
  ssh host cat train.log | trainvitals diagnose -
  trainvitals diagnose train.log --kernel-log dmesg.txt --exit-code 137
  trainvitals diagnose train --json | jq -r .reason

Exit codes: 0 it ended regularly or runs well, 1 it failed or has a fault, 2 there is no evidence,
or that of a file shows neither a fault nor an end.
"""
_DEFAULT_SINCE = "24h"
_DEFAULT_LINES = 50
_LEAST_OF_PBS = 256  # PBS adds 256 to the signal, and signal 0 terminates no process
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"(\d{1,6})([smhdw])")


def add_diagnose(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals diagnose`."""
    parser.epilog = _EXAMPLES
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="a container's name, ID prefix or Compose service; else the name of a run, or a file: a log,"
        " a kernel log or the output of `kubectl describe pod`; - for standard input",
    )
    what.add_argument(
        "--last", action="store_true", help="the container or run that last failed (the default)"
    )
    what.add_argument("--pid", metavar="N", type=int, help="a process of this machine")
    what.add_argument(
        "--evidence", metavar="DIR", type=Path, help="a folder of evidence, instead of this machine"
    )
    parser.add_argument(
        "--kernel-log",
        metavar="FILE",
        type=Path,
        help="a kernel log (dmesg, journalctl -k, syslog) instead of this machine's, or alone",
    )
    fate = parser.add_mutually_exclusive_group()
    fate.add_argument(
        "--ended", action="store_true", help="what the file or folder is about has ended"
    )
    fate.add_argument(
        "--running", action="store_true", help="what the file or folder is about still runs"
    )
    fate.add_argument(
        "--exit-code",
        metavar="N",
        type=_parse_exit_code,
        help="it ended with this exit code; also 256 and a signal, as of PBS, or minus a signal",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="the time to look back, as 90m, 24h or 7d (default 24h); without NAME: list all deaths",
    )
    parser.add_argument(
        "--save", metavar="DIR", type=Path, help="write the evidence into a new folder"
    )
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument("--markdown", action="store_true", help="for a report in an issue tracker")
    parser.add_argument(
        "--lines",
        metavar="N",
        type=int,
        default=_DEFAULT_LINES,
        help="the number of log lines to show (default 50)",
    )
    add_engine(parser)
    add_journal(parser)
    add_run_dir(parser)
    parser.set_defaults(run=_diagnose)


def _parse_exit_code(text: str) -> int:
    """Parse an exit code in the form that a shell, PBS or Python's `subprocess` reports.

    Raises:
        ArgumentTypeError: The text is not an exit code.
    """
    from argparse import ArgumentTypeError  # noqa: PLC0415 - imported when arguments are parsed

    number = int(text)
    is_known = LOWEST_CODE <= number <= HIGHEST_CODE and number != _LEAST_OF_PBS
    if not is_known:
        raise ArgumentTypeError(
            f"{number} is not an exit code; write 0 to 255, 256 + a signal as of PBS, or minus a signal"
        )
    return number


def parse_duration(text: str) -> float:
    """Parse a duration such as `24h` and return it in seconds.

    Raises:
        ConfigurationError: The text is not a duration.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        raise ConfigurationError(f"--since {text}: write a duration such as 90m, 24h or 7d")
    return int(found[1]) * _UNITS[found[2]]


def _diagnose(options: argparse.Namespace) -> int:
    since_seconds = parse_duration(options.since or _DEFAULT_SINCE)
    evidence = _read_evidence(options)
    if evidence is not None:
        return _write(_judge_evidence(evidence, options), options)
    if options.ended or options.running or options.exit_code is not None:
        raise ConfigurationError(
            "--ended, --running and --exit-code describe a file or a folder of evidence; name one"
        )
    from trainvitals.commands import diagnose_machine as machine  # noqa: PLC0415 - not for files

    survey = machine.take_survey(options, since_seconds)
    if options.pid is not None:
        return _write(machine.find_process(survey, options), options)
    if options.name is not None:
        found = machine.find_named(survey, options, since_seconds)
        if found is None and _exists(Path(options.name)):
            found = _judge_evidence(_read_files(options), options)
        if found is None:
            raise machine.refuse_name(survey, options)
        return _write(found, options)
    if options.since is not None and not options.last:
        return machine.list_deaths(survey, options, since_seconds)
    status = _write(machine.find_last(survey, options, since_seconds), options)
    if not options.json:
        machine.say_kills(survey, options, since_seconds)
    return status


def _read_evidence(options: argparse.Namespace) -> Evidence | None:
    """Return the evidence in the specified directory or files; None to examine this machine."""
    if options.evidence is not None:
        from trainvitals.sources.containers.evidence_folder import read_folder  # noqa: PLC0415

        if options.kernel_log is not None:
            raise ConfigurationError(
                "put the kernel log into the folder of evidence, as kernel.txt"
            )
        return read_folder(options.evidence)
    if options.name is None and (
        options.kernel_log is None or options.pid is not None or options.last
    ):
        return None
    if options.name is not None and not _is_file(options.name):
        return None
    return _read_files(options)


def _read_files(options: argparse.Namespace) -> Evidence:
    from trainvitals.sources.containers.evidence_files import read_files  # noqa: PLC0415

    path = None if options.name is None else Path(options.name)
    if path is not None and path.is_dir():
        raise ConfigurationError(f"{path} is a folder; read it with --evidence {path}")
    return read_files(path, options.kernel_log)


def _is_file(name: str) -> bool:
    """Return whether an argument names a file; a plain word names a container or a run."""
    return name == "-" or "/" in name or ("." in name and Path(name).is_file())


def _exists(path: Path) -> bool:
    return path.is_file() or path.is_dir()


def _judge_evidence(evidence: Evidence, options: argparse.Namespace) -> Diagnosis:
    from trainvitals.verdicts.causes.diagnosis import diagnose_evidence  # noqa: PLC0415

    if options.exit_code is not None:
        evidence = replace(evidence, exit_code=options.exit_code)
    elif options.ended or options.running:
        evidence = replace(evidence, is_ended=options.ended)
    sources = (options.evidence, options.name, options.kernel_log)
    names = ["standard input" if str(each) == "-" else str(each) for each in sources if each]
    origin = " and ".join(names)
    return diagnose_evidence(evidence, asked=time.time(), origin=origin)


def _write(diagnosis: Diagnosis, options: argparse.Namespace) -> int:
    from trainvitals.views.death.document import format_document  # noqa: PLC0415
    from trainvitals.views.death.markdown import format_markdown  # noqa: PLC0415
    from trainvitals.views.death.report import format_report  # noqa: PLC0415

    if options.save is not None:
        from trainvitals.sources.containers.evidence_folder import save_folder  # noqa: PLC0415

        report = format_markdown(diagnosis)
        save_folder(options.save, diagnosis.evidence, diagnosis.verdict, report)
    if options.json:
        say(format_document(diagnosis))
    elif options.markdown:
        say(format_markdown(diagnosis, lines=options.lines))
    else:
        width = shutil.get_terminal_size().columns
        say(format_report(diagnosis, width=width, lines=options.lines))
    if diagnosis.is_inconclusive:
        return CANNOT_RUN
    return FINE if diagnosis.is_well else FOUND_A_PROBLEM
