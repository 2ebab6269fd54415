r"""A folder of evidence: what was collected of one death, by `--save` or by hand.

All files are optional, and each is what a plain command prints, so that anybody can collect them:

=============== ================================================================================
file            made by
=============== ================================================================================
`inspect.json`  `docker inspect NAME`
`events.jsonl`  `docker events --since 24h --until 0s --format '{{json .}}'`; events of other
                containers may be among them
`log.txt`       `docker logs --tail 500 NAME 2>&1`, with or without `--timestamps`; those tell the
                lines of the last start from those before
`kernel.txt`    `dmesg`, `journalctl -k`, a copy of `kern.log`, or what `/dev/kmsg` gives
`cgroup/`       the files of its control group, such as `memory.max` and `memory.events`, or their
                names of version 1
`sample.json`   the last look at its control group: the member `sample` of a document as
                `trainvitals.causes.document` describes it
`host.json`     the machine, likewise: the member `host`; `boot_time`, seconds since 1970, may stand
                beside its members, to date the lines of `dmesg`
`engine.log`    what the engine logged: `journalctl -u docker`
`evidence.json` a record of the journal, or such a document by itself: it goes before all others,
                which add what it lacks
=============== ================================================================================

The folder has the container's name where nothing in it tells another. What could be a secret is
masked when it is read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from trainvitals.causes.document import FORMAT, EvidenceError, from_json
from trainvitals.causes.evidence import Evidence, Host, Sample
from trainvitals.diagnosis.assembly import Pieces, assemble, fill
from trainvitals.diagnosis.dates import DatedLine, split_stamps
from trainvitals.diagnosis.enginelog import parse_engine_log
from trainvitals.errors import ConfigurationError
from trainvitals.masking import mask_text
from trainvitals.sources.containers.cgroups import GroupFiles, take_folder, to_sample
from trainvitals.sources.containers.events import ContainerEvent, parse_event
from trainvitals.sources.containers.inspection import Inspection, parse_inspection
from trainvitals.sources.kernel_log import parse_kernel_text

_MOST_FILE_BYTES = 32 << 20
_MOST_LINES = 2000
_FILES = (
    "evidence.json",
    "inspect.json",
    "events.jsonl",
    "log.txt",
    "kernel.txt",
    "cgroup",
    "sample.json",
    "host.json",
    "engine.log",
)
_T = TypeVar("_T")


def read_folder(path: Path, *, clock: Callable[[], float] = time.time) -> Evidence:
    """Read a folder of evidence.

    Args:
        path: The folder.
        clock: Tells the time, for lines of the kernel log that have no date of their own.

    Raises:
        ConfigurationError: It is no folder, holds none of the files, or one cannot be understood.
    """
    if not path.is_dir():
        raise ConfigurationError(f"{path} is no folder of evidence; name one with --evidence")
    if not any((path / name).exists() for name in _FILES):
        raise ConfigurationError(
            f"there is no evidence in {path}; it is to hold one of {', '.join(_FILES)}"
        )
    beside = _read_beside(path)
    events = _read(path / "events.jsonl", _parse_events)
    pieces = Pieces(
        name=path.resolve().name,
        inspection=_read(path / "inspect.json", _parse_inspection),
        events=events,
        log=_read(path / "log.txt", parse_log),
        engine_lines=_read(path / "engine.log", parse_engine_log) or (),
        sample=_read_group(path / "cgroup") or beside.sample,
        host=beside.host,
    )
    evidence = assemble(_add_kernel(pieces, path, beside, clock()))
    record = _read(path / "evidence.json", parse_record)
    return evidence if record is None else fill(record, evidence)


def parse_log(text: str) -> tuple[DatedLine, ...]:
    """Take a container's log apart, with or without `--timestamps`; masked."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if not lines[-1]:
        lines.pop()
    if not lines:
        return ()
    return split_stamps(mask_text("\n".join(lines[-_MOST_LINES:])).split("\n"))


def parse_record(text: str) -> Evidence:
    """Read a record of the journal, or the evidence in it by itself.

    Raises:
        ValueError: It is neither.
    """
    document: Any = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - what is wrong is the file, not a type
    evidence = document.get("evidence")
    return from_json(evidence if isinstance(evidence, dict) else document)


@dataclass(frozen=True, slots=True)
class _Beside:
    """What stands in `sample.json` and `host.json`."""

    sample: Sample | None
    host: Host | None
    boot_time: float | None


def _read_group(path: Path) -> Sample | None:
    """Read the files of a control group, as old as the newest of them."""
    group = take_folder(str(path))
    if group is None:
        return None
    copied = max((each.stat().st_mtime for each in path.iterdir()), default=0.0)
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
    document = {"format": FORMAT, "subject": "container", "name": "", name: json.loads(text)}
    return from_json(document)


def _add_kernel(pieces: Pieces, path: Path, beside: _Beside, now: float) -> Pieces:
    text = _read(path / "kernel.txt", str)
    if text is None:
        return pieces
    boot_time = beside.boot_time
    if boot_time is None:
        boot_time = _guess_boot_time(text, pieces, now)
    news = parse_kernel_text(text, now=now, boot_time=boot_time)
    return replace(
        pieces,
        oom_kills=news.oom_kills,
        xids=news.xids,
        kernel_lines=tuple(DatedLine(line.time, line.text) for line in news.lines),
    )


def _guess_boot_time(text: str, pieces: Pieces, now: float) -> float:
    """Tell when the machine was booted whose kernel counts its seconds from then.

    The last kill of this very container was at its last event `oom`, else at its death.
    """
    evidence = assemble(pieces)
    ooms = [event.time for event in evidence.events or () if event.action == "oom"]
    end = ooms[-1] if ooms else evidence.ended
    last = now if end is None else end
    from_zero = parse_kernel_text(text, now=now, boot_time=0.0)
    kills = [
        kill.time for kill in from_zero.oom_kills if evidence.id and evidence.id in kill.task_memcg
    ]
    times = kills or [kill.time for kill in from_zero.oom_kills] or [x.time for x in from_zero.xids]
    return last - max(times, default=0.0)


def _read(path: Path, parse: Callable[[str], _T]) -> _T | None:
    """Read a file; None where it is not there.

    Raises:
        ConfigurationError: It cannot be read or understood.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_FILE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror}; run as a user that may read it"
        ) from error
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
    read = (parse_event(line.encode()) for line in text.splitlines() if line.strip())
    return tuple(event for event in read if event is not None)
