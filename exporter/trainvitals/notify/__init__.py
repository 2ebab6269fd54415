"""From alerts to people: Alertmanager's receivers, made from variables, checked and tried out."""

from trainvitals.notify.alertmanager import Alertmanager
from trainvitals.notify.checking import check_configuration, parse_version, read_version
from trainvitals.notify.destinations import Destination, Destinations
from trainvitals.notify.links import Links, read_links
from trainvitals.notify.receivers import Receivers, read_receivers
from trainvitals.notify.rendering import render
from trainvitals.notify.trial import Delivery, send_test_messages
from trainvitals.notify.writing import Rendered, write_configuration

__all__ = [
    "Alertmanager",
    "Delivery",
    "Destination",
    "Destinations",
    "Links",
    "Receivers",
    "Rendered",
    "check_configuration",
    "parse_version",
    "read_links",
    "read_receivers",
    "read_version",
    "render",
    "send_test_messages",
    "write_configuration",
]
