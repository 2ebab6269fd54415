"""The exit journal: one JSON file for each exit, including exits of removed containers.

The file name of a record is `<UTC time>-<name>-<first 12 characters of the ID>.json`, such as
`20260503T140312.250Z-train-85a2c6d12832.json`. Only the owner can read a record: the record's file
has mode 0600, and the folder has mode 0700. A record contains one JSON object:

========== =====================================================================================
member     value
========== =====================================================================================
`format`   the number 1
`evidence` the evidence, as described in `trainvitals.sources.containers.evidence_document`
`verdict`  the verdict at the time of the exit: `reason`, `confidence` and `summary`
========== =====================================================================================

Programs that read a record derive the cause from the evidence again, because a newer version may
support more causes. The number and the total size of the records are limited. If a limit is
exceeded, the oldest records are removed. The file of a record gets its final name after it has been
written completely. Other files in the folder are not changed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainvitals.errors import SourceError
from trainvitals.foreign_files import read_whole
from trainvitals.foreign_text import clean_file_name
from trainvitals.sources.containers.evidence import Evidence
from trainvitals.sources.containers.evidence_document import EvidenceError, from_json, to_json
from trainvitals.sources.containers.judgement import Judgement
from trainvitals.units import format_stamp

FORMAT = 1
_NAME = re.compile(r"\d{8}T\d{6}\.\d{3}Z-[A-Za-z0-9_.-]{1,128}\.json")
_LAST_TIME = 253_402_300_799.0  # the end of the year 9999
_MOST_RECORDS = 200
_MOST_BYTES = 64 << 20
_MOST_RECORD_BYTES = 4 << 20
_MOST_NAME = 96
_ID_CHARACTERS = 12

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the journal.

    Attributes:
        path: The path of the record's file.
        evidence: The evidence that was recorded about the exit.
        reason: The cause of the exit, from the recorded verdict.
        confidence: The confidence of the recorded verdict.
        summary: The recorded verdict, as a sentence.
    """

    path: Path
    evidence: Evidence
    reason: str
    confidence: str
    summary: str


def default_journal(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the journal folder that the exporter and `diagnose` use by default.

    The folder is `$TRAINVITALS_JOURNAL_DIR` if the variable is set, otherwise
    `/var/lib/trainvitals/deaths` for root, and `trainvitals/deaths` in `$XDG_STATE_HOME` or
    `~/.local/state` for other users.
    """
    named = environ.get("TRAINVITALS_JOURNAL_DIR")
    if named:
        return Path(named)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/trainvitals/deaths")
    state = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111 - a home that is not known is no error
    return Path(state, "trainvitals", "deaths")


def to_record(evidence: Evidence, verdict: Judgement) -> dict[str, object]:
    """Return the JSON object of a journal record."""
    return {
        "format": FORMAT,
        "evidence": to_json(evidence),
        "verdict": {
            "reason": verdict.reason,
            "confidence": verdict.confidence,
            "summary": verdict.summary,
        },
    }


class Journal:
    """The journal in one folder, which is created when the first record is written.

    Args:
        directory: The path of the folder.
        most_records: The maximum number of records in the journal.
        most_bytes: The maximum total size of the journal's records, in bytes.
    """

    def __init__(
        self,
        directory: Path,
        *,
        most_records: int = _MOST_RECORDS,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self.directory = directory
        self._most_records = most_records
        self._most_bytes = most_bytes

    def write(self, evidence: Evidence, verdict: Judgement) -> Path:
        """Write a record, remove the oldest records beyond the limits, and return the path.

        Raises:
            SourceError: The record cannot be written.
        """
        document = to_record(evidence, verdict)
        path = self.directory / _name_record(evidence)
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_whole(path, _write_json(document))
            self._prune()
        except OSError as error:
            raise SourceError(
                f"cannot write {path}: {error.strerror}; make {self.directory} writable or name "
                "another folder with --containers.journal"
            ) from error
        return path

    def read_entries(self) -> tuple[Entry, ...]:
        """Return all valid records of the journal, the newest first.

        Raises:
            SourceError: The journal's folder exists but cannot be read.
        """
        entries = []
        for path in reversed(self._find()):
            entry = _read_entry(path)
            if entry is not None:
                entries.append(entry)
        return tuple(entries)

    def _find(self) -> list[Path]:
        """Return the paths of the journal records, the oldest first."""
        try:
            paths = sorted(self.directory.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SourceError(
                f"cannot read {self.directory}: {error.strerror}; run as the user that serves"
            ) from error
        return [path for path in paths if _NAME.fullmatch(path.name)]

    def _prune(self) -> None:
        paths = self._find()
        sizes = [_measure(path) for path in paths]
        total, left = sum(sizes), len(paths)
        for path, size in zip(paths, sizes, strict=True):
            if left <= 1 or (left <= self._most_records and total <= self._most_bytes):
                return
            with suppress(FileNotFoundError):
                path.unlink()
            total, left = total - size, left - 1


def _name_record(evidence: Evidence) -> str:
    time = format_stamp(min(max(0.0, evidence.ended or 0.0), _LAST_TIME), is_exact=True)
    name = clean_file_name(evidence.name, allowed="-_.")[:_MOST_NAME] or "unnamed"
    container = clean_file_name(evidence.id, allowed="-_.")[:_ID_CHARACTERS] or "none"
    return f"{time}-{name}-{container}.json"


def _write_json(document: Mapping[str, object]) -> bytes:
    # A file name in the evidence can contain bytes that are not valid UTF-8.
    return json.dumps(document, ensure_ascii=False).encode(errors="replace")


def _write_whole(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _measure(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _read_entry(path: Path) -> Entry | None:
    try:
        document: Any = json.loads(read_whole(path, _MOST_RECORD_BYTES, follows=False))
        verdict = document["verdict"]
        return Entry(
            path,
            from_json(document["evidence"]),
            str(verdict["reason"]),
            str(verdict["confidence"]),
            str(verdict["summary"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError, EvidenceError) as error:
        _log.debug("%s is no record of a death: %s", path, error)
        return None
