"""Text from outside is made safe."""

import pytest

from trainvitals.foreign_text import clean_file_name, clean_label, join_names


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("résumé 42", "résumé 42"),
        ("a\x1b[31m\nb", "a_[31m_b"),
        ("half\udc80", "half_"),
        ("turned\u202eround", "turned_round"),
        ("", ""),
    ],
)
def test_a_label_has_an_underscore_for_what_cannot_be_printed(text: str, label: str):
    """Escape codes, line ends, lone surrogates and marks of direction do not reach a label."""
    assert clean_label(text) == label


def test_further_characters_can_be_forbidden_and_the_replacement_chosen():
    """Callers name what would end the quotes around a label, and what replaces it."""
    assert clean_label("a`b/c\n", forbidden="`/") == "a_b_c_"
    assert clean_label("a\nb", replacement="?") == "a?b"


def test_a_file_name_has_ascii_letters_digits_and_what_is_allowed():
    """A name leaves neither its directory nor ASCII."""
    assert clean_file_name("../é run-1_a.b") == "_____run-1_a_b"
    assert clean_file_name("web.1/../x", allowed="-_.") == "web.1_.._x"


def test_names_beyond_the_limit_are_counted():
    """A message stays one line."""
    assert join_names(["a", "b", "c"], most=3) == "a, b, c"
    assert join_names(["a", "b", "c"], most=1) == "a and 2 more"
    assert join_names([], most=1) == ""
