"""Tests for every check on machines that pass it, and on machines that do not."""

import pytest

from tests.unit.doctor.cases import CASES, KEY, TOKEN, Case
from tests.unit.doctor.patient import Patient
from trainvitals.doctor import CHECKS


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # a stalled process looks like a hang
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.status}")
def test_a_check_finds_what_is_so(patient: Patient, case: Case) -> None:
    """Each finding has the expected status, text and command, and contains no token."""
    case.arrange(patient)
    finding = patient.find(case.check)
    assert (finding.status, finding.what) == (case.status, finding.what)
    for part in case.says:
        assert part in finding.what
    assert case.command in finding.command
    if finding.status == "problem":
        assert finding.command or finding.advice
    assert KEY not in repr(finding)
    assert TOKEN not in repr(finding)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_check_has_a_machine_where_it_is_content_and_one_where_it_is_not(check) -> None:
    """Each check has a case with status ok and a case with a problem or a warning."""
    found = {case.status for case in CASES if case.check == check.name}
    assert "ok" in found
    assert found & {"problem", "warning"}
