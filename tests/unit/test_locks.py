"""The exact versions that a service and a wheel are made of: `make lock` writes them."""

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
    """Return the requirement of each package of a lock, and its hashes."""
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
    """Pip takes nothing that is not this version or has another hash."""
    for requirement, hashes in read_lock(name).values():
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert requirement.url is None
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


@BOTH
def test_a_lock_has_what_the_project_asks_for(name):
    """A dependency that was added, or whose bound was raised, needs `make lock`."""
    locked = read_lock(name)
    for wanted in map(Requirement, WANTED[name]):
        requirement, _ = locked[canonicalize_name(wanted.name)]
        version = str(requirement.specifier).removeprefix("==")
        assert wanted.specifier.contains(version), f"{wanted}: run `make lock`"
        assert requirement.marker is None


def test_a_lock_has_all_that_these_need_in_turn_and_no_more():
    """The dependencies of what is installed here are all in it, and what is in it is one of them."""
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
    """The group that its lock is written from is what pyproject.toml builds with."""
    assert PROJECT["dependency-groups"]["build"] == PROJECT["build-system"]["requires"]


def test_locks_are_for_the_oldest_python():
    """What only the oldest needs is in them too."""
    least = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert f"--python-version={least} " in (ROOT / ".ci/lock").read_text()
