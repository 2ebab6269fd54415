"""The users who own run files: whose files are read, and in which order.

Any user may fill a run directory. Files are therefore chosen from each user in turn, so that the
many files of one user displace only files of the same user. The user IDs that a user has for
rootless containers are treated as one user, as the module `subordinates` describes. A file's
owner and time are taken from the kernel, because the file's contents are not trusted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_numbers import read_digits
from trainvitals.sources.runs.subordinates import Subordinates

FLAG = "--run-dir.users"
VARIABLE = "TRAINVITALS_RUN_DIR_USERS"

_FORMS = "write names, numbers or ranges of numbers, as root,ada,1000-1999"
_LARGEST = (1 << 32) - 2

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Users:
    """The users whose run files are read.

    Attributes:
        ranges: The first and the last user ID of each range of users whose run files are read; None
            for all users.
        subordinates: The ranges of user IDs that are treated as one user.
    """

    ranges: tuple[tuple[int, int], ...] | None = None
    subordinates: Subordinates = field(default_factory=Subordinates, compare=False, repr=False)

    def __contains__(self, user: int) -> bool:
        """Return whether the files of the user with the given user ID are read."""
        return self.ranges is None or any(first <= user <= last for first, last in self.ranges)

    def find_group(self, user: int) -> int:
        """Return the first user ID in the range of subordinate IDs that contains a user ID.

        A trusted user's ID, or a user ID outside all ranges, is returned unchanged.
        """
        return user if is_trusted(user) else self.subordinates.find_first(user)


def parse_users(texts: Iterable[str]) -> Users:
    """Parse the users in `--run-dir.users`; return all users if the texts name no user.

    Raises:
        ConfigurationError: A text is neither a user of this machine nor a user ID or ID range.
    """
    words = [word.strip() for text in texts for word in text.split(",")]
    ranges = tuple(_parse_user(word) for word in words if word)
    return Users(ranges or None)


def read_users(texts: Sequence[str] | None = None) -> Users:
    """Return the users whose run files are read.

    The users are those in `--run-dir.users`, or in the environment variable if `texts` is None.

    Raises:
        ConfigurationError: A text is neither a user of this machine nor a user ID or ID range.
    """
    return parse_users([os.environ.get(VARIABLE, "")] if texts is None else texts)


def _parse_user(word: str) -> tuple[int, int]:
    first, dash, last = word.partition("-")
    ends = [first, last] if dash else [first, first]
    if all(end.isascii() and end.isdecimal() for end in ends):
        least, most = (read_digits(end, _LARGEST) for end in ends)
        if least is None or most is None or least > most:
            raise ConfigurationError(f"{FLAG} {word}: this is not a range of users; {_FORMS}")
        return least, most
    import pwd  # noqa: PLC0415 - few machines need this module

    try:
        number = pwd.getpwnam(word).pw_uid
    except (KeyError, ValueError) as error:
        raise ConfigurationError(
            f"{FLAG} {word}: this machine has no such user; {_FORMS}"
        ) from error
    return number, number


def is_trusted(user: int, own: int | None = None) -> bool:
    """Return whether a reader trusts a user: a reader trusts root and itself.

    Args:
        user: The ID of the user who may be trusted.
        own: The reader's user ID; None for the effective user of this process.
    """
    return user in (0, os.geteuid() if own is None else own)


def rank_owner(owner: int, made_time: float) -> tuple[bool, float]:
    """Return a sort key for the precedence of run names: trusted users first, then older files.

    Args:
        owner: The ID of the user who owns the file.
        made_time: The time when the file was created, according to the kernel, in Unix seconds.
    """
    return not is_trusted(owner), made_time


class RunNames:
    """The unique names of runs, which distinguish two users' runs with the same name."""

    def __init__(self) -> None:
        self._owners: dict[str, int] = {}

    def name(self, run: str, owner: int) -> str:
        """Return a run's name, followed by the user ID if another user used the name first."""
        while self._owners.setdefault(run, owner) != owner:
            run += f" (uid {owner})"
        return run

    def keep(self, names: Container[str]) -> None:
        """Forget all run names except the given names."""
        self._owners = {name: uid for name, uid in self._owners.items() if name in names}


def order_owners(things: Iterable[Thing], owner: Callable[[Thing], int]) -> list[Thing]:
    """Return things with the trusted users' things first, otherwise in the original order."""
    return sorted(things, key=lambda thing: not is_trusted(owner(thing)))


def take_turns(things: Iterable[Thing], *groupings: Callable[[Thing], Hashable]) -> list[Thing]:
    """Return things in a new order, for which one thing is taken from each group in turn.

    Args:
        things: The things to order, with the most important thing of each group first.
        groupings: The functions that return a thing's group, the widest grouping first. Each
            function divides the groups of the previous function. The group of the first thing comes
            first.
    """
    if not groupings:
        return list(things)
    grouping, *inner = groupings
    groups: dict[Hashable, list[Thing]] = {}
    for thing in things:
        groups.setdefault(grouping(thing), []).append(thing)
    queues = [iter(take_turns(group, *inner)) for group in groups.values()]
    ordered: list[Thing] = []
    while queues:
        left = []
        for queue in queues:
            for thing in queue:
                ordered.append(thing)
                left.append(queue)
                break
        queues = left
    return ordered
