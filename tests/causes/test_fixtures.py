"""The collected deaths and their verdicts."""

from __future__ import annotations

import pytest

from tests.deaths import list_deaths, read_death, read_expected, reasons_of, tell
from trainvitals.causes.judge import REASONS, judge


@pytest.mark.parametrize("name", list_deaths())
def test_a_collected_death_gets_its_verdict(name):
    """Reason, confidence, contributing causes and words are those of `expected.yml`."""
    expected = read_expected(name)
    verdict = judge(read_death(name))
    told = "\n".join(map(tell, (verdict.finding, *verdict.contributing)))
    assert (verdict.reason, verdict.finding.confidence) == (expected.reason, expected.confidence), (
        told
    )
    assert reasons_of(verdict) - {verdict.reason} >= set(expected.contributing), told
    assert not reasons_of(verdict) & set(expected.forbidden), told
    assert [words for words in expected.says if words not in told] == [], told


def test_every_cause_has_a_collected_death():
    """Each reason of the closed set is the verdict of a folder, or contributes in one."""
    expected = [read_expected(name) for name in list_deaths()]
    covered = {one.reason for one in expected}
    covered.update(reason for one in expected for reason in one.contributing)
    assert set(REASONS) - covered == set()


def test_a_folder_is_named_after_its_reason():
    """What stands before `--` in a folder's name is its reason, or contributes to it."""
    for name in list_deaths():
        expected = read_expected(name)
        assert name.partition("--")[0] in {expected.reason, *expected.contributing}
