"""Reads and validates settings from environment variables.

A group of variables is a dataclass. The metadata of each field, created by `from_variable`,
contains the variable's name and parser. A field without a default is required. A field with the
default None is optional, but if its variable is set, the required variables must also be set.

An error message names the variable and the expected format, but never quotes the value, which may
be secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import urlsplit

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_numbers import read_digits

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value")
Group = TypeVar("Group", bound="DataclassInstance")

# Quotes and braces are not allowed: Alertmanager expands {{ in some of these values as a template.
_URL = re.compile(r"https?://(?:[^\s\"'`<>{}|\\^%]|%[0-9A-Fa-f]{2})+")
_ADDRESS = re.compile(r"[^\s,@{}]+@[^\s,@{}<>]+")
_YES, _NO = frozenset({"true", "yes", "1", "on"}), frozenset({"false", "no", "0", "off"})
_HIGHEST_PORT = 65535
_KEY = "variable"


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that sets a field of a dataclass.

    Attributes:
        name: The name of the variable without the prefix.
        parse: Returns the field's value, or raises ValueError with the reason.
        is_address: Whether a team can set only this variable of a group, and share the other
            variables with the default channel.
        needs: The name of an optional variable that must also be set; None if no other variable is
            necessary.
    """

    name: str
    parse: Callable[[str], object] = str
    is_address: bool = False
    needs: str | None = None


def from_variable(
    name: str,
    parse: Callable[[str], object] = str,
    *,
    is_address: bool = False,
    needs: str | None = None,
) -> dict[str, Variable]:
    """Return the metadata for a dataclass field that is read from an environment variable."""
    return {_KEY: Variable(name, parse, is_address, needs)}


def list_variables(kind: type[DataclassInstance]) -> tuple[Variable, ...]:
    """Return a group's variables, in the order of the dataclass fields."""
    return tuple(each.metadata[_KEY] for each in fields(kind))


def read_fields(
    kind: type[Group], variables: Mapping[str, str], *, prefix: str = ""
) -> Group | None:
    """Return a group of variables as an object; None if no variable of the group is set.

    Args:
        kind: The dataclass that defines the group.
        variables: The environment, or the variables in `.env`; an empty value counts as not set.
        prefix: The prefix of each variable's name.

    Raises:
        ConfigurationError: A required variable of the group is missing, or a value is invalid.
    """
    if not _is_set(kind, variables, prefix):
        return None
    values = {}
    for each in fields(kind):
        variable: Variable = each.metadata[_KEY]
        value = read_variable(variables, prefix + variable.name, variable.parse)
        if value is not None:
            values[each.name] = value
    return cast("Callable[..., Group]", kind)(**values)


def _is_set(kind: type[DataclassInstance], variables: Mapping[str, str], prefix: str) -> bool:
    known = list_variables(kind)
    present = {each.name for each in known if variables.get(prefix + each.name, "").strip()}
    defaults = {each.metadata[_KEY].name: each.default for each in fields(kind)}
    required = [name for name, default in defaults.items() if default is MISSING]
    # A switch such as SMTP_REQUIRE_TLS alone does not configure a channel.
    optional = [name for name, default in defaults.items() if default is None]
    given = [name for name in (*reversed(required), *optional) if name in present]
    pairs = [(given[0], name) for name in required] if given else []
    pairs += [(each.name, each.needs) for each in known if each.needs and each.name in present]
    for one, other in pairs:
        if other not in present:
            raise ConfigurationError(
                f"{prefix}{one} is set but {prefix}{other} is not; set both in .env, or neither"
            )
    return bool(given)


def read_variable(
    variables: Mapping[str, str], name: str, parse: Callable[[str], Value]
) -> Value | None:
    """Return the parsed value of a variable; None if the variable is not set or is empty.

    Args:
        variables: The environment, or the variables in `.env`.
        name: The name of the variable.
        parse: Returns the parsed value, or raises ValueError with the reason.

    Raises:
        ConfigurationError: The value of the variable is invalid.
    """
    text = variables.get(name, "").strip()
    if not text:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigurationError(f"{name} {error}") from None


def parse_url(text: str) -> str:
    """Return the URL in a text; raise ValueError if the URL lacks a scheme or a host."""
    try:
        parts = urlsplit(text)
        is_whole = bool(_URL.fullmatch(text) and parts.hostname)
        parts.port  # noqa: B018 - raises ValueError for a port that is not a number
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError("is not a URL; write the whole address, such as https://…")
    return text


def parse_addresses(text: str) -> str:
    """Parse e-mail addresses and join them with commas and spaces, or raise ValueError."""
    addresses = [each.strip() for each in text.split(",")]
    if not all(_ADDRESS.fullmatch(each) for each in addresses):
        raise ValueError("is not an e-mail address; write one such as ada@example.org, or several")
    return ", ".join(addresses)


def parse_server(text: str) -> str:
    """Parse a server address of the form `HOST:PORT`, or raise ValueError."""
    host, _, port = text.rpartition(":")
    if not read_digits(port, _HIGHEST_PORT) or not re.fullmatch(
        r"[\w.\-]+|\[[0-9A-Fa-f:.]+\]", host
    ):
        raise ValueError("is not HOST:PORT; write it as smtp.example.org:587")
    return text


def parse_switch(text: str) -> bool:
    """Parse a switch such as `true` or `0`, or raise ValueError."""
    if text.lower() not in _YES | _NO:
        raise ValueError("is neither true nor false; write one of them")
    return text.lower() in _YES


def parse_match(pattern: str, wrong: str) -> Callable[[str], str]:
    """Return a parser that returns a text matching a pattern, or raises ValueError(wrong)."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(wrong)
        return text

    return parse
