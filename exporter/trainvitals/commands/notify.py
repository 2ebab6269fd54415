"""Implements the command `trainvitals notify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, FOUND_A_PROBLEM, add_json, choose_report, say
from trainvitals.commands.stack import (
    add_stack_flags,
    read_stack_settings,
    warn_of_open_dotenv,
)

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse

_EXAMPLES = """\
Examples:
  trainvitals notify              apply a change in .env, and show where alerts go
  trainvitals notify --test       send a test message to every channel

Exit codes: 0 alerts reach a channel, 1 no channel is configured or a test failed, 2 the command
cannot run.
"""


def add_notify(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals notify`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--test", action="store_true", help="send a test message to every channel")
    add_json(parser)
    add_stack_flags(parser)
    parser.set_defaults(run=_notify)


def _notify(options: argparse.Namespace) -> int:
    from trainvitals.stack.notifications import (  # noqa: PLC0415 - only this command needs it
        format_notifications,
        set_up_notifications,
    )

    warn_of_open_dotenv()
    notifications = set_up_notifications(
        read_stack_settings(options), report=choose_report(options), sends_test=options.test
    )
    if options.json:
        say(format_notifications(notifications))
    return FINE if notifications.fine else FOUND_A_PROBLEM
