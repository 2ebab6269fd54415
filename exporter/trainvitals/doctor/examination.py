"""Making all checks beside each other, within a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from trainvitals.crew import Crew, Outcome
from trainvitals.doctor.checks import CHECKS
from trainvitals.doctor.facts import gather
from trainvitals.doctor.finding import Check, Finding, Status, pass_over
from trainvitals.doctor.interpreter import InterpreterError
from trainvitals.doctor.requirements import PYTHON
from trainvitals.doctor.surroundings import Surroundings, Wishes
from trainvitals.errors import ConfigurationError, TrainvitalsError
from trainvitals.masking import mask_text

# With what it takes to start and end a Python on a busy machine, 5 s are not reached.
PATIENCE_SECONDS = 3.2
QUICK_SECONDS = 0.8
_WORST_FIRST: tuple[Status, ...] = ("problem", "warning", "ok", "not applicable")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a check.

    Attributes:
        check: Which.
        finding: What it found.
        seconds: How long it took.
    """

    check: Check
    finding: Finding
    seconds: float


@dataclass(frozen=True, slots=True)
class Examination:
    """What came of all.

    Attributes:
        results: The worst first, and among those alike in the order of the list.
        seconds: How long all of them took together.
    """

    results: tuple[Result, ...]
    seconds: float

    @property
    def status(self) -> Status:
        """The worst that was found."""
        found = {result.finding.status for result in self.results}
        return next((status for status in _WORST_FIRST if status in found), "ok")

    def count(self, status: Status) -> int:
        """Count the checks that found this."""
        return sum(result.finding.status == status for result in self.results)


def choose_checks(names: Sequence[str], *, is_quick: bool = False) -> tuple[Check, ...]:
    """Choose checks by their names and subjects; all, or the quick ones, where none is named.

    Raises:
        ConfigurationError: There is none of a name.
    """
    if not names:
        return tuple(check for check in CHECKS if check.is_quick or not is_quick)
    known = {check.name for check in CHECKS} | {check.subject for check in CHECKS}
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"--checks {name}: there is no such check; `trainvitals doctor --checks` lists them"
            )
    return tuple(check for check in CHECKS if check.name in names or check.subject in names)


def examine(
    wishes: Wishes,
    checks: Sequence[Check] = CHECKS,
    *,
    world: Surroundings | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Examination:
    """Make checks.

    Args:
        wishes: What the user said about the run.
        checks: Which.
        world: What is examined; this machine when None.
        patience_seconds: How long to wait for all of them together.
    """
    started = time.monotonic()
    facts = gather(wishes, world or Surroundings(), started + patience_seconds)
    crew = Crew(name="check", limit=max(len(checks), 1))
    tasks = {check.name: partial(check.examine, facts) for check in checks}
    outcomes = crew.gather(tasks, patience_seconds)
    crew.close()
    results = [_conclude(check, outcomes[check.name]) for check in checks]
    results.sort(key=lambda result: _WORST_FIRST.index(result.finding.status))
    return Examination(tuple(results), time.monotonic() - started)


def _conclude(check: Check, outcome: Outcome[Finding]) -> Result:
    if outcome.late:
        finding = Finding(check.silence, f"not checked: no answer within {outcome.seconds:.1f} s")
    elif isinstance(outcome.error, InterpreterError) and check.name != PYTHON:
        finding = pass_over("the Python that trains cannot be asked")
    elif isinstance(outcome.error, TrainvitalsError):
        what, _, advice = str(outcome.error).partition("; ")
        finding = Finding("problem", what, advice=advice)
    elif outcome.error is not None:
        words = f"{type(outcome.error).__name__}: {outcome.error}"
        finding = Finding("warning", f"could not be checked: {words}")
    else:
        finding = outcome.value or Finding("warning", "could not be checked")
    masked = replace(
        finding,
        what=mask_text(finding.what),
        mend=mask_text(finding.mend),
        advice=mask_text(finding.advice),
    )
    return Result(check, masked, outcome.seconds)
