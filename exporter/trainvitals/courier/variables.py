"""The values of variables that name a receiver, checked for their form.

A message names the variable and what it should be; it never quotes the value, which may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from trainvitals.errors import ConfigurationError

# Neither a quote nor a brace: Alertmanager reads {{ in some of these as a template.
_URL = re.compile(r"https?://(?:[^\s\"'`<>{}|\\^%]|%[0-9A-Fa-f]{2})+")
_ADDRESS = re.compile(r"[^\s,@{}]+@[^\s,@{}<>]+")
_YES, _NO = frozenset({"true", "yes", "1", "on"}), frozenset({"false", "no", "0", "off"})
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of one set of receivers; an empty value counts as not set.

    Attributes:
        values: All variables.
        prefix: What stands before each name, as `TEAM_VISION_`; empty for the default set.

    Every method that takes a name raises ConfigurationError for a value that cannot be.
    """

    values: Mapping[str, str]
    prefix: str = ""

    def get(self, name: str) -> str | None:
        """Give a value as it is; None where it is not set."""
        return self.values.get(self.prefix + name, "").strip() or None

    def has_any(self, *names: str) -> bool:
        """Whether one of the variables is set."""
        return any(self.get(name) for name in names)

    def require(self, name: str, *, because: str) -> str:
        """Give a value that another one makes necessary."""
        value = self.get(name)
        if value is None:
            raise ConfigurationError(
                f"{self.prefix}{because} is set but {self.prefix}{name} is not: set both in .env, "
                "or neither"
            )
        return value

    def take_url(self, name: str) -> str | None:
        """Give the address of a web service."""
        value = self.get(name)
        return None if value is None else self._check_url(name, value)

    def _check_url(self, name: str, value: str) -> str:
        try:
            is_whole = bool(_URL.fullmatch(value) and urlsplit(value).hostname)
            urlsplit(value).port  # noqa: B018 - it raises for a port that is none
        except ValueError:
            is_whole = False
        if not is_whole:
            raise self.refuse(name, "is no URL: give the whole address, as https://…")
        return value

    def take_match(self, name: str, pattern: str, wanted: str) -> str | None:
        """Give a value that must have a form; `wanted` says which."""
        value = self.get(name)
        if value is not None and not re.fullmatch(pattern, value):
            raise self.refuse(name, wanted)
        return value

    def take_addresses(self, name: str) -> str | None:
        """Give one or more mail addresses, separated by a comma and a space."""
        value = self.get(name)
        if value is None:
            return None
        addresses = [each.strip() for each in value.split(",")]
        if not all(_ADDRESS.fullmatch(each) for each in addresses):
            raise self.refuse(name, "is no mail address: give one as ada@example.org, or several")
        return ", ".join(addresses)

    def take_server(self, name: str) -> str | None:
        """Give a host and a port."""
        value = self.get(name)
        if value is None:
            return None
        host, _, port = value.rpartition(":")
        is_port = port.isascii() and port.isdecimal() and 1 <= int(port) <= _HIGHEST_PORT
        if not is_port or not re.fullmatch(r"[\w.\-]+|\[[0-9A-Fa-f:.]+\]", host):
            raise self.refuse(name, "is no HOST:PORT: give it as smtp.example.org:587")
        return value

    def take_switch(self, name: str, *, default: bool) -> bool:
        """Give a yes or no."""
        value = (self.get(name) or "").lower()
        if value in _YES or not value:
            return default if not value else True
        if value in _NO:
            return False
        raise self.refuse(name, "is neither true nor false: give one of them")

    def refuse(self, name: str, reason: str) -> ConfigurationError:
        """Make the error for a variable."""
        return ConfigurationError(f"{self.prefix}{name} {reason}")
