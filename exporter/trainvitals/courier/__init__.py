"""Messages to people without an Alertmanager: Slack, Discord, e-mail and webhooks.

    Courier                 a thread for each destination: retries, breaker, limits; for a process
                            that must not wait
    deliver(message, …)     waits for the answers; for commands

Who is told stands in the variables that `.env.example` names; see `destinations`.
"""

from trainvitals.courier.courier import Courier
from trainvitals.courier.delivery import Outcome, deliver
from trainvitals.courier.destinations import (
    Destination,
    Discord,
    Email,
    Slack,
    Webhook,
    read_destinations,
)
from trainvitals.courier.message import Message, Severity

__all__ = [
    "Courier",
    "Destination",
    "Discord",
    "Email",
    "Message",
    "Outcome",
    "Severity",
    "Slack",
    "Webhook",
    "deliver",
    "read_destinations",
]
