"""The command `trainvitals`.

Exit codes: 0 fine, 1 a problem was found, 2 wrong usage or it cannot run.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals import __version__
from trainvitals.commands.diagnose import add_diagnose
from trainvitals.commands.docker_logging import add_docker_logging
from trainvitals.commands.doctor import add_doctor
from trainvitals.commands.parsing import (
    CANNOT_RUN,
    FINE,
    FOUND_A_PROBLEM,
    add_command,
    add_roots,
    add_run_dir,
    say,
)
from trainvitals.commands.profile import add_profile
from trainvitals.commands.record import add_record
from trainvitals.commands.report import add_report
from trainvitals.commands.top import add_top
from trainvitals.errors import ConfigurationError, TrainvitalsError

if TYPE_CHECKING:  # a command imports what it needs when it runs
    from types import FrameType

    from trainvitals.drill import DrillResult, Fault
    from trainvitals.sources.accelerators.reading import Kind
    from trainvitals.stack import Settings

_MOST_DIGITS = 4

_EXAMPLES = """\
Examples:
  trainvitals doctor       is this machine fit for a run?
  trainvitals top          how is it doing?
  trainvitals diagnose     why did the container die?
  trainvitals serve        the exporter, with a live page at http://127.0.0.1:9200/
  trainvitals up           Prometheus, Alertmanager and Grafana besides

Exit codes: 0 fine, 1 it found a problem, 2 wrong usage or it cannot run.
"""
_SERVE_EXAMPLES = """\
Examples:
  trainvitals serve
  trainvitals serve --web.listen-address=0.0.0.0:9200 --web.config.file=web.yml
  trainvitals serve --accelerators.expected=gpu=8 --no-collector.pressure
  kill -USR1 PID    let go of the drivers for a minute, so that they can be replaced

Exit codes: 0 it ended as it was told to, 2 it cannot run.
"""
_STACK_EXAMPLES = """\
Examples:
  trainvitals up
  EXPORTER_PORT=9300 trainvitals up --prometheus-port=9091
  trainvitals status --json
  trainvitals logs
  trainvitals down

Exit codes: 0 fine, 1 `status` found that something does not work, 2 it cannot run.
"""
_DRILL_EXAMPLES = """\
Examples:
  trainvitals drill GPUHighTemperature
  trainvitals drill TrainingRunLost --real
  trainvitals drill --list

Exit codes: 0 the message and its end arrived, 1 one of them did not, 2 it cannot run.
"""
_NOTIFY_EXAMPLES = """\
Examples:
  trainvitals notify              after a change in .env: who hears of alerts now
  trainvitals notify --test       send a test message to every channel

Exit codes: 0 alerts reach somebody, 1 they go nowhere or a test failed, 2 it cannot run.
"""
_PLOT_EXAMPLES = """\
Examples:
  trainvitals plot resource_logs/epoch_1.csv
  trainvitals plot resource_logs/epoch_*.csv --output run.png
  trainvitals plot /var/log/vitals.jsonl*         a recording, with what was put away

Exit codes: 0 it was drawn, 2 it cannot be.
"""
_POSTMORTEM_EXAMPLES = """\
Examples:
  trainvitals postmortem                 the run that ended last
  trainvitals postmortem bert-large      a run by its name, or the beginning of it
  trainvitals postmortem --json | jq -r .reason

Exit codes: 0 it finished or is running, 1 it ended badly, 2 there is no such run.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    _open_closed_streams()
    try:
        # Imports take a moment in which a person may press Ctrl-C.
        options = _build_parser().parse_args(arguments)
        code: int = options.run(options)
    except TrainvitalsError as error:
        print(f"trainvitals: {error}", file=sys.stderr)
        return CANNOT_RUN
    except KeyboardInterrupt:
        return CANNOT_RUN
    return code


def _open_closed_streams() -> None:
    """Put the null device where `<&-`, `>&-` or `2>&-` left nothing.

    Else the next file that is opened gets that number, and what is printed goes into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainvitals",
        description="Vital signs of a machine that trains models.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trainvitals {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_serve(commands)
    _add_stack(commands)
    _add_notify(commands)
    _add_drill(commands)
    add_doctor(commands)
    add_top(commands)
    add_diagnose(commands)
    _add_postmortem(commands)
    add_profile(commands)
    add_record(commands)
    _add_plot(commands)
    add_report(commands)
    add_docker_logging(commands)
    return parser


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from trainvitals.collectors import COLLECTORS  # noqa: PLC0415 - only serve lists them
    from trainvitals.logs import FORMATS, LEVELS  # noqa: PLC0415

    parser = add_command(commands, "serve", "run the exporter", _SERVE_EXAMPLES)
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
    log = parser.add_argument_group("log")
    log.add_argument(
        "--log.level",
        dest="log_level",
        choices=LEVELS,
        default="info",
        help="the least that is logged (default info)",
    )
    log.add_argument(
        "--log.format",
        dest="log_format",
        choices=FORMATS,
        default="text",
        help="text for people or JSON lines for programs (default text)",
    )
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "--accelerators.expected",
        dest="expected",
        metavar="KIND=N",
        action="append",
        default=[],
        help="how many accelerators there should be, as gpu=8 or hpu=8; repeatable",
    )
    machine.add_argument(
        "--accelerators.memory-limit",
        dest="memory_limit",
        metavar="SIZE",
        default=os.environ.get("ACCELERATOR_MEMORY_LIMIT", ""),
        help="how much memory of each accelerator may be used, as 7.5GB, 40GiB or bytes, for the "
        "alert AcceleratorMemoryOverLimit (default $ACCELERATOR_MEMORY_LIMIT, or no limit)",
    )
    machine.add_argument(
        "--accelerators.isolate",
        dest="is_isolated",
        action="store_true",
        help="open drivers in processes of their own from the start (about 9 MiB each), so that a "
        "crash in a vendor's library is survived too",
    )
    add_roots(machine)
    add_run_dir(machine)
    runs = parser.add_argument_group("runs that nobody instrumented")
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
    _add_containers(parser)
    collectors = parser.add_argument_group("collectors, all on unless turned off")
    for entry in COLLECTORS:
        collectors.add_argument(
            f"--collector.{entry.name}",
            dest=f"collector_{entry.name}",
            action=argparse.BooleanOptionalAction,
            default=True,
            help=entry.subject,
        )
    parser.set_defaults(run=_serve)


def _add_containers(parser: argparse.ArgumentParser) -> None:
    containers = parser.add_argument_group("containers")
    containers.add_argument(
        "--containers.engine",
        dest="engine",
        metavar="ADDRESS",
        help="the container engine: unix:///run/podman/podman.sock, tcp://HOST:PORT or none "
        "(default $DOCKER_HOST, or the socket that is there)",
    )
    containers.add_argument(
        "--containers.journal",
        dest="journal",
        metavar="DIR",
        type=Path,
        help="where deaths are written down (default $TRAINVITALS_JOURNAL_DIR, for root "
        "/var/lib/trainvitals/deaths, else ~/.local/state/trainvitals/deaths)",
    )
    containers.add_argument(
        "--containers.follow",
        dest="follow",
        choices=("auto", "all", "none"),
        default="auto",
        help="whose logs are followed while they run: auto, of those that leave none, as with --rm "
        "(default auto)",
    )


def _serve(options: argparse.Namespace) -> int:
    from trainvitals.collectors import COLLECTORS  # noqa: PLC0415 - only serve needs them
    from trainvitals.logs import set_up_logging  # noqa: PLC0415
    from trainvitals.machine import MachineOptions  # noqa: PLC0415
    from trainvitals.serve import ServeOptions, serve  # noqa: PLC0415
    from trainvitals.sources.accelerators.memory_limit import parse_memory_limit  # noqa: PLC0415
    from trainvitals.sources.containers.source import ContainerOptions  # noqa: PLC0415
    from trainvitals.sources.files import Roots  # noqa: PLC0415
    from trainvitals.sources.training.source import TrainingOptions  # noqa: PLC0415

    set_up_logging(options.log_level, options.log_format)
    off = [entry.name for entry in COLLECTORS if not getattr(options, f"collector_{entry.name}")]
    machine = MachineOptions(
        roots=Roots(options.procfs, options.sysfs, options.rootfs),
        disabled=off,
        expected=parse_expected(options.expected),
        is_isolated=options.is_isolated,
        memory_limit_bytes=parse_memory_limit(options.memory_limit),
        training=TrainingOptions(
            run_dir=options.run_dir,
            logdirs=tuple(options.logdirs),
            globs=tuple(options.log_globs),
            patterns=options.log_patterns,
        ),
        containers=ContainerOptions(
            engine=options.engine, journal=options.journal, follow=options.follow
        ),
    )
    listen = options.listen or ["127.0.0.1:9200"]
    return serve(ServeOptions(listen, options.web_config, machine, options.prometheus))


def parse_expected(texts: Sequence[str]) -> dict[Kind, int]:
    """Read `--accelerators.expected`.

    Raises:
        ConfigurationError: One is not of the form KIND=N.
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


def _add_stack(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    up = add_command(
        commands, "up", "start the whole stack and wait until it works", _STACK_EXAMPLES
    )
    up.set_defaults(run=_up)
    down = add_command(commands, "down", "stop what `up` started", _STACK_EXAMPLES)
    down.set_defaults(run=_down)
    status = add_command(commands, "status", "say what runs and what works", _STACK_EXAMPLES)
    status.add_argument("--json", action="store_true", help="for programs")
    status.set_defaults(run=_status)
    logs = add_command(commands, "logs", "follow what the programs log", _STACK_EXAMPLES)
    logs.set_defaults(run=_logs)
    for parser in (up, down, status, logs):
        _add_stack_flags(parser)


def _add_stack_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state-dir", metavar="DIR", type=Path, help="data, logs and sockets")
    parser.add_argument("--exporter-port", metavar="PORT", type=int, help="default 9200")
    parser.add_argument("--prometheus-port", metavar="PORT", type=int, help="default 9090")
    parser.add_argument("--alertmanager-port", metavar="PORT", type=int, help="default 9093")
    parser.add_argument("--grafana-port", metavar="PORT", type=int, help="default 3000")
    parser.add_argument(
        "--way",
        choices=("auto", "compose", "native"),
        help="Docker Compose or native processes (default auto: Compose where an engine answers)",
    )


def _read_stack_settings(options: argparse.Namespace) -> Settings:
    from trainvitals.stack import read_settings  # noqa: PLC0415 - only these commands need it

    return read_settings(
        exporter_port=options.exporter_port,
        prometheus_port=options.prometheus_port,
        alertmanager_port=options.alertmanager_port,
        grafana_port=options.grafana_port,
        way=options.way,
        state_dir=options.state_dir,
    )


def _up(options: argparse.Namespace) -> int:
    from trainvitals.stack import bring_up  # noqa: PLC0415

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)  # so that half a stack is taken down, as after Ctrl-C
    _warn_of_open_dotenv()
    bring_up(_read_stack_settings(options), report=say)
    return FINE


def _warn_of_open_dotenv() -> None:
    from trainvitals.stack import exposes_secrets  # noqa: PLC0415

    if exposes_secrets(Path(".env")):
        print("trainvitals: others can read the secrets in .env: chmod 600 .env", file=sys.stderr)


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _down(options: argparse.Namespace) -> int:
    from trainvitals.stack import take_down  # noqa: PLC0415

    take_down(_read_stack_settings(options), report=say)
    return FINE


def _status(options: argparse.Namespace) -> int:
    from trainvitals.stack import describe, format_json, format_table  # noqa: PLC0415

    status = describe(_read_stack_settings(options))
    say(format_json(status) if options.json else format_table(status))
    return FINE if status.fine else FOUND_A_PROBLEM


def _logs(options: argparse.Namespace) -> int:
    from trainvitals.stack import follow_logs  # noqa: PLC0415

    follow_logs(_read_stack_settings(options))
    return FINE


def _add_drill(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "drill",
        "have a simulated fault travel to a message, and tell how long it took",
        _DRILL_EXAMPLES,
    )
    parser.add_argument("alert", metavar="ALERT", nargs="?", help="the alert that is to fire")
    parser.add_argument(
        "--real",
        action="store_true",
        help="with real durations; otherwise each is divided by 60",
    )
    parser.add_argument("--list", action="store_true", help="list the alerts that can be drilled")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--state-dir", metavar="DIR", type=Path, help="where the stack is kept")
    parser.set_defaults(run=_drill)


def _drill(options: argparse.Namespace) -> int:
    from trainvitals.drill import FAULTS, find_fault, format_result  # noqa: PLC0415 - only here

    if options.list:
        say("\n".join(f"{fault.alert}: {fault.story}" for fault in FAULTS))
        return FINE
    if options.alert is None:
        raise ConfigurationError("which alert? see `trainvitals drill --list`")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)  # so that nothing is left running, as after Ctrl-C
    logging.disable(logging.WARNING)  # that the simulated machine has a fault is no news
    result = _run_drill(find_fault(options.alert), options)
    say(format_result(result, as_json=options.json))
    return FINE if result.passed else FOUND_A_PROBLEM


def _run_drill(fault: Fault, options: argparse.Namespace) -> DrillResult:
    from trainvitals.drill import SPEED, drill, make_plan  # noqa: PLC0415 - only here
    from trainvitals.stack import read_settings  # noqa: PLC0415
    from trainvitals.stack.debian import find_program  # noqa: PLC0415
    from trainvitals.stack.destinations import recall_destinations  # noqa: PLC0415

    report = _say_nothing if options.json else say
    settings = read_settings(state_dir=options.state_dir)
    with tempfile.TemporaryDirectory(prefix="trainvitals-drill-") as directory:
        plan = make_plan(
            settings,
            Path(directory),
            speed=1.0 if options.real else SPEED,
            find=partial(find_program, report=report),
        )
        report(
            "a second Prometheus and Alertmanager with the same rules and routes, "
            + ("at real durations" if options.real else "all durations divided by 60")
        )
        result = drill(fault, plan, report=report)
    for line in recall_destinations(settings.state_dir):
        report(f"where the stack's own alerts go: {line}")
    return result


def _say_nothing(_: str) -> None:
    """Keep quiet where a program reads."""


def _add_notify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands, "notify", "set up who hears of alerts, from .env, and try it", _NOTIFY_EXAMPLES
    )
    parser.add_argument("--test", action="store_true", help="send a test message to every channel")
    parser.add_argument("--json", action="store_true", help="for programs")
    _add_stack_flags(parser)
    parser.set_defaults(run=_notify)


def _notify(options: argparse.Namespace) -> int:
    from trainvitals.stack.notifications import (  # noqa: PLC0415 - only this command needs it
        format_notifications,
        set_up_notifications,
    )

    _warn_of_open_dotenv()
    notifications = set_up_notifications(
        _read_stack_settings(options),
        report=(lambda _: None) if options.json else say,
        sends_test=options.test,
    )
    if options.json:
        say(format_notifications(notifications))
    return FINE if notifications.fine else FOUND_A_PROBLEM


def _add_plot(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "plot",
        "draw what a run or a machine used, from what was recorded",
        _PLOT_EXAMPLES,
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="what ResourceMonitorCallback or `trainvitals record` wrote, as CSV or JSON lines, gzip'd "
        "or not; several files are shown one after the other",
    )
    parser.add_argument(
        "--output",
        metavar="PNG",
        type=Path,
        default=Path("resource_timeline.png"),
        help="where the picture goes (default resource_timeline.png)",
    )
    parser.set_defaults(run=_plot)


def _plot(options: argparse.Namespace) -> int:
    from trainvitals.plot import plot  # noqa: PLC0415 - only this command draws

    plot(options.files, options.output)
    say(f"wrote {options.output}")
    return FINE


def _add_postmortem(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands, "postmortem", "tell how a training run ended, and why", _POSTMORTEM_EXAMPLES
    )
    parser.add_argument(
        "name",
        metavar="RUN",
        nargs="?",
        help="the run's name, or the beginning of it (default: the run that ended last)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    add_run_dir(parser)
    parser.set_defaults(run=_postmortem)


def _postmortem(options: argparse.Namespace) -> int:
    from trainvitals.postmortem import (  # noqa: PLC0415 - only this command needs it
        choose_run,
        format_json,
        format_screen,
        is_well,
        read_findings,
    )

    findings = read_findings(options.run_dir)
    run = choose_run(findings, options.name)
    if options.json:
        say(format_json(findings, run))
    else:
        width = shutil.get_terminal_size().columns
        say(format_screen(findings, run, width=width, names_others=options.name is None))
    return FINE if is_well(run) else FOUND_A_PROBLEM
