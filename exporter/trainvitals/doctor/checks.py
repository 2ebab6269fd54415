"""Lists all checks of `trainvitals doctor`, and runs checks in parallel with a deadline.

To add a check, write a function and a `Check` in the module of the check's subject. `make docs`
then adds the check to docs/doctor.md.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from trainvitals.doctor import (
    accelerators,
    containers,
    credentials,
    cuda,
    disks,
    driver,
    gaudi,
    gpus,
    host,
    network,
    requirements,
)
from trainvitals.doctor.facts import gather
from trainvitals.doctor.finding import Check, Finding, Status, skip
from trainvitals.doctor.interpreter import InterpreterError
from trainvitals.doctor.machine import Machine, Options
from trainvitals.errors import ConfigurationError, TrainvitalsError
from trainvitals.masking import mask_text
from trainvitals.units import format_duration
from trainvitals.workers import Outcome, WorkerPool

CHECKS: tuple[Check, ...] = (
    *driver.CHECKS,
    *accelerators.CHECKS,
    *gpus.CHECKS,
    *cuda.CHECKS,
    *gaudi.CHECKS,
    *requirements.CHECKS,
    *containers.CHECKS,
    *disks.CHECKS,
    *host.CHECKS,
    *network.CHECKS,
    *credentials.CHECKS,
)
"""All checks, in the order in which they are listed."""

# On a busy machine, Python needs up to 1.8 s to start and exit, and the documented limit is 5 s.
TIMEOUT_SECONDS = 3.2
QUICK_TIMEOUT_SECONDS = 0.8
_WORST_FIRST: tuple[Status, ...] = ("problem", "warning", "ok", "not applicable")


@dataclass(frozen=True, slots=True)
class Result:
    """The finding and the duration of a check that was run.

    Attributes:
        check: The check to which the finding belongs.
        finding: The finding that the check returned.
        seconds: The duration of the check in seconds.
    """

    check: Check
    finding: Finding
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckRun:
    """The results of all checks.

    Attributes:
        results: The results of the checks, sorted by status from the worst to the best; results
            with the same status are in the order of `CHECKS`.
        seconds: The duration of all checks together, in seconds.
    """

    results: tuple[Result, ...]
    seconds: float

    @property
    def status(self) -> Status:
        """The worst status of all results."""
        found = {result.finding.status for result in self.results}
        return next((status for status in _WORST_FIRST if status in found), "ok")

    def count(self, status: Status) -> int:
        """Return the number of checks that resulted in the specified status."""
        return sum(result.finding.status == status for result in self.results)


def choose_checks(names: Sequence[str], *, is_quick: bool = False) -> tuple[Check, ...]:
    """Return the checks with the specified names or subjects.

    If no names are specified, return all checks, or only the quick ones if `is_quick` is True.

    Raises:
        ConfigurationError: A name denotes neither a check nor a subject.
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


def run_checks(
    options: Options,
    checks: Sequence[Check] = CHECKS,
    *,
    machine: Machine | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> CheckRun:
    """Run checks in parallel and return their results.

    Args:
        options: The user's options for the checks.
        checks: The checks to run.
        machine: The machine to check; None for this machine.
        timeout_seconds: The time in seconds after which unfinished checks are abandoned.
    """
    started = time.monotonic()
    facts = gather(options, machine or Machine(), started + timeout_seconds)
    pool = WorkerPool(name="check", limit=max(len(checks), 1))
    tasks = {check.name: partial(check.run, facts) for check in checks}
    outcomes = pool.gather(tasks, timeout_seconds)
    pool.close()
    results = [_conclude(check, outcomes[check.name]) for check in checks]
    results.sort(key=lambda result: _WORST_FIRST.index(result.finding.status))
    return CheckRun(tuple(results), time.monotonic() - started)


def _conclude(check: Check, outcome: Outcome[Finding]) -> Result:
    if outcome.late:
        finding = Finding(
            check.on_timeout, f"not checked: no answer within {format_duration(outcome.seconds)}"
        )
    elif isinstance(outcome.error, InterpreterError) and check.name != requirements.PYTHON:
        finding = skip("the Python interpreter of the run does not work")
    elif isinstance(outcome.error, TrainvitalsError):
        what, _, advice = str(outcome.error).partition("; ")
        finding = Finding("problem", what, advice=advice)
    elif outcome.error is not None:
        words = f"{type(outcome.error).__name__}: {outcome.error}"
        finding = Finding("warning", f"not checked, because of a bug in the check: {words}")
    else:
        finding = outcome.value or Finding("warning", "not checked")
    masked = replace(
        finding,
        what=mask_text(finding.what),
        command=mask_text(finding.command),
        advice=mask_text(finding.advice),
        details=tuple(map(mask_text, finding.details)),
    )
    return Result(check, masked, outcome.seconds)
