"""Deaths that were collected, each a folder of evidence with the verdict it must get."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from trainvitals.causes.evidence import Evidence
from trainvitals.causes.verdict import Finding, Verdict
from trainvitals.diagnosis.folder import read_folder

DEATHS = Path(__file__).parent / "fixtures/deaths"


@dataclass(frozen=True, slots=True)
class Expected:
    """What `expected.yml` says of a death.

    Attributes:
        reason: The verdict's reason.
        confidence: Its confidence.
        contributing: Reasons that must be among the contributing ones.
        says: Words that must be in what the verdict says.
        forbidden: Reasons that must be neither the verdict nor contributing (`not` in the file).
    """

    reason: str
    confidence: str
    contributing: tuple[str, ...]
    says: tuple[str, ...]
    forbidden: tuple[str, ...]


def list_deaths() -> list[str]:
    """Name all deaths."""
    return sorted(folder.name for folder in DEATHS.iterdir() if folder.is_dir())


def read_death(name: str) -> Evidence:
    """Read the evidence of a death."""
    return read_folder(DEATHS / name)


def read_expected(name: str) -> Expected:
    """Read the verdict that a death must get."""
    text = (DEATHS / name / "expected.yml").read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    known = {"reason", "confidence", "contributing", "says", "not"}
    assert set(document) <= known, f"{name}: {set(document) - known}"
    return Expected(
        document["reason"],
        document["confidence"],
        tuple(document.get("contributing", ())),
        tuple(document.get("says", ())),
        tuple(document.get("not", ())),
    )


def tell(finding: Finding) -> str:
    """Give all that a finding says as one text."""
    parts = (finding.summary, *finding.speaks_for, *finding.speaks_against, *finding.steps)
    return "\n".join(parts)


def reasons_of(verdict: Verdict) -> set[str]:
    """Give the reasons that a verdict names at all."""
    return {verdict.reason, *(finding.reason for finding in verdict.contributing)}
