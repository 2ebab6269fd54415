"""Implements the command `trainvitals top`."""

from __future__ import annotations

import argparse
import io
import logging
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, add_engine, add_roots, add_run_dir, say
from trainvitals.errors import ConfigurationError, TrainvitalsError

if TYPE_CHECKING:  # other modules are imported when the command runs
    from trainvitals.metrics.machine import MachineOptions
    from trainvitals.views.terminal.origin import Origin
    from trainvitals.views.terminal.view import View

_EXAMPLES = """\
Examples:
  trainvitals top                            this machine; q quits, h lists the keys
  trainvitals top --url http://gpu-07:9200   another machine, by its exporter
  trainvitals top --url https://gpu-07:9200 --user ann --password-file FILE --ca-file ca.pem
  trainvitals top --sort memory --interval 2
  trainvitals top --once >> top.log          everything once, as plain lines
  trainvitals top --json | jq .accelerators

An exporter of this machine is asked where one runs, because it has the last 15 minutes.

Exit codes: 0 shown, whatever the state of the machine, 2 it cannot run.
"""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.5, 3600.0
_RATES_TAKE_SECONDS = 1.1
_NARROWEST_COLUMNS = 40


def add_top(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals top`."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=float,
        default=5.0,
        help="the time between two updates, 0.5 to 3600 (default 5)",
    )
    parser.add_argument(
        "--sort",
        metavar="COLUMN",
        help="sort every section that has this column by it, as memory, util or last-death",
    )
    parser.add_argument("--reverse", action="store_true", help="reverse the order")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless $NO_COLOR is set or $TERM is dumb (default)",
    )
    parser.add_argument("--once", action="store_true", help="print everything once and exit")
    parser.add_argument(
        "--json", action="store_true", help="print the document of /api/v1/overview and exit"
    )
    _add_remote(parser)
    _add_local(parser)
    parser.set_defaults(run=_top)


def _add_remote(parser: argparse.ArgumentParser) -> None:
    remote = parser.add_argument_group("an exporter")
    remote.add_argument(
        "--url",
        metavar="URL",
        help="the exporter to ask, as http://HOST:9200 or HOST (default http://127.0.0.1:9200 where "
        "one runs, else the machine is read here)",
    )
    remote.add_argument("--user", metavar="NAME", help="the user name (default: from ~/.netrc)")
    remote.add_argument(
        "--password-file",
        metavar="FILE",
        type=Path,
        help="a file with the password in its first line (default $TRAINVITALS_PASSWORD)",
    )
    remote.add_argument(
        "--ca-file", metavar="FILE", type=Path, help="the CA of its certificate, in PEM"
    )


def _add_local(parser: argparse.ArgumentParser) -> None:
    local = parser.add_argument_group("this machine, read without an exporter")
    local.add_argument(
        "--local", action="store_true", help="read it directly, even where an exporter runs"
    )
    add_engine(local)
    add_roots(local, has_defaults=False)
    add_run_dir(local, has_default=False)
    local.add_argument(
        "--prometheus",
        metavar="URL",
        help="the Prometheus to ask for alerts, as http://localhost:9090 (default "
        "$TRAINVITALS_PROMETHEUS_URL, else none)",
    )


def _top(options: argparse.Namespace) -> int:
    from trainvitals.logs import set_up_logging  # noqa: PLC0415
    from trainvitals.metrics.malloc import use_one_arena  # noqa: PLC0415 - only this command needs them
    from trainvitals.views.terminal.frame import choose_sorting  # noqa: PLC0415
    from trainvitals.views.terminal.view import View  # noqa: PLC0415

    use_one_arena()
    set_up_logging("error", "text")
    _check(options)
    orders = choose_sorting(options.sort, is_reversed=options.reverse)
    view = View(active=next(iter(orders), 1), orders=orders)
    origin = _choose_origin(options)
    try:
        if options.once or options.json:
            say(_write(origin, view, options))
        else:
            _watch(origin, view, options)
    finally:
        origin.close()
    return FINE


def _check(options: argparse.Namespace) -> None:
    from trainvitals.views.terminal.terminal import is_dumb  # noqa: PLC0415

    if not _SHORTEST_SECONDS <= options.interval <= _LONGEST_SECONDS:
        raise ConfigurationError(
            f"--interval={options.interval:g}: write a number of seconds from 0.5 to 3600"
        )
    if options.url is not None and _is_about_here(options):
        raise ConfigurationError(
            "--url is for an exporter, and the other flags are for this machine: use one of them"
        )
    if options.url is None and (options.user or options.password_file or options.ca_file):
        raise ConfigurationError("--user, --password-file and --ca-file are for --url")
    if options.once or options.json:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("input and output must be a terminal: use --once or --json")
    if is_dumb(os.environ):
        raise ConfigurationError("a terminal with TERM=dumb cannot be drawn on: use --once")


def _is_about_here(options: argparse.Namespace) -> bool:
    given = (options.engine, options.procfs, options.sysfs, options.rootfs)
    more = (options.run_dir, options.prometheus)
    return options.local or any(one is not None for one in (*given, *more))


def _choose_origin(options: argparse.Namespace) -> Origin:
    from trainvitals.sources.exporter_client import HERE, ExporterClient, listens  # noqa: PLC0415
    from trainvitals.views.terminal.remote import RemoteOrigin  # noqa: PLC0415

    if options.url is not None:
        return _find_exporter(options)
    if _is_about_here(options):
        return _read_here(options)
    if not listens(HERE):
        return _read_here(options, words=f"read here, no exporter at {HERE}")
    exporter = RemoteOrigin(ExporterClient(HERE))
    with suppress(TrainvitalsError):
        exporter.look()
        return exporter
    return _read_here(options, words=f"read here, no exporter of trainvitals at {HERE}")


def _read_here(options: argparse.Namespace, *, words: str = "read here") -> Origin:
    from trainvitals.sources.alerts import TIMEOUT_SECONDS  # noqa: PLC0415
    from trainvitals.sources.prometheus_address import URL_VARIABLE  # noqa: PLC0415
    from trainvitals.views.terminal.origin import LocalOrigin  # noqa: PLC0415

    return LocalOrigin(
        _make_options(options),
        words=words,
        prometheus=options.prometheus or os.environ.get(URL_VARIABLE),
        alerts_wait_seconds=TIMEOUT_SECONDS if options.once or options.json else 0.0,
    )


def _find_exporter(options: argparse.Namespace) -> Origin:
    from trainvitals.sources.exporter_client import (  # noqa: PLC0415
        ExporterClient,
        find_credentials,
        make_context,
        parse_url,
    )
    from trainvitals.views.terminal.remote import RemoteOrigin  # noqa: PLC0415

    address = parse_url(options.url)
    credentials = find_credentials(
        address,
        user=options.user,
        password_file=options.password_file,
        environ=os.environ,
        netrc_path=_find_netrc(),
    )
    if options.ca_file is not None and not address.is_tls:
        raise ConfigurationError(f"--ca-file is for TLS: write https:// instead of {address}")
    context = make_context(options.ca_file) if address.is_tls else None
    return RemoteOrigin(ExporterClient(address, credentials=credentials, context=context))


def _find_netrc() -> Path:
    try:
        return Path("~/.netrc").expanduser()
    except RuntimeError:  # $HOME is not set and the user ID is unknown
        return Path(os.devnull)


def _make_options(options: argparse.Namespace) -> MachineOptions:
    from trainvitals.metrics.machine import MachineOptions  # noqa: PLC0415
    from trainvitals.sources.accelerators.limits import (  # noqa: PLC0415
        MEMORY_LIMIT_VARIABLE,
        TEMPERATURE_LIMIT_VARIABLE,
        parse_memory_limit,
        parse_temperature_limit,
    )
    from trainvitals.sources.containers.source import ContainerOptions  # noqa: PLC0415
    from trainvitals.sources.files import Roots  # noqa: PLC0415
    from trainvitals.sources.runs.owners import read_users  # noqa: PLC0415
    from trainvitals.sources.runs.ownership import DEFAULT_RUN_DIR  # noqa: PLC0415
    from trainvitals.sources.runs.source import TrainingOptions  # noqa: PLC0415

    here = Roots()
    run_dir = options.run_dir or os.environ.get("TRAINVITALS_RUN_DIR")
    return MachineOptions(
        roots=Roots(
            options.procfs or here.procfs,
            options.sysfs or here.sysfs,
            options.rootfs or here.rootfs,
        ),
        memory_limit_bytes=parse_memory_limit(os.environ.get(MEMORY_LIMIT_VARIABLE, "")),
        temperature_limit_celsius=parse_temperature_limit(
            os.environ.get(TEMPERATURE_LIMIT_VARIABLE, "")
        ),
        training=TrainingOptions(
            run_dir=Path(run_dir) if run_dir else DEFAULT_RUN_DIR, users=read_users()
        ),
        containers=ContainerOptions(engine=options.engine),
    )


def _write(origin: Origin, view: View, options: argparse.Namespace) -> str:
    """Return the text that `trainvitals top` prints."""
    from trainvitals.views.machine.document import write_document  # noqa: PLC0415
    from trainvitals.views.terminal.frame import Source, write_all  # noqa: PLC0415
    from trainvitals.views.terminal.origin import LocalOrigin  # noqa: PLC0415
    from trainvitals.views.terminal.table import NO_LIMIT  # noqa: PLC0415
    from trainvitals.views.terminal.terminal import (  # noqa: PLC0415
        choose_colors,
        is_ascii,
        make_console,
        to_ascii,
    )

    picture = origin.look()
    if isinstance(origin, LocalOrigin):
        time.sleep(_RATES_TAKE_SECONDS)  # a rate requires two readings at least one second apart
        picture = origin.look()
    if options.json:
        return write_document(picture).decode().rstrip()
    width, text = _choose_width(), io.StringIO()
    console = make_console(
        text, choose_colors(options.color, sys.stdout, os.environ), width=width or NO_LIMIT
    )
    write_all(console, picture, view, Source(origin.words), width=width)
    written = text.getvalue().removesuffix("\n")
    return to_ascii(written) if is_ascii(sys.stdout, os.environ) else written


def _choose_width() -> int | None:
    """Return the output width from $COLUMNS or the terminal; None if lines have no limit."""
    columns = shutil.get_terminal_size((0, 0)).columns
    return max(_NARROWEST_COLUMNS, columns) if columns else None


def _watch(origin: Origin, view: View, options: argparse.Namespace) -> None:
    """Redraw the screen until the user quits."""
    from trainvitals.views.terminal.screen import Look, Screen  # noqa: PLC0415
    from trainvitals.views.terminal.terminal import Terminal, choose_colors, is_ascii  # noqa: PLC0415

    # Failures are shown in the view; log lines would overwrite the screen.
    logging.getLogger("trainvitals").handlers[:] = [logging.NullHandler()]
    look = Look(choose_colors(options.color, sys.stdout, os.environ), options.interval)
    terminal = Terminal(
        sys.stdin.fileno(), sys.stdout.fileno(), is_ascii=is_ascii(sys.stdout, os.environ)
    )
    Screen(origin, origin.look(), view, look, terminal=terminal).run()
