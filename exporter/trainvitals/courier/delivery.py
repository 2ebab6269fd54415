"""Sending one message and waiting for the answers, for commands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Thread

from trainvitals.courier.destinations import Destination
from trainvitals.courier.failures import DeliveryError
from trainvitals.courier.message import Message
from trainvitals.courier.retrying import Patience, try_again
from trainvitals.courier.sending import send


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a message at one destination.

    Attributes:
        destination: The destination's title, as `Slack`.
        reason: Why it did not arrive, with what to do where that is known; None where it did. It
            holds no secret.
    """

    destination: str
    reason: str | None = None

    @property
    def is_delivered(self) -> bool:
        """Whether the destination took it."""
        return self.reason is None


def deliver(
    message: Message,
    destinations: Sequence[Destination],
    *,
    patience: Patience | None = None,
    timeout_seconds: float = 60.0,
) -> tuple[Outcome, ...]:
    """Send a message to all destinations at once, trying again where that may help.

    Args:
        message: What to send.
        destinations: Where to.
        patience: How long to try; None for the usual.
        timeout_seconds: When to give up on all that have not answered.

    Returns:
        What became of it at each, in their order.
    """
    errands = [_Errand(message, each, patience or Patience()) for each in destinations]
    deadline = time.monotonic() + timeout_seconds
    for errand in errands:
        errand.start()
    for errand in errands:
        errand.join(max(0.0, deadline - time.monotonic()))
    return tuple(errand.tell(timeout_seconds) for errand in errands)


class _Errand(Thread):
    """A way to one destination; nothing can end the search for an address, so nobody waits for it."""

    def __init__(self, message: Message, destination: Destination, patience: Patience) -> None:
        super().__init__(name="trainvitals-errand", daemon=True)
        self._title = destination.title
        self._send = partial(send, message, destination, patience.timeout_seconds)
        self._patience = patience
        self._last: DeliveryError | None = None
        self._outcome: Outcome | None = None

    def run(self) -> None:
        """Go there."""
        try:
            try_again(self._attempt, self._patience, sleep=time.sleep)
        except DeliveryError as error:
            self._outcome = Outcome(self._title, str(error))
        else:
            self._outcome = Outcome(self._title)

    def tell(self, waited_seconds: float) -> Outcome:
        """Give what became of it until now."""
        if self._outcome is not None:
            return self._outcome
        before = f"; before that: {self._last}" if self._last else ""
        return Outcome(self._title, f"no answer within {waited_seconds:g} s{before}")

    def _attempt(self) -> None:
        try:
            self._send()
        except DeliveryError as error:
            self._last = error
            raise
