"""Finds problems in the settings of a Docker daemon, according to built-in rules.

`dockerd --validate` finds misspelt options but accepts settings with which no container can start.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trainvitals.doctor.docker_logging.flags import Flag
from trainvitals.doctor.docker_logging.keys import (
    DRIVERS,
    JSON_FILE,
    JSON_FILE_LOG_OPTIONS,
    KEYS,
    KINDS,
    LOCAL_LOG_OPTIONS,
    Kind,
    read_size,
)
from trainvitals.foreign_numbers import read_digits

Effect = Literal["daemon", "containers", "logs", "note"]

EFFECTS: Mapping[Effect, str] = {
    "daemon": "dockerd does not start",
    "containers": "no new container starts",
    "logs": "logs or containers are lost, or the disk fills up",
    "note": "for information",
}
# The values that Go's strconv.ParseBool accepts. Docker parses these strings with this function.
TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_MOST_FILES = (1 << 63) - 1  # the maximum that Docker can parse
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
LEAST_FILES = 2
_TYPES: Mapping[Kind, type] = {
    "a string": str,
    "a whole number": int,
    "a list": list,
    "an object": dict,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in the settings of a Docker daemon.

    Attributes:
        place: The affected option, such as `log-opts.max-size`; empty if the problem concerns the
            whole file.
        text: The problem and its remedy in one sentence.
        effect: The effect of the problem on the daemon or the containers.
    """

    place: str
    text: str
    effect: Effect

    @property
    def is_fatal(self) -> bool:
        """Whether the daemon or new containers cannot start because of the problem."""
        return self.effect in {"daemon", "containers"}


@dataclass(frozen=True, slots=True)
class Daemon:
    """Facts about a Docker daemon that its `daemon.json` does not contain.

    Attributes:
        flags: The flags on the daemon's command line.
        plugins: The daemon's log drivers; an empty collection if the drivers are unknown.
        is_in_swarm: Whether the daemon is a swarm node.
    """

    flags: tuple[Flag, ...] = ()
    plugins: frozenset[str] = frozenset()
    is_in_swarm: bool = False

    def find_flag(self, *keys: str) -> Flag | None:
        """Return the first flag that sets any of the options; None if there is no such flag."""
        return next((flag for flag in self.flags if flag.key in keys), None)


def find_problems(options: Mapping[str, object], daemon: Daemon = Daemon()) -> tuple[Problem, ...]:
    """Return the problems in a `daemon.json`.

    Args:
        options: The members of the JSON object in the file.
        daemon: Facts about the daemon that the file does not contain.

    Returns:
        The problems. Those that keep the daemon or containers from starting come first.
    """
    found = [
        *_judge_keys(options),
        *_judge_flags(options, daemon.flags),
        *_judge_driver(options, daemon),
        *_judge_live_restore(options, daemon),
    ]
    order: list[Effect] = list(EFFECTS)
    return tuple(sorted(found, key=lambda problem: order.index(problem.effect)))


def _judge_keys(options: Mapping[str, object]) -> Iterator[Problem]:
    for key, value in options.items():
        kind = KINDS.get(key)
        if key not in KEYS:
            yield _judge_unknown(key)
        elif kind and not _is_a(kind, value):
            yield Problem(key, f"must be {kind}, not {_name(value)}", "daemon")


def _judge_unknown(key: str) -> Problem:
    if near := _find_near(key, KEYS):
        return Problem(key, f"unknown option (did you mean {near}?)", "daemon")
    return Problem(key, "unknown to Docker 29, which does not start with an unknown option", "note")


def _find_near(name: str, known: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(name.lower().replace("_", "-"), known, n=1, cutoff=0.75)
    return near[0] if near else None


def _is_a(kind: Kind, value: object) -> bool:
    if isinstance(value, bool) or kind == "true or false":
        return isinstance(value, bool) and kind == "true or false"
    return isinstance(value, _TYPES[kind])


def _name(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    return next((kind for kind, type_ in _TYPES.items() if isinstance(value, type_)), "null")


def _judge_flags(options: Mapping[str, object], flags: tuple[Flag, ...]) -> Iterator[Problem]:
    for flag in flags:
        # Only runtimes may be set by both a flag and the file.
        if flag.key in options and flag.key != "runtimes":
            yield Problem(
                flag.key,
                f"{flag.where} also passes {flag.word} to dockerd: remove one of them",
                "daemon",
            )


def _judge_driver(options: Mapping[str, object], daemon: Daemon) -> Iterator[Problem]:
    driver = options.get("log-driver") or JSON_FILE
    if not isinstance(driver, str):  # a wrong type has already been reported
        driver = JSON_FILE
    log_options = options.get("log-opts")
    given = log_options if isinstance(log_options, dict) else {}
    for name, value in given.items():
        if not isinstance(value, str):
            yield Problem(f"log-opts.{name}", f'must be a string: write "{_bare(value)}"', "daemon")
    if driver in {JSON_FILE, "local"}:
        known = JSON_FILE_LOG_OPTIONS if driver == JSON_FILE else LOCAL_LOG_OPTIONS
        yield from _judge_option_names(given, driver, known)
        strings = {name: value for name, value in given.items() if isinstance(value, str)}
        yield from _judge_rotation(strings, driver, set(given), daemon)
    elif driver == "none":
        yield Problem("log-driver", "with none, `docker logs` shows nothing", "logs")
    elif driver not in DRIVERS | daemon.plugins:
        near = _find_near(driver, DRIVERS)
        yield Problem(
            "log-driver",
            f"Docker has no driver {driver} "
            + (f"(did you mean {near}?)" if near else "(is its plugin installed?)"),
            "containers",
        )


def _bare(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _judge_option_names(
    given: Mapping[str, object], driver: str, known: frozenset[str]
) -> Iterator[Problem]:
    for name in given:
        if name not in known:
            near = _find_near(name, known)
            yield Problem(
                f"log-opts.{name}",
                f"unknown option of the driver {driver}"
                + (f" (did you mean {near}?)" if near else ""),
                "daemon",
            )


def _judge_rotation(
    given: Mapping[str, str], driver: str, named: set[str], daemon: Daemon
) -> Iterator[Problem]:
    size, files, compress = given.get("max-size"), given.get("max-file"), given.get("compress")
    if size is not None and read_size(size) is None:
        yield Problem("log-opts.max-size", f"{size!r} is not a size such as 100m", "containers")
    count = None if files is None else read_digits(files, _MOST_FILES)
    if files is not None and not count:
        yield Problem(
            "log-opts.max-file", f"{files!r} is not a number of files, 1 or more", "containers"
        )
    if compress is not None and compress not in TRUE | _FALSE:
        yield Problem("log-opts.compress", f"{compress!r} is neither true nor false", "containers")
    if driver != JSON_FILE:
        return  # The driver local rotates and compresses logs by default.
    rotates = "max-size" in named
    if compress in TRUE and (not rotates or (count or 1) < LEAST_FILES):
        yield Problem("log-opts.compress", "needs max-size, and max-file 2 or more", "containers")
    if not rotates and not daemon.find_flag("log-opts"):
        begins = (
            "max-file without max-size never rotates"
            if files
            else "json-file without max-size never rotates"
        )
        yield Problem("log-opts", f"{begins}: logs grow until the disk is full", "logs")


def _judge_live_restore(options: Mapping[str, object], daemon: Daemon) -> Iterator[Problem]:
    value = options.get("live-restore", False)
    if daemon.is_in_swarm:
        if value is True:
            yield Problem("live-restore", "a swarm node does not support it", "daemon")
    elif value is False and not daemon.find_flag("live-restore"):
        yield Problem("live-restore", "off: containers end when dockerd ends", "logs")
