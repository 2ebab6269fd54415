"""What the tests of several parts share: the files of a machine and a certificate."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.certificates import make_certificate
from trainvitals.sources.files import Roots

MACHINE = Path(__file__).parents[1] / "fixtures" / "machine"


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A copy of the fake machine's `/proc` and `/sys`."""
    shutil.copytree(MACHINE, tmp_path / "machine")
    return Roots(procfs=tmp_path / "machine/proc", sysfs=tmp_path / "machine/sys")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A folder with a self-signed certificate for 127.0.0.1, cert.pem, and its key, key.pem."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))
