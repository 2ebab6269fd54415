"""Tests that deeply nested JSON documents and very long numbers cause no traceback.

For a deeply nested document, the JSON parser raises RecursionError, which is not a ValueError.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainvitals.doctor.credentials import HUGGING_FACE, _TemporaryError, _understand
from trainvitals.doctor.cuda import _parse
from trainvitals.doctor.docker_logging.keys import read_size
from trainvitals.sources.accelerators.settings import _parse as parse_settings
from trainvitals.sources.external_program import parse_version

PACKAGE = Path(__file__).parents[2] / "exporter/trainvitals"
DEEP = b"[" * 100_000
HUGE = "9" * 5000

# The functions that do not catch RecursionError themselves, by the reason.
UNCAUGHT = {
    "caught by `_read`, which reads the files of a folder of evidence, or by `is_inspection` before": {
        ("sources/containers/evidence_folder.py", "parse_record"),
        ("sources/containers/evidence_folder.py", "_parse_member"),
        ("sources/containers/evidence_folder.py", "read_inspection"),
    },
    "written by the program itself, or by one that it started": {
        ("stack/configuration.py", "load_destinations"),
        ("stack/project.py", "load_project"),
        ("stack/programs.py", "load_programs"),
        ("stack/services.py", "_read_rows"),
        ("stack/services.py", "list_images"),
        ("training/torchtrace.py", "_is_whole"),
    },
}


def find_parsers(
    node: ast.AST, function: str = "", *, is_caught: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield the functions that parse JSON, and whether each function catches RecursionError."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and ast.unparse(child.func) in {"json.loads", "json.load"}:
            yield function, is_caught
        if isinstance(child, ast.FunctionDef):
            yield from find_parsers(child, child.name)
        elif isinstance(child, ast.Try):
            names = {ast.unparse(each.type) for each in child.handlers if each.type}
            caught = is_caught or any("RecursionError" in name for name in names)
            yield from find_parsers(child, function, is_caught=caught)
        else:
            yield from find_parsers(child, function, is_caught=is_caught)


def test_a_document_without_end_is_caught_where_it_is_parsed():
    """Every function that parses JSON catches RecursionError, except the listed functions."""
    found = {
        (path.relative_to(PACKAGE).as_posix(), function)
        for path in sorted(PACKAGE.rglob("*.py"))
        for function, is_caught in find_parsers(ast.parse(path.read_text(encoding="utf-8")))
        if not is_caught
    }
    assert found == set().union(*UNCAUGHT.values())


def test_an_issuer_that_answers_with_a_document_without_end_is_a_proxy():
    """If a server responds with a deeply nested document, the check reports that it is not JSON."""
    with pytest.raises(_TemporaryError, match="not JSON"):
        _understand(HUGGING_FACE, DEEP)


def test_a_library_that_prints_a_bracket_without_end_hides_no_setting():
    """A line of output with deeply nested JSON is skipped, and the next line is read."""
    assert list(parse_settings(DEEP + b'\n["absent"]\n')) == [["absent"]]


def test_versions_of_thousands_of_digits_are_unknown():
    """Versions and sizes with thousands of digits are read as unknown and raise no exception."""
    assert parse_version(f"v{HUGE}.{HUGE}") is None
    assert read_size(f"{HUGE}m") is None
    assert _parse(f"{HUGE}.1")[-1] == 1
