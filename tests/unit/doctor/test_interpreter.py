"""Tests for choosing the Python of a run and of reading its installed packages."""

import sys
from pathlib import Path

import pytest

from tests.unit.doctor.patient import Patient
from trainvitals.doctor.interpreter import (
    choose_python,
    inspect_python,
    list_distributions,
    parse_metadata,
)
from trainvitals.doctor.machine import run_program
from trainvitals.doctor.requirements import find_unmet, read_requirements
from trainvitals.errors import SourceError


def test_the_activated_environment_is_the_one_that_trains(patient: Patient):
    """`--python` has precedence over a virtual environment, then conda, then this Python."""
    assert patient.packages.is_dir()
    venv = patient.folder / "venv"
    environ = {"VIRTUAL_ENV": str(venv), "CONDA_PREFIX": "/nowhere"}

    def choose(wanted, environ):
        return choose_python(wanted, environ, lambda: None)

    flag = Path("/usr/bin/python3")
    assert choose(flag, environ) == (flag, "named by --python")
    assert choose(None, environ) == (venv / "bin/python", "of $VIRTUAL_ENV")
    assert choose(None, {"CONDA_PREFIX": str(venv)}) == (venv / "bin/python", "of $CONDA_PREFIX")
    own = (Path(sys.executable), "which runs this command; --python names another")
    assert choose(None, {"VIRTUAL_ENV": "/nowhere"}) == own
    assert choose(None, {"VIRTUAL_ENV": sys.prefix}) == own


def test_a_real_python_says_where_its_packages_are(patient: Patient):
    """The packages of a virtual environment are read from its own `site-packages` directory."""
    patient.install("numpy", "2.1.0")
    python = inspect_python(patient.folder / "venv/bin/python", run_program, patient.environ, 30)
    assert python.has_64_bits
    assert list_distributions(python.paths)["numpy"].version == "2.1.0"
    assert "torch" not in list_distributions(python.paths)


def test_remains_of_a_broken_uninstallation_are_no_package(patient: Patient):
    """Directories that a killed pip leaves behind are not read as installed packages."""
    patient.install("torch", "2.6.0")
    folder = patient.packages / "~orch-2.4.1.dist-info"
    patient.write(str(folder / "METADATA"), "Name: torch\nVersion: 2.4.1\n")
    patient.write(str(patient.packages / "empty-1.dist-info/METADATA"), "")
    patient.write(str(patient.packages / "old-1.egg-info"), "Name: old\nVersion: 1\n")
    found = list_distributions((patient.packages,))
    assert {name: each.version for name, each in found.items()} == {"torch": "2.6.0", "old": "1"}


def test_only_the_head_of_metadata_counts():
    """Requirements are read from the header of the metadata, not from the description."""
    text = "Name: a\nVersion: 1\nRequires-Dist: b>=2\n\nRequires-Dist: c\n"
    assert parse_metadata(text).requires == ("b>=2",)
    assert parse_metadata("Name: a\n") is None


@pytest.mark.parametrize(
    ("requirement", "version", "words"),
    [
        ("a>=2", "1.9", "a 1.9 is not >=2"),
        ("a==2.6.0", "2.6.0+cu124", None),
        ("a>=2", "2.0rc1", "a 2.0rc1 is not >=2"),
        ("a>=2.dev0", "2.0rc1", None),
        ("a @ https://example.com/a.whl", "1", None),
        ("a>=2 ; python_version < '3'", "1", None),
        ("a>=2 ; extra == 'more'", "1", None),
        ("a>=2", "2004d-custom", None),
        ("what is this?", "1", None),
        ("A.b_c>=2", None, "A.b_c is not installed"),
    ],
)
def test_a_requirement_is_met_as_pip_sees_it(patient: Patient, requirement, version, words):
    """Local versions, pre-releases, markers and normalised names are handled as in pip."""
    if version is not None:
        patient.install("a", version)
    python = inspect_python(
        patient.packages.parents[2] / "bin/python", run_program, patient.environ, 30
    )
    unmet = find_unmet((requirement,), list_distributions((patient.packages,)), python)
    assert [each.words for each in unmet] == ([] if words is None else [words])


def test_requirements_are_read_as_pip_reads_them(patient: Patient):
    """Comments, continued lines, hashes, options and included files are read as in pip."""
    patient.write("more.txt", "c\n")
    file = patient.write(
        "req.txt",
        "# comment\na==1 \\\n  --hash=sha256:00\nb>=2 # why\n-r more.txt\n--index-url https://x\n\n-e .\n",
    )
    assert list(read_requirements(file)) == ["a==1", "b>=2", "c"]


def test_requirements_are_read_once_and_from_files(patient: Patient):
    """Each included file is read once; a cycle and a device file are errors."""
    patient.write("b.txt", "-r c.txt\n" * 1000)
    patient.write("c.txt", "-r sub/../d.txt\n" * 1000 + "c\n")
    patient.write("d.txt", "d\n")
    assert list(read_requirements(patient.write("a.txt", "-r b.txt\n" * 1000))) == ["d", "c"]
    patient.write("d.txt", "-r a.txt\n")
    with pytest.raises(SourceError, match=r"a\.txt: this requirements file includes itself"):
        list(read_requirements(patient.write("a.txt", "-r b.txt\n")))
    with pytest.raises(SourceError, match="cannot read /dev/zero: it is no regular file"):
        list(read_requirements(patient.write("e.txt", "-r /dev/zero\n")))
