"""Tests for the lock files with exact package versions, which `make lock` writes."""

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
WANTED = {
    "requirements.lock": [*PROJECT["project"]["dependencies"], *EXTRAS["habana"]],
    "requirements-build.lock": PROJECT["build-system"]["requires"],
}
BOTH = pytest.mark.parametrize("name", WANTED)


def read_lock(name):
    """Return each package's requirement and hashes in a lock file."""
    text = re.sub(r"(?m)^ *#.*\n", "", (ROOT / name).read_text()).replace("\\\n", "")
    lines = [line.split("--hash=") for line in text.splitlines()]
    return {
        canonicalize_name(Requirement(first).name): (
            Requirement(first),
            [h.strip() for h in hashes],
        )
        for first, *hashes in lines
    }


@BOTH
def test_each_version_is_exact_and_has_hashes(name):
    """Each package in a lock file has an exact version and SHA-256 hashes."""
    for requirement, hashes in read_lock(name).values():
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert requirement.url is None
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


@BOTH
def test_a_lock_has_what_the_project_asks_for(name):
    """The locked versions satisfy the requirements of the project."""
    locked = read_lock(name)
    for wanted in map(Requirement, WANTED[name]):
        requirement, _ = locked[canonicalize_name(wanted.name)]
        version = str(requirement.specifier).removeprefix("==")
        assert wanted.specifier.contains(version), f"{wanted}: run `make lock`"
        assert requirement.marker is None


def test_a_lock_has_all_that_these_need_in_turn_and_no_more():
    """A lock file contains exactly the required packages and all their dependencies."""
    locked = read_lock("requirements.lock")
    found, left = set(), [Requirement(each) for each in WANTED["requirements.lock"]]
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if name in found or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            left += map(Requirement, requires(name) or ())
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed here")
    here = {
        name
        for name, (requirement, _) in locked.items()
        if requirement.marker is None or requirement.marker.evaluate()
    }
    assert here == found


def test_the_backend_is_that_of_the_build():
    """The group `build`, from which the lock file is written, equals the build requirements."""
    assert PROJECT["dependency-groups"]["build"] == PROJECT["build-system"]["requires"]


def test_locks_are_for_the_oldest_python():
    """The lock files are resolved for the oldest supported Python version."""
    least = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert f"--python-version={least} " in (ROOT / ".ci/lock").read_text()
