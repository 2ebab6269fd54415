"""Deaths that were collected, each a file of evidence with the verdict it must get.

`tests/fixtures/deaths/NAME.txtar` has the form of the archives that Go's tests use (txtar). A line
`-- FILE --` begins each section, which lasts until the next such line. `expected.yml` is the
verdict, described by `Expected`; the others are the files of a folder of evidence, as `trainvitals
diagnose --evidence` reads it. A line `FILE: OTHER` before the first section says that the file is
the same as that of the death OTHER. NAME is a reason, or a reason with a variant behind `--`.
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
    """The verdict that `expected.yml` demands of a death.

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
    """Return the names of all deaths."""
    return sorted(path.stem for path in DEATHS.glob("*.txtar"))


def read_death(name: str) -> Evidence:
    """Read the evidence of a death."""
    with tempfile.TemporaryDirectory() as directory:
        return read_folder(unpack_death(name, Path(directory)))


def unpack_death(name: str, directory: Path) -> Path:
    """Write the evidence of a death into a folder of its name and return that."""
    folder = directory / name
    folder.mkdir()
    for file, text in read_files(name).items():
        if file != "expected.yml":
            (folder / file).write_bytes(text.encode())
    return folder


def read_expected(name: str) -> Expected:
    """Read the verdict that a death must get."""
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
    """Return the text before the first section of an archive, and its files by their names."""
    header, *parts = re.split(r"^-- (\S+) --\n", text, flags=re.MULTILINE)
    return header, dict(zip(parts[::2], parts[1::2], strict=True))


def read_files(name: str) -> dict[str, str]:
    """Return the files of a death by their names."""
    header, files = split_archive((DEATHS / f"{name}.txtar").read_bytes().decode())
    for line in header.splitlines():
        file, _, other = line.partition(": ")
        files[file] = read_files(other)[file]
    return files


def tell(finding: Finding) -> str:
    """Return all that a finding says as one text."""
    parts = (finding.summary, *finding.speaks_for, *finding.speaks_against, *finding.steps)
    return "\n".join(parts)


def reasons_of(verdict: Verdict) -> set[str]:
    """Return the reasons that a verdict names at all."""
    return {verdict.reason, *(finding.reason for finding in verdict.contributing)}
