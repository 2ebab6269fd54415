r"""Read and write a folder with the evidence about one exit, collected by `--save` or manually.

All files in the folder are optional. Most of the files contain the output of a standard command, so
the evidence can be collected on any machine:

=============== ================================================================================
file            source
=============== ================================================================================
`inspect.json`  `docker inspect NAME`
`events.jsonl`  `docker events --since 24h --until 0s --format '{{json .}}'`; may include events of
                other containers
`log.txt`       `docker logs --tail 500 NAME 2>&1`, with or without `--timestamps`; timestamps
                separate the lines of the last start from earlier lines
`kernel.txt`    `dmesg`, `journalctl -k`, a copy of `kern.log`, or the records of `/dev/kmsg`
`cgroup/`       the files of the container's control group, such as `memory.max` and
                `memory.events`, or the corresponding files of cgroup v1
`sample.json`   the last sample of the container's control group: the member `sample` of the
                document described in `trainvitals.sources.containers.evidence_document`
`host.json`     the machine's state: the member `host` of the same document; an additional member
                `boot_time`, in seconds since 1970, may be added to date the lines of `dmesg`
`pod.txt`       `kubectl describe pod NAME`, or `kubectl get pod NAME -o yaml`
`engine.log`    the engine's log: `journalctl -u docker`
`evidence.json` a journal record or an evidence document; its values take precedence over the other
                files, which only add missing values
=============== ================================================================================

Logs, kernel logs, pod descriptions and inspections may also have other names, and are then
recognized by their content. If a file has one of the names in the table, other files of the same
kind are ignored.

If no file contains the container's name, the folder's name is used as the container's name. Likely
secrets are masked when the evidence is read. A folder may come from an untrusted person. Therefore,
only regular files are read, links are not followed, and only the end of a large log is read.

`--save` writes `evidence.json`, which is a journal record, and `report.md`, which is the diagnosis
in Markdown. The folder has mode 0700 and the files have mode 0600, so only the owner can read them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_files import explain_refusal, read_regular, read_whole
from trainvitals.masking import mask_command, mask_lines, mask_text
from trainvitals.sources.containers.assembly import Pieces, assemble, choose_kills, fill
from trainvitals.sources.containers.cgrouppaths import take_folder
from trainvitals.sources.containers.cgroups import GroupFiles, to_sample
from trainvitals.sources.containers.events import ContainerEvent, parse_event
from trainvitals.sources.containers.evidence import Evidence, Host, Sample
from trainvitals.sources.containers.evidence_document import FORMAT, EvidenceError, from_json
from trainvitals.sources.containers.evidence_kinds import Texts, read_texts
from trainvitals.sources.containers.inspection import Inspection, parse_inspection
from trainvitals.sources.containers.journal import to_record
from trainvitals.sources.containers.judgement import Judgement
from trainvitals.sources.containers.log_owner import find_times, find_zone
from trainvitals.sources.containers.pod import parse_pod
from trainvitals.sources.host.engine_log import parse_engine_log
from trainvitals.sources.host.kernel_lines import DatedLine
from trainvitals.sources.host.kernel_text import (
    counts_from_boot,
    drop_earlier_boots,
    parse_kernel_text,
)
from trainvitals.sources.timestamps import parse_time

_MOST_LOG_CHARACTERS = 1 << 20
_MOST_LINES = 2000
_MOST_EVENTS = 50_000
_MOST_GROUP_FILES = 256
_MIB = 1 << 20
_HALF_YEAR_SECONDS = 182 * 86_400.0
# The maximum size of each file, in bytes; of a larger log, only the end is read.
_DOCUMENTS = dict.fromkeys(
    ("evidence.json", "inspect.json", "sample.json", "host.json", "pod.txt"), 4 * _MIB
)
_LOGS = {
    "events.jsonl": 8 * _MIB,
    "log.txt": 8 * _MIB,
    "kernel.txt": 8 * _MIB,
    "engine.log": 2 * _MIB,
}
_FILES = (*_DOCUMENTS, *_LOGS, "cgroup")
_DOCKER = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d)(?: |$)")
_T = TypeVar("_T")


def read_folder(path: Path, *, clock: Callable[[], float] = time.time) -> Evidence:
    """Read the evidence in an evidence folder.

    Args:
        path: The path of the folder.
        clock: A function that returns the current time, which determines the date of kernel log
            lines without a full date.

    Raises:
        ConfigurationError: The path is not a folder, the folder contains no evidence file, or a
            file cannot be read or is invalid.
    """
    if not path.is_dir():
        raise ConfigurationError(f"{path} is not a folder of evidence; name one with --evidence")
    texts = _read_texts(path)
    if texts == Texts() and not any((path / name).exists() for name in _FILES):
        raise ConfigurationError(
            f"there is no evidence in {path}; it is to hold a log, a kernel log, the output of "
            f"`kubectl describe pod` or one of {', '.join(_FILES)}"
        )
    beside = _read_beside(path)
    events = _read(path / "events.jsonl", _parse_events)
    log = _choose(_read(path / "log.txt", str), texts.log)
    inspection = _read(path / "inspect.json", read_inspection)
    if inspection is None and texts.inspection is not None:
        inspection = read_inspection(texts.inspection)
    pieces = Pieces(
        name=path.resolve().name,
        inspection=inspection,
        events=events,
        log=None if log is None else parse_log(log),
        engine_lines=_read(path / "engine.log", parse_engine_log) or (),
        sample=_read_group(path / "cgroup") or beside.sample,
        host=beside.host,
    )
    record = _read(path / "evidence.json", parse_record)
    kernel = _choose(_read(path / "kernel.txt", str), texts.kernel)
    pieces = add_kernel(pieces, kernel, now=clock(), boot_time=beside.boot_time)
    evidence = assemble(pieces)
    pod = _read(path / "pod.txt", parse_pod)
    if pod is None and texts.pod is not None:
        pod = parse_pod(texts.pod)
    evidence = evidence if pod is None else fill(pod, evidence)
    return evidence if record is None else _fill(record, evidence, pieces)


def _read_texts(path: Path) -> Texts:
    try:
        return read_texts(path, known=frozenset(_FILES), most_lines=_MOST_LINES)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {explain_refusal(error)}") from error


def _choose(named: str | None, recognised: str | None) -> str | None:
    """Return the text from the file with the standard name, or else the recognized text."""
    return recognised if named is None else named


def _fill(record: Evidence, evidence: Evidence, pieces: Pieces) -> Evidence:
    """Fill missing values of a journal record from other files, and remove the filled gaps."""
    if pieces.oom_kills is not None:
        evidence = replace(evidence, oom_kills=choose_kills(pieces.oom_kills, record))
    filled = fill(record, evidence)
    known = {"the kernel log": filled.oom_kills is not None, "its log": filled.log is not None}
    return replace(filled, gaps=tuple(gap for gap in filled.gaps if not known.get(gap.what, False)))


def parse_log(text: str) -> tuple[DatedLine, ...]:
    """Parse the end of a container's log, with or without `--timestamps`, and mask its secrets."""
    lines = text.removesuffix("\n").rsplit("\n", _MOST_LINES)[-_MOST_LINES:] if text else []
    shown = "\n".join(line.removesuffix("\r") for line in lines)[-_MOST_LOG_CHARACTERS:]
    return _split_stamps(mask_text(shown).split("\n")) if lines else ()


def _split_stamps(lines: Sequence[str]) -> tuple[DatedLine, ...]:
    """Split the lines of `docker logs --timestamps` into time and text.

    The lines are split only if every line begins with a timestamp in Docker's format. Otherwise,
    any timestamps were written by the program itself.
    """
    if not all(_DOCKER.match(line) for line in lines):
        return tuple(DatedLine(None, line) for line in lines)
    parted = (line.partition(" ") for line in lines)
    return tuple(DatedLine(parse_time(stamp), text) for stamp, _, text in parted)


def parse_record(text: str) -> Evidence:
    """Parse a journal record or an evidence document, and mask likely secrets.

    Raises:
        ValueError: The text is not a JSON object.
        EvidenceError: The object is neither a journal record nor an evidence document.
    """
    document: Any = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - the file is wrong, not a type
    evidence = document.get("evidence")
    return from_json(_mask(evidence if isinstance(evidence, dict) else document))


def _mask(value: Any, name: str = "") -> Any:  # noqa: ANN401 - a JSON value
    """Return a JSON value with likely secrets masked, in case its author did not mask them."""
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {key: _mask(member, key) for key, member in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return list((mask_command if name == "command" else mask_lines)(value))
    if isinstance(value, list):
        return [_mask(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class _Beside:
    """The values from the files `sample.json` and `host.json`; None if a value is missing."""

    sample: Sample | None
    host: Host | None
    boot_time: float | None


def _read_group(path: Path) -> Sample | None:
    """Read a copy of a control group's files; the newest file determines the sample's time."""
    group = None if path.is_symlink() else take_folder(str(path))
    if group is None:
        return None
    files = islice(path.iterdir(), _MOST_GROUP_FILES)
    copied = max((each.lstat().st_mtime for each in files), default=0.0)
    usage = GroupFiles(group, clock=lambda: copied).read()
    return None if usage is None else to_sample(usage)


def _read_beside(path: Path) -> _Beside:
    sample = _read(path / "sample.json", partial(_parse_member, "sample"))
    host = _read(path / "host.json", partial(_parse_member, "host"))
    members: Any = _read(path / "host.json", json.loads)
    booted = members.get("boot_time") if isinstance(members, dict) else None
    return _Beside(
        None if sample is None else sample.sample,
        None if host is None else host.host,
        float(booted) if isinstance(booted, int | float) else None,
    )


def _parse_member(name: str, text: str) -> Evidence:
    member = _mask(json.loads(text))
    document = {"format": FORMAT, "subject": "container", "name": "", name: member}
    return from_json(document)


def add_kernel(
    pieces: Pieces, text: str | None, *, now: float, boot_time: float | None = None
) -> Pieces:
    """Return the pieces with the events of a kernel log added; unchanged if the text is None."""
    if text is None:
        return pieces
    is_dated = boot_time is not None or not counts_from_boot(text)
    zone = find_zone(text)
    times = find_times(pieces.log or (), zone=zone) if is_dated else None
    if times is not None:  # dates without a year are assumed to be near the log's dates
        now = min(now, times[1] + _HALF_YEAR_SECONDS)
    elif pieces.log is not None and pieces.inspection is None:
        text = drop_earlier_boots(text)
    if boot_time is None:
        boot_time = _guess_boot_time(text, pieces, now)
    news = parse_kernel_text(text, now=now, boot_time=boot_time)
    return replace(
        pieces,
        oom_kills=news.oom_kills,
        xids=news.xids,
        kernel_lines=news.lines,
        is_kernel_dated=is_dated,
        kernel_zone=zone,
    )


def _guess_boot_time(text: str, pieces: Pieces, now: float) -> float:
    """Return the machine's boot time, which is the zero point of the kernel log's timestamps.

    The result is the boot time for which the container's last OOM kill coincides with the
    container's last event `oom` or, without such an event, with the container's exit. If neither
    the container's start nor its end is known, the result is 0.
    """
    evidence = assemble(pieces)
    ooms = [event.time for event in evidence.events or () if event.action == "oom"]
    end = ooms[-1] if ooms else evidence.ended
    if end is None and evidence.started is None:
        return 0.0
    last = now if end is None else end
    from_zero = parse_kernel_text(text, now=now, boot_time=0.0)
    kills = [
        kill.time for kill in from_zero.oom_kills if evidence.id and evidence.id in kill.task_memcg
    ]
    times = kills or [kill.time for kill in from_zero.oom_kills] or [x.time for x in from_zero.xids]
    return last - max(times, default=0.0)


def _read(path: Path, parse: Callable[[str], _T]) -> _T | None:
    """Read and parse an evidence file; return None if the file does not exist.

    Raises:
        ConfigurationError: The file cannot be read or is invalid.
    """
    try:
        if path.name in _LOGS:
            data = read_regular(path, _LOGS[path.name], follows=False, from_end=True)
        else:
            data = read_whole(path, _DOCUMENTS[path.name], follows=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {explain_refusal(error)}") from error
    try:
        return parse(data.decode(errors="replace").removeprefix("\ufeff"))
    except (ValueError, RecursionError, EvidenceError) as error:
        raise _not_understood(path, error) from error


def _not_understood(path: Path, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"cannot understand {path}: {error}; collect it again, or take it out of the folder"
    )


def read_inspection(text: str) -> Inspection:
    """Read the first container's inspection from the output of `docker inspect`.

    Raises:
        ValueError: The text is not JSON, or lists no container.
    """
    document: Any = json.loads(text)
    first = document[0] if isinstance(document, list) and document else document
    if not isinstance(first, dict):
        raise ValueError("it lists no container")  # noqa: TRY004 - the file is wrong
    return parse_inspection(first)


def _parse_events(text: str) -> tuple[ContainerEvent, ...]:
    lines = text.splitlines()[-_MOST_EVENTS:]
    read = (parse_event(line.encode()) for line in lines if line.strip())
    return tuple(event for event in read if event is not None)


def save_folder(path: Path, evidence: Evidence, verdict: Judgement, report: str) -> None:
    """Write the evidence and a report to a folder, and create the folder if it does not exist.

    Raises:
        ConfigurationError: The folder cannot be written, or already contains evidence.
    """
    record = to_record(evidence, verdict)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path / "evidence.json", json.dumps(record, indent=2, ensure_ascii=False))
        _write(path / "report.md", report)
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
