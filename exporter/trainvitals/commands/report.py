"""Implements the command `trainvitals report`."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, FOUND_A_PROBLEM, say
from trainvitals.errors import ConfigurationError, StackError

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse
    from collections.abc import Mapping

    from trainvitals.report import Period, Report, ReportOptions

_EXAMPLES = """\
Examples:
  trainvitals report daily                                     today so far
  trainvitals report daily --date yesterday --send             to the channels of alerts
  trainvitals report weekly --format html --output week.html --price 0.31
  trainvitals report daily --json --output day.json            to be rendered later:
  trainvitals report --input day.json --format markdown

Exit codes: 0 made, and delivered if it is sent, 1 not delivered to every channel, 2 it cannot be
made.
"""
_FORMATS = ("text", "markdown", "html", "json")
_SECONDS_FOR_SENDING = 60.0
_ADVICE = {
    "unreachable": "; start it with `trainvitals up`, or name another with --prometheus URL",
    "timeout": ": choose machines with --instance, or allow more time with --timeout",
    "unauthorized": "; set --login-file or --token-file",
}


def add_report(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals report`."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "kind",
        metavar="daily|weekly",
        nargs="?",
        choices=("daily", "weekly"),
        help="a report on a day or a week",
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
        help="the end of the day or seven days: 2026-11-21T14:00 or now",
    )
    period.add_argument(
        "--timezone",
        metavar="ZONE",
        help="the time zone of days, as Europe/Berlin (default this machine's)",
    )


def _add_source(parser: argparse.ArgumentParser) -> None:
    source = parser.add_argument_group("source")
    where = source.add_mutually_exclusive_group()
    where.add_argument(
        "--prometheus",
        metavar="URL",
        help="the Prometheus to ask (default $TRAINVITALS_PROMETHEUS_URL, else that of "
        "`trainvitals up`: http://127.0.0.1:9090)",
    )
    where.add_argument(
        "--input",
        metavar="FILE",
        type=Path,
        help="a report that --json wrote, instead of asking Prometheus",
    )
    source.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="a file with a bearer token for Prometheus "
        "(default $TRAINVITALS_PROMETHEUS_TOKEN_FILE, else none)",
    )
    source.add_argument(
        "--login-file",
        metavar="FILE",
        type=Path,
        help="a file with USER:PASSWORD for Prometheus (default $TRAINVITALS_PROMETHEUS_LOGIN_FILE, else none)",
    )
    source.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="how long to wait for one answer of Prometheus (default 60)",
    )


def _add_contents(parser: argparse.ArgumentParser) -> None:
    contents = parser.add_argument_group("contents")
    contents.add_argument(
        "--instance",
        metavar="HOST",
        action="append",
        default=[],
        help="only this machine; repeatable",
    )
    contents.add_argument(
        "--run",
        metavar="RUN",
        dest="only_runs",
        action="append",
        default=[],
        help="only this run, and the machines that it was on; repeatable",
    )
    contents.add_argument(
        "--target",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="the target of a metric, as iou=0.75; repeatable",
    )
    contents.add_argument(
        "--price", metavar="PRICE", type=float, help="the price of a kilowatt hour"
    )
    contents.add_argument(
        "--currency", metavar="NAME", default="EUR", help="the currency of the price (default EUR)"
    )


def _add_ways(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_argument_group("output")
    ways.add_argument("--format", choices=_FORMATS, help="the format (default text)")
    ways.add_argument("--json", action="store_true", help="the same as --format json")
    ways.add_argument(
        "--output", metavar="FILE", type=Path, help="the file to write, readable by its owner only"
    )
    ways.add_argument(
        "--send",
        action="store_true",
        help="send it to the Slack, Discord, e-mail and webhook of .env, as alerts are",
    )


def _report(options: argparse.Namespace) -> int:
    form = _choose_format(options)
    if options.send:
        _check_destinations()  # The command fails early, because the queries may take minutes.
    report = _read(options) if options.input is not None else _make(options)
    if options.output is not None:
        from trainvitals.report import write_file  # noqa: PLC0415 - only this command needs them

        write_file(options.output, _format(report, form))
    elif not options.send:
        say(_format(report, form).rstrip("\n"))
    return _send(report) if options.send else FINE


def _choose_format(options: argparse.Namespace) -> str:
    if options.json and options.format not in {None, "json"}:
        raise ConfigurationError(f"--json and --format={options.format}: use one of them")
    return "json" if options.json else options.format or "text"


def _read(options: argparse.Namespace) -> Report:
    """Read a stored report, and reject flags that select the data of a new report."""
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
            raise ConfigurationError(
                f"--input and {flag}: the stored report was made without it; make it again from Prometheus"
            )
    report = read_document(options.input)
    if options.kind not in {None, report.kind}:
        raise ConfigurationError(f"--input={options.input}: is a {report.kind} report")
    return report


def _make(options: argparse.Namespace) -> Report:
    from trainvitals.report import make_report  # noqa: PLC0415
    from trainvitals.sources.prometheus import PrometheusError, find_prometheus  # noqa: PLC0415

    if options.kind is None:
        raise ConfigurationError("write `report daily`, `report weekly`, or --input FILE")
    if not 0 < options.timeout < math.inf:
        raise ConfigurationError(f"--timeout={options.timeout:g}: write a number of seconds")
    now = time.time()
    wanted, period = _read_report_options(options), _choose_period(options, now)
    prometheus = find_prometheus(
        options.prometheus or _find_url(),
        timeout_seconds=options.timeout,
        token_file=options.token_file,
        login_file=options.login_file,
        uses_proxy=True,
    )
    try:
        return make_report(prometheus, period, wanted, now=now)
    except PrometheusError as error:
        raise StackError(f"{error}{_ADVICE.get(error.problem, '')}") from error


def _find_url() -> str:
    """Return the Prometheus URL set in the environment or `.env`; otherwise the stack's URL."""
    from trainvitals.sources.prometheus_address import URL_VARIABLE  # noqa: PLC0415
    from trainvitals.stack import read_settings  # noqa: PLC0415

    settings = read_settings()
    return settings.variables.get(URL_VARIABLE) or f"http://127.0.0.1:{settings.prometheus_port}"


def _choose_period(options: argparse.Namespace, now: float) -> Period:
    from trainvitals.report import choose_period, find_zone  # noqa: PLC0415

    zone = find_zone(options.timezone)
    return choose_period(options.kind, now=now, zone=zone, day=options.date, until=options.until)


def _read_report_options(options: argparse.Namespace) -> ReportOptions:
    from trainvitals.report import Filters, Price, ReportOptions, read_targets  # noqa: PLC0415

    price = options.price
    if price is not None and not 0 <= price < math.inf:
        raise ConfigurationError(f"--price={price:g}: write a price of a kilowatt hour, as 0.31")
    return ReportOptions(
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
    """Return the variables in the environment and in `.env`, which also configure alerts."""
    from trainvitals.stack import read_settings  # noqa: PLC0415

    return read_settings(os.environ).variables


def _check_destinations() -> None:
    from trainvitals.alerting.channels import (  # noqa: PLC0415
        DIRECT_CHANNELS,
        advise_variables,
        read_direct_channels,
    )

    if not read_direct_channels(_read_variables()):
        raise ConfigurationError(
            f"--send: no receiver is set; {advise_variables(DIRECT_CHANNELS)} in .env "
            "(docs/alerting.md)"
        )


def _send(report: Report) -> int:
    from trainvitals.alerting.channels import read_direct_channels  # noqa: PLC0415
    from trainvitals.alerting.notifier import deliver  # noqa: PLC0415
    from trainvitals.report import make_message  # noqa: PLC0415

    outcomes = deliver(
        make_message(report),
        read_direct_channels(_read_variables()),
        timeout_seconds=_SECONDS_FOR_SENDING,
    )
    for outcome in outcomes:
        if outcome.is_delivered:
            say(f"sent to {outcome.channel}")
        else:
            sys.stderr.write(f"trainvitals: not sent to {outcome.channel}: {outcome.reason}\n")
    return FINE if all(each.is_delivered for each in outcomes) else FOUND_A_PROBLEM
