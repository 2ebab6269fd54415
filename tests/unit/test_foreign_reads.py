"""Tests that files which another user may have created are opened safely.

Such files are opened with functions of `trainvitals.foreign_files`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "exporter/trainvitals"
# The packages that read files from outside. The other packages read shipped files, configured
# files and files of the training process itself.
ROOMS = ("sources", "commands", "doctor", "report", "record", "views")
OPENERS = frozenset({"open", "read_text", "read_bytes"})

# The functions that open files without `foreign_files`, by the reason.
OPENED = {
    "the kernel's own": {
        ("doctor/docker_logging/flags.py", "_read_processes"),
        ("doctor/lastrun.py", "_list_names"),
        ("doctor/network.py", "list_listening"),
        ("sources/accelerators/habana.py", "read_resident_bytes"),
        ("sources/accelerators/pci.py", "_read"),
        ("sources/files.py", "read"),
        ("sources/files.py", "read_small"),
        ("sources/host/frequency.py", "_read_hertz"),
        ("sources/host/kernel_log.py", "_open"),
        ("sources/host/processes.py", "read_stat"),
        ("sources/runs/liveness.py", "read_host"),
        ("sources/runs/oomkills.py", "count_now"),
        ("sources/runs/processes.py", "__init__"),
        ("sources/runs/processes.py", "may_map"),
        ("sources/runs/processes.py", "read_process_state"),
        ("sources/runs/processes.py", "read_users"),
        # Opened without following links and without blocking, as this function also reads copies.
        ("sources/containers/cgroup_files.py", "read_data"),
    },
    "root's": {
        ("doctor/docker_logging/backups.py", "read_file"),
        ("sources/files.py", "read_text"),
    },
    "the user's own secrets, where he says that they are": {
        ("doctor/credentials.py", "_read"),
    },
    "written, without following links or where none exists": {
        ("commands/parsing.py", "say"),
        ("doctor/docker_logging/backups.py", "_write"),
        ("record/logfile.py", "_compress"),
        ("record/logfile.py", "_open"),
        ("record/profiling.py", "_open"),
        ("sources/containers/evidence_folder.py", "_write"),
        ("sources/containers/journal.py", "_write_whole"),
        ("sources/runs/endings.py", "write_note"),
    },
    "folders, without following links": {
        ("doctor/docker_logging/backups.py", "_sync"),
        ("sources/runs/directory.py", "_open"),
        ("sources/runs/endings.py", "write_ending"),
        ("sources/runs/namespaces.py", "_walk"),
    },
    "web pages": {
        ("doctor/credentials.py", "_ask_once"),
        ("sources/http_client.py", "fetch_page"),
        ("sources/prometheus.py", "_fetch"),
    },
}
THE_ONE_WAY = "foreign_files.py"


def find_opens(node: ast.AST, function: str = "") -> Iterator[str]:
    """Yield the functions that open a file without `open_regular`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and is_open(child):
            yield function
        inner = child.name if isinstance(child, ast.FunctionDef) else function
        yield from find_opens(child, inner)


def is_open(call: ast.Call) -> bool:
    """Return whether a call opens a path."""
    match call.func:
        case ast.Attribute(attr=name) if name in OPENERS:
            return True
        case ast.Name(id="open"):
            return not ast.unparse(call).startswith("open(open_regular(")
    return False


def test_a_file_is_opened_where_it_is_known_whose_it_is():
    """Every function that opens files itself is listed with the reason."""
    found = {
        (path.relative_to(PACKAGE).as_posix(), function)
        for room in ROOMS
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for function in find_opens(ast.parse(path.read_text(encoding="utf-8")))
    }
    expected = set().union(*OPENED.values())
    assert {place for place in found if place[0] != THE_ONE_WAY} == expected


def test_the_search_for_opened_files_finds_them():
    """All forms of opening a file are found, except opening the result of `open_regular`."""
    code = """
def f(): open("a")
def g(): Path("a").read_text()
def h(): os.open("a", 0)
def i(): open(open_regular("a"), "rb")
def j(): io.open("a")
"""
    assert list(find_opens(ast.parse(code))) == ["f", "g", "h", "j"]
