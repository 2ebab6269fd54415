"""`python -m fleet`: simulated machines in the real stack on this machine, without installation."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from fleet.exporter import serve
from fleet.machines import build_machines
from fleet.stack import ROOT, Wishes, bring_up, list_addresses, remove, wait_for_alerts
from trainvitals.commands.parsing import CANNOT_RUN, FINE, say
from trainvitals.errors import TrainvitalsError
from trainvitals.logs import set_up_logging
from trainvitals.sources.http_client import fetch_page
from trainvitals.stack.programs import Program

_BOARDS = (
    ("trainvitals-fleet", "which machine is in trouble: every alert, every run, every host"),
    ("trainvitals-run?var-run=bert-large", "a run that trains, stalls, dies and starts again"),
    ("trainvitals-run?var-run=llama-7b", "one hot GPU that slows four ranks down"),
    ("trainvitals-accelerators?var-instance=atlas", "GPU 3 throttles, GPU 5 is lost"),
    ("trainvitals-accelerators?var-instance=hera", "Gaudi cards that wait for data"),
    ("trainvitals-host?var-instance=orion", "a disk that fills up"),
    ("trainvitals-containers?var-instance=orion", "a container that is OOM-killed again and again"),
)
_PAGES = (
    ("/alerts", "every alert that fires, with its rule"),
    ("/targets", "the machines"),
    (
        "/graph?g0.expr=accelerator_temperature_headroom_celsius&g0.tab=0&g0.range_input=6h",
        "how far each accelerator is from slowing down: GPU 3 of atlas has reached it",
    ),
)
# The path prefix of the pages of Debian's Prometheus. Whether Prometheus is Debian's can only be
# determined when it responds.
_CLASSIC = "/classic"


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = parse_arguments(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)  # to stop all programs, as after Ctrl-C
    try:
        if options.command == "serve":
            return _serve(options)
        state_dir = options.state_dir.absolute()
        if options.command == "down":
            remove(state_dir, report=say)
            return FINE
        return _up(options, state_dir)
    except TrainvitalsError as error:
        sys.stderr.write(f"demo: {error}\n")
    except KeyboardInterrupt:
        sys.stderr.write("demo: interrupted\n")
    return CANNOT_RUN


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Parse a command line, including the options that the stack passes."""
    parser = argparse.ArgumentParser(prog="python -m fleet", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("up", "down", "serve"), default="up")
    parser.add_argument("--state-dir", type=Path, default=ROOT / ".state/demo")
    parser.add_argument("--hours", type=float, default=6.0, help="of the past")
    parser.add_argument("--scrape-seconds", type=int, default=15, help="from scrape to scrape")
    parser.add_argument("--evaluation-seconds", type=int, default=15, help="likewise of the rules")
    for name in ("exporter", "prometheus", "alertmanager", "grafana"):
        parser.add_argument(f"--{name}-port", type=int)
    parser.add_argument("--begin", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--more-ports", default="", help=argparse.SUPPRESS)
    # The flags that the stack passes to `trainvitals serve`.
    parser.add_argument("--web.listen-address", dest="listen", help=argparse.SUPPRESS)
    parser.add_argument("--web.prometheus", dest="prometheus", help=argparse.SUPPRESS)
    parser.add_argument("--thresholds.file", dest="thresholds", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _up(options: argparse.Namespace, state_dir: Path) -> int:
    wishes = Wishes(
        state_dir,
        int(3600 * options.hours),
        options.scrape_seconds,
        options.evaluation_seconds,
        exporter_port=options.exporter_port,
        prometheus_port=options.prometheus_port,
        alertmanager_port=options.alertmanager_port,
        grafana_port=options.grafana_port,
    )
    programs = bring_up(wishes, report=say)
    _describe(programs)
    return FINE


def _describe(programs: tuple[Program, ...]) -> None:
    """Print every address with a description of its page."""
    addresses = {program.name: program.address for program in programs}
    stories = {machine.name: machine.about for machine in build_machines(0.0)}
    say("\nthe machines, each with its live page")
    for name, address in list_addresses(programs).items():
        say(f"  {address}  {name}: {stories[name]}")
    if "grafana" in addresses:
        say("\nthe boards (user admin; the password is above)")
        for path, words in _BOARDS:
            say(f"  {addresses['grafana']}/d/{path}  {words}")
    if "prometheus" in addresses:
        say("\nPrometheus")
        port = next(program.port for program in programs if program.name == "prometheus")
        prefix = _CLASSIC if fetch_page(port, f"{_CLASSIC}/alerts") is not None else ""
        for path, words in _PAGES:
            say(f"  {addresses['prometheus']}{prefix}{path}  {words}")
        alerts = wait_for_alerts(programs)
        say(f"\n{len(alerts)} different alerts fire: {', '.join(alerts)}")
    if "alertmanager" in addresses:
        say(f"\nAlertmanager, which sends no messages: {addresses['alertmanager']}")
    say("\n`make demo-down` stops it and removes its data")


def _serve(options: argparse.Namespace) -> int:
    set_up_logging("info", "text")
    host, _, port = options.listen.rpartition(":")
    ports = [port, *options.more_ports.split(",")]
    machines = build_machines(options.begin)
    addresses = [f"{host}:{each}" for each in ports]
    serve(
        list(zip(machines, addresses, strict=True)),
        prometheus=options.prometheus,
        thresholds=options.thresholds,
    )
    return FINE


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


if __name__ == "__main__":
    sys.exit(main())
