"""Tests that every regular expression of the package takes linear time.

The expressions are applied to text of other users, such as logs, names and command lines. Each
expression is found automatically and is applied to generated near matches of up to 64 KiB.
"""

from __future__ import annotations

import math
import re
import time

import pytest

from tests.support.expressions import PACKAGE, find_computed, find_expressions
from tests.support.pumping import LONGEST, MOST_SECONDS, find_slow_text
from trainvitals.sources.runs.backtracking import count_steps

# The functions that compute an expression at run time, by the reason.
COMPUTED = {
    "into a value of a module, where it is found": {
        ("sources/runs/formats/entry.py", "line"),
        ("verdicts/causes/signs.py", "matches"),
    },
    "of a user's file, and judged by its structure": {("sources/runs/patterns.py", "_compile")},
    "of what whoever starts the program writes, for names of at most 255 characters": {
        ("sources/host/network.py", "__init__"),
        ("sources/runs/discovery.py", "_expand"),
    },
    "without a repeat of more than a few characters": {
        ("sources/containers/log_owner.py", "_may_name"),
    },
    "for what a person configured or drew": {
        ("alerting/variables.py", "parse"),
        ("alerting/variables.py", "parse_match"),
        ("views/plot/picture.py", "gather_lines"),
        ("views/plot/timeline.py", "read_part"),
    },
}


@pytest.mark.untraced
def test_every_expression_takes_linear_time():
    """No near match of 64 KiB takes an expression longer than 50 ms of processor time."""
    found = find_expressions()
    slow = [
        f"{each.where}: {method}: {text}"
        for each in found
        for method in each.methods
        if (text := find_slow_text(each.pattern, method))
    ]
    assert not slow, "\n".join(slow)
    assert {each.where.rpartition(".")[2] for each in found} > {
        "_NAMES",  # a name of a module
        "_LOGINS",  # in a tuple
        "PROFILES",  # in a dataclass in a tuple
        "CAUSES",  # built by `matches`, in a dataclass
        "_count",  # in a function
    }


def test_no_expression_is_computed_unseen():
    """Every function that computes an expression is listed with the limit on its time."""
    assert find_computed(PACKAGE) == set().union(*COMPUTED.values())


@pytest.mark.parametrize(
    "expression",
    [
        "([b-f]+)+$",
        r"^(?:-X\s*(?:utf8|dev)?\s*)*-u$",
        "(a|ab|b)*c",
        r"(\w+\s?)*:",
    ],
)
def test_an_exponential_expression_is_found(expression: str):
    """An exponential expression is found by a slow near match and by its structure."""
    assert find_slow_text(re.compile(expression)) is not None
    assert count_steps(re.compile(expression), length=LONGEST) == math.inf


@pytest.mark.parametrize(
    "expression",
    [
        r"(?:\w?[.]?){25}!",
        "(?:a?b?){25}c",
        r"(?:\w?\d?){12}!",
        "(?:a|a){25}b",
        "(?:ab?b?){25}c",
        "(?:a?){25}b",
        "(?:(?:(?:a?b?){3}){3}){3}c",
        "(?:a{0,2}){15}b",
    ],
)
def test_a_fixed_number_of_repeats_that_fit_in_two_ways_is_exponential(expression: str):
    """Repeats that match a text in several ways multiply the number of matches."""
    assert count_steps(re.compile(expression), length=LONGEST) == math.inf


OPTIONAL = {
    "optional characters": "a?" * 30 + "b",
    "at the beginning of a line": "^" + "a?" * 30 + "b",
    "before as many characters": "a?" * 30 + "a" * 30,
    "alternatives": "(?:a|aa)" * 30 + "b",
    "equal alternatives": "(?:a|a)" * 30 + "b",
    "empty alternatives": "(?:|)" * 30 + "b",
    "several empty alternatives": "(?:|||)" * 12 + "b",
    "characters or nothing": "(?:a|)" * 30 + "b",
    "optional alternatives": "(?:ab|a|b)?" * 20 + "c",
    "nested groups": "(?:a?" * 25 + ")?" * 25 + "b",
    "named groups": "".join(f"(?P<g{number}>a)?" for number in range(30)) + "b",
    "classes that overlap": r"\w?\d?" * 12 + "Q",
    "any characters": ".?" * 30 + "Q",
    "lazy ones": "a??" * 30 + "b",
    "a look ahead": "(?=" + "a?" * 30 + "b)",
    "a negative look ahead": "(?!" + "a?" * 30 + "b)z",
    "conditions": "(a)?(?(1)a?|a?)" * 12 + "b",
    "in small numbers": "(?:a?a?){3}" * 5 + "b",
    "bounded repeats": "a{0,2}" * 20 + "b",
}


@pytest.mark.parametrize("expression", OPTIONAL.values(), ids=OPTIONAL)
def test_many_optional_parts_in_a_row_are_judged(expression: str):
    """Optional parts in a row multiply the number of matches, which the check finds quickly."""
    start = time.thread_time()
    assert count_steps(re.compile(expression), length=2048) > 2048**2
    assert time.thread_time() - start < 2


@pytest.mark.parametrize(
    "expression",
    [
        "a?" * 5 + "b",
        r"(?:, acc (\d+))?(?:, lr (\d+))?(?:, gn (\d+))?(?:, x (\d+))?(?:, y (\d+))?(?:, z (\d+))?$",
        r"(?:step|epoch|iteration|iter|batch|it) (\d{1,9})(?:/(\d{1,9}))?:? (?:loss|l)[:=]? (\S+)",
        r"[-+]?\d{1,9}(?:\.\d{0,9})?(?:e[-+]?\d{1,3})?%?",
        "(?:ab?){3}" * 5 + "c",
    ],
)
def test_a_few_optional_parts_are_linear(expression: str):
    """A few optional parts, or groups with the same beginning, count as linear."""
    assert count_steps(re.compile(expression), length=2048) <= 9 * 2048


@pytest.mark.parametrize(
    "expression",
    [r"\d{4}-\d{2}-\d{2} ", r"(?:\d{1,3}\.){4}x", "(?:[0-9a-f]{2}:){5}x", r"(?:\d{4}\s?){4}x"],
)
def test_a_fixed_number_of_repeats_is_no_loop(expression: str):
    """Repeats that match a text in only one way count as linear, whatever their number is."""
    assert count_steps(re.compile(expression), length=2048) <= 3 * 2048


@pytest.mark.parametrize(
    ("expression", "method"),
    [
        (r"\s+$", "search"),
        (r"://\S*@", "search"),
        ("<a>.*?</a>|b", "search"),
        (r"(\w*)(\w*)-", "fullmatch"),
    ],
)
def test_a_quadratic_expression_is_found(expression: str, method: str):
    """A quadratic expression is found by a slow text and by its structure."""
    slow = find_slow_text(re.compile(expression), method)
    assert slow is not None
    assert slow.seconds > MOST_SECONDS
    assert count_steps(re.compile(expression), length=LONGEST) >= LONGEST**2


@pytest.mark.parametrize(
    "expression", [r"^a.*b", r"(?<!\S)\d{1,20}/s", r"loss: (?P<pairs>.*)", r"a[^a]*b", rb"^x\s+\S"]
)
def test_a_linear_expression_is_fast(expression: str | bytes):
    """No slow text is found for a linear expression."""
    assert find_slow_text(re.compile(expression)) is None


def test_a_busy_machine_makes_nothing_slow():
    """Measured times are corrected for a slow machine by the time of a known search."""
    regex = re.compile(r"(?:ab|cd).{0,20}x")

    def crawl() -> float:
        return time.thread_time() * 40

    assert find_slow_text(regex, clock=crawl) is None
    assert find_slow_text(re.compile("(a|ab|b)*c"), clock=crawl) is not None
