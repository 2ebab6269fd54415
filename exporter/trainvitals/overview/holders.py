"""Who the processes are that hold an accelerator's memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainvitals.overview.picture import Holder
from trainvitals.sources.accelerators.reading import ProcessMemory
from trainvitals.sources.containers.cgrouppaths import find_container
from trainvitals.sources.containers.reading import ContainersReading
from trainvitals.sources.files import Roots, read_small
from trainvitals.sources.processes import read_process_name
from trainvitals.sources.training.reading import RunsReading

KEPT_SECONDS = 30.0
MOST_KEPT = 512
_USER_FIELDS = 3


@dataclass(frozen=True, slots=True)
class Acquaintance:
    """What is known of a process by its number.

    Attributes:
        name: Its name; None where there is none such.
        user: Whose it is; None unknown.
        container: The ID of its container; None for none.
    """

    name: str | None = None
    user: str | None = None
    container: str | None = None


class Acquaintances:
    """Knows processes by their numbers, and asks anew every half minute.

    Args:
        roots: Where `/proc` and the host's `/etc/passwd` are.
    """

    def __init__(self, roots: Roots = Roots()) -> None:  # noqa: B008 - immutable
        self._roots = roots
        self._kept: dict[int, tuple[float, Acquaintance]] = {}
        self._users: tuple[float, dict[str, str]] | None = None

    def find(self, pid: int, time: float) -> Acquaintance:
        """Tell who a process is.

        Args:
            pid: The process, as `/proc` numbers it.
            time: Unix seconds.
        """
        kept = self._kept.get(pid)
        if kept is None or not 0 <= time - kept[0] < KEPT_SECONDS:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            kept = self._kept[pid] = time, self._ask(pid, time)
        return kept[1]

    def _ask(self, pid: int, time: float) -> Acquaintance:
        name = read_process_name(pid, self._roots)
        if name is None:
            return Acquaintance()
        return Acquaintance(name, self._ask_user(pid, time), find_container(pid, self._roots))

    def _ask_user(self, pid: int, time: float) -> str | None:
        try:
            user = str((self._roots.procfs / str(pid)).stat().st_uid)
        except OSError:
            return None
        if self._users is None or not 0 <= time - self._users[0] < KEPT_SECONDS:
            self._users = time, self._read_users()
        return self._users[1].get(user, user)

    def _read_users(self) -> dict[str, str]:
        # Not by getpwuid: what it asks may be a directory service, which can hang.
        text = read_small(self._roots.rootfs / "etc/passwd") or ""
        rows = [line.split(":", _USER_FIELDS) for line in text.split(os.linesep)]
        return {row[2]: row[0] for row in reversed(rows) if len(row) > _USER_FIELDS}


def introduce(
    acquaintances: Acquaintances,
    runs: RunsReading | None,
    containers: ContainersReading | None,
    time: float,
) -> Callable[[ProcessMemory], Holder]:
    """Give what tells who holds memory.

    Args:
        acquaintances: Knows processes.
        runs: The runs of this machine; None unknown.
        containers: Its containers; None unknown.
        time: Unix seconds.
    """
    by_pid = {
        rank.liveness.host_pid: rank.run
        for rank in (runs.ranks if runs else ())
        if rank.liveness is not None and rank.liveness.is_alive
    }
    by_id = {each.id: each.name for each in (containers.containers if containers else ())}

    def describe(process: ProcessMemory) -> Holder:
        known = acquaintances.find(process.pid, time)
        drawn = Holder(process.pid, process.used_bytes, known.name, known.user)
        container = None if known.container is None else known.container
        return replace(
            drawn,
            container=by_id.get(container, container[:12]) if container else None,
            run=by_pid.get(process.pid),
        )

    return describe
