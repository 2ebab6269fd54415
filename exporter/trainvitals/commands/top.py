"""The command `trainvitals top`."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import FINE, add_command, add_roots, say
from trainvitals.errors import ConfigurationError, TrainvitalsError

if TYPE_CHECKING:  # what the command needs is imported when it runs
    from trainvitals.commands.parsing import Commands
    from trainvitals.machine import MachineOptions
    from trainvitals.top.origin import Origin
    from trainvitals.top.view import View

_EXAMPLES = """\
Examples:
  trainvitals top                            this machine; q quits, h tells the keys
  trainvitals top --url http://gpu-07:9200   another one, by its exporter
  trainvitals top --url https://gpu-07:9200 --user ann --password-file FILE --ca-file ca.pem
  trainvitals top --sort memory --interval 2
  trainvitals top --once >> top.log          all of it once, as plain lines
  trainvitals top --json | jq .accelerators

Where an exporter runs here it is asked, because it remembers the last 15 minutes.

Exit codes: 0 it was shown, whatever it shows, 2 it cannot run.
"""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.5, 3600.0
_RATES_TAKE_SECONDS = 1.1
_NARROWEST_COLUMNS = 40


def add_top(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands, "top", "show accelerators, runs, containers and the host, live", _EXAMPLES
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=float,
        default=5.0,
        help="how long to wait between two looks, 0.5 to 3600 (default 5)",
    )
    parser.add_argument(
        "--sort", metavar="COLUMN", help="sort by a column, as memory, util or last-death"
    )
    parser.add_argument("--reverse", action="store_true", help="sort the other way round")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless $NO_COLOR is set or $TERM is dumb (default)",
    )
    parser.add_argument("--once", action="store_true", help="print all of it once and end")
    parser.add_argument("--json", action="store_true", help="for programs: /api/v1/overview")
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
    remote.add_argument("--user", metavar="NAME", help="who asks (default: of ~/.netrc)")
    remote.add_argument(
        "--password-file",
        metavar="FILE",
        type=Path,
        help="their password, in its first line (default $TRAINVITALS_PASSWORD)",
    )
    remote.add_argument(
        "--ca-file", metavar="FILE", type=Path, help="who signed its certificate, in PEM"
    )


def _add_local(parser: argparse.ArgumentParser) -> None:
    local = parser.add_argument_group("this machine; each of these has it read here")
    local.add_argument("--local", action="store_true", help="read it here, even beside an exporter")
    local.add_argument(
        "--containers.engine",
        dest="engine",
        metavar="ADDRESS",
        help="the container engine: unix:///run/podman/podman.sock, tcp://HOST:PORT or none "
        "(default $DOCKER_HOST, or the socket that is there)",
    )
    add_roots(local, has_defaults=False)
    local.add_argument(
        "--run-dir",
        metavar="DIR",
        type=Path,
        help="where training runs leave their files (default $TRAINVITALS_RUN_DIR or "
        "/dev/shm/trainvitals)",
    )
    local.add_argument(
        "--prometheus",
        metavar="URL",
        help="the Prometheus that knows what fires, as http://localhost:9090 (default "
        "$TRAINVITALS_PROMETHEUS_URL, else none)",
    )


def _top(options: argparse.Namespace) -> int:
    from trainvitals.allocator import use_one_arena  # noqa: PLC0415 - only this command needs them
    from trainvitals.logs import set_up_logging  # noqa: PLC0415
    from trainvitals.top.choosing import choose_sorting  # noqa: PLC0415
    from trainvitals.top.view import View  # noqa: PLC0415

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
    from trainvitals.top.choosing import is_dumb  # noqa: PLC0415

    if not _SHORTEST_SECONDS <= options.interval <= _LONGEST_SECONDS:
        raise ConfigurationError(
            f"--interval={options.interval:g}: write a number of seconds from 0.5 to 3600"
        )
    if options.url is not None and _is_about_here(options):
        raise ConfigurationError("--url asks an exporter, and the other flags read this machine")
    if options.url is None and (options.user or options.password_file or options.ca_file):
        raise ConfigurationError("--user, --password-file and --ca-file are for --url")
    if options.once or options.json:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError(
            "this is no terminal to draw on: --once prints all of it, or --json"
        )
    if is_dumb(os.environ):
        raise ConfigurationError("a terminal with TERM=dumb cannot be drawn on: --once prints all")


def _is_about_here(options: argparse.Namespace) -> bool:
    given = (options.engine, options.procfs, options.sysfs, options.rootfs)
    more = (options.run_dir, options.prometheus)
    return options.local or any(one is not None for one in (*given, *more))


def _choose_origin(options: argparse.Namespace) -> Origin:
    from trainvitals.top.choosing import HERE, listens  # noqa: PLC0415
    from trainvitals.top.remote import RemoteOrigin  # noqa: PLC0415

    if options.url is not None:
        return _find_exporter(options)
    if _is_about_here(options):
        return _read_here(options)
    if not listens(HERE):
        return _read_here(options, words=f"read here, no exporter at {HERE}")
    exporter = RemoteOrigin(HERE)
    with suppress(TrainvitalsError):
        exporter.look()
        return exporter
    return _read_here(options, words=f"read here, and not by what is at {HERE}")


def _read_here(options: argparse.Namespace, *, words: str = "read here") -> Origin:
    from trainvitals.top.local import LocalOrigin  # noqa: PLC0415

    prometheus = options.prometheus or os.environ.get("TRAINVITALS_PROMETHEUS_URL")
    return LocalOrigin(_make_options(options), words=words, prometheus=prometheus)


def _find_exporter(options: argparse.Namespace) -> Origin:
    from trainvitals.top.address import find_credentials, parse_url  # noqa: PLC0415
    from trainvitals.top.remote import RemoteOrigin, make_context  # noqa: PLC0415

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
    return RemoteOrigin(address, credentials=credentials, context=context)


def _find_netrc() -> Path:
    try:
        return Path("~/.netrc").expanduser()
    except RuntimeError:  # $HOME is not set, and nobody has this number
        return Path(os.devnull)


def _make_options(options: argparse.Namespace) -> MachineOptions:
    from trainvitals.machine import MachineOptions  # noqa: PLC0415
    from trainvitals.sources.containers.source import ContainerOptions  # noqa: PLC0415
    from trainvitals.sources.files import Roots  # noqa: PLC0415
    from trainvitals.sources.training.source import TrainingOptions  # noqa: PLC0415

    here = Roots()
    run_dir = options.run_dir or os.environ.get("TRAINVITALS_RUN_DIR")
    return MachineOptions(
        roots=Roots(
            options.procfs or here.procfs,
            options.sysfs or here.sysfs,
            options.rootfs or here.rootfs,
        ),
        training=TrainingOptions(run_dir=Path(run_dir)) if run_dir else TrainingOptions(),
        containers=ContainerOptions(engine=options.engine),
    )


def _write(origin: Origin, view: View, options: argparse.Namespace) -> str:
    """Look, and give what is printed."""
    from trainvitals.overview.document import write_document  # noqa: PLC0415
    from trainvitals.top.choosing import choose_colors, is_ascii  # noqa: PLC0415
    from trainvitals.top.local import LocalOrigin  # noqa: PLC0415
    from trainvitals.top.once import write_once  # noqa: PLC0415

    picture = origin.look()
    if isinstance(origin, LocalOrigin):
        time.sleep(_RATES_TAKE_SECONDS)
        picture = origin.look()
    if options.json:
        return write_document(picture).decode().rstrip()
    return write_once(
        picture,
        view,
        origin.words,
        width=max(_NARROWEST_COLUMNS, shutil.get_terminal_size((80, 24)).columns),
        colors=choose_colors(options.color, sys.stdout, os.environ),
        is_ascii=is_ascii(sys.stdout, os.environ),
    )


def _watch(origin: Origin, view: View, options: argparse.Namespace) -> None:
    """Draw until the person has seen enough."""
    from trainvitals.top.choosing import choose_colors, is_ascii  # noqa: PLC0415
    from trainvitals.top.screen import Look, Screen  # noqa: PLC0415
    from trainvitals.top.terminal import Terminal  # noqa: PLC0415

    # What fails stands on the screen; a line of a log would stand across it.
    logging.getLogger("trainvitals").handlers[:] = [logging.NullHandler()]
    look = Look(
        colors=choose_colors(options.color, sys.stdout, os.environ),
        is_ascii=is_ascii(sys.stdout, os.environ),
        interval_seconds=options.interval,
    )
    terminal = Terminal(sys.stdin.fileno(), sys.stdout.fileno())
    Screen(origin, origin.look(), view, look, terminal=terminal).run()
