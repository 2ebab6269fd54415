"""Implements the command `trainvitals diagnose`, which explains why a run or container ended."""

from __future__ import annotations

import difflib
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
from trainvitals.errors import ConfigurationError, SourceError
from trainvitals.foreign_text import join_names
from trainvitals.sources.signals import HIGHEST_CODE, LOWEST_CODE

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse
    from collections.abc import Iterable, Sequence

    from trainvitals.sources.containers.evidence import Evidence
    from trainvitals.sources.containers.survey import Survey
    from trainvitals.sources.host.oom_lines import OomKill
    from trainvitals.sources.runs.launches import Launch
    from trainvitals.sources.runs.past_runs import Run
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
_WEEK = _UNITS["w"]
_MOST_FILES = 5
_SIMILAR = 0.5
_EVER = 10 * 365 * 86400.0


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
    from trainvitals.sources.containers.survey import survey_machine  # noqa: PLC0415 - only this command needs it

    survey = survey_machine(
        engine=options.engine, journal=options.journal, since_seconds=max(since_seconds, _WEEK)
    )
    if options.kernel_log is not None:
        survey = _replace_kernel_log(survey, options.kernel_log)
    if options.pid is not None:
        return _write(_find_process(survey, options), options)
    if options.name is not None:
        return _write(_find_named(survey, options, since_seconds), options)
    if options.since is not None and not options.last:
        return _list(survey, options, since_seconds)
    status = _write(_find_last(survey, options, since_seconds), options)
    kills = _find_kills(survey, _read_history(options.run_dir)[0], since_seconds)
    if kills and not options.json:
        _say_kills(kills, survey, since_seconds)
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
    from trainvitals.sources.containers.evidence_files import read_files  # noqa: PLC0415

    path = None if options.name is None else Path(options.name)
    if path is not None and path.is_dir():
        raise _refuse_folder(path)
    return read_files(path, options.kernel_log)


def _is_file(name: str) -> bool:
    """Return whether an argument denotes a file; a plain word denotes a container or a run."""
    return name == "-" or "/" in name or ("." in name and Path(name).is_file())


def _refuse_folder(path: Path) -> ConfigurationError:
    return ConfigurationError(f"{path} is a folder; read it with --evidence {path}")


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


def _replace_kernel_log(survey: Survey, path: Path) -> Survey:
    from trainvitals.sources.containers.evidence_files import read_text  # noqa: PLC0415
    from trainvitals.sources.host.kernel_text import parse_kernel_text  # noqa: PLC0415

    kernel = parse_kernel_text(read_text(path), now=survey.time)
    gaps = tuple(gap for gap in survey.gaps if gap.what != "the kernel log")
    return replace(survey, kernel=kernel, gaps=gaps)


def _find_named(survey: Survey, options: argparse.Namespace, since_seconds: float) -> Diagnosis:
    from trainvitals.sources.containers.lookup import find_container, suggest_names  # noqa: PLC0415
    from trainvitals.sources.runs.history import read_run_history  # noqa: PLC0415
    from trainvitals.sources.runs.owners import read_users  # noqa: PLC0415
    from trainvitals.verdicts.causes.diagnosis import (  # noqa: PLC0415
        diagnose_container,
        diagnose_launch,
        diagnose_run,
    )

    known = find_container(survey, options.name)
    if known is not None:
        return diagnose_container(survey, known, since_seconds=since_seconds)
    history = read_run_history(options.run_dir, users=read_users())
    runs = history.runs
    launch = next((each for each in history.launches if each.name == options.name), None)
    for run in runs:
        is_before = launch is None or run.telling.identity.created_time > launch.started
        if run.name == options.name and is_before:
            return diagnose_run(survey, run)
    if launch is not None:
        return diagnose_launch(survey, launch)
    if Path(options.name).is_file():
        from trainvitals.sources.containers.evidence_files import read_files  # noqa: PLC0415

        return _judge_evidence(read_files(Path(options.name), options.kernel_log), options)
    if Path(options.name).is_dir():
        raise _refuse_folder(Path(options.name))
    names = suggest_names(survey, options.name, [run.name for run in runs])
    known_names = f"known: {names}" if names else "none is known on this machine"
    raise ConfigurationError(
        f"no container, run or file {options.name!r}; {known_names}{_suggest_files(options.name)}"
        f"{_describe_missing(survey)}"
    )


def _suggest_files(name: str) -> str:
    """Return the similarly named files in the working directory as text for a message."""
    here = sorted(each.name for each in Path().iterdir() if each.is_file())
    near = difflib.get_close_matches(name, here, _MOST_FILES, _SIMILAR)
    return f"; files here: {join_names(near, most=_MOST_FILES)}" if near else ""


def _find_process(survey: Survey, options: argparse.Namespace) -> Diagnosis:
    from trainvitals.sources.containers.cgrouppaths import find_container  # noqa: PLC0415
    from trainvitals.sources.containers.lookup import Candidate  # noqa: PLC0415
    from trainvitals.sources.runs.evidence import find_run  # noqa: PLC0415
    from trainvitals.sources.runs.history import read_run_history  # noqa: PLC0415
    from trainvitals.sources.runs.owners import read_users  # noqa: PLC0415
    from trainvitals.verdicts.causes.diagnosis import (  # noqa: PLC0415
        diagnose_container,
        diagnose_process,
        diagnose_run,
    )

    run = find_run(read_run_history(options.run_dir, users=read_users()), options.pid)
    if run is not None:
        return diagnose_run(survey, run)
    container = find_container(options.pid, survey.roots)
    if container is not None:
        return diagnose_container(survey, Candidate(container, ""), since_seconds=_WEEK)
    found = diagnose_process(survey, options.pid)
    if found is None:
        missing = _describe_missing(survey, needs_kernel=True)
        raise ConfigurationError(
            f"no evidence of process {options.pid}: it does not exist, has no run file, and the "
            f"kernel log does not name it{missing}"
        )
    return found


def _find_last(survey: Survey, options: argparse.Namespace, since_seconds: float) -> Diagnosis:
    from trainvitals.verdicts.causes.diagnosis import diagnose_kill, diagnose_last  # noqa: PLC0415

    runs, launches = _read_history(options.run_dir)
    found = diagnose_last(survey, runs, launches, since_seconds=since_seconds) or diagnose_last(
        survey, runs, launches, since_seconds=_EVER
    )
    if found is None and (kills := _find_kills(survey, runs, since_seconds)):
        found = diagnose_kill(survey, kills[0])
    if found is None:
        missing = _describe_missing(survey) or "; name a running one"
        raise ConfigurationError(f"no container or run is known to have ended{missing}")
    return found


def _read_history(directory: Path) -> tuple[tuple[Run, ...], tuple[Launch, ...]]:
    """Return the runs in the run directory, and the launches without a run.

    Both tuples are empty if the directory cannot be read.
    """
    from trainvitals.sources.runs.history import read_run_history  # noqa: PLC0415
    from trainvitals.sources.runs.owners import read_users  # noqa: PLC0415

    try:
        history = read_run_history(directory, users=read_users())
    except SourceError:
        return (), ()
    return history.runs, history.launches


def _list(survey: Survey, options: argparse.Namespace, since_seconds: float) -> int:
    from trainvitals.verdicts.causes.diagnosis import is_well, list_deaths  # noqa: PLC0415
    from trainvitals.views.death.document import format_deaths_document  # noqa: PLC0415
    from trainvitals.views.death.report import format_deaths  # noqa: PLC0415

    runs, launches = _read_history(options.run_dir)
    deaths = list_deaths(survey, runs, launches, since_seconds=since_seconds)
    kills = _find_kills(survey, runs, since_seconds)
    missing = _describe_missing(survey)
    if not deaths and not kills and missing:
        raise ConfigurationError(f"no container or run is known to have ended{missing}")
    if options.json:
        say(format_deaths_document(deaths, survey.time - since_seconds, kills))
    else:
        width = shutil.get_terminal_size().columns
        say(format_deaths(deaths, width=width, asked=survey.time, since_seconds=since_seconds))
        if kills:
            _say_kills(kills, survey, since_seconds)
    is_fine = not kills and all(is_well(death.verdict) for death in deaths)
    return FINE if is_fine else FOUND_A_PROBLEM


def _find_kills(survey: Survey, runs: Iterable[Run], since_seconds: float) -> list[OomKill]:
    """Return the OOM kills of processes that belong neither to a container nor to a run."""
    from trainvitals.sources.containers.lookup import find_kills  # noqa: PLC0415

    pids = [start.liveness.host_pid for run in runs for start in run.starts]
    return find_kills(survey, survey.time - since_seconds, others=pids)


def _say_kills(kills: Sequence[OomKill], survey: Survey, since_seconds: float) -> None:
    from trainvitals.views.death.report import format_kills  # noqa: PLC0415

    say("\n" + format_kills(kills, asked=survey.time, since_seconds=since_seconds))


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


def _describe_missing(survey: Survey, *, needs_kernel: bool = False) -> str:
    """Return why the engine or the kernel log could not be read; "" if both could be read."""
    if survey.client is not None and not (needs_kernel and survey.kernel is None):
        return ""
    from trainvitals.views.death.report import describe_step  # noqa: PLC0415

    gaps = [gap for gap in survey.gaps if gap.what == "the engine" or needs_kernel]
    sentences = "; ".join(f"{gap.what}: {gap.why}; {gap.remedy}" for gap in gaps)
    return f"; {sentences} ({describe_step(survey.step)})"
