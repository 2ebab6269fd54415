"""Tests for the structure of the package: its imports, and rules that apply to every module."""

import ast
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE_ROOT = ROOT / "exporter"
PACKAGE = SOURCE_ROOT / "trainvitals"
MODULES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
NODES = {path: tuple(ast.walk(tree)) for path, tree in TREES.items()}
BROAD = {"Exception", "BaseException"}

# The modules that may import each of these packages, even inside a function.
CONFINED = {
    "jinja2": {"report/html.py", "views/page/page.py"},
    "matplotlib": {"report/charts.py", "views/plot/picture.py"},
    "prometheus_client": {"prometheus.py"},
    "pynvml": {
        "sources/accelerators/nvidia.py",
        "sources/accelerators/nvidia_events.py",
        "training/gpus.py",  # inside a training process: no reader process, no worker
    },
    "pyhlml": {"sources/accelerators/hlml.py"},
}
# The functions that format amounts and times without `units`, each with the reason.
_OLD = "users' scripts and readers of logs already had this form"
OTHER_FORMATS = {
    ("sources/containers/pod_listing.py", "_write_time"): "the format of kubectl describe",
    ("http/http1.py", "format_date"): "the format of HTTP",
    ("logs.py", "log_time"): _OLD,
    ("metrics/collector_state.py", "give_up"): "the value of a label",
    ("report/charts.py", "_list_slots"): "the ticks of an axis: an hour or a weekday alone",
    ("report/charts.py", "_name_slot"): "a key, which is not shown",
    ("report/gathering.py", "_name_zone"): "the name of a zone",
    ("report/sections.py", "compose_head"): "the name of a weekday",
    ("report/weekly.py", "_describe_pattern"): "the name of a weekday",
    ("report/wording.py", "format_moment"): "a time whose date the reader knows",
    ("retry.py", "_print_failure"): _OLD,
    ("sources/accelerators/driver.py", "_toggle_release"): "the value of a label",
    ("sources/accelerators/hl_smi.py", "open_hl_smi"): "the value of a label",
    ("training/alerts.py", "_find_underutilized"): _OLD,
    ("training/memory.py", "_describe"): _OLD,
    ("training/resourcelog.py", "_write_cpu"): _OLD,
    ("training/resourcelog.py", "_write_gpu"): _OLD,
    ("training/resourcelog.py", "_write_memory"): _OLD,
    ("training/resourcelog.py", "_write_row"): _OLD,
    ("training/resourcelog.py", "write_block"): _OLD,
    ("verdicts/causes/ray.py", "_detect_oom"): "the amounts as Ray logged them",
}
# The functions that may contain a broad except, by module.
BROAD_EXCEPTS = {
    ("workers.py", "attempt"),
    ("training/guard.py", "guarded"),
    # Runs when any Python program starts, before the package can be imported.
    ("runner/startup/sitecustomize.py", "_attempt"),
}


def name_of(path):
    """Return a module's path inside the package."""
    return path.relative_to(PACKAGE).as_posix()


def imports_of(nodes):
    """Yield the top-level names of all packages that a module imports anywhere."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield (node.module or "").partition(".")[0]


def public_definitions(tree, inside=""):
    """Yield all public classes and functions that are not inside a private class or function."""
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_") or is_overload(node):
            continue
        yield f"{inside}{node.name}", node
        if isinstance(node, ast.ClassDef):
            yield from public_definitions(node, f"{node.name}.")


def is_overload(node):
    """Return whether a definition is an overload, whose implementation has the docstring."""
    return "overload" in map(ast.unparse, node.decorator_list)


def is_broad(handler):
    """Return whether an except clause catches all exceptions."""
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(type_, ast.Name) and type_.id in BROAD for type_ in types)


def broad_excepts_of(node, function=""):
    """Yield the functions that contain a broad except."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ExceptHandler) and is_broad(child):
            yield function
        inner = child.name if isinstance(child, ast.FunctionDef) else function
        yield from broad_excepts_of(child, inner)


def is_swallowing_everything(node):
    """Return whether a call is `suppress(Exception)`."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("suppress")
        and any(isinstance(name, ast.Name) and name.id in BROAD for name in node.args)
    )


UNITS = r"(?:[kKMGT]i?B(?:/s)?|°C|k?Wh?|m?s|min|h|seconds|minutes|hours|days|watts|%)(?!\w)"
AFTER_A_FORMAT = re.compile(rf"\s?{UNITS}")
AFTER_A_VALUE = re.compile(rf" {UNITS}")
IN_A_TEMPLATE = re.compile(rf"%(?:\.\d)?[dfg] ?{UNITS}|\{{:[^}}]*\}} ?{UNITS}")
OF_A_TIME = re.compile(r"%[a-zA-Z]")


def formats_of(node, function=""):
    """Yield the functions that format a time or an amount with its unit without `units`."""
    for child in ast.iter_child_nodes(node):
        if is_format(child):
            yield function
        inner = child.name if isinstance(child, ast.FunctionDef) else function
        yield from formats_of(child, inner)


def is_format(node):
    """Return whether an expression formats a time, or a number that is followed by its unit."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).endswith((".strftime", ".isoformat"))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return bool(IN_A_TEMPLATE.search(node.value))
    if isinstance(node, ast.FormattedValue) and node.format_spec:
        return bool(OF_A_TIME.search(ast.unparse(node.format_spec)))
    return isinstance(node, ast.JoinedStr) and any(
        isinstance(value, ast.FormattedValue)
        and isinstance(after, ast.Constant)
        and (AFTER_A_FORMAT if value.format_spec else AFTER_A_VALUE).match(after.value)
        for value, after in pairwise(node.values)
    )


def test_importing_the_package_loads_the_standard_library_only():
    """A training script that imports the package loads no other third-party package."""
    code = (
        f"import sys; sys.path.insert(0, {str(SOURCE_ROOT)!r}); import trainvitals, json;"
        "print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    )
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    foreign = set(json.loads(answer.stdout)) - sys.stdlib_module_names - {"__main__"}
    assert foreign == {"trainvitals"}


def test_layers_are_kept():
    """The imports comply with the layers that the contract in `pyproject.toml` defines."""
    lint_imports = Path(sys.executable).with_name("lint-imports")
    answer = subprocess.run(
        [lint_imports, "--no-cache"],
        cwd=ROOT,
        env={"PYTHONPATH": str(SOURCE_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    assert "Contracts: 1 kept, 0 broken." in answer.stdout


def test_the_source_root_is_no_package():
    """`exporter/` is a source root, like `src/`, and not a package itself."""
    assert not (SOURCE_ROOT / "__init__.py").exists()
    assert (PACKAGE / "__init__.py").exists()
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("package", CONFINED)
def test_a_binding_is_imported_where_it_belongs(package):
    """Each of the confined packages is imported only by the listed modules."""
    users = {name_of(path) for path, nodes in NODES.items() if package in imports_of(nodes)}
    assert users == CONFINED[package]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_everything_public_has_a_docstring(path):
    """Every module, and every public class, function and method, has a docstring."""
    documented = [("module", TREES[path]), *public_definitions(TREES[path])]
    for name, node in documented:
        assert ast.get_docstring(node), name


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_command_line_prints_and_exits(path):
    """Only the command line prints or exits; other modules return values or raise exceptions."""
    calls = {ast.unparse(node.func) for node in NODES[path] if isinstance(node, ast.Call)}
    if name_of(path) not in ("__main__.py", "commands/parsing.py"):
        assert not calls & {"print", "sys.exit", "exit", "input"}


def test_broad_excepts_are_counted():
    """Broad excepts exist only in the listed functions, which log and count the exceptions."""
    found = {
        (name_of(path), function)
        for path, tree in TREES.items()
        for function in broad_excepts_of(tree)
    }
    assert found == BROAD_EXCEPTS
    swallowing = [
        name_of(path)
        for path, nodes in NODES.items()
        if any(is_swallowing_everything(node) for node in nodes)
    ]
    assert swallowing == []


def test_the_search_for_broad_excepts_finds_them():
    """Bare, named and tuple forms of broad excepts are found, and narrow excepts are not."""
    code = """
def f():
    try: pass
    except: pass
def g():
    try: pass
    except (OSError, Exception): pass
def h():
    try: pass
    except (OSError, ValueError): pass
"""
    assert list(broad_excepts_of(ast.parse(code))) == ["f", "g"]


def test_amounts_and_times_are_formatted_by_units():
    """Only `units` and the listed functions format amounts and times, so each has one form."""
    found = {
        (name_of(path), function)
        for path, tree in TREES.items()
        for function in formats_of(tree)
        if name_of(path) != "units.py"
    }
    assert found == set(OTHER_FORMATS)


def test_the_search_for_formats_finds_them():
    """Formats of times and of numbers with units are found, and other strings are not."""
    code = """
def a(x): return f"{x:.1f} s"
def b(x): return f"{x:.0f}%"
def c(x): return f"{x >> 20} MiB are free"
def d(x): return x.strftime("%H")
def e(x): return f"{x:%H:%M}"
def f(x): return "%.1f MB" % x
def g(x): return "{:.0f} °C".format(x)
def h(x): return x.isoformat(timespec="seconds")
def z(x): return f"{x} runs", f"{x}s", f"{x:>8} sockets", f"{x:,} was", "100 % s"
"""
    assert "".join(formats_of(ast.parse(code))) == "abcdefgh"


def test_exceptions_to_the_rules_of_security_have_reasons():
    """Each line with an exemption from ruff's security rules gives the reason."""
    marks = [
        (name_of(path), line.strip())
        for path in MODULES
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"# noqa: [A-Z0-9, ]*\bS[0-9]{3}\b", line)
    ]
    assert len(marks) > 10
    assert [mark for mark in marks if not re.search(r"# noqa: [A-Z0-9, ]+ - \S", mark[1])] == []


def test_an_audit_without_lists_is_skipped_in_a_line(tmp_path):
    """If the list of vulnerabilities is empty or cannot be read, the audit is skipped."""
    (tmp_path / "empty.json").write_text('{"vulnerabilities": []}', encoding="utf-8")
    for name in ("empty.json", "none.json"):
        url = (tmp_path / name).as_uri()
        done = subprocess.run(
            [ROOT / ".ci/audit"],
            env={**os.environ, "AUDIT_URL": url},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"audit skipped: {url} tells of no vulnerability\n"
