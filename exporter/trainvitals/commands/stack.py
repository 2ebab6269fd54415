"""Implements the commands `trainvitals up`, `down`, `status` and `logs`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import (
    FINE,
    FOUND_A_PROBLEM,
    add_json,
    add_state_dir,
    say,
    warn,
)

if TYPE_CHECKING:  # other modules are imported when a command runs
    import argparse
    from types import FrameType

    from trainvitals.stack import Settings

_EXAMPLES = """\
Examples:
  trainvitals up
  EXPORTER_PORT=9300 trainvitals up --prometheus-port=9091
  trainvitals status --json
  trainvitals logs
  trainvitals down

Exit codes: 0 success, 1 `status` found a fault, 2 the command cannot run.
"""


def add_up(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals up`."""
    _add_flags(parser)
    parser.set_defaults(run=_up)


def add_down(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals down`."""
    _add_flags(parser)
    parser.set_defaults(run=_down)


def add_status(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals status`."""
    add_json(parser)
    _add_flags(parser)
    parser.set_defaults(run=_status)


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals logs`."""
    _add_flags(parser)
    parser.set_defaults(run=_logs)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add_stack_flags(parser)


def add_stack_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the flags for the stack's state directory, ports and mode (Compose or native)."""
    add_state_dir(parser)
    parser.add_argument("--exporter-port", metavar="PORT", type=int, help="default 9200")
    parser.add_argument("--prometheus-port", metavar="PORT", type=int, help="default 9090")
    parser.add_argument("--alertmanager-port", metavar="PORT", type=int, help="default 9093")
    parser.add_argument("--grafana-port", metavar="PORT", type=int, help="default 3000")
    parser.add_argument(
        "--way",
        choices=("auto", "compose", "native"),
        help="Docker Compose or native processes (default auto: Compose if an engine responds)",
    )


def read_stack_settings(options: argparse.Namespace) -> Settings:
    """Read the stack's settings from the flags, the environment and `.env`.

    Raises:
        ConfigurationError: A setting is invalid.
    """
    from trainvitals.stack import read_settings  # noqa: PLC0415 - only these commands need it

    return read_settings(
        exporter_port=options.exporter_port,
        prometheus_port=options.prometheus_port,
        alertmanager_port=options.alertmanager_port,
        grafana_port=options.grafana_port,
        way=options.way,
        state_dir=options.state_dir,
    )


def warn_of_open_dotenv() -> None:
    """Print a warning if other users can read the secrets in `.env`."""
    from trainvitals.stack import exposes_secrets  # noqa: PLC0415

    if exposes_secrets(Path(".env")):
        warn("other users can read the secrets in .env: run `chmod 600 .env`")


def interrupt_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt, so that the started programs are stopped."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _up(options: argparse.Namespace) -> int:
    from trainvitals.stack import bring_up  # noqa: PLC0415

    interrupt_on_signals()
    warn_of_open_dotenv()
    bring_up(read_stack_settings(options), report=say)
    return FINE


def _down(options: argparse.Namespace) -> int:
    from trainvitals.stack import take_down  # noqa: PLC0415

    take_down(read_stack_settings(options), report=say)
    return FINE


def _status(options: argparse.Namespace) -> int:
    from trainvitals.stack import describe, format_json, format_table  # noqa: PLC0415

    status = describe(read_stack_settings(options))
    say(format_json(status) if options.json else format_table(status))
    return FINE if status.fine else FOUND_A_PROBLEM


def _logs(options: argparse.Namespace) -> int:
    from trainvitals.stack import follow_logs  # noqa: PLC0415

    follow_logs(read_stack_settings(options))
    return FINE
