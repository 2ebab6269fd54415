"""A search for all regular expressions of the package.

Compiled patterns are found in the values of a module's names, also inside tuples, mappings,
dataclasses and closures. Patterns that a function passes to `re` are found in its source.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

PACKAGE = Path(__file__).parents[2] / "exporter/trainvitals"
SEARCHES = frozenset({"search", "sub", "subn", "split", "findall", "finditer"})
MATCHES = frozenset({"match", "fullmatch"})
# Imports that mark a module which may hold expressions.
_WORDS = re.compile(r"^import re$|^from trainvitals\.verdicts\.causes\.signs import", re.MULTILINE)
_CALL = re.compile(r"\bre\s*\.")


@dataclass(frozen=True, slots=True)
class Expression:
    """A regular expression of the package.

    Attributes:
        where: The module and the name or function.
        pattern: The expression.
        methods: The methods that apply the expression: `search`, `match` and `fullmatch`.
    """

    where: str
    pattern: re.Pattern[Any]
    methods: tuple[str, ...]


def find_expressions(package: Path = PACKAGE) -> list[Expression]:
    """Return the expressions of a package, each once."""
    found: dict[tuple[Any, int, tuple[str, ...]], Expression] = {}
    for path in sorted(package.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if _WORDS.search(source):
            tree = ast.parse(source)
            module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            for each in (*_find_values(module, tree), *_find_calls(module, tree)):
                found.setdefault((each.pattern.pattern, each.pattern.flags, each.methods), each)
    return list(found.values())


def _find_values(module: str, tree: ast.Module) -> Iterator[Expression]:
    used = _find_methods(tree)
    for name, value in list(vars(importlib.import_module(module)).items()):
        methods = used.get(name, SEARCHES)
        for pattern in _walk(value, set()):
            yield Expression(f"{module}.{name}", pattern, _choose_methods(methods))


def _choose_methods(names: frozenset[str]) -> tuple[str, ...]:
    """Return the methods that apply an expression; any other method counts as `search`."""
    chosen = names & MATCHES
    return tuple(sorted(chosen)) if chosen and not names & SEARCHES else ("search", *sorted(chosen))


def _find_methods(tree: ast.Module) -> dict[str, frozenset[str]]:
    """Return, for each name that a module uses only for method calls, its pattern methods."""
    called: dict[str, frozenset[str]] = {}
    passed: set[str] = set()
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    owners = {id(node.value) for node in attributes}
    for node in attributes:
        if isinstance(node.value, ast.Name) and node.attr in SEARCHES | MATCHES:
            name = node.value.id
            called[name] = called.get(name, frozenset()) | {node.attr}
    for node in ast.walk(tree):  # a name that stands alone may be applied in any way elsewhere
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in owners:
            passed.add(node.id)
    return {name: names for name, names in called.items() if name not in passed}


def _walk(value: object, seen: set[int]) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns in a value and in the values that it contains."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, re.Pattern):
        yield value
        return
    held: list[object] = []
    if isinstance(value, dict):
        held = [*value, *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        held = [*value]
    elif isinstance(value, FunctionType):
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        held += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    elif is_dataclass(value) and not isinstance(value, type):
        held = [getattr(value, each.name, None) for each in fields(value)]
    for each in held:
        yield from _walk(each, seen)


def _find_calls(module: str, tree: ast.Module) -> Iterator[Expression]:
    """Yield the constant expressions that functions pass directly to `re`."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for name, call in _list_calls(function):
                source = call.args[0]
                if isinstance(source, ast.Constant):
                    flags = re.MULTILINE if "MULTILINE" in ast.unparse(call) else 0
                    methods = _choose_methods(frozenset({name}))
                    where = f"{module}.{function.name}"
                    yield Expression(where, re.compile(source.value, flags), methods)


def find_computed(package: Path = PACKAGE) -> set[tuple[str, str]]:
    """Return the module and the function of each expression that is computed at run time."""
    return {
        (path.relative_to(package).as_posix(), function.name)
        for path in sorted(package.rglob("*.py"))
        if _CALL.search(source := path.read_text(encoding="utf-8"))
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef)
        for _, call in _list_calls(function)
        if not isinstance(call.args[0], ast.Constant)
    }


def _list_calls(function: ast.FunctionDef) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
            and node.func.attr in SEARCHES | MATCHES | {"compile"}
        ):
            yield node.func.attr, node
