"""One vendor's driver: found, opened by a reader, asked, and taken up again after any trouble.

The first reader runs on a thread of the exporter, which costs least; every later one runs in a
child process, because after trouble only a fresh load of the library, and something that can be
killed, will do.

- No library, no driver: nothing to report; looked for again now and then.
- The driver was unloaded, replaced or restarted: its reader says so and ends; a child, with a
  fresh load of the library, is tried every few seconds.
- A child died: a new one is started at once.
- A device was lost, added or removed: a second reader is started beside the first, and takes over
  when it can read other devices; nothing is missing meanwhile.
- Opening hangs: the reader is left alone, and replaced after a minute.
- Told to let go: the reader is ended, so that the driver can be unloaded.

What a killed child still holds in a driver call is the kernel's to end; it is reaped when it is.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainvitals.sources.accelerators.ledger import Account
from trainvitals.sources.accelerators.process import ReaderProcess
from trainvitals.sources.accelerators.reader import Opener, Reader
from trainvitals.sources.accelerators.reading import AcceleratorReading, Identity, Kind, State
from trainvitals.sources.accelerators.thread import ReaderThread
from trainvitals.sources.files import Roots

_RETRY_SECONDS = 4.0
_RETRY_ABSENT_SECONDS = 60.0
_RETRY_LOST_SECONDS = (5.0, 60.0)
_OPENING_HANGS_SECONDS = 60.0
_WAIT_FOR_REOPENING_SECONDS = 0.4
_ANSWER_MARGIN_SECONDS = 0.1
_MOST_DYING = 2
_MOST_DEVICES = 64
LET_GO_SECONDS = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor whose devices can be read.

    Attributes:
        name: The vendor, in lower case.
        kind: What its devices are called in the label `kind`.
        opener: What a child runs to read them.
        is_installed: Tells whether the vendor's library or tool can be found, without running it.
        traces: Files and directories that change when the driver or its devices come or go;
            each path begins with `proc/` or `sys/`.
        is_isolated: Its reader always runs in a process of its own.
    """

    name: str
    kind: Kind
    opener: Opener
    is_installed: Callable[[], bool]
    traces: tuple[str, ...]
    is_isolated: bool = False


class Driver:
    """One vendor's driver and all its devices.

    Args:
        vendor: Whose.
        roots: Where the vendor's traces are looked for.
        is_isolated: Have the reader always run in a process of its own.
        environ: The environment of such processes; the exporter's own when None.
    """

    def __init__(
        self,
        vendor: Vendor,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        is_isolated: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.vendor = vendor
        self._is_isolated = is_isolated or vendor.is_isolated
        self._is_first = True
        self._traces = tuple(_locate(trace, roots) for trace in vendor.traces)
        self._environ = environ
        self._accounts: dict[str, Account] = {}
        self._child: Reader | None = None
        self._rival: Reader | None = None
        self._dying: list[Reader] = []
        self._retry_at = float("-inf")
        self._rival_at = float("inf")
        self._lost_since: float | None = None
        self._let_go_until = float("-inf")
        self._print: tuple[object, ...] = ()
        self._is_current = True
        self._opened_once = False
        self.complaint: str | None = None
        self._announced: str | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start opening the driver, if it is installed, without waiting for it."""
        self._print = self._take_print()
        if self.vendor.is_installed():
            self._child = self._start_child()
        else:
            self._stand_absent(f"no {self.vendor.name} driver library")

    def read(self, deadline: float) -> list[AcceleratorReading]:
        """Read every device.

        Args:
            deadline: The `time.monotonic` by which to be back.

        Returns:
            A reading for every device that was ever seen, in the order of their indices;
            `complaint` says afterwards what was not whole.
        """
        with self._lock:
            return self._read(deadline)

    def _read(self, deadline: float) -> list[AcceleratorReading]:
        self._reap()
        self._look_around()
        self._take_up(deadline)
        if self._child is not None and self._child.opened:
            self._ask(self._child, deadline)
        self._compare_rival()
        for process in self._processes():
            self._count_xids(process)
        readings = [account.read() for account in self._accounts.values()]
        return sorted(readings, key=lambda reading: reading.identity.index)

    @property
    def is_absent(self) -> bool:
        """Whether there is no such driver, nor was there ever."""
        return self._child is None and not self._accounts

    @property
    def omitted_processes(self) -> int:
        """How many processes the bound left out of the latest reading."""
        return sum(account.omitted_processes for account in self._accounts.values())

    @property
    def pids(self) -> tuple[int, ...]:
        """The children, so that what they cost is counted as the exporter's."""
        return tuple(pid for reader in self._processes() if (pid := reader.pid) is not None)

    def let_go(self, seconds: float = LET_GO_SECONDS) -> None:
        """Let go of the driver so that it can be unloaded, or take it up again if it was let go.

        It is taken up again by itself after so many seconds.
        """
        with self._lock:
            if time.monotonic() < self._let_go_until:
                self._let_go_until = self._retry_at = float("-inf")
                return
            self._end_children()
            self._let_go_until = time.monotonic() + seconds
            self._stand_gone(f"let go of for {seconds:.0f} s as told by SIGUSR1")

    def close(self) -> None:
        """End the children."""
        with self._lock:
            self._end_children()

    def _processes(self) -> list[Reader]:
        return [process for process in (self._child, self._rival) if process is not None]

    def _start_child(self) -> Reader | None:
        if len(self._dying) >= _MOST_DYING:  # killed, and held by the kernel: more would pile up
            return None
        if self._is_first and not self._is_isolated:
            self._is_first = False
            return ReaderThread(self.vendor.opener)
        return ReaderProcess(self.vendor.opener, environ=self._environ)

    def _take_up(self, deadline: float) -> None:
        now = time.monotonic()
        if self._child is None and now >= max(self._retry_at, self._let_go_until):
            self._retry_at = now + _RETRY_SECONDS
            if self.vendor.is_installed():
                self._child = self._start_child()
        child = self._child
        if child is None:
            return
        if not child.opened:
            patience = _WAIT_FOR_REOPENING_SECONDS if self._opened_once else deadline - now
            child.wait_until_opened(min(deadline, now + patience) - _ANSWER_MARGIN_SECONDS)
        if child.absent is not None:
            self._stand_absent(child.absent)
        elif child.gone is not None:
            self._replace(child.gone)
        elif child.opened:
            self._welcome(child)
        else:
            self._stand_opening(child, now)

    def _welcome(self, child: Reader) -> None:
        """Open an account for every device that is new; the index of one that moved is taken on."""
        for identity in [*child.identities, *(who for who, _ in child.unreadable)]:
            account = self._accounts.get(identity.uuid)
            if account is not None:
                account.identity = identity
            elif len(self._accounts) < _MOST_DEVICES and not self._is_known_by_index(identity):
                self._accounts[identity.uuid] = Account(identity)
        if not self._opened_once or self._announced is not None:
            count = len(child.identities)
            _log.info("%s driver open, %d devices", self.vendor.name, count)
            self._announced = None
        self._opened_once = True
        self._retry_at = float("-inf")

    def _is_known_by_index(self, identity: Identity) -> bool:
        """A lost device does not even say its UUID; its index tells which one it is."""
        if not identity.uuid.startswith("unknown-"):
            return False
        return any(account.identity.index == identity.index for account in self._accounts.values())

    def _ask(self, child: Reader, deadline: float) -> None:
        now = time.monotonic()
        if child.is_busy:
            child.take_answer(now)
        if not child.is_busy:
            patience = deadline - now - _ANSWER_MARGIN_SECONDS
            child.ask(patience, {uuid: acc.since for uuid, acc in self._accounts.items()})
        answer = child.take_answer(deadline - _ANSWER_MARGIN_SECONDS / 2)
        if child.gone is not None:
            self._replace(child.gone)
            return
        if answer is None:
            self._miss_all("hung")
            self.complaint = f"the {self.vendor.name} driver reader does not answer"
            return
        at = time.time()
        states = dict(answer.states)
        states |= {identity.uuid: state for identity, state in child.unreadable}
        rows = {uuid: (row, busy, processes) for uuid, row, busy, processes in answer.rows}
        for uuid, account in self._accounts.items():
            if uuid in rows:
                account.enter(*rows[uuid], at)
            else:
                account.miss(states.get(uuid, "lost"))
        self._complain()
        self._watch_for_change(is_current=answer.is_current)

    def _complain(self) -> None:
        hung = [acc.identity for acc in self._accounts.values() if acc.state == "hung"]
        names = ", ".join(f"{who.kind} {who.index}" for who in sorted(hung, key=lambda w: w.index))
        self.complaint = f"a driver call hangs on {names}" if hung else None

    def _watch_for_change(self, *, is_current: bool) -> None:
        """Start a second child when devices came or went, at once or for lost ones now and then."""
        now = time.monotonic()
        self._is_current = is_current
        is_lost = any(acc.state in ("lost", "resetting") for acc in self._accounts.values())
        if not is_lost:
            self._lost_since = None
        elif self._lost_since is None:
            self._lost_since = now
            self._rival_at = now + _RETRY_LOST_SECONDS[0]
        if not is_current:
            self._rival_at = min(self._rival_at, now)
        if now >= self._rival_at and self._rival is None:
            self._rival = self._start_child()
            self._rival_at = float("inf")
            if self._lost_since is not None:
                shortest, longest = _RETRY_LOST_SECONDS
                self._rival_at = now + min(longest, max(shortest, (now - self._lost_since) / 10))

    def _compare_rival(self) -> None:
        """Let the second take over when the first is outdated or reads other devices."""
        rival, child = self._rival, self._child
        if rival is None:
            return
        rival.wait_until_opened(time.monotonic())
        if not rival.opened:
            if rival.gone or rival.absent or _is_overdue(rival):
                self._dismiss(rival)
                self._rival = None
            return
        self._rival = None
        mine = [who.uuid for who in child.identities] if child is not None else []
        readable = [uuid for uuid in mine if self._accounts[uuid].state in ("ok", "hung")]
        reads_the_same = sorted(who.uuid for who in rival.identities) == sorted(readable)
        if self._is_current and reads_the_same:
            self._dismiss(rival)
            return
        if child is not None:
            self._dismiss(child)
        self._child = rival
        self._is_current = True
        self._welcome(rival)

    def _look_around(self) -> None:
        """Notice that the driver or a device came or went, by the traces they leave."""
        traces = self._take_print()
        if traces == self._print:
            return
        self._print = traces
        self._retry_at = float("-inf")
        self._rival_at = time.monotonic()

    def _take_print(self) -> tuple[object, ...]:
        return tuple(_look_at(trace) for trace in self._traces)

    def _stand_absent(self, reason: str) -> None:
        """There is no driver: nothing to report, unless there was one."""
        self._end_children()
        if self._accounts:
            self._stand_gone(reason)
            return
        self._retry_at = time.monotonic() + _RETRY_ABSENT_SECONDS
        self.complaint = None
        self._announce(f"no {self.vendor.kind.upper()} driver here: {reason}", logging.DEBUG)

    def _stand_gone(self, reason: str) -> None:
        self._miss_all("no_driver")
        self.complaint = f"{self.vendor.name}: {reason}"
        self._announce(self.complaint, logging.DEBUG)

    def _stand_opening(self, child: Reader, now: float) -> None:
        seconds = now - child.started_at
        self._miss_all("hung")
        self.complaint = f"opening the {self.vendor.name} driver does not return"
        if seconds > _OPENING_HANGS_SECONDS:
            self._dismiss(child)
            self._child = None

    def _replace(self, reason: str) -> None:
        """The child ended: start another at once, or soon if that would have been too soon."""
        if self._child is not None:
            self._dismiss(self._child)
            self._child = None
        self._stand_gone(reason)

    def _announce(self, text: str, level: int) -> None:
        if text != self._announced:
            self._announced = text
            _log.log(level, text)

    def _miss_all(self, state: State) -> None:
        for account in self._accounts.values():
            account.miss(state)

    def _count_xids(self, process: Reader) -> None:
        for event in process.take_xids():
            account = self._accounts.get(event.uuid)
            if account is not None:
                account.count(event)

    def _end_children(self) -> None:
        for process in self._processes():
            self._dismiss(process)
        self._child = self._rival = None

    def _dismiss(self, process: Reader) -> None:
        self._count_xids(process)
        process.end()
        self._dying.append(process)
        self._reap()

    def _reap(self) -> None:
        self._dying = [process for process in self._dying if not process.reap()]


def _is_overdue(process: Reader) -> bool:
    return time.monotonic() - process.started_at > _OPENING_HANGS_SECONDS


def _locate(trace: str, roots: Roots) -> Path:
    tree, _, rest = trace.partition("/")
    return {"proc": roots.procfs, "sys": roots.sysfs}[tree] / rest


def _look_at(trace: Path) -> object:
    """What a file or directory shows at little cost: its entries, or that it is there."""
    try:
        return frozenset(os.listdir(trace))  # noqa: PTH208 - on every scrape
    except NotADirectoryError:
        return True
    except OSError:
        return None
