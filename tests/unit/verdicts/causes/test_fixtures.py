"""Verdicts on the collected deaths."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.deaths import (
    DEATHS,
    list_deaths,
    read_death,
    read_expected,
    reasons_of,
    tell,
)
from tests.support.world_deaths import list_expected
from trainvitals.verdicts.causes.judge import REASONS, judge


@pytest.mark.parametrize("name", list_deaths())
def test_a_collected_death_gets_its_verdict(name):
    """The verdict on a collected death has the reason, confidence and words of `expected.yml`."""
    expected = read_expected(name)
    verdict = judge(read_death(name))
    text = "\n".join(map(tell, (verdict.finding, *verdict.contributing)))
    assert (verdict.reason, verdict.finding.confidence) == (expected.reason, expected.confidence), (
        text
    )
    assert reasons_of(verdict) - {verdict.reason} >= set(expected.contributing), text
    assert not reasons_of(verdict) & set(expected.forbidden), text
    assert [words for words in expected.says if words not in text] == [], text


def test_every_cause_has_a_collected_death():
    """Every reason is the verdict or a contributing cause of at least one collected death."""
    expected = [read_expected(name) for name in list_deaths()]
    covered = {one.reason for one in expected}
    covered.update(reason for one in expected for reason in one.contributing)
    covered.update(reason for reasons in list_expected("seen") for reason in reasons)
    assert set(REASONS) - covered == set()


def test_a_death_is_named_after_its_reason():
    """The part of a death's name before `--` is its reason or a contributing reason."""
    for name in list_deaths():
        expected = read_expected(name)
        assert name.partition("--")[0] in {expected.reason, *expected.contributing}


def test_no_death_has_a_copy_of_a_file_of_another():
    """No two deaths contain the same file, because one refers to the file of the other."""
    sections = [
        (section, path.stem)
        for path in sorted(DEATHS.glob("*.txtar"))
        for section in path.read_text(encoding="utf-8").split("\n-- ")[1:]
        if section.partition(" --\n")[2].strip()
    ]
    copies = Counter(section for section, _ in sections)
    assert [name for section, name in sections if copies[section] > 1] == []
