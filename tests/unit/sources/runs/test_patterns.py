"""Tests for the files with a user's log patterns."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainvitals.errors import ConfigurationError
from trainvitals.sources.runs import patterns as module
from trainvitals.sources.runs.patterns import Pattern, is_match, read_patterns


def read(tmp_path: Path, text: str) -> tuple[Pattern, ...]:
    """Write a file of patterns and read it."""
    path = tmp_path / "patterns.yml"
    path.write_text(text, encoding="utf-8")
    return read_patterns(path)


def test_every_key_is_read(tmp_path: Path):
    """Each key of an entry becomes an attribute of the pattern."""
    text = r"""
patterns:
  - name: mine
    regex: 'at (?P<step>\d+): (?P<loss>\S+)'
    contains: ["at ", ":"]
    split: validation
    run: my run
    finished: false
    example: "at 3: 0.5"
  - name: end
    regex: '^done$'
    contains: done
    finished: true
"""
    assert read(tmp_path, text) == (
        Pattern(
            "mine",
            re.compile(r"at (?P<step>\d+): (?P<loss>\S+)"),
            ("at ", ":"),
            "validation",
            "my run",
        ),
        Pattern("end", re.compile("^done$"), ("done",), marks="finished"),
    )


def test_the_example_of_the_docstring_works(tmp_path: Path):
    """The example in the module's docstring is a valid file of patterns."""
    text = (module.__doc__ or "").partition("val loss 2.1`::\n")[2].partition("\n**Time.**")[0]
    one, two = read(tmp_path, text)
    assert is_match(one, "iter 100: loss 2.3412, time 50.20ms")
    assert is_match(two, "step 250: train loss 2.0, val loss 2.1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "patterns: there is none; write at least one"),
        ("patterns: []", "patterns: there is none; write at least one"),
        ("patterns: 3", "patterns: this is not a list; correct it"),
        ("lines: []", "lines: this key is not known here"),
        ("patterns: [7]", "patterns[0]: this is no mapping"),
        ("patterns: [{regex: '(?P<loss>.)'}]", "patterns[0].name: it is missing"),
        ("patterns: [{name: a}]", "patterns[0].regex: it is missing"),
        ("patterns: [{name: a, regex: '(?P<loss>'}]", "patterns[0].regex: this is not a regular"),
        ("patterns: [{name: a, regex: 'loss'}]", "patterns[0].regex: it has no named group"),
        (
            "patterns: [{name: a, regex: '(?P<loss>a+)'}, {name: b, regex: '(?P<loss>(a+)+)$'}]",
            "line 1: patterns[1].regex: (?P<loss>(a+)+)$ of b may take exponential time; do not repeat",
        ),
        (
            "patterns:\n- name: a\n  regex: '(?P<loss>([b-f]+)+)'",
            "line 2: patterns[0].regex: (?P<loss>([b-f]+)+) of a may take exponential time",
        ),
        (
            r"patterns: [{name: a, regex: '(?P<loss>\S+).*acc'}]",
            "may take 9e+09 steps for a line of 2048 characters, more than 4e+06; bound its repeats",
        ),
        (
            "patterns: [{name: a, regex: '(?P<loss>(?:(?:a{9}){9}b{9}){9}(?:(?:a{9}){9}b{9}){9}'}]",
            "patterns[0].regex: this is not a regular expression",
        ),
        (
            f"patterns: [{{name: a, regex: '(?P<loss>{'abcdefghij' * 51})'}}]",
            "of a is too long to be judged: it has more than 500 characters",
        ),
        (
            "patterns: [{name: a, regex: '(?P<loss>.)', split: dev}]",
            "patterns[0].split: dev is not one of train, validation, test",
        ),
        (
            "patterns: [{name: a, regex: '(?P<loss>.)', contains: 3}]",
            "patterns[0].contains: this is neither a text nor a list",
        ),
        (
            "patterns: [{name: a, regex: '(?P<loss>.)', finished: maybe}]",
            "patterns[0].finished: this is not true or false",
        ),
        (
            "patterns: [{name: a, regex: '(?P<loss>.)', other: 1}]",
            "patterns[0].other: this key is not known here",
        ),
        (
            r"patterns: [{name: a, regex: 'loss (?P<loss>\d)', example: 'loss: 1'}]",
            "patterns[0].example: the pattern does not match it; correct one of them",
        ),
        (
            "patterns: [{name: a, regex: '(?P<loss>.)', contains: b, example: 'a'}]",
            "patterns[0].example: the pattern does not match it; correct one of them",
        ),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path: Path, text: str, message: str):
    """The message is one line and names the file, the entry and the remedy."""
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    said = str(caught.value)
    assert message in said
    assert said.startswith(str(tmp_path / "patterns.yml"))
    assert "\n" not in said


@pytest.mark.parametrize(
    ("expression", "longest"),
    [
        (r"iter (?P<step>\d+): loss (?P<loss>\S+), time (?P<step_milliseconds>[\d.]+)ms", 8192),
        (r"^epoch=(?P<epoch>\d{1,9}).*loss=(?P<loss>\S+)", 8192),
        (r"^epoch=(?P<epoch>\d+).*loss=(?P<loss>\S+)", 2048),
        (r"loss .{0,300}(?P<loss>\d)", 8192),
        (r"loss (?P<pairs>.*)", 8192),
        (r"loss (?P<loss>\d+).*acc", 2048),
        (r"(?P<loss>\d+)/s", 2048),
        (r"loss .{0,40}acc .{0,40}(?P<loss>\d+)", 2048),
    ],
)
def test_the_square_of_the_length_is_for_shorter_lines(
    tmp_path: Path, expression: str, longest: int
):
    """Only an expression that takes linear time is tried on the longest lines."""
    (pattern,) = read(tmp_path, f"patterns: [{{name: a, regex: '{expression}'}}]")
    assert pattern.longest == longest


def test_a_missing_file_is_an_error(tmp_path: Path):
    """The message for a missing file names the flag `--trainlog.patterns`."""
    with pytest.raises(ConfigurationError, match=r"No such file .*; correct --trainlog\.patterns"):
        read_patterns(tmp_path / "none.yml")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["patterns", "name", "regex", "contains", "split", "run"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: object):
    """Reading an arbitrary file raises no exception other than `ConfigurationError`."""
    path = tmp_path_factory.getbasetemp() / f"any{os.getpid()}.yml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    try:
        said = "" if read_patterns(path) else "nothing"
    except ConfigurationError as error:
        said = str(error)
    assert said != "nothing"
    assert "\n" not in said
