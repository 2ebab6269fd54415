"""What `--apply` would make of a `daemon.json`, and what it leaves alone."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.dockerlogging.document import Document, read_document
from trainvitals.dockerlogging.keys import JSON_FILE_LOG_OPTIONS
from trainvitals.dockerlogging.problems import Problem, Surroundings, find_problems
from trainvitals.dockerlogging.sizes import read_size
from trainvitals.dockerlogging.wanted import JSON_FILE, Wanted

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})


@dataclass(frozen=True, slots=True)
class Plan:
    """A file as it would be written.

    Attributes:
        text: What it would say; None where nothing is to be changed.
        changes: The options that are set, and what to.
        left: What is not set, and why, a sentence each.
        remaining: What would still keep the daemon or new containers from starting.
    """

    text: str | None
    changes: Mapping[str, object]
    left: tuple[str, ...]
    remaining: tuple[Problem, ...]

    @property
    def sets_log(self) -> bool:
        """Whether it changes how containers log, for which the daemon must be restarted."""
        return bool(self.changes.keys() & {"log-driver", "log-opts"})

    @property
    def sets_live_restore(self) -> bool:
        """Whether it turns live-restore on, which the daemon takes up without a restart."""
        return "live-restore" in self.changes


def make_plan(document: Document, wanted: Wanted, around: Surroundings) -> Plan:
    """Find out what is to be changed so that logs rotate and containers outlive the daemon."""
    left: list[str] = []
    target = {**_set_log(document, wanted, around, left), **_set_live(wanted, around, left)}
    drops = _find_drops(document, wanted) if "log-opts" in target else frozenset[str]()
    changes = {
        key: value
        for key, value in target.items()
        if not _says(document.options, key, value) or (key == "log-opts" and drops)
    }
    ours = [name for name in document.repeated if name.partition(".")[0] in changes]
    text = None
    if (changes or document.is_empty or document.has_mark) and not ours:
        text = document.change(changes, drops=drops)
    after = read_document(Path(), text.encode()) if text else document
    remaining = [each for each in find_problems(after.options, around) if each.is_fatal]
    remaining += [
        Problem(name, "it stands there more than once: take one of them out", "daemon")
        for name in ours
    ]
    return Plan(text, changes, tuple(left), tuple(remaining))


def _set_log(
    document: Document, wanted: Wanted, around: Surroundings, left: list[str]
) -> dict[str, object]:
    for flag in around.flags:
        if flag.key in {"log-driver", "log-opts"}:
            left.append(
                f"the driver and its options: dockerd is given {flag.word} in {flag.where}, and "
                "does not start when the file says it too; change it there"
            )
            return {}
    driver = document.options.get("log-driver")
    if isinstance(driver, str) and driver not in {"", JSON_FILE} and not wanted.insists:
        left.append(
            f"the log driver {driver}: {_describe(driver)}; --driver json-file puts json-file in its place"
        )
        return {}
    return {"log-driver": JSON_FILE, "log-opts": wanted.log_options}


def _describe(driver: str) -> str:
    match driver:
        case "local":
            return "it rotates and compresses by itself, 100 MB for each container unless told"
        case "none":
            return "somebody chose to keep no logs"
        case "journald":
            return "journald keeps the logs, and how many is in journald.conf"
    return "somebody chose to send the logs elsewhere"


def _set_live(wanted: Wanted, around: Surroundings, left: list[str]) -> dict[str, object]:
    if not wanted.has_live_restore:
        left.append("live-restore: --no-live-restore")
        return {}
    if around.is_in_swarm:
        left.append("live-restore: a node of a swarm cannot have it")
        return {}
    for flag in around.flags:
        if flag.key == "live-restore":
            left.append(f"live-restore: dockerd is given it as a flag in {flag.where}")
            return {}
    return {"live-restore": True}


def _find_drops(document: Document, wanted: Wanted) -> frozenset[str]:
    """Name the options of another driver, which json-file would not start with."""
    options = document.options
    there = options.get("log-opts")
    if not wanted.insists or options.get("log-driver") == JSON_FILE or not isinstance(there, dict):
        return frozenset()
    return frozenset(there) - JSON_FILE_LOG_OPTIONS


def _says(options: Mapping[str, object], key: str, value: object) -> bool:
    there = options.get(key)
    if isinstance(value, dict):
        return isinstance(there, dict) and all(
            _means(name, there.get(name), each) for name, each in value.items()
        )
    return type(there) is type(value) and there == value


def _means(name: str, there: object, wanted: str) -> bool:
    """Whether Docker reads the same from both."""
    if not isinstance(there, str):
        return False
    match name:
        case "max-size":
            return read_size(there) == read_size(wanted)
        case "compress":
            return there in _TRUE
    return there == wanted


def show_diff(path: Path, before: str, after: str) -> str:
    """Show what would change, as `diff -u` does."""
    lines = difflib.unified_diff(
        _split(before), _split(after), str(path), f"{path} (new)", lineterm=""
    )
    return "\n".join(lines)


def _split(text: str) -> list[str]:
    return list(_read_lines(text))


def _read_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield line.rstrip("\r")
