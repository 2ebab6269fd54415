"""Saving evidence as a folder that somebody else can judge; see `trainvitals.diagnosis.folder`.

The folder is for its owner alone (0700, its files 0600) and holds `evidence.json`, in the form of a
record of the journal, and `report.md` for people.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from trainvitals.causes.document import to_json
from trainvitals.diagnosis.diagnosis import Diagnosis
from trainvitals.diagnosis.markdown import format_markdown
from trainvitals.errors import ConfigurationError

_FORMAT = 1


def save_folder(diagnosis: Diagnosis, path: Path) -> None:
    """Write the evidence and the report into a folder, which is made where it is not there.

    Raises:
        ConfigurationError: It cannot be written, or holds evidence already.
    """
    finding = diagnosis.verdict.finding
    record = {
        "format": _FORMAT,
        "evidence": to_json(diagnosis.evidence),
        "verdict": {
            "reason": finding.reason,
            "confidence": finding.confidence,
            "summary": finding.summary,
        },
    }
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path / "evidence.json", json.dumps(record, indent=2, ensure_ascii=False))
        _write(path / "report.md", format_markdown(diagnosis))
    except FileExistsError as error:
        raise ConfigurationError(
            f"{error.filename or path} is there already; name another folder with --save"
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {error.filename or path}: {error.strerror}; "
            "name another folder with --save"
        ) from error


def _write(path: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:  # noqa: PTH123 - takes a descriptor
        file.write(text.encode(errors="replace") + b"\n")
