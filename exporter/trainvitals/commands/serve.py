"""Implements the command `trainvitals serve`, which runs the exporter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import (
    FINE,
    add_engine,
    add_journal,
    add_roots,
    add_run_dir,
)
from trainvitals.errors import ConfigurationError

if TYPE_CHECKING:  # other modules are imported when the command runs
    import argparse
    from collections.abc import Sequence

    from trainvitals.http.host_names import HostNames
    from trainvitals.http.web_config import WebConfigFile
    from trainvitals.metrics.machine import MachineOptions
    from trainvitals.sources.accelerators.reading import Kind
    from trainvitals.sources.alerts import FiringAlerts
    from trainvitals.sources.files import Roots
    from trainvitals.views.machine.observer import Observer

_EXAMPLES = """\
Examples:
  trainvitals serve
  trainvitals serve --web.listen-address=0.0.0.0:9200 --web.config.file=web.yml
  trainvitals serve --accelerators.expected=gpu=8 --no-collector.pressure
  kill -USR1 PID    release the drivers for a minute, so that they can be replaced
  kill -HUP PID     read the configuration files again

Exit codes: 0 stopped by a signal, 2 it cannot run.
"""
_SWITCH_INTERVAL_SECONDS = 0.0001
_MOST_DIGITS = 4


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `trainvitals serve`."""
    parser.epilog = _EXAMPLES
    _add_web(parser)
    _add_log(parser)
    _add_machine(parser)
    _add_runs(parser)
    _add_containers(parser)
    _add_collectors(parser)
    parser.set_defaults(run=_serve)


def _add_web(parser: argparse.ArgumentParser) -> None:
    web = parser.add_argument_group("web")
    web.add_argument(
        "--web.listen-address",
        dest="listen",
        metavar="ADDRESS",
        action="append",
        help="where to listen: HOST:PORT, or :PORT for all addresses; repeatable "
        "(default 127.0.0.1:9200)",
    )
    web.add_argument(
        "--web.allowed-host",
        dest="allowed_hosts",
        metavar="NAME",
        action="append",
        help="a further name that clients ask for, besides localhost and loopback addresses; * for any; "
        "repeatable. Other listeners than loopback ones accept any name unless this is set (default "
        "$TRAINVITALS_WEB_ALLOWED_HOST, names separated by commas)",
    )
    web.add_argument(
        "--web.config.file",
        dest="web_config",
        metavar="FILE",
        type=Path,
        help="TLS and basic authentication, in the format of the Prometheus exporter-toolkit",
    )
    web.add_argument(
        "--web.prometheus",
        dest="prometheus",
        metavar="URL",
        default=os.environ.get("TRAINVITALS_PROMETHEUS_URL") or None,
        help="the Prometheus whose alerts the live page shows, as http://localhost:9090 "
        "(default $TRAINVITALS_PROMETHEUS_URL, else none)",
    )


def _add_log(parser: argparse.ArgumentParser) -> None:
    from trainvitals.logs import FORMATS, LEVELS  # noqa: PLC0415

    log = parser.add_argument_group("log")
    log.add_argument(
        "--log.level",
        dest="log_level",
        choices=LEVELS,
        default="info",
        help="the least severe level that is logged (default info)",
    )
    log.add_argument(
        "--log.format",
        dest="log_format",
        choices=FORMATS,
        default="text",
        help="text for people or JSON lines for programs (default text)",
    )


def _add_machine(parser: argparse.ArgumentParser) -> None:
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "--accelerators.expected",
        dest="expected",
        metavar="KIND=N",
        action="append",
        default=[],
        help="the expected number of accelerators, as gpu=8 or hpu=8; repeatable",
    )
    machine.add_argument(
        "--accelerators.memory-limit",
        dest="memory_limit",
        metavar="SIZE",
        default=os.environ.get("ACCELERATOR_MEMORY_LIMIT", ""),
        help="the limit of the memory used of each accelerator, as 7.5GB, 40GiB or bytes, for the "
        "alert AcceleratorMemoryOverLimit (default $ACCELERATOR_MEMORY_LIMIT, or no limit)",
    )
    machine.add_argument(
        "--accelerators.temperature-limit",
        dest="temperature_limit",
        metavar="CELSIUS",
        default=os.environ.get("ACCELERATOR_TEMPERATURE_LIMIT", ""),
        help="the limit of the temperature of each accelerator, as 80, beside its own, for the alert "
        "AcceleratorTemperatureOverLimit (default $ACCELERATOR_TEMPERATURE_LIMIT, or no limit)",
    )
    machine.add_argument(
        "--accelerators.isolate",
        dest="is_isolated",
        action="store_true",
        help="open drivers in child processes from the start (about 9 MiB each), so that the exporter "
        "survives a crash in a vendor's library",
    )
    machine.add_argument(
        "--thresholds.file",
        dest="thresholds",
        metavar="FILE",
        type=Path,
        help="the thresholds.yml of the Prometheus that evaluates this machine's alerts, so that the "
        "live page and /health use the same limits (default $TRAINVITALS_THRESHOLDS_FILE, else the stack's or the "
        "shipped one)",
    )
    add_roots(machine)
    add_run_dir(machine)
    machine.add_argument(
        "--run-dir.users",
        dest="run_dir_users",
        metavar="USERS",
        action="append",
        help="the users whose run files count, as root,ada,1000-1999; repeatable "
        "(default $TRAINVITALS_RUN_DIR_USERS, or every user)",
    )


def _add_runs(parser: argparse.ArgumentParser) -> None:
    runs = parser.add_argument_group("runs without the training client")
    runs.add_argument(
        "--tensorboard.logdir",
        dest="logdirs",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="a folder below which TensorBoard event files are followed; repeatable",
    )
    runs.add_argument(
        "--trainlog.glob",
        dest="log_globs",
        metavar="GLOB",
        action="append",
        default=[],
        help="training logs to follow, as /var/log/train/*.log, ** for any folders; repeatable",
    )
    runs.add_argument(
        "--trainlog.patterns",
        dest="log_patterns",
        metavar="FILE",
        type=Path,
        help="regular expressions for the lines of those logs, tried before the built-in ones",
    )
    runs.add_argument(
        "--trainlog.follow",
        dest="log_follow",
        choices=("auto", "none"),
        default="auto",
        help="the files that are followed without being named; auto: those that processes on "
        "accelerators hold open or write in their working folders (default auto)",
    )
    baselines = os.environ.get("TRAINVITALS_BASELINES_FILE")
    parser.add_argument_group("runs").add_argument(
        "--baselines.file",
        dest="baselines",
        metavar="FILE",
        type=Path,
        default=Path(baselines) if baselines else None,
        help="the epochs per hour and the memory that are expected of runs, for the boards and the "
        "report (default $TRAINVITALS_BASELINES_FILE, or none)",
    )


def _add_containers(parser: argparse.ArgumentParser) -> None:
    containers = parser.add_argument_group("containers")
    add_engine(containers)
    add_journal(containers)
    containers.add_argument(
        "--containers.follow",
        dest="follow",
        choices=("auto", "all", "none"),
        default="auto",
        help="the containers whose logs are followed while they run; auto: those whose logs are removed "
        "with them, as with --rm (default auto)",
    )


def _add_collectors(parser: argparse.ArgumentParser) -> None:
    from argparse import BooleanOptionalAction  # noqa: PLC0415

    from trainvitals.metrics.collectors import COLLECTORS  # noqa: PLC0415 - slow to import

    collectors = parser.add_argument_group("collectors, all on unless turned off")
    for entry in COLLECTORS:
        collectors.add_argument(
            f"--collector.{entry.name}",
            dest=f"collector_{entry.name}",
            action=BooleanOptionalAction,
            default=True,
            help=entry.subject,
        )


def _serve(options: argparse.Namespace) -> int:
    """Serve HTTP until SIGTERM or SIGINT, and then complete the requests in progress."""
    import logging  # noqa: PLC0415
    import sys  # noqa: PLC0415
    from dataclasses import replace  # noqa: PLC0415
    from functools import partial  # noqa: PLC0415

    from trainvitals import __version__  # noqa: PLC0415
    from trainvitals.commands.serve_signals import handle_signals  # noqa: PLC0415
    from trainvitals.http.endpoints import Endpoints  # noqa: PLC0415
    from trainvitals.http.listen import parse_address  # noqa: PLC0415
    from trainvitals.http.server import Server  # noqa: PLC0415
    from trainvitals.logs import set_up_logging  # noqa: PLC0415
    from trainvitals.metrics.machine import Machine  # noqa: PLC0415
    from trainvitals.metrics.malloc import use_one_arena  # noqa: PLC0415

    set_up_logging(options.log_level, options.log_format)
    log = logging.getLogger(__name__)
    # A collector's thread makes hundreds of short calls that release the interpreter lock. With the
    # default switch interval, each call could wait 5 ms for a thread that renders a page.
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    use_one_arena()
    machine_options = _read_machine_options(options)
    roots = machine_options.roots
    addresses = [parse_address(text) for text in options.listen or ["127.0.0.1:9200"]]
    names = _read_names(options.allowed_hosts)
    web_config = _read_web_config(options.web_config)
    alerts = _find_alerts(options.prometheus, roots)
    observe = partial(_observe, roots, options.thresholds)
    if web_config is not None:
        machine_options = replace(machine_options, complain=lambda: web_config.complaint)
    machine = Machine(machine_options)
    try:
        endpoints = Endpoints(machine, observe=observe, alerts=alerts)
        server = Server(addresses, endpoints.answer, web_config=web_config, names=names)
        server.bind()
        handle_signals(server, machine, web_config)
        for address in server.bound:
            log.info("trainvitals %s listens on %s", __version__, address)
        server.run()
    finally:
        machine.close()
    log.info("trainvitals ends")
    return FINE


def _observe(roots: Roots, thresholds: Path | None) -> Observer:
    """Return the observer of scrapes, collect garbage and trim the heap.

    The exporter calls this function after the first response, when all modules for a scrape are
    loaded and no client waits.
    """
    import gc  # noqa: PLC0415

    from trainvitals.http.endpoints import observe_machine  # noqa: PLC0415
    from trainvitals.metrics.malloc import trim_heap  # noqa: PLC0415

    observer = observe_machine(roots, thresholds)
    gc.collect()
    gc.freeze()  # Existing objects live until exit; exclude them from garbage collection.
    trim_heap()
    return observer


def _read_machine_options(options: argparse.Namespace) -> MachineOptions:
    from trainvitals.metrics.collectors import COLLECTORS  # noqa: PLC0415
    from trainvitals.metrics.machine import MachineOptions  # noqa: PLC0415
    from trainvitals.sources.accelerators.limits import (  # noqa: PLC0415
        parse_memory_limit,
        parse_temperature_limit,
    )
    from trainvitals.sources.containers.source import ContainerOptions  # noqa: PLC0415
    from trainvitals.sources.files import Roots  # noqa: PLC0415
    from trainvitals.sources.runs.owners import read_users  # noqa: PLC0415
    from trainvitals.sources.runs.source import TrainingOptions  # noqa: PLC0415

    return MachineOptions(
        roots=Roots(options.procfs, options.sysfs, options.rootfs),
        disabled=[
            each.name for each in COLLECTORS if not getattr(options, f"collector_{each.name}")
        ],
        expected=parse_expected(options.expected),
        is_isolated=options.is_isolated,
        memory_limit_bytes=parse_memory_limit(options.memory_limit),
        temperature_limit_celsius=parse_temperature_limit(options.temperature_limit),
        training=TrainingOptions(
            run_dir=options.run_dir,
            logdirs=tuple(options.logdirs),
            globs=tuple(options.log_globs),
            patterns=options.log_patterns,
            follows_processes=options.log_follow == "auto",
            baselines=options.baselines,
            users=read_users(options.run_dir_users),
        ),
        containers=ContainerOptions(
            engine=options.engine, journal=options.journal, follow=options.follow
        ),
        thresholds=options.thresholds,
    )


def parse_expected(texts: Sequence[str]) -> dict[Kind, int]:
    """Parse the values of `--accelerators.expected` and return the number for each kind.

    Raises:
        ConfigurationError: A value does not have the form KIND=N.
    """
    expected: dict[Kind, int] = {}
    for text in texts:
        match text.partition("="):
            case (("gpu" | "hpu") as kind, _, count) if (
                count.isdecimal() and len(count) <= _MOST_DIGITS
            ):
                expected[kind] = int(count)
            case _:
                raise ConfigurationError(
                    f"--accelerators.expected={text}: write gpu=N or hpu=N, as in gpu=8"
                )
    return expected


def _read_names(texts: Sequence[str] | None) -> HostNames:
    from trainvitals.http.host_names import VARIABLE, HostNames, parse_names  # noqa: PLC0415

    if texts is None:
        texts = [os.environ.get(VARIABLE, "")]
    return HostNames(parse_names(texts))


def _read_web_config(path: Path | None) -> WebConfigFile | None:
    if path is None:
        return None
    from trainvitals.http.web_config import WebConfigFile  # noqa: PLC0415 - it imports ssl

    return WebConfigFile(path)


def _find_alerts(url: str | None, roots: Roots) -> FiringAlerts | None:
    if not url:
        return None
    from trainvitals.sources.alerts import follow_alerts  # noqa: PLC0415
    from trainvitals.sources.files import name_machine  # noqa: PLC0415

    return follow_alerts(url, name_machine(roots), flag="--web.prometheus")
