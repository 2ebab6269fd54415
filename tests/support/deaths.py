"""Recorded process deaths, each a file with the evidence and the expected verdict.

`tests/fixtures/deaths/NAME.txtar` has the txtar format, which Go's tests use for archives. A line
`-- FILE --` begins each section, which lasts until the next such line. The section `expected.yml`
contains the verdict, which `Expected` describes. The other sections are the files of a folder that
`trainvitals diagnose --evidence` can read. A line `FILE: OTHER` before the first section means that
the file is the same as the file of the death OTHER. NAME is a reason, optionally followed by `--`
and a variant.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

from trainvitals.sources.containers.evidence import Evidence
from trainvitals.sources.containers.evidence_folder import read_folder
from trainvitals.verdicts.causes.verdict import Finding, Verdict

DEATHS = Path(__file__).parents[1] / "fixtures/deaths"


@dataclass(frozen=True, slots=True)
class Expected:
    """The verdict that `expected.yml` requires for a death.

    Attributes:
        reason: The verdict's reason.
        confidence: The verdict's confidence.
        contributing: Reasons that must be among the contributing reasons.
        says: Words that the text of the verdict must contain.
        forbidden: Reasons that must be neither the verdict nor contributing (`not` in the file).
    """

    reason: str
    confidence: str
    contributing: tuple[str, ...]
    says: tuple[str, ...]
    forbidden: tuple[str, ...]


def list_deaths() -> list[str]:
    """Return the names of all recorded deaths."""
    return sorted(path.stem for path in DEATHS.glob("*.txtar"))


def read_death(name: str) -> Evidence:
    """Read the evidence of a death."""
    with tempfile.TemporaryDirectory() as directory:
        return read_folder(unpack_death(name, Path(directory)))


def unpack_death(name: str, directory: Path) -> Path:
    """Write the evidence of a death into a folder of the same name and return that folder."""
    folder = directory / name
    folder.mkdir()
    for file, text in read_files(name).items():
        if file != "expected.yml":
            (folder / file).write_bytes(text.encode())
    return folder


def read_expected(name: str) -> Expected:
    """Read the verdict that is expected for a death."""
    document = yaml.safe_load(read_files(name)["expected.yml"])
    known = {"reason", "confidence", "contributing", "says", "not"}
    assert set(document) <= known, f"{name}: {set(document) - known}"
    return Expected(
        document["reason"],
        document["confidence"],
        tuple(document.get("contributing", ())),
        tuple(document.get("says", ())),
        tuple(document.get("not", ())),
    )


def split_archive(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first section of an archive, and the archive's files by name."""
    header, *parts = re.split(r"^-- (\S+) --\n", text, flags=re.MULTILINE)
    return header, dict(zip(parts[::2], parts[1::2], strict=True))


def read_files(name: str) -> dict[str, str]:
    """Return the files of a death by name."""
    header, files = split_archive((DEATHS / f"{name}.txtar").read_bytes().decode())
    for line in header.splitlines():
        file, _, other = line.partition(": ")
        files[file] = read_files(other)[file]
    return files


def tell(finding: Finding) -> str:
    """Return the summary, the evidence and the steps of a finding as one text."""
    parts = (finding.summary, *finding.speaks_for, *finding.speaks_against, *finding.steps)
    return "\n".join(parts)


def reasons_of(verdict: Verdict) -> set[str]:
    """Return the reason of a verdict and all its contributing reasons."""
    return {verdict.reason, *(finding.reason for finding in verdict.contributing)}
