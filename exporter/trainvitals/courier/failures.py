"""Why a message did not arrive."""

from __future__ import annotations

from trainvitals.errors import TrainvitalsError


class DeliveryError(TrainvitalsError):
    """A destination did not take a message; the text holds no address and no token.

    Attributes:
        is_passing: It may work later, so it is worth another try.
        retry_after_seconds: How long the destination asks to be left alone; None where it does not.
    """

    def __init__(
        self, text: str, *, is_passing: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(text)
        self.is_passing = is_passing
        self.retry_after_seconds = retry_after_seconds


class CircuitOpenError(DeliveryError):
    """A destination failed so often that it is left alone for a while."""

    def __init__(self, text: str) -> None:
        super().__init__(text, is_passing=False)
