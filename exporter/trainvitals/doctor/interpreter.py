"""The Python that trains, and what is installed for it, found without importing any of it."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.doctor.surroundings import Run
from trainvitals.errors import SourceError

_SAYS = (
    "import sys;print((sys.version_info[:3],sys.maxsize>2**32,"
    "[path for path in sys.path if path],sys.implementation.name))"
)
_METADATA = (("*.dist-info", "METADATA"), ("*.egg-info", "PKG-INFO"))
_LONGEST_REASON = 160
_LEFTOVERS = ("~", "-")  # what an uninstallation by pip that was broken off leaves
_SEPARATORS = re.compile(r"[-_.]+")


class InterpreterError(SourceError):
    """The Python that trains cannot be asked."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python.

    Attributes:
        executable: The program.
        version: Its version, as 3, 11 and 4.
        has_64_bits: Whether it is a 64-bit program.
        paths: Where it looks for packages, in its order.
        implementation: Such as `cpython`.
    """

    executable: Path
    version: tuple[int, int, int]
    has_64_bits: bool
    paths: tuple[Path, ...]
    implementation: str

    @property
    def version_text(self) -> str:
        """Its version as it is written."""
        return ".".join(map(str, self.version))


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed package.

    Attributes:
        name: Its name as it writes it.
        version: Its version.
        requires: What it requires, as `Requires-Dist` writes it.
    """

    name: str
    version: str
    requires: tuple[str, ...]


def choose_python(wanted: Path | None, environ: Mapping[str, str]) -> Path:
    """Choose the Python that trains.

    Args:
        wanted: The one that was named.
        environ: Has `VIRTUAL_ENV` and `CONDA_PREFIX`, which an activated environment sets.

    Returns:
        That one, that of the activated environment, or the one that runs this.
    """
    if wanted is not None:
        return wanted
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        python = Path(environ.get(variable) or os.devnull) / "bin/python"
        if os.access(python, os.X_OK):
            return python
    return Path(sys.executable)


def ask_python(
    executable: Path, run: Run, environ: Mapping[str, str], patience: float
) -> Interpreter:
    """Ask a Python who it is.

    Raises:
        InterpreterError: It does not run, or is no Python.
    """
    said = run((str(executable), "-c", _SAYS), patience, environ)
    if said is None or said[0] != 0:
        told = said[1].strip().splitlines()[-1:] if said is not None else []
        reason = told[0][:_LONGEST_REASON] if told else "it does not start or does not answer"
        raise InterpreterError(f"cannot run {executable}: {reason}; name another with --python")
    try:
        version, has_64_bits, paths, implementation = ast.literal_eval(said[1].splitlines()[-1])
        return Interpreter(
            executable, version, has_64_bits, tuple(map(Path, paths)), implementation
        )
    except (ValueError, SyntaxError, TypeError, IndexError) as error:
        raise InterpreterError(f"{executable} is no Python; name one with --python") from error


def list_distributions(paths: tuple[Path, ...]) -> dict[str, Distribution]:
    """List what is installed, by canonical name; of two of one name the first is imported."""
    found: dict[str, Distribution] = {}
    for path in paths:
        for distribution in _list_folder(path):
            found.setdefault(canonical(distribution.name), distribution)
    return found


def canonical(name: str) -> str:
    """Write a package's name as indexes compare it."""
    return _SEPARATORS.sub("-", name).lower()


def _list_folder(path: Path) -> Iterator[Distribution]:
    for pattern, name in _METADATA:
        for folder in sorted(path.glob(pattern)):
            if folder.name.startswith(_LEFTOVERS):
                continue
            try:
                file = folder / name if folder.is_dir() else folder
                text = file.read_text(encoding="utf-8", errors="replace")
            except OSError:  # it is removed at this moment, or is another user's
                continue
            distribution = parse_metadata(text)
            if distribution is not None:
                yield distribution


def parse_metadata(text: str) -> Distribution | None:
    """Read the head of a `METADATA` or `PKG-INFO`; None where it has no name or version."""
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
