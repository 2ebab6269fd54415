"""Finds the runs, containers and processes that `trainvitals diagnose` explains."""

from __future__ import annotations

import difflib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, FOUND_A_PROBLEM, say
from trainvitals.errors import ConfigurationError, SourceError
from trainvitals.foreign_text import join_names
from trainvitals.sources.containers.cgrouppaths import find_container as find_container_of
from trainvitals.sources.containers.evidence_files import read_text
from trainvitals.sources.containers.lookup import (
    Candidate,
    find_container,
    find_kills,
    suggest_names,
)
from trainvitals.sources.containers.survey import Survey, survey_machine
from trainvitals.sources.host.kernel_text import parse_kernel_text
from trainvitals.sources.runs.evidence import find_run
from trainvitals.sources.runs.history import read_run_history
from trainvitals.sources.runs.owners import read_users
from trainvitals.verdicts.causes import diagnosis
from trainvitals.views.death.document import format_deaths_document
from trainvitals.views.death.report import describe_step, format_deaths, format_kills

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from trainvitals.sources.host.oom_lines import OomKill
    from trainvitals.sources.runs.launches import Launch
    from trainvitals.sources.runs.past_runs import Run
    from trainvitals.verdicts.causes.diagnosis import Diagnosis

_MOST_FILES = 5
_SIMILAR = 0.5
_WEEK_SECONDS = 7 * 86_400.0
_EVER_SECONDS = 10 * 365 * 86_400.0


def take_survey(options: argparse.Namespace, since_seconds: float) -> Survey:
    """Return the machine's evidence, with the kernel log in the file of `--kernel-log` if set."""
    survey = survey_machine(
        engine=options.engine,
        journal=options.journal,
        since_seconds=max(since_seconds, _WEEK_SECONDS),
    )
    return survey if options.kernel_log is None else _replace_kernel_log(survey, options.kernel_log)


def _replace_kernel_log(survey: Survey, path: Path) -> Survey:
    kernel = parse_kernel_text(read_text(path), now=survey.time)
    gaps = tuple(gap for gap in survey.gaps if gap.what != "the kernel log")
    return replace(survey, kernel=kernel, gaps=gaps)


def find_named(
    survey: Survey, options: argparse.Namespace, since_seconds: float
) -> Diagnosis | None:
    """Return the diagnosis of the named container or run; None if the name is unknown."""
    known = find_container(survey, options.name)
    if known is not None:
        return diagnosis.diagnose_container(survey, known, since_seconds=since_seconds)
    history = read_run_history(options.run_dir, users=read_users())
    launch = next((each for each in history.launches if each.name == options.name), None)
    for run in history.runs:
        is_before = launch is None or run.telling.identity.created_time > launch.started
        if run.name == options.name and is_before:
            return diagnosis.diagnose_run(survey, run)
    if launch is not None:
        return diagnosis.diagnose_launch(survey, launch)
    return None


def refuse_name(survey: Survey, options: argparse.Namespace) -> ConfigurationError:
    """Return the error for a name that denotes no container, run or file."""
    runs = read_run_history(options.run_dir, users=read_users()).runs
    names = suggest_names(survey, options.name, [run.name for run in runs])
    known_names = f"known: {names}" if names else "none is known on this machine"
    return ConfigurationError(
        f"no container, run or file {options.name!r}; {known_names}{_suggest_files(options.name)}"
        f"{_describe_missing(survey)}"
    )


def _suggest_files(name: str) -> str:
    """Return text that lists the files in the working directory with similar names."""
    here = sorted(each.name for each in Path().iterdir() if each.is_file())
    near = difflib.get_close_matches(name, here, _MOST_FILES, _SIMILAR)
    return f"; files here: {join_names(near, most=_MOST_FILES)}" if near else ""


def find_process(survey: Survey, options: argparse.Namespace) -> Diagnosis:
    """Return the diagnosis of a process, or of the run or container of the process.

    Raises:
        ConfigurationError: There is no evidence of the process.
    """
    run = find_run(read_run_history(options.run_dir, users=read_users()), options.pid)
    if run is not None:
        return diagnosis.diagnose_run(survey, run)
    container = find_container_of(options.pid, survey.roots)
    if container is not None:
        return diagnosis.diagnose_container(
            survey, Candidate(container, ""), since_seconds=_WEEK_SECONDS
        )
    found = diagnosis.diagnose_process(survey, options.pid)
    if found is None:
        missing = _describe_missing(survey, needs_kernel=True)
        raise ConfigurationError(
            f"no evidence of process {options.pid}: it does not exist, has no run file, and the "
            f"kernel log does not name it{missing}"
        )
    return found


def find_last(survey: Survey, options: argparse.Namespace, since_seconds: float) -> Diagnosis:
    """Return the diagnosis of the container or run that last failed.

    If there is no such diagnosis, the diagnosis of the last OOM kill is returned.

    Raises:
        ConfigurationError: No container, run or killed process is known to have ended.
    """
    runs, launches = _read_history(options.run_dir)
    found = diagnosis.diagnose_last(
        survey, runs, launches, since_seconds=since_seconds
    ) or diagnosis.diagnose_last(survey, runs, launches, since_seconds=_EVER_SECONDS)
    if found is None and (kills := _find_kills(survey, runs, since_seconds)):
        found = diagnosis.diagnose_kill(survey, kills[0])
    if found is None:
        missing = _describe_missing(survey) or "; name a running one"
        raise ConfigurationError(f"no container or run is known to have ended{missing}")
    return found


def _read_history(directory: Path) -> tuple[tuple[Run, ...], tuple[Launch, ...]]:
    """Return the runs in the run directory, and the launches without a run.

    Both tuples are empty if the directory cannot be read.
    """
    try:
        history = read_run_history(directory, users=read_users())
    except SourceError:
        return (), ()
    return history.runs, history.launches


def list_deaths(survey: Survey, options: argparse.Namespace, since_seconds: float) -> int:
    """Print one line for each death, and return the exit code.

    Raises:
        ConfigurationError: No death is known, and the container engine could not be read.
    """
    runs, launches = _read_history(options.run_dir)
    deaths = diagnosis.list_deaths(survey, runs, launches, since_seconds=since_seconds)
    kills = _find_kills(survey, runs, since_seconds)
    missing = _describe_missing(survey)
    if not deaths and not kills and missing:
        raise ConfigurationError(f"no container or run is known to have ended{missing}")
    if options.json:
        say(format_deaths_document(deaths, survey.time - since_seconds, kills))
    else:
        width = shutil.get_terminal_size().columns
        say(format_deaths(deaths, width=width, asked=survey.time, since_seconds=since_seconds))
        _say_kills(kills, survey, since_seconds)
    is_fine = not kills and all(diagnosis.is_well(death.verdict) for death in deaths)
    return FINE if is_fine else FOUND_A_PROBLEM


def _find_kills(survey: Survey, runs: Iterable[Run], since_seconds: float) -> list[OomKill]:
    """Return the OOM kills of processes that belong neither to a container nor to a run."""
    pids = [start.liveness.host_pid for run in runs for start in run.starts]
    return find_kills(survey, survey.time - since_seconds, others=pids)


def say_kills(survey: Survey, options: argparse.Namespace, since_seconds: float) -> None:
    """Print the OOM kills of processes that belong neither to a container nor to a run."""
    runs, _ = _read_history(options.run_dir)
    _say_kills(_find_kills(survey, runs, since_seconds), survey, since_seconds)


def _say_kills(kills: Sequence[OomKill], survey: Survey, since_seconds: float) -> None:
    if kills:
        say("\n" + format_kills(kills, asked=survey.time, since_seconds=since_seconds))


def _describe_missing(survey: Survey, *, needs_kernel: bool = False) -> str:
    """Return why the engine, or the kernel log if needed, could not be read; otherwise ""."""
    if survey.client is not None and not (needs_kernel and survey.kernel is None):
        return ""
    gaps = [gap for gap in survey.gaps if gap.what == "the engine" or needs_kernel]
    sentences = "; ".join(f"{gap.what}: {gap.why}; {gap.remedy}" for gap in gaps)
    return f"; {sentences} ({describe_step(survey.step)})"
