"""One attempt to send a message to a destination."""

from __future__ import annotations

from trainvitals.courier.destinations import Destination, Discord, Email, Slack
from trainvitals.courier.mailing import send_mail
from trainvitals.courier.message import Message
from trainvitals.courier.payloads import (
    make_discord_payload,
    make_slack_payload,
    make_webhook_payload,
)
from trainvitals.courier.posting import post


def send(message: Message, destination: Destination, timeout_seconds: float) -> None:
    """Send a message once.

    Raises:
        DeliveryError: It was not taken.
    """
    if isinstance(destination, Email):
        send_mail(message, destination, timeout_seconds=timeout_seconds)
    elif isinstance(destination, Slack):
        payload = make_slack_payload(message, destination.channel)
        post(destination.url, payload, timeout_seconds=timeout_seconds)
    elif isinstance(destination, Discord):
        post(destination.url, make_discord_payload(message), timeout_seconds=timeout_seconds)
    else:
        post(
            destination.url,
            make_webhook_payload(message),
            token=destination.token,
            timeout_seconds=timeout_seconds,
        )
