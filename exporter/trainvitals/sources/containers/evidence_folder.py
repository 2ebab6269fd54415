r"""A folder of evidence of one death, collected by `--save` or manually.

All files are optional, and each is what a plain command prints, so that they can be collected anywhere:

=============== ================================================================================
file            made by
=============== ================================================================================
`inspect.json`  `docker inspect NAME`
`events.jsonl`  `docker events --since 24h --until 0s --format '{{json .}}'`; events of other
                containers may be among them
`log.txt`       `docker logs --tail 500 NAME 2>&1`, with or without `--timestamps`; those part the
                lines of the last start from those before
`kernel.txt`    `dmesg`, `journalctl -k`, a copy of `kern.log`, or the records of `/dev/kmsg`
`cgroup/`       the files of its control group, such as `memory.max` and `memory.events`, or their
                names of version 1
`sample.json`   the last sample of its control group: the member `sample` of a document as
                `trainvitals.sources.containers.evidence_document` describes it
`host.json`     the machine, likewise: the member `host`; `boot_time`, seconds since 1970, may be
                beside its members, to date the lines of `dmesg`
`pod.txt`       `kubectl describe pod NAME`
`engine.log`    what the engine logged: `journalctl -u docker`
`evidence.json` a record of the journal, or such a document by itself: it takes precedence over the
                others, which add what it lacks
=============== ================================================================================

Other files of text are recognised by their content: logs, kernel logs and descriptions of a pod. One
with a name above takes the place of those of its kind.

The folder is named like the container where no file in it names one. Likely secrets are masked when
the evidence is read. A folder may come from a stranger, so only regular files in it are read, never
what a link in it leads to, and of logs their end.

`--save` writes for the owner alone (the folder with mode 0700, its files 0600): `evidence.json`, in
the form of a record of the journal, and `report.md` for people.
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
from trainvitals.sources.containers.log_owner import find_times
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
# The size in bytes up to which a file is read; of those with lines the end is.
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
    """Read a folder of evidence.

    Args:
        path: The folder.
        clock: Returns the time, for lines of the kernel log without a date.

    Raises:
        ConfigurationError: The path is not a folder, the folder has none of the files, or one of
            them is invalid.
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
    pieces = Pieces(
        name=path.resolve().name,
        inspection=_read(path / "inspect.json", _parse_inspection),
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
    """Return the text of the file that has the name for it, else one that was recognised."""
    return recognised if named is None else named


def _fill(record: Evidence, evidence: Evidence, pieces: Pieces) -> Evidence:
    """Add to a record what the other files have, and remove the gaps that they fill."""
    if pieces.oom_kills is not None:
        evidence = replace(evidence, oom_kills=choose_kills(pieces.oom_kills, record))
    filled = fill(record, evidence)
    known = {"the kernel log": filled.oom_kills is not None, "its log": filled.log is not None}
    return replace(filled, gaps=tuple(gap for gap in filled.gaps if not known.get(gap.what, False)))


def parse_log(text: str) -> tuple[DatedLine, ...]:
    """Return the last lines of a container's log, with or without `--timestamps`; masked."""
    lines = text.removesuffix("\n").rsplit("\n", _MOST_LINES)[-_MOST_LINES:] if text else []
    shown = "\n".join(line.removesuffix("\r") for line in lines)[-_MOST_LOG_CHARACTERS:]
    return _split_stamps(mask_text(shown).split("\n")) if lines else ()


def _split_stamps(lines: Sequence[str]) -> tuple[DatedLine, ...]:
    """Split the lines of `docker logs` into the times of `--timestamps` and the text.

    Where one has none, all are taken as they are: then the times are the program's own.
    """
    if not all(_DOCKER.match(line) for line in lines):
        return tuple(DatedLine(None, line) for line in lines)
    parted = (line.partition(" ") for line in lines)
    return tuple(DatedLine(parse_time(stamp), text) for stamp, _, text in parted)


def parse_record(text: str) -> Evidence:
    """Read a record of the journal, or its member `evidence` alone; masked.

    Raises:
        ValueError: The document has neither form.
    """
    document: Any = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - what is wrong is the file, not a type
    evidence = document.get("evidence")
    return from_json(_mask(evidence if isinstance(evidence, dict) else document))


def _mask(value: Any, name: str = "") -> Any:  # noqa: ANN401 - a JSON value
    """Return a JSON value with the secrets in its texts masked; its author is unknown."""
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
    """The objects in `sample.json` and `host.json`."""

    sample: Sample | None
    host: Host | None
    boot_time: float | None


def _read_group(path: Path) -> Sample | None:
    """Read the files of a control group, as old as the newest of them."""
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
    """Return the pieces with the content of a kernel log, unchanged if its text is None."""
    if text is None:
        return pieces
    is_dated = boot_time is not None or not counts_from_boot(text)
    times = find_times(pieces.log or ()) if is_dated else None
    if times is not None:  # a date without a year is near the log
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
    )


def _guess_boot_time(text: str, pieces: Pieces, now: float) -> float:
    """Return the boot time of the machine, from which the kernel log counts seconds.

    The last kill of this very container was at its last event `oom`, else at its death. Without a
    start and an end there is nothing to date it by, and it is 0.
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
    """Read a file; None if it is not there.

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


def _parse_inspection(text: str) -> Inspection:
    document: Any = json.loads(text)
    first = document[0] if isinstance(document, list) and document else document
    if not isinstance(first, dict):
        raise ValueError("it lists no container")  # noqa: TRY004 - what is wrong is the file
    return parse_inspection(first)


def _parse_events(text: str) -> tuple[ContainerEvent, ...]:
    lines = text.splitlines()[-_MOST_EVENTS:]
    read = (parse_event(line.encode()) for line in lines if line.strip())
    return tuple(event for event in read if event is not None)


def save_folder(path: Path, evidence: Evidence, verdict: Judgement, report: str) -> None:
    """Write evidence and a report into a folder, which is made where it is not there.

    Raises:
        ConfigurationError: The folder cannot be written, or holds evidence already.
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
