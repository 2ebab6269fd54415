"""Tests for the damaged inputs for fuzzing."""

from random import Random

import pytest

from tests.support.mutations import LONGEST, Mutations

REAL = [b"loss: 0.5 step=12\n" * 4, b"[1.5] kernel: oom-kill\n", b""]


@pytest.mark.parametrize("longest", [LONGEST, 100])
def test_an_input_is_known_by_its_number(longest):
    """The same seed gives the same input, and no input is longer than the limit."""
    mutations, again = (Mutations(REAL, [b"Xid"], longest=longest) for _ in range(2))
    drawn = [mutations.draw(Random(f"7/{number}")) for number in range(300)]
    assert drawn[9] == again.draw(Random("7/9"))
    assert max(map(len, drawn)) <= longest
    assert len(set(drawn)) > 100
    assert sum(b"Xid" in each for each in drawn) > 0
