"""A diagnosis as JSON.

The shape is stable: members may be added, none is renamed or removed. What is not known is null.
Times are UTC in ISO 8601.

================== ==============================================================================
member             value
================== ==============================================================================
`format`           the number 1
`subject`          `container`, `process` or `run`
`name`             its name, `id` the container's ID or an empty text
`is_running`       whether this is about something that runs
`is_well`          whether it ended as it should, or runs without a trouble that can be seen
`ended`            when it ended, and `exit_code`
`runs_since`       since when it runs again
`reason`           the cause: one of a closed set, `docs/diagnosis.md` lists it
`confidence`       `high`, `medium` or `low`
`summary`          the cause in a sentence
`speaks_for`       a list of sentences
`speaks_against`   a list of sentences
`steps`            what to do, the most useful first; commands and settings stand in backquotes
`contributing`     other causes, likewise: objects with `reason`, `confidence`, `summary`,
                   `speaks_for`, `speaks_against` and `steps`
`gaps`             what could not be read: objects with `what`, `why` and `remedy`
`step`             the step of the ladder of privileges, 0 to 2, and `next_step`, what the next
                   would give; null where only a folder was read
`origin`           where the evidence comes from, in a few words
`evidence`         all that is known, as `trainvitals.causes.document` describes it
`present`          the machine now, as the member `host` of the evidence
`others`           what died beside it, the last first: `name`, `id`, `ended`, `exit_code`,
                   `reason`, `confidence`, `summary`
================== ==============================================================================

With `--since` alone there are only `format`, `since` and `deaths`, a list of such objects.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from trainvitals.causes.document import to_json
from trainvitals.causes.verdict import Finding
from trainvitals.diagnosis.diagnosis import Death, Diagnosis
from trainvitals.postmortem.quantities import write_iso

_FORMAT = 1


def format_document(diagnosis: Diagnosis) -> str:
    """Write a diagnosis for a program; see above."""
    evidence, reach = diagnosis.evidence, diagnosis.reach
    document = {
        "format": _FORMAT,
        "subject": evidence.subject,
        "name": evidence.name,
        "id": evidence.id,
        "is_running": diagnosis.is_running,
        "is_well": diagnosis.is_well,
        "ended": write_iso(evidence.ended),
        "exit_code": evidence.exit_code,
        "runs_since": write_iso(diagnosis.runs_since),
        **_describe_finding(diagnosis.verdict.finding),
        "contributing": [_describe_finding(each) for each in diagnosis.verdict.contributing],
        "gaps": [asdict(gap) for gap in diagnosis.gaps],
        "step": None if reach is None else reach.step,
        "next_step": None if reach is None else reach.next_step or None,
        "origin": diagnosis.origin,
        "evidence": to_json(evidence),
        "present": None if diagnosis.present is None else asdict(diagnosis.present),
        "others": [_describe_death(death) for death in diagnosis.others],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def format_deaths_document(deaths: Sequence[Death], since: float) -> str:
    """Write a list of deaths for a program."""
    document = {
        "format": _FORMAT,
        "since": write_iso(since),
        "deaths": [_describe_death(death) for death in deaths],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _describe_finding(finding: Finding) -> dict[str, object]:
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
        "name": death.name,
        "id": death.id,
        "ended": write_iso(death.time),
        "exit_code": death.exit_code,
        "reason": death.verdict.reason,
        "confidence": death.verdict.finding.confidence,
        "summary": death.verdict.finding.summary,
    }
