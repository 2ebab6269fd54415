"""Checks the run's Python interpreter and the installed packages.

A requirements file is parsed as pip does: comments, continued lines, `-r` and `-c`, and markers are
supported. A requirement with a URL (`git+https://…`) contains no version, and any installed version
satisfies such a requirement. The line `-e .` is skipped.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, skip, warn
from trainvitals.doctor.interpreter import Distribution, Interpreter, normalize_name
from trainvitals.doctor.lastrun import LastRun
from trainvitals.errors import SourceError
from trainvitals.foreign_files import read_whole
from trainvitals.foreign_text import join_names
from trainvitals.units import format_age

PYTHON = "python"  # the name of the check that reports an unusable interpreter
_OLDEST_PYTHON = (3, 10)
_COMMENT = re.compile(r"(^|\s)#.*")
_MORE = re.compile(r"(?:-r|--requirement|-c|--constraint)[\s=]?(.+)")
_HASHES = re.compile(r"\s--hash[= ]\S+")
_MOST_SHOWN = 4
_MOST_BYTES = 1 << 20
_RELEASE = re.compile(r"\d+(?:\.\d+)*")  # the numbers in a version such as 2.6.0+cu124 or 3.13.0rc1


@dataclass(frozen=True, slots=True)
class Unmet:
    """A package requirement that is not satisfied.

    Attributes:
        requirement: The requirement in pip's syntax.
        words: A description of the installed version.
    """

    requirement: str
    words: str


def find_unmet(
    requirements: Iterable[str], installed: Mapping[str, Distribution], python: Interpreter
) -> tuple[Unmet, ...]:
    """Return the unmet requirements; invalid and inapplicable requirements are ignored."""
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
    distribution = installed.get(normalize_name(requirement.name))
    wanted = f"{requirement.name}{requirement.specifier}"
    if distribution is None:
        return Unmet(wanted, f"{requirement.name} is not installed")
    try:
        version = Version(distribution.version)
    except InvalidVersion:  # a version that does not follow PEP 440 cannot be compared
        return None
    if requirement.url or requirement.specifier.contains(version, prereleases=True):
        return None
    return Unmet(
        wanted, f"{requirement.name} {distribution.version} is not {requirement.specifier}"
    )


def read_requirements(path: Path) -> Iterator[str]:
    """Yield the requirements in a requirements file and its included files.

    Each file is read only once.

    Raises:
        SourceError: A file cannot be read, or a file includes itself.
    """
    yield from _read(path, (), set())


def _read(path: Path, within: tuple[Path, ...], known: set[Path]) -> Iterator[str]:
    if path in within:
        raise SourceError(f"{path}: this requirements file includes itself")
    if path in known:
        return
    known.add(path)
    try:
        text = read_whole(path, _MOST_BYTES).decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise SourceError(
            f"cannot read {path}: {error.strerror}; correct --requirements"
        ) from error
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        plain = _HASHES.sub("", _COMMENT.sub("", line)).strip()
        if more := _MORE.fullmatch(plain):
            # The path is normalised, because `a/../a/../b` denotes the same file as `b`.
            included = Path(os.path.normpath(path.parent / more[1].strip()))
            yield from _read(included, (*within, path), known)
        elif plain and not plain.startswith("-"):
            yield plain


def _check_python(facts: Facts) -> Finding:
    python = facts.interpreter()
    what = f"Python {python.version_text}, {python.executable}, {python.origin}"
    if python.version[:2] < _OLDEST_PYTHON:
        return fail(
            f"{what} is older than 3.10",
            "uv venv --python 3.12 .venv",
            advice="create a new environment",
        )
    if not python.has_64_bits:
        return fail(f"{what} is a 32-bit program", "uv venv --python 3.12 .venv")
    return _compare_run(what, facts)


def _compare_run(what: str, facts: Facts) -> Finding:
    """Return a warning if the last run's framework differs from this interpreter's framework."""
    run, python = facts.last_run(), facts.interpreter()
    if facts.options.python is not None or run is None or run.python == python.executable:
        return ok(what)
    age = format_age(run.time, facts.machine.clock())
    name = f"the run {run.name}, {'which runs now' if run.is_alive else f'last seen {age}'},"
    if run.python is not None:
        return ok(f"{what}; {name} uses {run.python}")
    if difference := _find_difference(run, facts):
        return warn(
            f"{what}, but {name} {difference}", advice="name the Python of the run with --python"
        )
    return ok(f"{what}; {name} may have another: {run.reason}")


def _find_difference(run: LastRun, facts: Facts) -> str:
    """Return how the run's framework differs from the installed version; "" if they agree."""
    if run.framework == PYTHON:
        installed = [facts.interpreter().version_text]
    else:
        names = (normalize_name(run.framework), f"pytorch-{run.framework}")
        known = facts.distributions()
        installed = [known[name].version for name in names if name in known]
    wanted = _RELEASE.match(run.framework_version)
    releases = [found[0] for each in installed if (found := _RELEASE.match(each))]
    if wanted is None or wanted[0] in releases:
        return ""
    return f"had {run.framework} {run.framework_version}, and this one has {', '.join(installed) or 'none'}"


def _check_requirements(facts: Facts) -> Finding:
    files = facts.options.requirements
    if not files:
        return skip("no file in --requirements")
    wanted = [line for file in files for line in read_requirements(file)]
    broken = [line for line in wanted if not _is_readable(line)]
    unmet = find_unmet(wanted, facts.distributions(), facts.interpreter())
    names = ", ".join(map(str, files))
    if unmet:
        flags = " ".join(f"-r {shlex.quote(str(file))}" for file in files)
        return fail(
            f"{names}: {list_unmet(unmet)}",
            facts.write_install_command(flags),
        )
    if broken:
        return warn(f"{names}: cannot read {broken[0]!r}", advice="this line was not compared")
    return ok(f"{names}: all {len(wanted)} are satisfied")


def _is_readable(line: str) -> bool:
    try:
        Requirement(line)
    except InvalidRequirement:
        return "://" in line or line.startswith((".", "/"))
    return True


def list_unmet(unmet: tuple[Unmet, ...]) -> str:
    """Return text that describes the first few unmet requirements."""
    return join_names([each.words for each in unmet], most=_MOST_SHOWN)


def _check_conflicts(facts: Facts) -> Finding:
    distributions = facts.distributions()
    python = facts.interpreter()
    found = [
        Unmet(unmet.requirement, f"{each.name} {each.version}: {unmet.words}")
        for each in distributions.values()
        for unmet in find_unmet(each.requires, distributions, python)
    ]
    if not found:
        return ok(f"{len(distributions)} packages are compatible")
    needs = " ".join(dict.fromkeys(f"'{each.requirement}'" for each in found[:_MOST_SHOWN]))
    return warn(list_unmet(tuple(found)), facts.write_install_command(needs))


_SUBJECT = "Python"
CHECKS = (
    Check(
        PYTHON,
        _SUBJECT,
        "a Python before 3.10, a 32-bit one, or one that does not run",
        "current releases of PyTorch and Lightning have no wheels for it",
        _check_python,
    ),
    Check(
        "requirements",
        _SUBJECT,
        "packages that are missing, or have another version than `--requirements` asks for",
        "a run fails at an import, or trains differently from the last one",
        _check_requirements,
    ),
    Check(
        "package-conflicts",
        _SUBJECT,
        "installed packages that need other versions of each other",
        "the run fails at an import, or at a function that does not exist",
        _check_conflicts,
    ),
)
