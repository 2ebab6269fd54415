"""Recognize evidence files without a standard name by their content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from trainvitals.foreign_files import read_regular
from trainvitals.sources.containers.documents import as_mapping, get_mapping, parse_json
from trainvitals.sources.containers.pod import is_pod

Kind = Literal["log", "kernel", "pod", "inspection"]

_LOOKED_AT_LINES = 400
_DAY = r"[^\s:]{1,12} {1,2}[^\s:]{1,12}"  # the day and the month, in any language and order
_STAMP = rf"(?:{_DAY} {{1,2}}[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9:.,]{{8,20}}\S{{0,6}})"
_KERNEL_LINE = re.compile(
    rf"<?[0-9]{{0,4}}>?\[ *[0-9]{{1,10}}\.[0-9]{{6}}\](?:\[ *[TC][0-9]+\])? "
    rf"|\[[^\s:]{{1,12}} {_DAY} [0-9:]{{8}} [0-9]{{4}}\] "
    rf"|{_STAMP} \S{{1,255}} kernel(?:\[[0-9]+\])?: |[0-9]{{1,6}},[0-9]{{1,20}},[0-9]{{1,18}},"
)
_SYSLOG_LINE = re.compile(rf"{_STAMP} \S{{1,255}} [\w.@()/-]{{1,80}}(?:\[[0-9]+\])?: ")
_SYSTEM_LINE = re.compile(r" (?:kernel|systemd[\w-]*|earlyoom|nohang)(?:\[[0-9]+\])?: ")
_MOST_FILES = 64
_MOST_BYTES = 8 << 20
# Suffixes of files that are not logs, such as the report by `--save` and kubectl or Docker files.
_NO_LOGS = frozenset({".json", ".jsonl", ".md", ".yml", ".yaml", ".csv", ".html"})
_DOCUMENTS = frozenset({".json", ".yml", ".yaml"})


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts in a folder, by kind; several logs are concatenated.

    Attributes:
        log: The last lines of the logs; None if the folder contains no log. The limit on the number
            of lines is the same for each log.
        kernel: The kernel logs; None if the folder contains no kernel log.
        pod: The output of `kubectl describe pod` or `kubectl get pod`; None if the folder contains
            no such output.
        inspection: The output of `docker inspect`; None if the folder contains no such output.
    """

    log: str | None = None
    kernel: str | None = None
    pod: str | None = None
    inspection: str | None = None


def recognise(text: str) -> Kind:
    """Return the kind of an evidence text; a text of unknown kind is a log."""
    if is_inspection(text):
        return "inspection"
    if is_pod(text):
        return "pod"
    return "kernel" if is_kernel_log(text) else "log"


def is_inspection(text: str) -> bool:
    """Return whether a text is the output of `docker inspect` about a container."""
    start = text[:80].split()
    if not start or start[0][:1] not in {"[", "{"} or '"HostConfig"' not in text:
        return False
    try:
        document = parse_json(text)
    except ValueError:
        return False
    first = as_mapping(document[0] if isinstance(document, list) and document else document)
    return bool(get_mapping(first, "State") and get_mapping(first, "Config"))


def is_kernel_log(text: str) -> bool:
    """Return whether a text is a kernel log or the log of a whole system.

    In a kernel log, at least half of the last lines have the format of kernel messages. In the log
    of a system, at least 80 % of the last lines have the format of syslog, and at least one of the
    last lines is from the kernel, systemd, earlyoom or nohang.
    """
    lines = [line for line in text.split("\n")[-_LOOKED_AT_LINES:] if line.strip()]
    kernel = sum(_KERNEL_LINE.match(line) is not None for line in lines)
    syslog = sum(_SYSLOG_LINE.match(line) is not None for line in lines)
    has_system = any(_SYSTEM_LINE.search(line[:300]) for line in lines)
    return 2 * kernel >= max(len(lines), 1) or (has_system and 5 * syslog >= 4 * len(lines))


def read_texts(folder: Path, *, known: frozenset[str], most_lines: int) -> Texts:
    """Read the regular text files in an evidence folder.

    Args:
        folder: The path of the folder.
        known: The names of the files to ignore.
        most_lines: The maximum total number of log lines to return.

    Raises:
        OSError: The folder or one of the files cannot be read.
    """
    found: dict[Kind, list[str]] = {"log": [], "kernel": [], "pod": [], "inspection": []}
    for suffix, text in _read_unknown(folder, known):
        kind = recognise(text)
        if suffix not in _DOCUMENTS or kind in {"pod", "inspection"}:
            found[kind].append(text)
    each = max(1, most_lines // max(1, len(found["log"])))
    logs = [_cut(text, each) for text in found["log"]]
    kinds = (logs, found["kernel"], found["pod"][:1], found["inspection"][:1])
    return Texts(*("\n".join(texts) or None for texts in kinds))


def _read_unknown(folder: Path, known: frozenset[str]) -> Iterator[tuple[str, str]]:
    paths = (path for path in folder.iterdir() if path.name not in known)
    files = (path for path in paths if path.is_file() and not path.is_symlink())
    texts = (path for path in files if path.suffix not in _NO_LOGS - _DOCUMENTS)
    for path in sorted(islice(texts, _MOST_FILES)):
        data = read_regular(path, _MOST_BYTES, follows=False, from_end=True)
        if b"\0" not in data and data.strip():
            yield path.suffix, data.decode(errors="replace").removeprefix("\ufeff")


def _cut(text: str, most: int) -> str:
    """Return the last lines of a text, up to a maximum number."""
    return "\n".join(text.removesuffix("\n").rsplit("\n", most)[-most:])
