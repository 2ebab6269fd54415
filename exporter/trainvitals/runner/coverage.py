"""Counts the processes below a command, and finds the Python processes that cannot report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import psutil

from trainvitals.units import count_noun

# Options that make Python ignore PYTHONPATH or skip the import of `sitecustomize`.
_PREVENTING = frozenset("IES")


@dataclass(slots=True)
class Coverage:
    """The processes that were seen below a command.

    Attributes:
        pids: The PIDs of the processes.
        unreached: The reasons why Python processes cannot report their training, by PID.
    """

    pids: set[int] = field(default_factory=set)
    unreached: dict[int, str] = field(default_factory=dict)

    def look(self) -> None:
        """Add all current descendants of this process.

        A process that starts and ends between two calls is missed.
        """
        try:
            processes = psutil.Process().children(recursive=True)
        except psutil.Error:
            processes = []
        self.pids |= {process.pid for process in processes}
        for process in processes:
            if process.pid not in self.unreached and (why := _find_obstacle(process)):
                self.unreached[process.pid] = why

    def describe(self, runs: Mapping[int, str], of_jax: Collection[int] = ()) -> str:
        """Return one line about the processes that reported and those that could not report.

        Args:
            runs: The run name of each process that reported, by PID.
            of_jax: The PIDs of the processes that imported JAX. JAX steps cannot be observed.
        """
        seen = count_noun(len(self.pids), "process", "processes")
        is_one = len(self.pids) == 1
        if not runs:
            said = f"{seen}, {'which did not prove' if is_one else 'none of which proved'} to train"
        else:
            names = ", ".join(sorted(set(runs.values())))
            said = f"{seen}, {'which' if is_one else f'{len(runs)} of which'} reported run {names}"
        reasons = sorted(set(self.unreached.values()))
        missed = f"; not reached: {', '.join(reasons)}" if reasons else ""
        unseen = len(set(of_jax) - runs.keys())
        users = count_noun(unseen, "process", "processes")
        loops = f"; {users} imported JAX, whose steps cannot be seen" if unseen else ""
        return said + missed + loops


def _find_obstacle(process: psutil.Process) -> str:
    """Return why a Python process cannot report its training.

    The result is an empty string if the process can report, is not a Python process or cannot be
    read.
    """
    try:
        words, name = process.cmdline(), process.name()
        if not name.startswith("python") or len(words) < 2:  # noqa: PLR2004 - a program and an option
            return ""
        is_told = "TRAINVITALS_AUTOLOG" in process.environ()
    except psutil.Error:
        return ""
    for word in words[1:]:
        if not word.startswith("-") or word.startswith("--") or word in {"-c", "-m"}:
            break
        if _PREVENTING & set(word[1:]):
            return f"{name} {word}"
    return "" if is_told else f"{name} without the environment of the command"
