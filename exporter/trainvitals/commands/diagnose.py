"""The command `trainvitals diagnose`."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.commands.parsing import (
    FINE,
    FOUND_A_PROBLEM,
    add_command,
    add_run_dir,
    say,
)
from trainvitals.errors import ConfigurationError

if TYPE_CHECKING:  # what the command needs is imported when it runs
    import argparse

    from trainvitals.commands.parsing import Commands
    from trainvitals.diagnosis.diagnosis import Diagnosis
    from trainvitals.diagnosis.scene import Scene

_EXAMPLES = """\
Examples:
  trainvitals diagnose                      the container that last ended badly
  trainvitals diagnose train                a container by name, ID or Compose service, or a run
  trainvitals diagnose --since 24h          all that ended in the last 24 hours, a line each
  trainvitals diagnose --pid 4242           a process of this machine
  trainvitals diagnose train --save DIR     evidence to send to somebody
  trainvitals diagnose --evidence DIR       what somebody sent, or was collected by hand
  trainvitals diagnose train --json | jq -r .reason

Exit codes: 0 it ended or runs well, 1 it died badly or is in trouble, 2 nothing is known of it.
"""
_DEFAULT_SINCE = "24h"
_DEFAULT_LINES = 50
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"(\d{1,6})([smhdw])")
_WEEK = _UNITS["w"]
_EVER = 10 * 365 * 86400.0


def add_diagnose(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands, "diagnose", "tell why a container, run or process died", _EXAMPLES
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="a container's name, the beginning of its ID or its Compose service; else a run's name",
    )
    what.add_argument(
        "--last", action="store_true", help="the container that last ended badly (the default)"
    )
    what.add_argument("--pid", metavar="N", type=int, help="a process of this machine")
    what.add_argument(
        "--evidence", metavar="DIR", type=Path, help="judge a folder of evidence, and nothing here"
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="how long ago it may have ended, as 90m, 24h or 7d (default 24h); alone: list all",
    )
    parser.add_argument(
        "--save", metavar="DIR", type=Path, help="write the evidence into a new folder"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="for programs")
    form.add_argument("--markdown", action="store_true", help="for a report in an issue tracker")
    parser.add_argument(
        "--lines",
        metavar="N",
        type=int,
        default=_DEFAULT_LINES,
        help="how many of the last lines of its log are shown (default 50)",
    )
    parser.add_argument(
        "--engine",
        metavar="ADDRESS",
        help="the engine, as unix:///PATH, tcp://HOST:PORT or none (default $DOCKER_HOST, or the "
        "usual sockets of Docker and Podman)",
    )
    parser.add_argument(
        "--journal",
        metavar="DIR",
        type=Path,
        help="where the exporter keeps its records of deaths (default $TRAINVITALS_JOURNAL_DIR, "
        "/var/lib/trainvitals/deaths for root, or ~/.local/state/trainvitals/deaths)",
    )
    add_run_dir(parser)
    parser.set_defaults(run=_diagnose)


def parse_duration(text: str) -> float:
    """Read a duration such as `24h`, in seconds.

    Raises:
        ConfigurationError: It is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        raise ConfigurationError(f"--since {text}: write a duration such as 90m, 24h or 7d")
    return int(found[1]) * _UNITS[found[2]]


def _diagnose(options: argparse.Namespace) -> int:
    since_seconds = parse_duration(options.since or _DEFAULT_SINCE)
    if options.evidence is not None:
        return _tell(_judge_folder(options.evidence), options)
    from trainvitals.diagnosis.scene import survey  # noqa: PLC0415 - only this command needs it

    scene = survey(
        engine=options.engine, journal=options.journal, since_seconds=max(since_seconds, _WEEK)
    )
    if options.pid is not None:
        return _tell(_find_process(scene, options), options)
    if options.name is not None:
        return _tell(_find_named(scene, options, since_seconds), options)
    if options.since is not None and not options.last:
        return _list(scene, options, since_seconds)
    return _tell(_find_last(scene, since_seconds), options)


def _judge_folder(path: Path) -> Diagnosis:
    from trainvitals.diagnosis.diagnosis import diagnose  # noqa: PLC0415
    from trainvitals.diagnosis.folder import read_folder  # noqa: PLC0415

    return diagnose(read_folder(path), asked=time.time(), origin=str(path))


def _find_named(scene: Scene, options: argparse.Namespace, since_seconds: float) -> Diagnosis:
    from trainvitals.diagnosis.choosing import find_container, suggest_names  # noqa: PLC0415
    from trainvitals.diagnosis.investigation import investigate, investigate_run  # noqa: PLC0415
    from trainvitals.postmortem import read_findings  # noqa: PLC0415

    known = find_container(scene, options.name)
    if known is not None:
        return investigate(scene, known, since_seconds=since_seconds)
    runs = read_findings(options.run_dir).runs
    for run in runs:
        if run.name == options.name:
            return investigate_run(scene, run)
    names = suggest_names(scene, options.name, [run.name for run in runs])
    there = f"there is {names}" if names else "nobody here knows of any"
    raise ConfigurationError(
        f"no container or run {options.name!r}; {there}{_tell_blindness(scene)}"
    )


def _find_process(scene: Scene, options: argparse.Namespace) -> Diagnosis:
    from trainvitals.diagnosis.choosing import Known  # noqa: PLC0415
    from trainvitals.diagnosis.investigation import (  # noqa: PLC0415
        investigate,
        investigate_process,
        investigate_run,
    )
    from trainvitals.diagnosis.runs import find_run  # noqa: PLC0415
    from trainvitals.postmortem import read_findings  # noqa: PLC0415
    from trainvitals.sources.containers.cgroups import find_container  # noqa: PLC0415

    run = find_run(read_findings(options.run_dir), options.pid)
    if run is not None:
        return investigate_run(scene, run)
    container = find_container(options.pid, scene.roots)
    if container is not None:
        return investigate(scene, Known(container, ""), since_seconds=_WEEK)
    found = investigate_process(scene, options.pid)
    if found is None:
        blindness = _tell_blindness(scene, needs_kernel=True)
        raise ConfigurationError(
            f"nothing is known of a process {options.pid}: it is gone, no run file is of it, and "
            f"the kernel log does not name it{blindness}"
        )
    return found


def _find_last(scene: Scene, since_seconds: float) -> Diagnosis:
    from trainvitals.diagnosis.investigation import investigate_last  # noqa: PLC0415

    found = investigate_last(scene, since_seconds=since_seconds) or investigate_last(
        scene, since_seconds=_EVER
    )
    if found is None:
        raise ConfigurationError(
            f"no container is known to have ended{_tell_blindness(scene) or '; name one that runs'}"
        )
    return found


def _list(scene: Scene, options: argparse.Namespace, since_seconds: float) -> int:
    from trainvitals.diagnosis.diagnosis import is_well  # noqa: PLC0415
    from trainvitals.diagnosis.document import format_deaths_document  # noqa: PLC0415
    from trainvitals.diagnosis.investigation import list_deaths  # noqa: PLC0415
    from trainvitals.diagnosis.report import format_deaths  # noqa: PLC0415

    deaths = list_deaths(scene, since_seconds=since_seconds)
    blindness = _tell_blindness(scene)
    if not deaths and blindness:
        raise ConfigurationError(f"no container is known to have ended{blindness}")
    if options.json:
        say(format_deaths_document(deaths, scene.time - since_seconds))
    else:
        width = shutil.get_terminal_size().columns
        say(format_deaths(deaths, width=width, asked=scene.time, since_seconds=since_seconds))
    return FINE if all(is_well(death.verdict) for death in deaths) else FOUND_A_PROBLEM


def _tell(diagnosis: Diagnosis, options: argparse.Namespace) -> int:
    from trainvitals.diagnosis.document import format_document  # noqa: PLC0415
    from trainvitals.diagnosis.markdown import format_markdown  # noqa: PLC0415
    from trainvitals.diagnosis.report import format_report  # noqa: PLC0415
    from trainvitals.diagnosis.saving import save_folder  # noqa: PLC0415

    if options.save is not None:
        save_folder(diagnosis, options.save)
    if options.json:
        say(format_document(diagnosis))
    elif options.markdown:
        say(format_markdown(diagnosis, lines=options.lines))
    else:
        width = shutil.get_terminal_size().columns
        say(format_report(diagnosis, width=width, lines=options.lines))
    return FINE if diagnosis.is_well else FOUND_A_PROBLEM


def _tell_blindness(scene: Scene, *, needs_kernel: bool = False) -> str:
    """Say why so little is known, where the engine or the kernel log could not be asked."""
    if scene.client is not None and not (needs_kernel and scene.kernel is None):
        return ""
    gaps = [gap for gap in scene.gaps if gap.what == "the engine" or needs_kernel]
    told = "; ".join(f"{gap.what}: {gap.why}; {gap.remedy}" for gap in gaps)
    return f"; {told} ({scene.reach.words})"
