"""A check of the run directory."""

from __future__ import annotations

import os

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, ok, skip, warn
from trainvitals.sources.runs.ownership import find_exposure


def _check_ownership(facts: Facts) -> Finding:
    path = facts.machine.run_directory
    if not os.path.lexists(path):
        return skip(f"there is no {path} yet; the first run makes it")
    exposure = find_exposure(path, user=facts.machine.user)
    if exposure is None:
        return ok(f"{path} belongs to root or to this user")
    return warn(
        exposure.words,
        exposure.command,
        advice="between two runs; have root make it at each boot, see docs/deployment.md",
    )


CHECKS = (
    Check(
        "run-directory",
        "host",
        "a warning if the run directory belongs to another user, only one user may write there, or "
        "every user may remove the files of others",
        "the metrics lack runs, or runs vanish from them",
        _check_ownership,
    ),
)
