"""A machine to examine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.doctor.patient import Patient


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Patient]:
    """A machine where all is well."""
    patient = Patient(tmp_path)
    with patient.stack:
        yield patient
