"""Examines the run's Python interpreter and its packages, without importing the packages."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.doctor.lastrun import LastRun
from trainvitals.doctor.machine import Run
from trainvitals.errors import SourceError
from trainvitals.foreign_files import read_regular

_PROGRAM = (
    "import sys;print((sys.version_info[:3],sys.maxsize>2**32,"
    "[path for path in sys.path if path],sys.implementation.name))"
)
_METADATA = (("*.dist-info", "METADATA"), ("*.egg-info", "PKG-INFO"))
_LONGEST_REASON = 160
_MOST_BYTES = 1 << 20
_LEFTOVERS = ("~", "-")  # prefixes of directories that an interrupted `pip uninstall` leaves behind
_SEPARATORS = re.compile(r"[-_.]+")


class InterpreterError(SourceError):
    """The run's Python interpreter does not work."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter that a run would use.

    Attributes:
        executable: The path of the interpreter.
        version: The interpreter's version as numbers, such as 3, 11 and 4.
        has_64_bits: Whether the interpreter is a 64-bit program.
        paths: The interpreter's `sys.path`.
        implementation: The name in `sys.implementation`, such as `cpython`.
        origin: The reason why this interpreter is examined, as text.
    """

    executable: Path
    version: tuple[int, int, int]
    has_64_bits: bool
    paths: tuple[Path, ...]
    implementation: str
    origin: str = ""

    @property
    def version_text(self) -> str:
        """The interpreter's version as text, such as `3.11.4`."""
        return ".".join(map(str, self.version))


@dataclass(frozen=True, slots=True)
class Distribution:
    """A Python package that is installed for an interpreter.

    Attributes:
        name: The name of the package, which is not normalized.
        version: The version of the package.
        requires: The package's requirements, as written in `Requires-Dist`.
    """

    name: str
    version: str
    requires: tuple[str, ...]


def choose_python(
    wanted: Path | None, environ: Mapping[str, str], find_run: Callable[[], LastRun | None]
) -> tuple[Path, str]:
    """Return the run's Python interpreter, and the reason for this choice.

    An activated environment is used only if this command is not installed in that environment.
    Otherwise, the user may have activated the environment only for this command.

    Args:
        wanted: The interpreter in `--python`. If None, the first available interpreter is used: the
            interpreter of the activated environment, of the run that was last seen, or of this
            command.
        environ: The environment variables; only `VIRTUAL_ENV` and `CONDA_PREFIX` are used.
        find_run: Returns the run that was last seen.
    """
    if wanted is not None:
        return wanted, "named by --python"
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = Path(environ.get(variable) or os.devnull)
        python = folder / "bin/python"
        if os.access(python, os.X_OK) and folder.resolve() != Path(sys.prefix).resolve():
            return python, f"of ${variable}"
    run = find_run()
    if run is not None and run.python is not None:
        return run.python, f"of the run {run.name}"
    return Path(sys.executable), "which runs this command; --python names another"


def inspect_python(
    executable: Path,
    run: Run,
    environ: Mapping[str, str],
    timeout_seconds: float,
    *,
    origin: str = "",
) -> Interpreter:
    """Run a Python interpreter and return the interpreter's version and paths.

    Args:
        executable: The path of the interpreter.
        run: Runs a read-only program.
        environ: The environment in which the interpreter is run.
        timeout_seconds: The maximum time that the interpreter may take, in seconds.
        origin: The reason why this interpreter is examined.

    Raises:
        InterpreterError: The program does not run, or is not Python.
    """
    ran = run((str(executable), "-c", _PROGRAM), timeout_seconds, environ)
    if ran is None or ran[0] != 0:
        lines = ran[1].strip().splitlines()[-1:] if ran is not None else []
        reason = lines[0][:_LONGEST_REASON] if lines else "it does not start or does not end"
        raise InterpreterError(f"cannot run {executable}: {reason}; set --python to another")
    try:
        version, has_64_bits, paths, implementation = ast.literal_eval(ran[1].splitlines()[-1])
        return Interpreter(
            executable, version, has_64_bits, tuple(map(Path, paths)), implementation, origin
        )
    except (ValueError, SyntaxError, TypeError, IndexError) as error:
        raise InterpreterError(f"{executable} is not Python; set --python to another") from error


def list_distributions(paths: tuple[Path, ...]) -> dict[str, Distribution]:
    """Return the installed packages by normalized name; the first duplicate on the path applies."""
    found: dict[str, Distribution] = {}
    for path in paths:
        for distribution in _list_folder(path):
            found.setdefault(normalize_name(distribution.name), distribution)
    return found


def normalize_name(name: str) -> str:
    """Return a package's name normalized according to PEP 503."""
    return _SEPARATORS.sub("-", name).lower()


def _list_folder(path: Path) -> Iterator[Distribution]:
    for pattern, name in _METADATA:
        for folder in sorted(path.glob(pattern)):
            if folder.name.startswith(_LEFTOVERS):
                continue
            try:
                file = folder / name if folder.is_dir() else folder
                text = read_regular(file, _MOST_BYTES).decode(errors="replace")
            except OSError:  # the file is being removed, or is not readable for this user
                continue
            distribution = parse_metadata(text)
            if distribution is not None:
                yield distribution


def parse_metadata(text: str) -> Distribution | None:
    """Parse a `METADATA` or `PKG-INFO` file; return None if the name or version is missing."""
    head, _, _ = text.partition("\n\n")
    values: dict[str, list[str]] = {}
    for line in head.splitlines():
        key, colon, value = line.partition(": ")
        if colon:
            values.setdefault(key, []).append(value.strip())
    if "Name" not in values or "Version" not in values:
        return None
    return Distribution(
        values["Name"][0], values["Version"][0], tuple(values.get("Requires-Dist", ()))
    )
