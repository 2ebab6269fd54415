"""Plans the changes that `--apply` makes to a `daemon.json`, and lists unchanged settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.doctor.docker_logging.document import Document, read_document
from trainvitals.doctor.docker_logging.keys import JSON_FILE, JSON_FILE_LOG_OPTIONS, read_size
from trainvitals.doctor.docker_logging.problems import (
    LEAST_FILES,
    TRUE,
    Daemon,
    Problem,
    find_problems,
)
from trainvitals.errors import ConfigurationError

_DRIVERS = {
    "local": "it rotates and compresses logs itself, with 100 MB for each container by default",
    "none": "it keeps no logs",
    "journald": "journald stores the logs, with the limits in journald.conf",
}


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log settings that `--apply` writes; the default is 500 MB for each container.

    Attributes:
        max_size: The size at which a log file is rotated, in Docker's syntax.
        max_file: The number of log files for each container; all except the current file are
            compressed.
        has_live_restore: Whether to set live-restore, so that containers keep running while the
            daemon is stopped.
        replaces_driver: Whether to replace another log driver with the driver json-file.
    """

    max_size: str = "100m"
    max_file: int = 5
    has_live_restore: bool = True
    replaces_driver: bool = False

    def __post_init__(self) -> None:
        if read_size(self.max_size) is None:
            raise ConfigurationError(f"--max-size={self.max_size}: write a size such as 100m or 1g")
        if self.max_file < LEAST_FILES:
            raise ConfigurationError(
                f"--max-file={self.max_file}: write {LEAST_FILES} or more, as the current file is not "
                "compressed"
            )

    @property
    def log_options(self) -> dict[str, str]:
        """The options of the json-file driver; all values are strings, as Docker requires."""
        return {"max-size": self.max_size, "max-file": str(self.max_file), "compress": "true"}


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for changes to a `daemon.json`.

    Attributes:
        text: The new text of the file; None if no change is planned.
        changes: The options to set and the values of these options.
        untouched: One line for each setting that is not changed, with the reason.
        remaining: The uncorrected problems with which the daemon or new containers cannot start.
    """

    text: str | None
    changes: Mapping[str, object]
    untouched: tuple[str, ...]
    remaining: tuple[Problem, ...]


def make_plan(document: Document, wanted: LogSettings, daemon: Daemon) -> Plan:
    """Return a plan that enables log rotation and lets containers survive a daemon restart."""
    untouched: list[str] = []
    target = {
        **_set_log(document, wanted, daemon, untouched),
        **_set_live(wanted, daemon, untouched),
    }
    drops = _find_drops(document, wanted) if "log-opts" in target else frozenset[str]()
    changes = {
        key: value
        for key, value in target.items()
        if not _has(document.options, key, value) or (key == "log-opts" and drops)
    }
    ours = [name for name in document.repeated if name.partition(".")[0] in changes]
    text = None
    if (changes or document.is_empty or document.has_mark) and not ours:
        text = document.change(changes, drops=drops)
    after = read_document(Path(), text.encode()) if text else document
    remaining = [each for each in find_problems(after.options, daemon) if each.is_fatal]
    remaining += [
        Problem(name, "set more than once: remove all but one", "daemon") for name in ours
    ]
    return Plan(text, changes, tuple(untouched), tuple(remaining))


def _set_log(
    document: Document, wanted: LogSettings, daemon: Daemon, untouched: list[str]
) -> dict[str, object]:
    if flag := daemon.find_flag("log-driver", "log-opts"):
        untouched.append(
            f"the log driver and its options: {flag.where} passes {flag.word} to dockerd, which does "
            "not start if the file sets it too; change it there"
        )
        return {}
    driver = document.options.get("log-driver")
    if isinstance(driver, str) and driver not in {"", JSON_FILE} and not wanted.replaces_driver:
        why = _DRIVERS.get(driver, "it sends the logs elsewhere")
        untouched.append(f"the log driver {driver}: {why}; --driver json-file replaces it")
        return {}
    return {"log-driver": JSON_FILE, "log-opts": wanted.log_options}


def _set_live(wanted: LogSettings, daemon: Daemon, untouched: list[str]) -> dict[str, object]:
    flag = daemon.find_flag("live-restore")
    if not wanted.has_live_restore:
        untouched.append("live-restore: because of --no-live-restore")
    elif daemon.is_in_swarm:
        untouched.append("live-restore: a swarm node does not support it")
    elif flag:
        untouched.append(f"live-restore: {flag.where} passes it to dockerd as a flag")
    else:
        return {"live-restore": True}
    return {}


def _find_drops(document: Document, wanted: LogSettings) -> frozenset[str]:
    """Return the log options of another driver, which json-file would reject."""
    options = document.options
    there = options.get("log-opts")
    if (
        not wanted.replaces_driver
        or options.get("log-driver") == JSON_FILE
        or not isinstance(there, dict)
    ):
        return frozenset()
    return frozenset(there) - JSON_FILE_LOG_OPTIONS


def _has(options: Mapping[str, object], key: str, value: object) -> bool:
    there = options.get(key)
    if isinstance(value, dict):
        return isinstance(there, dict) and all(
            _means(name, there.get(name), each) for name, each in value.items()
        )
    return type(there) is type(value) and there == value


def _means(name: str, there: object, wanted: str) -> bool:
    """Return whether two values of an option have the same meaning for Docker."""
    if not isinstance(there, str):
        return False
    if name == "max-size":
        return read_size(there) == read_size(wanted)
    return there in TRUE if name == "compress" else there == wanted
