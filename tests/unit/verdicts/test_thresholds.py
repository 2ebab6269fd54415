"""The thresholds file: its location, its format and its reloading."""

from __future__ import annotations

import os

import pytest

from trainvitals.errors import ConfigurationError
from trainvitals.verdicts.thresholds import ThresholdsFile, find_thresholds, read_thresholds

ONE = "groups: [{name: thresholds, rules: [{record: 'threshold:%s', expr: %s}]}]\n"


def write(path, name="high_memory_usage:ratio", expression="vector(0.5)"):
    """Write a file with one threshold, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ONE % (name, expression))
    return path


def test_the_checkout_has_the_file_that_ships():
    """Without a setting, the thresholds are read from the repository's file."""
    path = find_thresholds({"HOME": "/nonexistent"})
    assert path.parts[-3:] == ("prometheus", "rules", "thresholds.yml")
    found = read_thresholds(path)
    assert found["high_memory_usage:ratio"] == 0.9
    assert found["host_disk_full:avail_bytes"] == 200_000_000


def test_the_variable_wins_over_the_stack_and_the_stack_over_the_shipped_file(tmp_path):
    """The environment variable takes precedence over the stack's file and the shipped file."""
    stack = write(tmp_path / "trainvitals/config/prometheus/rules/thresholds.yml")
    assert find_thresholds({"XDG_STATE_HOME": str(tmp_path)}) == stack
    named = {"XDG_STATE_HOME": str(tmp_path), "TRAINVITALS_THRESHOLDS_FILE": "/etc/t.yml"}
    assert str(find_thresholds(named)) == "/etc/t.yml"


def test_what_a_file_leaves_out_is_as_shipped(tmp_path):
    """Thresholds missing from a file have the shipped values."""
    found = read_thresholds(write(tmp_path / "t.yml"))
    assert found["high_memory_usage:ratio"] == 0.5
    assert found["gpu_high_temperature:headroom_celsius"] == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("groups: [", "expected the node content"),
        ("- 1\n", "has no rules"),
        ("groups: [{rules: [7]}]\n", "has no rules"),
        (ONE % ("a:ratio", "vector(1) + 1"), r"vector\(1\) \+ 1 is no threshold"),
        (ONE.replace("threshold:", "") % ("a:ratio", "vector(1)"), "is no threshold"),
    ],
)
def test_a_file_that_is_no_list_of_thresholds_is_refused(tmp_path, text, said):
    """The error of an invalid file names the file and the invalid part."""
    path = tmp_path / "t.yml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_thresholds(path)


def test_a_changed_file_is_read_again_and_a_broken_one_leaves_the_numbers(tmp_path):
    """A changed file is reloaded, and an invalid one keeps the old values and is reported."""
    path = write(tmp_path / "t.yml")
    file = ThresholdsFile(path)
    assert file.latest()[0]["high_memory_usage:ratio"] == 0.5
    write(path, expression="vector(0.25)")
    os.utime(path, ns=(1, 1))
    assert file.latest()[0]["high_memory_usage:ratio"] == 0.25
    path.write_text("groups: [")
    numbers, trouble = file.latest()
    assert numbers["high_memory_usage:ratio"] == 0.25
    assert str(path) in trouble
    path.unlink()
    assert "cannot read" in file.latest()[1]
    assert ThresholdsFile(path).latest()[0]["high_memory_usage:ratio"] == 0.9
