"""Every device of a driver, from when it was first seen to the end of the exporter."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from trainvitals.sources.accelerators.ledger import Account
from trainvitals.sources.accelerators.reader import Answer, Reader, XidEvent
from trainvitals.sources.accelerators.reading import AcceleratorReading, Identity, State

MOST_DEVICES = 64
_PLACEHOLDER = "unknown-"


class Devices:
    """The accounts of a driver's devices.

    A device that cannot be opened may not even say its UUID. Then it comes under a placeholder,
    which stands for the known device of the same index that is not there, or else for a device of
    its own until that one says who it is.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._meant: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    @property
    def since(self) -> dict[str, int | None]:
        """For each UUID, the newest sample that was counted."""
        return {uuid: account.since for uuid, account in self._accounts.items()}

    @property
    def omitted_processes(self) -> int:
        """How many processes the bound left out of the latest reading."""
        return sum(account.omitted_processes for account in self._accounts.values())

    @property
    def hung(self) -> list[Identity]:
        """The devices that do not answer, in the order of their indices."""
        hung = [account.identity for account in self._accounts.values() if account.state == "hung"]
        return sorted(hung, key=lambda identity: identity.index)

    def readable(self, reader: Reader) -> set[str]:
        """Give the UUIDs of the devices that a reader has open and that are not lost to it."""
        return {
            who.uuid
            for who in reader.identities
            if who.uuid in self._accounts and self._accounts[who.uuid].state in ("ok", "hung")
        }

    def are_missing(self, reader: Reader) -> bool:
        """Tell whether a fresh reader might find a device that this one cannot read."""
        held = {who.uuid for who in reader.identities}
        return any(
            account.state in ("lost", "resetting") or (account.state == "hung" and uuid not in held)
            for uuid, account in self._accounts.items()
        )

    def welcome(self, reader: Reader) -> None:
        """Open an account for every device that is new; the index of one that moved is taken on."""
        shown = [*reader.identities, *(identity for identity, _ in reader.unreadable)]
        uuids = {identity.uuid for identity in shown}
        for uuid in [uuid for uuid in self._accounts if uuid.startswith(_PLACEHOLDER)]:
            if uuid not in uuids:
                del self._accounts[uuid]
        self._meant = {}
        for identity in shown:
            known = self._find(identity, uuids)
            if known is not None:
                self._meant[identity.uuid] = known
            elif len(self._accounts) < MOST_DEVICES:
                self._accounts[identity.uuid] = Account(identity)

    def enter(self, answer: Answer, unreadable: Iterable[tuple[Identity, State]]) -> None:
        """Enter a reading of all devices; who is not in it is lost."""
        at = time.time()
        states = {self._meant.get(who.uuid, who.uuid): state for who, state in unreadable}
        states |= dict(answer.states)
        rows = {uuid: (row, busy, holders) for uuid, row, busy, holders in answer.rows}
        for uuid, account in self._accounts.items():
            if uuid in rows:
                account.enter(*rows[uuid], at)
            else:
                account.miss(states.get(uuid, "lost"))

    def miss_all(self, state: State, *, keep_samples: bool = False) -> None:
        """Enter that no device could be read.

        Args:
            state: Why.
            keep_samples: The driver stayed, so that its sample buffers go on.
        """
        for account in self._accounts.values():
            since = account.since
            account.miss(state)
            if keep_samples:
                account.since = since

    def count(self, events: Iterable[XidEvent], *, but_of: Collection[str] = ()) -> None:
        """Count errors that devices reported.

        Args:
            events: The errors.
            but_of: UUIDs of devices whose errors were counted already.
        """
        for event in events:
            account = self._accounts.get(event.uuid)
            if account is not None and event.uuid not in but_of:
                account.count(event)

    def read(self) -> list[AcceleratorReading]:
        """Give what is known of every device now, in the order of their indices."""
        readings = [account.read() for account in self._accounts.values()]
        return sorted(readings, key=lambda reading: reading.identity.index)

    def _find(self, identity: Identity, shown: Collection[str]) -> str | None:
        """Find the account of a device, and give it its new identity; None when there is none."""
        account = self._accounts.get(identity.uuid)
        if account is not None:
            account.identity = identity
            return identity.uuid
        if identity.uuid.startswith(_PLACEHOLDER):
            for uuid, other in self._accounts.items():
                if other.identity.index == identity.index and uuid not in shown:
                    return uuid
        return None
