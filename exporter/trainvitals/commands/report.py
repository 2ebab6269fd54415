"""The command `trainvitals report`."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, FOUND_A_PROBLEM, add_command, say
from trainvitals.errors import ConfigurationError

if TYPE_CHECKING:  # what the command needs is imported when it runs
    import argparse
    from collections.abc import Mapping

    from trainvitals.commands.parsing import Commands
    from trainvitals.report import Period, Report, Wishes

_EXAMPLES = """\
Examples:
  trainvitals report daily                                     today so far
  trainvitals report daily --date yesterday --send             to everybody who hears of alerts
  trainvitals report weekly --format html --output week.html --price 0.31
  trainvitals report daily --json --output day.json            to be rendered again:
  trainvitals report --input day.json --format markdown

Exit codes: 0 it was made, and sent where it should be, 1 somebody did not get it, 2 it cannot be
made.
"""
_FORMATS = ("text", "markdown", "html", "json")
_SECONDS_FOR_SENDING = 60.0


def add_report(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands, "report", "report on a day or a week from what Prometheus keeps", _EXAMPLES
    )
    parser.add_argument(
        "kind",
        metavar="daily|weekly",
        nargs="?",
        choices=("daily", "weekly"),
        help="of a day or a week",
    )
    _add_period(parser)
    _add_source(parser)
    _add_contents(parser)
    _add_ways(parser)
    parser.set_defaults(run=_report)


def _add_period(parser: argparse.ArgumentParser) -> None:
    period = parser.add_argument_group("period")
    period.add_argument(
        "--date",
        metavar="DAY",
        help="the day, or a day of the week: 2026-11-21, today or yesterday (default today)",
    )
    period.add_argument(
        "--until",
        metavar="TIME",
        help="the day or seven days that end then: 2026-11-21T14:00 or now",
    )
    period.add_argument(
        "--timezone",
        metavar="ZONE",
        help="where days begin, as Europe/Berlin (default this machine's)",
    )


def _add_source(parser: argparse.ArgumentParser) -> None:
    source = parser.add_argument_group("source")
    where = source.add_mutually_exclusive_group()
    where.add_argument(
        "--prometheus",
        metavar="URL",
        help="whom to ask (default that of `trainvitals up`: http://127.0.0.1:9090)",
    )
    where.add_argument(
        "--input", metavar="FILE", type=Path, help="a report that --json wrote; asks nobody"
    )
    source.add_argument(
        "--token-file", metavar="FILE", type=Path, help="a bearer token for Prometheus"
    )
    source.add_argument(
        "--login-file", metavar="FILE", type=Path, help="USER:PASSWORD for Prometheus"
    )
    source.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="how long Prometheus may take for one answer (default 60)",
    )


def _add_contents(parser: argparse.ArgumentParser) -> None:
    contents = parser.add_argument_group("contents")
    contents.add_argument(
        "--instance", metavar="HOST", action="append", default=[], help="this machine; repeatable"
    )
    contents.add_argument(
        "--run",
        metavar="RUN",
        dest="only_runs",
        action="append",
        default=[],
        help="this run, and the machines it was on; repeatable",
    )
    contents.add_argument(
        "--target",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="what a metric should reach, as iou=0.75; repeatable",
    )
    contents.add_argument("--price", metavar="PRICE", type=float, help="of a kilowatt hour")
    contents.add_argument(
        "--currency", metavar="NAME", default="EUR", help="of the price (default EUR)"
    )


def _add_ways(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_argument_group("where it goes")
    ways.add_argument("--format", choices=_FORMATS, help="what it is written as (default text)")
    ways.add_argument("--json", action="store_true", help="for programs: --format json")
    ways.add_argument("--output", metavar="FILE", type=Path, help="a file, readable by you alone")
    ways.add_argument(
        "--send",
        action="store_true",
        help="to the Slack, Discord, e-mail and webhook of .env, as alerts",
    )


def _report(options: argparse.Namespace) -> int:
    form = _choose_format(options)
    if options.send:
        _check_destinations()  # before minutes are spent on figures
    report = _read(options) if options.input is not None else _make(options)
    if options.output is not None:
        from trainvitals.report import write_file  # noqa: PLC0415 - only this command needs them

        write_file(options.output, _format(report, form))
    elif not options.send:
        say(_format(report, form).rstrip("\n"))
    return _send(report) if options.send else FINE


def _choose_format(options: argparse.Namespace) -> str:
    if options.json and options.format not in {None, "json"}:
        raise ConfigurationError(f"--json and --format={options.format}: give one of them")
    return "json" if options.json else options.format or "text"


def _read(options: argparse.Namespace) -> Report:
    """Read a report that was made before; what made it cannot be changed any more."""
    from trainvitals.report import read_document  # noqa: PLC0415

    fixed = {
        "--date": options.date,
        "--until": options.until,
        "--timezone": options.timezone,
        "--instance": options.instance,
        "--run": options.only_runs,
        "--target": options.target,
        "--price": options.price,
    }
    for flag, value in fixed.items():
        if value:
            raise ConfigurationError(f"--input and {flag}: the report was made without; ask again")
    report = read_document(options.input)
    if options.kind not in {None, report.kind}:
        raise ConfigurationError(f"--input={options.input}: is a {report.kind} report")
    return report


def _make(options: argparse.Namespace) -> Report:
    from trainvitals.report import find_prometheus, make_report  # noqa: PLC0415

    if options.kind is None:
        raise ConfigurationError("say daily or weekly, or give --input FILE")
    if not 0 < options.timeout < math.inf:
        raise ConfigurationError(f"--timeout={options.timeout:g}: write a number of seconds")
    now = time.time()
    wishes, period = _read_wishes(options), _choose_period(options, now)
    prometheus = find_prometheus(
        options.prometheus or _find_stack(),
        timeout_seconds=options.timeout,
        token_file=options.token_file,
        login_file=options.login_file,
    )
    return make_report(prometheus, period, wishes, now=now)


def _find_stack() -> str:
    """Give the address of the Prometheus that `trainvitals up` starts."""
    from trainvitals.stack import read_settings  # noqa: PLC0415

    return f"http://127.0.0.1:{read_settings().prometheus_port}"


def _choose_period(options: argparse.Namespace, now: float) -> Period:
    from trainvitals.report import choose_period, find_zone  # noqa: PLC0415

    zone = find_zone(options.timezone)
    return choose_period(options.kind, now=now, zone=zone, day=options.date, until=options.until)


def _read_wishes(options: argparse.Namespace) -> Wishes:
    from trainvitals.report import Filters, Price, Wishes, read_targets  # noqa: PLC0415

    price = options.price
    if price is not None and not 0 <= price < math.inf:
        raise ConfigurationError(f"--price={price:g}: write a price of a kilowatt hour, as 0.31")
    return Wishes(
        Filters(tuple(options.instance), tuple(options.only_runs)),
        read_targets(options.target),
        None if price is None else Price(price, options.currency),
    )


def _format(report: Report, form: str) -> str:
    from trainvitals.report import (  # noqa: PLC0415
        format_document,
        format_html,
        format_markdown,
        format_text,
    )

    return {
        "text": format_text,
        "markdown": format_markdown,
        "html": format_html,
        "json": format_document,
    }[form](report)


def _read_variables() -> Mapping[str, str]:
    """Give what the environment and `.env` say, as for alerts."""
    from trainvitals.stack import read_settings  # noqa: PLC0415

    return read_settings(os.environ).variables


def _check_destinations() -> None:
    from trainvitals.courier import read_destinations  # noqa: PLC0415

    if not read_destinations(_read_variables()):
        raise ConfigurationError(
            "--send: nobody is named; set SLACK_WEBHOOK_URL, DISCORD_WEBHOOK_URL, SMTP_SMARTHOST "
            "or WEBHOOK_URL in .env (docs/alerting.md)"
        )


def _send(report: Report) -> int:
    from trainvitals.courier import deliver, read_destinations  # noqa: PLC0415
    from trainvitals.report import make_message  # noqa: PLC0415

    outcomes = deliver(
        make_message(report),
        read_destinations(_read_variables()),
        timeout_seconds=_SECONDS_FOR_SENDING,
    )
    for outcome in outcomes:
        if outcome.is_delivered:
            say(f"sent to {outcome.destination}")
        else:
            sys.stderr.write(f"trainvitals: not sent to {outcome.destination}: {outcome.reason}\n")
    return FINE if all(each.is_delivered for each in outcomes) else FOUND_A_PROBLEM
