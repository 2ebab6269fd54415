"""Formats a diagnosis as JSON.

The format is stable: members may be added, but none is renamed or removed. Unknown values are null.
Times are in UTC and in the format of ISO 8601.

================== ==============================================================================
member             value
================== ==============================================================================
`format`           the number 1
`subject`          `container`, `process` or `run`
`name`             the subject's name; `id` is the container's ID or an empty string
`is_running`       whether the subject is still running
`is_well`          whether the subject ended regularly, or runs without evidence of a fault
`ended`            the time of the end; `exit_code` is the exit code
`runs_since`       the time at which the subject was restarted after its end
`reason`           the cause: one of the closed set in `docs/diagnosis.md`
`confidence`       `high`, `medium` or `low`
`summary`          the cause in a sentence
`speaks_for`       the evidence for the cause, a list of sentences
`speaks_against`   the evidence against the cause, a list of sentences
`steps`            steps to take, the most useful first; commands and settings are in backticks
`contributing`     contributing causes: objects with `reason`, `confidence`, `summary`,
                   `speaks_for`, `speaks_against` and `steps`
`gaps`             sources that could not be read: objects with `what`, `why` and `remedy`
`step`             the access level, 0 to 2; `next_step` describes what the next level adds; both
                   are null if only a directory was read
`origin`           the sources of the evidence, in a few words
`evidence`         the evidence; see `trainvitals.sources.containers.evidence_document`
`present`          the machine's current state, in the format of the evidence's member `host`
`others`           other deaths, the latest first: `subject` (`container` or `run`), `name`, `id`,
                   `ended`, `exit_code`, `reason`, `confidence`, `summary`
================== ==============================================================================

For `--since` without a name, the document contains only `format`, `since`, `deaths` (a list of
objects as in `others`) and `oom_kills` (the OOM kills of processes that belong to neither a
container nor a run: `ended`, `name` and `pid`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from trainvitals.sources.containers.evidence_document import to_json
from trainvitals.sources.host.oom_lines import OomKill
from trainvitals.units import format_iso
from trainvitals.verdicts.causes.diagnosis import Death, Diagnosis
from trainvitals.verdicts.causes.verdict import Finding
from trainvitals.views.death.report import describe_next_step

_FORMAT = 1


def format_document(diagnosis: Diagnosis) -> str:
    """Return a diagnosis as a JSON document in the format of this module."""
    evidence, step = diagnosis.evidence, diagnosis.step
    document = {
        "format": _FORMAT,
        "subject": evidence.subject,
        "name": evidence.name,
        "id": evidence.id,
        "is_running": diagnosis.is_running,
        "is_well": diagnosis.is_well,
        "ended": format_iso(evidence.ended),
        "exit_code": evidence.exit_code,
        "runs_since": format_iso(diagnosis.runs_since),
        **describe_finding(diagnosis.verdict.finding),
        "contributing": [describe_finding(each) for each in diagnosis.verdict.contributing],
        "gaps": [asdict(gap) for gap in diagnosis.gaps],
        "step": step,
        "next_step": None if step is None else describe_next_step(step) or None,
        "origin": diagnosis.origin,
        "evidence": to_json(evidence),
        "present": None if diagnosis.present is None else asdict(diagnosis.present),
        "others": [_describe_death(death) for death in diagnosis.others],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def format_deaths_document(
    deaths: Sequence[Death], since: float, kills: Sequence[OomKill] = ()
) -> str:
    """Return a JSON document with a list of deaths and a list of OOM kills outside containers."""
    document = {
        "format": _FORMAT,
        "since": format_iso(since),
        "deaths": [_describe_death(death) for death in deaths],
        "oom_kills": [
            {"ended": format_iso(kill.time), "name": kill.task, "pid": kill.pid} for kill in kills
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def describe_finding(finding: Finding) -> dict[str, object]:
    """Return a finding as an object for `json.dumps`."""
    return {
        "reason": finding.reason,
        "confidence": finding.confidence,
        "summary": finding.summary,
        "speaks_for": finding.speaks_for,
        "speaks_against": finding.speaks_against,
        "steps": finding.steps,
    }


def _describe_death(death: Death) -> dict[str, object]:
    return {
        "subject": death.subject,
        "name": death.name,
        "id": death.id,
        "ended": format_iso(death.time),
        "exit_code": death.exit_code,
        "reason": death.verdict.reason,
        "confidence": death.verdict.finding.confidence,
        "summary": death.verdict.finding.summary,
    }
