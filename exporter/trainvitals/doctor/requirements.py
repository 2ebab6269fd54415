"""Whether what is installed for the Python that trains is what is required.

A file of requirements is read as pip does: comments, lines that go on, `-r` and `-c` for more
files, markers. What is named by an address (`git+https://…`, `-e .`) has no version to compare;
there it is only looked at whether something of that name is installed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over, warn
from trainvitals.doctor.interpreter import Distribution, Interpreter, canonical
from trainvitals.errors import SourceError

PYTHON = "python"  # the check that tells of a Python that does not run
_OLDEST_PYTHON = (3, 10)
_COMMENT = re.compile(r"(^|\s)#.*$")
_MORE = re.compile(r"(?:-r|--requirement|-c|--constraint)(?:\s+|=)?(.+)")
_HASHES = re.compile(r"\s--hash[= ]\S+")
_MOST_TOLD = 4
_MOST_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Unmet:
    """A requirement that is not met.

    Attributes:
        requirement: As it would be given to pip.
        words: What is so instead.
    """

    requirement: str
    words: str


def find_unmet(
    requirements: Iterable[str], installed: Mapping[str, Distribution], python: Interpreter
) -> tuple[Unmet, ...]:
    """Find those that are not met; what cannot be read and what is for other machines is left out."""
    found = []
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if _applies(requirement, python) and (unmet := _compare(requirement, installed)):
            found.append(unmet)
    return tuple(found)


def _applies(requirement: Requirement, python: Interpreter) -> bool:
    if requirement.marker is None:
        return True
    major, minor, _ = python.version
    environment = {
        "python_version": f"{major}.{minor}",
        "python_full_version": python.version_text,
        "implementation_name": python.implementation,
        "extra": "",
    }
    try:
        return requirement.marker.evaluate(environment)
    except (UndefinedComparison, UndefinedEnvironmentName):
        return False


def _compare(requirement: Requirement, installed: Mapping[str, Distribution]) -> Unmet | None:
    distribution = installed.get(canonical(requirement.name))
    wanted = f"{requirement.name}{requirement.specifier}"
    if distribution is None:
        return Unmet(wanted, f"{requirement.name} is not installed")
    try:
        version = Version(distribution.version)
    except InvalidVersion:  # from before versions had rules: nobody can compare it
        return None
    if requirement.url or requirement.specifier.contains(version, prereleases=True):
        return None
    return Unmet(
        wanted, f"{requirement.name} {distribution.version} is not {requirement.specifier}"
    )


def read_requirements(path: Path, *, depth: int = 0) -> Iterator[str]:
    """Read a file of requirements and those that it names.

    Raises:
        SourceError: One cannot be read, or names itself.
    """
    if depth > _MOST_DEPTH:
        raise SourceError(f"{path}: files of requirements name each other in a circle")
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise SourceError(
            f"cannot read {path}: {error.strerror}; correct --requirements"
        ) from error
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        plain = _HASHES.sub("", _COMMENT.sub("", line)).strip()
        if more := _MORE.fullmatch(plain):
            yield from read_requirements(path.parent / more[1].strip(), depth=depth + 1)
        elif plain and not plain.startswith("-"):
            yield plain


def _examine_python(facts: Facts) -> Finding:
    python = facts.interpreter()
    what = f"Python {python.version_text}, {python.executable}"
    if python.version[:2] < _OLDEST_PYTHON:
        return complain(
            f"{what}: older than 3.10",
            "uv venv --python 3.12 .venv",
            advice="make a new environment",
        )
    if not python.has_64_bits:
        return complain(f"{what}: a 32-bit program", "uv venv --python 3.12 .venv")
    return approve(what)


def _examine_requirements(facts: Facts) -> Finding:
    files = facts.wishes.requirements
    if not files:
        return pass_over("no file was named with --requirements")
    wanted = [line for file in files for line in read_requirements(file)]
    broken = [line for line in wanted if not _is_readable(line)]
    unmet = find_unmet(wanted, facts.distributions(), facts.interpreter())
    names = ", ".join(map(str, files))
    if unmet:
        flags = " ".join(f"-r {shlex.quote(str(file))}" for file in files)
        return complain(
            f"{names}: {list_unmet(unmet)}",
            facts.write_install(flags),
        )
    if broken:
        return warn(f"{names}: cannot read {broken[0]!r}", advice="it was not compared")
    return approve(f"{names}: all {len(wanted)} are met")


def _is_readable(line: str) -> bool:
    try:
        Requirement(line)
    except InvalidRequirement:
        return "://" in line or line.startswith((".", "/"))
    return True


def list_unmet(unmet: tuple[Unmet, ...]) -> str:
    """Write what is so instead, the first few of them."""
    told = [each.words for each in unmet[:_MOST_TOLD]]
    rest = len(unmet) - len(told)
    return ", ".join(told) + (f" and {rest} more" if rest else "")


def _examine_conflicts(facts: Facts) -> Finding:
    distributions = facts.distributions()
    python = facts.interpreter()
    found = [
        Unmet(unmet.requirement, f"{each.name} {each.version}: {unmet.words}")
        for each in distributions.values()
        for unmet in find_unmet(each.requires, distributions, python)
    ]
    if not found:
        return approve(f"{len(distributions)} packages agree with each other")
    needs = " ".join(dict.fromkeys(f"'{each.requirement}'" for each in found[:_MOST_TOLD]))
    return warn(list_unmet(tuple(found)), facts.write_install(needs))


_SUBJECT = "Python"
CHECKS = (
    Check(
        PYTHON,
        _SUBJECT,
        "one before 3.10, a 32-bit one, or one that does not run",
        "current releases of PyTorch and Lightning have no wheels for it",
        _examine_python,
    ),
    Check(
        "requirements",
        _SUBJECT,
        "packages that are missing or of another version than `--requirements` says",
        "a run fails at an import, or trains otherwise than the last one did",
        _examine_requirements,
    ),
    Check(
        "package-conflicts",
        _SUBJECT,
        "installed packages that want other versions of each other",
        "an import fails, or a function is not there, when the run comes to it",
        _examine_conflicts,
    ),
)
