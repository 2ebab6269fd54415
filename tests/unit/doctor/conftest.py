"""The fixture of a machine to examine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.doctor.patient import Patient


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Patient]:
    """Yield a machine without problems."""
    patient = Patient(tmp_path)
    with patient.stack:
        yield patient
