"""Finds dockerd's command-line flags, which `daemon.json` must not repeat."""

from __future__ import annotations

import pwd
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainvitals.doctor.docker_logging.keys import name_option
from trainvitals.sources.files import read_text

DEFAULT_FILE = Path("/etc/docker/daemon.json")
_UNIT = "docker.service"
# The unit is read from the first directory that contains the unit. Drop-ins are read from all
# directories.
_UNIT_DIRECTORIES = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of dockerd that sets an option of `daemon.json`.

    Attributes:
        key: The name of the option in `daemon.json`.
        word: The flag as it is written on the command line.
        where: The location of the flag: the path of a systemd unit, or `the process PID`.
    """

    key: str
    word: str
    where: str


def find_flags(file: Path, *, root: Path = Path("/")) -> tuple[Flag, ...]:
    """Return the dockerd flags in the unit `docker.service` and in running dockerd processes.

    Args:
        file: The path of `daemon.json`; a unit or a dockerd that uses another file is ignored.
        root: The root directory of the file system that contains `/proc`, `/etc` and `/usr`.

    Returns:
        One flag for each option; flags that this user is not allowed to read are missing.
    """
    found: dict[str, Flag] = {}
    for where, words, usual in (*_read_unit(root), *_read_processes(root)):
        if _find_file(words, usual) == file:
            for flag in _read_flags(words, where):
                found.setdefault(flag.key, flag)
    return tuple(found.values())


def _find_file(words: list[str], usual: Path) -> Path:
    for number, word in enumerate(words):
        if word == "--config-file" and number + 1 < len(words):
            return Path(words[number + 1])
        if word.startswith("--config-file="):
            return Path(word.partition("=")[2])
    return usual


def _read_flags(words: list[str], where: str) -> Iterator[Flag]:
    for word in words[1:]:
        if key := name_option(word):
            yield Flag(key, word.partition("=")[0] if word.startswith("--") else word[:2], where)


_Command = tuple[str, list[str], Path]


def _read_processes(root: Path) -> Iterator[_Command]:
    for entry in sorted((root / "proc").glob("[0-9]*")):
        with suppress(OSError):  # the process has ended, or belongs to another user
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            if words and Path(words[0]).name == "dockerd" and _shares_files(entry, root):
                yield f"the process {entry.name}", words, _name_usual_file(entry.stat().st_uid)


def _shares_files(entry: Path, root: Path) -> bool:
    """Return whether a process shares this mount namespace; processes in containers do not."""
    try:
        return (entry / "ns/mnt").readlink() == (root / "proc/self/ns/mnt").readlink()
    except OSError:
        return True


def _name_usual_file(uid: int) -> Path:
    if uid == 0:
        return DEFAULT_FILE
    try:
        return Path(pwd.getpwuid(uid).pw_dir) / ".config/docker/daemon.json"
    except KeyError:
        return DEFAULT_FILE


def _read_unit(root: Path) -> Iterator[_Command]:
    directories = [root / name for name in _UNIT_DIRECTORIES]
    unit = next((each / _UNIT for each in directories if (each / _UNIT).is_file()), None)
    if unit is None:
        return
    # A drop-in is overridden by a drop-in with the same name in an earlier directory.
    drop_ins = {
        path.name: path
        for each in reversed(directories)
        for path in sorted((each / f"{_UNIT}.d").glob("*.conf"))
    }
    command, where = "", unit
    variables: dict[str, str] = {}
    for path in (unit, *(drop_ins[name] for name in sorted(drop_ins))):
        for key, value in _read_lines(path):
            if key == "ExecStart" and value:
                command, where = value, path
            elif key == "Environment":
                variables |= _read_assignments(value.splitlines())
            elif key == "EnvironmentFile":
                variables |= _read_assignments(read_text(root / value.lstrip("-/")).splitlines())
    if command:
        yield str(where), _split(command, variables), DEFAULT_FILE


def _read_lines(path: Path) -> Iterator[tuple[str, str]]:
    for line in read_text(path).replace("\\\n", " ").splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith(("#", ";")):
            yield key.strip(), value.strip()


def _read_assignments(lines: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in lines:
        for word in _split_words(line):
            name, equals, value = word.partition("=")
            if equals:
                values[name] = value
    return values


def _split(command: str, variables: Mapping[str, str]) -> list[str]:
    expanded = _VARIABLE.sub(
        lambda found: variables.get(found[1] or found[2], ""), command.lstrip("-@:+!")
    )
    return _split_words(expanded)


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # the text contains an unclosed quotation mark
        return text.split()
