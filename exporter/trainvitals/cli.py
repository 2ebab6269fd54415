"""The command `trainvitals`.

Exit codes: 0 fine, 1 a problem was found, 2 wrong usage or it cannot run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals import __version__
from trainvitals.errors import ConfigurationError, TrainvitalsError

if TYPE_CHECKING:  # a command imports what it needs when it runs
    from types import FrameType

    from trainvitals.sources.accelerators.reading import Kind
    from trainvitals.stack import Settings

FINE, FOUND_A_PROBLEM, CANNOT_RUN = 0, 1, 2
_MOST_DIGITS = 4

_SERVE_EXAMPLES = """\
Examples:
  trainvitals serve
  trainvitals serve --web.listen-address=0.0.0.0:9200 --web.config.file=web.yml
  trainvitals serve --accelerators.expected=gpu=8 --no-collector.pressure
  kill -USR1 PID    let go of the drivers for a minute, so that they can be replaced
"""
_STACK_EXAMPLES = """\
Examples:
  trainvitals up
  EXPORTER_PORT=9300 trainvitals up --prometheus-port=9091
  trainvitals status --json
  trainvitals logs
  trainvitals down
"""
_PLOT_EXAMPLES = """\
Examples:
  trainvitals plot resource_logs/epoch_1.csv
  trainvitals plot resource_logs/epoch_*.csv --output run.png
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
    options = _build_parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except TrainvitalsError as error:
        print(f"trainvitals: {error}", file=sys.stderr)
        return CANNOT_RUN
    except KeyboardInterrupt:
        return CANNOT_RUN
    return code


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainvitals",
        description="Vital signs of a machine that trains models.",
        epilog="Examples:\n  trainvitals serve\n  trainvitals up\n  trainvitals serve --help\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trainvitals {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_serve(commands)
    _add_stack(commands)
    _add_plot(commands)
    _add_postmortem(commands)
    return parser


def _add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    examples: str,
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from trainvitals.collectors import COLLECTORS  # noqa: PLC0415 - only serve lists them
    from trainvitals.logs import FORMATS, LEVELS  # noqa: PLC0415

    parser = _add_command(commands, "serve", "run the exporter", _SERVE_EXAMPLES)
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
    log = parser.add_argument_group("log")
    log.add_argument("--log.level", dest="log_level", choices=LEVELS, default="info")
    log.add_argument("--log.format", dest="log_format", choices=FORMATS, default="text")
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
        "--accelerators.isolate",
        dest="is_isolated",
        action="store_true",
        help="open drivers in processes of their own from the start (about 9 MiB each), so that a "
        "crash in a vendor's library is survived too",
    )
    for name, words in (("procfs", "/proc"), ("sysfs", "/sys"), ("rootfs", "/")):
        machine.add_argument(
            f"--path.{name}",
            dest=name,
            metavar="DIR",
            type=Path,
            default=Path(words),
            help=f"where the host's {words} is mounted (default {words})",
        )
    _add_run_dir(machine)
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


def _add_run_dir(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--run-dir",
        dest="run_dir",
        metavar="DIR",
        type=Path,
        default=Path(os.environ.get("TRAINVITALS_RUN_DIR") or "/dev/shm/trainvitals"),  # noqa: S108 - the documented default
        help="where training runs leave their files (default $TRAINVITALS_RUN_DIR or "
        "/dev/shm/trainvitals)",
    )


def _serve(options: argparse.Namespace) -> int:
    from trainvitals.collectors import COLLECTORS  # noqa: PLC0415 - only serve needs them
    from trainvitals.logs import set_up_logging  # noqa: PLC0415
    from trainvitals.machine import MachineOptions  # noqa: PLC0415
    from trainvitals.serve import ServeOptions, serve  # noqa: PLC0415
    from trainvitals.sources.files import Roots  # noqa: PLC0415
    from trainvitals.sources.training.source import TrainingOptions  # noqa: PLC0415

    set_up_logging(options.log_level, options.log_format)
    off = [entry.name for entry in COLLECTORS if not getattr(options, f"collector_{entry.name}")]
    machine = MachineOptions(
        roots=Roots(options.procfs, options.sysfs, options.rootfs),
        disabled=off,
        expected=parse_expected(options.expected),
        is_isolated=options.is_isolated,
        training=TrainingOptions(
            run_dir=options.run_dir,
            logdirs=tuple(options.logdirs),
            globs=tuple(options.log_globs),
            patterns=options.log_patterns,
        ),
    )
    listen = options.listen or ["127.0.0.1:9200"]
    return serve(ServeOptions(listen, options.web_config, machine))


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
    up = _add_command(commands, "up", "start the exporter and Prometheus", _STACK_EXAMPLES)
    up.set_defaults(run=_up)
    down = _add_command(commands, "down", "stop what `up` started", _STACK_EXAMPLES)
    down.set_defaults(run=_down)
    status = _add_command(commands, "status", "say what runs and what works", _STACK_EXAMPLES)
    status.add_argument("--json", action="store_true", help="for programs")
    status.set_defaults(run=_status)
    logs = _add_command(commands, "logs", "follow what the programs log", _STACK_EXAMPLES)
    logs.set_defaults(run=_logs)
    for parser in (up, down, status, logs):
        parser.add_argument("--state-dir", metavar="DIR", type=Path, help="data, logs and sockets")
        parser.add_argument("--exporter-port", metavar="PORT", type=int, help="default 9200")
        parser.add_argument("--prometheus-port", metavar="PORT", type=int, help="default 9090")


def _read_stack_settings(options: argparse.Namespace) -> Settings:
    from trainvitals.stack import read_settings  # noqa: PLC0415 - only these commands need it

    return read_settings(
        exporter_port=options.exporter_port,
        prometheus_port=options.prometheus_port,
        state_dir=options.state_dir,
    )


def _up(options: argparse.Namespace) -> int:
    from trainvitals.stack import bring_up  # noqa: PLC0415

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)  # so that half a stack is taken down, as after Ctrl-C
    bring_up(_read_stack_settings(options), report=_say)
    return FINE


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _down(options: argparse.Namespace) -> int:
    from trainvitals.stack import take_down  # noqa: PLC0415

    take_down(_read_stack_settings(options), report=_say)
    return FINE


def _status(options: argparse.Namespace) -> int:
    from trainvitals.stack import describe, format_json, format_table  # noqa: PLC0415

    status = describe(_read_stack_settings(options))
    _say(format_json(status) if options.json else format_table(status))
    return FINE if status.fine else FOUND_A_PROBLEM


def _logs(options: argparse.Namespace) -> int:
    from trainvitals.stack import follow_logs  # noqa: PLC0415

    follow_logs(_read_stack_settings(options))
    return FINE


def _add_plot(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add_command(
        commands, "plot", "draw what a run used, from its CSV files", _PLOT_EXAMPLES
    )
    parser.add_argument(
        "files",
        metavar="FILE.csv",
        nargs="+",
        type=Path,
        help="what ResourceMonitorCallback wrote; several files are shown one after the other",
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
    _say(f"wrote {options.output}")
    return FINE


def _add_postmortem(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add_command(
        commands, "postmortem", "tell how a training run ended, and why", _POSTMORTEM_EXAMPLES
    )
    parser.add_argument(
        "name",
        metavar="RUN",
        nargs="?",
        help="the run's name, or the beginning of it (default: the run that ended last)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    _add_run_dir(parser)
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
        _say(format_json(findings, run))
    else:
        width = shutil.get_terminal_size().columns
        _say(format_screen(findings, run, width=width, names_others=options.name is None))
    return FINE if is_well(run) else FOUND_A_PROBLEM


def _say(line: str) -> None:
    try:
        try:
            print(line, flush=True)
        except UnicodeEncodeError:  # a terminal that knows ASCII alone
            print(line.encode("ascii", "replace").decode(), flush=True)
    except OSError as error:
        # What Python still holds must not raise again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # whoever reads may stop when it has enough
            raise TrainvitalsError(f"cannot write the output: {error.strerror}") from error
