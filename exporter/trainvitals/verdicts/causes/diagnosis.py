"""Diagnoses of containers, runs and processes, with the evidence and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainvitals.sources.containers.engine import EngineError
from trainvitals.sources.containers.evidence import Evidence, Gap, Host
from trainvitals.sources.containers.gathering import find_entry, gather, read_present
from trainvitals.sources.containers.inspection import parse_inspection
from trainvitals.sources.containers.lookup import Candidate, End, find_ends
from trainvitals.sources.containers.survey import Survey
from trainvitals.sources.host.kernel_log import KernelNews
from trainvitals.sources.host.oom_lines import OomKill
from trainvitals.sources.runs.evidence import (
    read_killed,
    read_launch,
    read_process,
    read_run,
    read_start,
)
from trainvitals.sources.runs.history import RunHistory
from trainvitals.sources.runs.launches import Launch
from trainvitals.sources.runs.past_runs import Run, Start
from trainvitals.verdicts.causes.judge import judge
from trainvitals.verdicts.causes.verdict import Verdict

_MOST_DEATHS = 100
_MOST_OTHERS = 20
# If a run and its container end within this time, they ended for the same cause.
_TOGETHER_SECONDS = 60.0
_RUNNING = "running"
# The causes that do not indicate a failure.
_WELL = frozenset({"finished", "running", "stop-graceful"})


@dataclass(frozen=True, slots=True)
class Death:
    """An entry in a list of container and run deaths.

    Attributes:
        name: The name of the container or run that ended.
        id: The ID of the container; an empty string if a run has ended.
        time: The end time of the container or run in Unix seconds; None if the time is unknown.
        exit_code: The exit code of the container or run; None if the exit code is unknown.
        verdict: The verdict on the cause of the death.
        subject: Whether a `container` or a `run` ended.
    """

    name: str
    id: str
    time: float | None
    exit_code: int | None
    verdict: Verdict
    subject: Literal["container", "run"] = "container"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of a death, or of a subject that is still running.

    Attributes:
        evidence: The evidence that was collected about the subject.
        verdict: The verdict that was derived from the evidence.
        asked: The time at which the diagnosis was requested, in Unix seconds.
        origin: The sources of the evidence, as a short text.
        runs_since: The time since which the subject has been running again, in Unix seconds; None
            if the subject is not running again.
        present: The current state of the machine; None if the evidence is not from this machine.
        step: The access level with which the evidence was collected, 0 to 2; None for evidence
            about a run or a process, or from a folder.
        others: The other deaths on the machine, the latest first.
    """

    evidence: Evidence
    verdict: Verdict
    asked: float
    origin: str = ""
    runs_since: float | None = None
    present: Host | None = None
    step: int | None = None
    others: tuple[Death, ...] = ()

    @property
    def is_running(self) -> bool:
        """Whether the subject is still running."""
        return _is_running(self.evidence)

    @property
    def is_well(self) -> bool:
        """Whether the subject ended regularly or is running without evidence of a fault."""
        return is_well(self.verdict)

    @property
    def is_inconclusive(self) -> bool:
        """Whether the evidence shows neither that the subject has a fault nor that it ended."""
        return self.evidence.is_unobserved and self.verdict.reason == "unknown"

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The evidence sources that could not be read, without duplicates."""
        return tuple({gap.what: gap for gap in self.evidence.gaps}.values())


def diagnose_evidence(evidence: Evidence, *, asked: float, origin: str = "") -> Diagnosis:
    """Return the diagnosis of evidence such as an evidence folder, without this machine's state."""
    return Diagnosis(evidence, judge(evidence), asked, origin)


def _is_running(evidence: Evidence) -> bool:
    if evidence.has_ended or evidence.is_unobserved:
        return False
    if evidence.state is not None:
        return evidence.state.status in {"running", "paused", "restarting"}
    return evidence.subject != "container" or evidence.sample is not None


def is_well(verdict: Verdict) -> bool:
    """Return whether the subject ended regularly or is running without evidence of a fault."""
    return verdict.reason in _WELL


def diagnose_container(survey: Survey, known: Candidate, *, since_seconds: float) -> Diagnosis:
    """Return the diagnosis of a container's current state or of its last failure.

    If the container is running without a fault, its last failure, if any, is diagnosed.

    Args:
        survey: The sources of this machine.
        known: The container to diagnose.
        since_seconds: The maximum age of an earlier failure in seconds.
    """
    evidence = gather(survey, known.id, known.name)
    verdict = judge(evidence)
    if verdict.reason == _RUNNING:
        earlier = _find_earlier(survey, known, survey.time - since_seconds)
        if earlier is not None:
            return _conclude(survey, earlier)
    return _conclude(survey, evidence)


def diagnose_last(
    survey: Survey,
    runs: Sequence[Run] = (),
    launches: Sequence[Launch] = (),
    *,
    since_seconds: float,
) -> Diagnosis | None:
    """Return the diagnosis of the container, run or launch that failed last.

    If nothing has failed, the container or run that ended last is diagnosed.

    Returns:
        The diagnosis; None if no container, run or launch is known to have ended in the last
        `since_seconds` seconds.
    """
    deaths = list_deaths(survey, runs, launches, since_seconds=since_seconds, most=_MOST_OTHERS)
    if not deaths:
        return None
    failures = [death for death in deaths if not is_well(death.verdict)]
    chosen = _prefer_container(failures) if failures else deaths[0]
    others = tuple(death for death in deaths if death is not chosen)
    launch = next((each for each in launches if _is_of(chosen, each)), None)
    if launch is not None:
        return replace(diagnose_launch(survey, launch), others=others)
    if chosen.subject == "run":
        run = next(run for run in runs if run.name == chosen.name)
        return replace(diagnose_run(survey, run), others=others)
    evidence = gather(survey, chosen.id, chosen.name, ended=chosen.time)
    return _conclude(survey, evidence, others)


def _prefer_container(failures: Sequence[Death]) -> Death:
    """Return the last failure, or a container's failure if it occurred up to a minute earlier.

    A run and its container fail together. The container is preferred because it has a log.
    """
    last = failures[0]
    near = (
        each for each in failures if (last.time or 0.0) - (each.time or 0.0) <= _TOGETHER_SECONDS
    )
    return next((each for each in near if each.subject == "container"), last)


def diagnose_run(survey: Survey, run: Run) -> Diagnosis:
    """Return the diagnosis of a training run, based on its run files."""
    diagnosis = _diagnose_run(run, survey.kernel, _select_gaps(survey), asked=survey.time)
    return replace(diagnosis, present=read_present(survey))


def _diagnose_run(
    run: Run, kernel: KernelNews | None, gaps: tuple[Gap, ...], *, asked: float
) -> Diagnosis:
    evidence = read_run(run, kernel, gaps)
    return Diagnosis(
        evidence, judge(evidence), asked, "its run file", runs_since=_find_restart(run)
    )


def diagnose_launch(survey: Survey, launch: Launch) -> Diagnosis:
    """Return the diagnosis of a launch by `trainvitals run` in which no process reported a run."""
    evidence = read_launch(launch, survey.kernel, _select_gaps(survey))
    verdict = judge(evidence)
    origin = "what `trainvitals run` noted"
    return Diagnosis(evidence, verdict, survey.time, origin, present=read_present(survey))


def _find_restart(run: Run) -> float | None:
    """Return the start time of a later attempt that is still running; None if there is none."""
    if run.telling.ending is None:
        return None
    later = [start for start in run.starts if start.attempt > run.telling.attempt]
    living = [start.identity.created_time for start in later if start.ending is None]
    return min(living, default=None)


@dataclass(frozen=True, slots=True)
class Postmortem:
    """A run in a run directory, with verdicts on this run and on the other runs.

    Attributes:
        history: The history of the runs in the run directory.
        run: The run for which the diagnosis was requested.
        kernel: The records of the kernel log; None if the kernel log cannot be read.
        gaps: The evidence sources that could not be read.
    """

    history: RunHistory
    run: Run
    kernel: KernelNews | None = None
    gaps: tuple[Gap, ...] = ()

    def diagnose(self) -> Diagnosis:
        """Return the same diagnosis as `diagnose_run`, but without the current machine state."""
        return _diagnose_run(self.run, self.kernel, self.gaps, asked=self.history.time)

    def judge_run(self, run: Run) -> Verdict:
        """Return the verdict on any run in the run directory."""
        return judge(read_run(run, self.kernel, self.gaps))

    def judge_start(self, start: Start) -> Verdict:
        """Return the verdict on a single start of a rank of the run."""
        return judge(read_start(self.run, start, self.kernel, self.gaps))


def diagnose_process(survey: Survey, pid: int) -> Diagnosis | None:
    """Return the diagnosis of a process on this machine; None without evidence about it."""
    evidence = read_process(pid, survey.kernel, _select_gaps(survey), roots=survey.roots)
    return (
        None if evidence is None else _conclude(survey, evidence, origin="/proc and the kernel log")
    )


def diagnose_kill(survey: Survey, kill: OomKill) -> Diagnosis:
    """Return the diagnosis of a process on this machine that the kernel killed."""
    evidence = read_killed(kill, survey.kernel, _select_gaps(survey))
    return _conclude(survey, evidence, origin="the kernel log")


def _select_gaps(survey: Survey) -> tuple[Gap, ...]:
    """Return the unreadable sources that the diagnosis of runs and processes requires."""
    return tuple(gap for gap in survey.gaps if gap.what == "the kernel log")


def list_deaths(
    survey: Survey,
    runs: Iterable[Run] = (),
    launches: Iterable[Launch] = (),
    *,
    since_seconds: float,
    most: int = _MOST_DEATHS,
) -> tuple[Death, ...]:
    """Return the deaths of containers and runs, the latest first.

    Args:
        survey: The sources of this machine.
        runs: The runs in the run directory.
        launches: The launches by `trainvitals run` in which no process reported a run.
        since_seconds: The maximum age of a death in seconds.
        most: The maximum number of deaths.
    """
    since = survey.time - since_seconds
    deaths = [
        *_judge_ends(survey, find_ends(survey, since)[:most]),
        *_judge_runs(survey, runs, since),
        *_judge_launches(survey, launches, since),
    ]
    return tuple(sorted(deaths, key=lambda death: death.time or 0.0, reverse=True)[:most])


def _judge_runs(survey: Survey, runs: Iterable[Run], since: float) -> Iterable[Death]:
    for run in runs:
        if run.telling.ending is None or run.telling.ending.time < since:
            continue
        evidence = read_run(run, survey.kernel, _select_gaps(survey))
        yield Death(
            run.name, "", evidence.ended, evidence.exit_code, judge(evidence), subject="run"
        )


def _judge_launches(survey: Survey, launches: Iterable[Launch], since: float) -> Iterable[Death]:
    for launch in launches:
        if launch.ended is None or launch.ended < since:
            continue
        evidence = read_launch(launch, survey.kernel, _select_gaps(survey))
        yield Death(
            evidence.name, "", evidence.ended, evidence.exit_code, judge(evidence), subject="run"
        )


def _is_of(death: Death, launch: Launch) -> bool:
    return death.subject == "run" and (death.name, death.time) == (launch.name, launch.ended)


def _judge_ends(survey: Survey, ends: Iterable[End]) -> Iterable[Death]:
    for end in ends:
        entry = find_entry(survey.entries, end.id, end.time)
        evidence = (
            gather(survey, end.id, end.name, ended=end.time, is_brief=True)
            if entry is None
            else entry.evidence
        )
        yield Death(
            evidence.name,
            end.id,
            end.time if evidence.ended is None else evidence.ended,
            evidence.exit_code,
            judge(evidence),
        )


def _find_earlier(survey: Survey, known: Candidate, since: float) -> Evidence | None:
    """Return the evidence of a container's last end if it was a failure; otherwise None.

    Ends of other containers with the same name are also considered.
    """
    for end in find_ends(survey, since):
        if end.name == known.name or end.id == known.id:
            evidence = gather(survey, end.id, end.name, ended=end.time)
            return None if is_well(judge(evidence)) else evidence
    return None


def _conclude(
    survey: Survey, evidence: Evidence, others: tuple[Death, ...] = (), *, origin: str = ""
) -> Diagnosis:
    is_container = evidence.subject == "container"
    entry = find_entry(survey.entries, evidence.id, evidence.ended) if is_container else None
    sources = ["the journal"] if entry is not None else []
    sources += ["the engine"] if survey.client is not None else []
    return Diagnosis(
        evidence=evidence,
        verdict=judge(evidence),
        asked=survey.time,
        origin=origin or " and ".join(sources) or "control groups and the kernel log",
        runs_since=_find_later_start(survey, evidence) if is_container else None,
        present=read_present(survey, evidence),
        step=survey.step if is_container else None,
        others=others,
    )


def _find_later_start(survey: Survey, evidence: Evidence) -> float | None:
    """Return the time at which a container of the same name started after the recorded end.

    The result is None if no such container is running.
    """
    if evidence.ended is None or survey.client is None or not evidence.name:
        return None
    try:
        inspection = parse_inspection(survey.client.inspect(evidence.name))
    except EngineError:
        return None
    started = inspection.state.started
    if inspection.state.status != _RUNNING or started is None or started < evidence.ended:
        return None
    return started
