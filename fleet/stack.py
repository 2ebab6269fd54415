"""The demo's stack: the real programs and files, on separate ports and in a separate directory.

Three settings differ from those of `trainvitals up`. Prometheus scrapes every 15 s, as intended for
several machines, and Grafana is configured accordingly. Prometheus' lookback period is limited to
the interval between past samples. An alert whose `for` duration has elapsed before the start fires
without waiting again (see `rules.py`). The demo sends no messages, regardless of `.env`.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleet.history import LOOKBACK, STEP_SECONDS, Past, list_moments
from fleet.machine import Machine
from fleet.machines import build_machines
from fleet.rules import PastOfRules, Tools
from trainvitals.errors import StackError
from trainvitals.shipped import find_shipped
from trainvitals.sources.http_client import fetch_page
from trainvitals.stack.debian import find_program
from trainvitals.stack.native import take_down
from trainvitals.stack.plan import Supply, plan_programs
from trainvitals.stack.programs import (
    HOST,
    Program,
    is_free,
    load_programs,
    require_free_ports,
    save_programs,
)
from trainvitals.stack.prometheus import list_alerts
from trainvitals.stack.readiness import wait_until_all_work
from trainvitals.stack.settings import Settings
from trainvitals.stack.supervision import STARTED, ask_states, start_supervisor
from trainvitals.stack.writing import hold_lock, make_private, require_free_space, write_private

ROOT = Path(__file__).parents[1]
EXPORTER_PORT, PROMETHEUS_PORT, ALERTMANAGER_PORT, GRAFANA_PORT = 19_200, 19_090, 19_093, 13_000
PAST_SECONDS = 6 * 3600

_LASTING_PORTS = range(20_000, 32_000)  # the kernel assigns ports from 32768

# Grafana calculates rates over four times this interval; past samples are 30 s apart.
_RATE_SECONDS = 15
_SHIPPED_SECONDS = {"scrape_interval": 5, "evaluation_interval": 15, "timeInterval": 5}
_FLAGS = (f"--query.lookback-delta={LOOKBACK}", "--rules.alert.for-grace-period=15s")
_LOCK, _MARK = "lock", "made-by-the-demo"
_TIMEOUT_SECONDS = 120.0
# The events during the writing of the past are written too. This takes a few seconds, and a gap of
# this length between the last past sample and the first scrape has no effect in Prometheus.
_AHEAD_SECONDS, _GAP_SECONDS = 8.0, 8.0
# After the second evaluation of a group, Prometheus restores the times since which alerts have been
# active, and at the third evaluation the alerts fire. An evaluation is counted when it begins, so
# the third evaluation is complete when the fourth is counted.
_ALERTS_SECONDS, _EVALUATIONS = 90.0, 4
_EVALUATIONS_TOLD = re.compile(
    r"^prometheus_rule_group_iterations_(missed_)?total\{(.*)\} (\S+)$", re.MULTILINE
)

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wishes:
    """The settings of a demo; for a port that is None, the usual port or any free port is used.

    Attributes:
        state_dir: The absolute path of the directory that contains all files of the demo.
        past_seconds: The length of the past when the demo goes live, in seconds.
        scrape_seconds: The scrape interval; Prometheus waits 5 s for a response.
        evaluation_seconds: The rule evaluation interval.
        exporter_port: The port of the first machine's exporter; the other machines use the
            following ports if these are free.
        prometheus_port: Prometheus' port.
        alertmanager_port: Alertmanager's port.
        grafana_port: Grafana's port.
    """

    state_dir: Path
    past_seconds: int = PAST_SECONDS
    scrape_seconds: int = 15
    evaluation_seconds: int = 15
    exporter_port: int | None = None
    prometheus_port: int | None = None
    alertmanager_port: int | None = None
    grafana_port: int | None = None


def bring_up(
    wishes: Wishes, *, report: Report, find: Callable[[str], Path] | None = None
) -> tuple[Program, ...]:
    """Write the past, start all programs and wait until they work; keep a running demo.

    If the demo cannot be started or is interrupted, no program is left running.

    Args:
        wishes: The settings of the demo.
        report: A function that receives progress messages of one line.
        find: A function that returns the path of a program by name; None to search PATH and then
            Debian's packages.

    Returns:
        The programs.

    Raises:
        StackError: A program does not start or does not work, or the directory contains files that
            are not the demo's.
    """
    look = find or (lambda name: find_program(name, report=report))
    _refuse_foreign_directory(wishes.state_dir)
    try:
        with hold_lock(wishes.state_dir):
            if programs := find_running(wishes.state_dir):
                report("already running")
                return programs
            return _start(wishes, report, look)
    except BaseException:
        remove(wishes.state_dir, report=report)
        raise


def remove(state_dir: Path, *, report: Report) -> None:
    """Stop every process of the demo and remove all files that the demo has written.

    Raises:
        StackError: A process cannot be terminated, or the directory contains files that are not the
            demo's.
    """
    if not state_dir.is_dir():
        report("nothing is running")
        return
    _refuse_foreign_directory(state_dir)
    take_down(Settings(state_dir), report=report)
    shutil.rmtree(state_dir)


def _refuse_foreign_directory(state_dir: Path) -> None:
    """Check that a directory may be removed: it is empty or was created by an earlier demo."""
    names = {path.name for path in state_dir.iterdir()} if state_dir.is_dir() else set()
    if names - {_LOCK} and _MARK not in names:
        raise StackError(
            f"{state_dir} has files that are not the demo's, which removes its directory at the "
            "end: choose an empty one with --state-dir"
        )


def find_running(state_dir: Path) -> tuple[Program, ...]:
    """Return the programs of a demo if all of them are running; otherwise an empty tuple."""
    programs = load_programs(state_dir)
    states = ask_states(state_dir) or ()
    running = {each.name for each in states if each.state in STARTED}
    return programs if programs and running == {each.name for each in programs} else ()


def wait_for_alerts(programs: Sequence[Program]) -> tuple[str, ...]:
    """Wait until all due alerts fire, and return their names; empty without Prometheus."""
    prometheus = next((each for each in programs if each.name == "prometheus"), None)
    if prometheus is None:
        return ()
    deadline = time.monotonic() + _ALERTS_SECONDS
    while time.monotonic() < deadline and not _has_judged(prometheus):
        time.sleep(0.5)
    alerts = list_alerts(prometheus.port, prometheus.host)
    firing = {each.name for each in alerts if each.state == "firing" and each.severity != "none"}
    return tuple(sorted(firing))


def _has_judged(prometheus: Program) -> bool:
    """Return whether every rule group has been evaluated often enough for its alerts to fire."""
    page = fetch_page(prometheus.port, "/metrics", host=prometheus.host) or b""
    counts = Counter[str]()
    for missed, group, count in _EVALUATIONS_TOLD.findall(page.decode("utf-8", "replace")):
        counts[group] += -int(float(count)) if missed else int(float(count))
    return bool(counts) and min(counts.values()) >= _EVALUATIONS


def list_addresses(programs: Sequence[Program]) -> dict[str, str]:
    """Return the address of each machine's exporter, by the machine's name."""
    exporter = next(each for each in programs if each.name == "exporter")
    more = [word for word in exporter.command if word.startswith(_MORE)]
    ports = [exporter.port, *map(int, more[0].removeprefix(_MORE).split(","))]
    names = [machine.name for machine in build_machines(0.0)]
    return {name: f"http://{HOST}:{port}" for name, port in zip(names, ports, strict=True)}


_MORE = "--more-ports="


def _start(wishes: Wishes, report: Report, find: Callable[[str], Path]) -> tuple[Program, ...]:
    state_dir = wishes.state_dir
    _clear(state_dir)
    require_free_space(state_dir)
    begin = _round_up(time.time() + 2 * STEP_SECONDS)
    machines = build_machines(begin)
    ports = _pick_ports(wishes, len(machines))
    settings = Settings(
        state_dir,
        ports[0],
        _pick(wishes.prometheus_port, PROMETHEUS_PORT),
        (
            *(sys.executable, "-m", "fleet", "serve", f"--begin={begin:.0f}"),
            f"{_MORE}{','.join(map(str, ports[1:]))}",
        ),
        alertmanager_port=_pick(wishes.alertmanager_port, ALERTMANAGER_PORT),
        grafana_port=_pick(wishes.grafana_port, GRAFANA_PORT),
        way="native",
        variables={"HOST_NAME": machines[0].name},
    )
    _write_configuration(settings, machines, ports, wishes)
    programs = _plan(settings, find, report)
    require_free_ports(programs, settings.bind_address)
    if any(program.name == "prometheus" for program in programs):
        tools = Tools(find("prometheus"), find("promtool"))
        _write_past(machines, wishes, tools, report)
    save_programs(state_dir, programs)
    start_supervisor(state_dir, programs, _find_environment())
    wait_until_all_work(state_dir, programs, report, _TIMEOUT_SECONDS)
    return programs


def _clear(state_dir: Path) -> None:
    """Remove the files of an earlier demo that has ended; the caller holds the lock."""
    (state_dir / _MARK).touch()
    for path in state_dir.iterdir():
        if path.name in {_LOCK, _MARK}:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write_past(machines: Sequence[Machine], wishes: Wishes, tools: Tools, report: Report) -> None:
    """Write the past, and then the time that has passed meanwhile, until the present is reached."""
    directory, blocks = wishes.state_dir / "past", wishes.state_dir / "prometheus"
    make_private(directory)
    make_private(blocks)
    past = Past(machines, promtool=tools.promtool, directory=directory, blocks=blocks)
    rules = PastOfRules(
        find_shipped("prometheus") / "rules", tools=tools, directory=directory, blocks=blocks
    )
    report(f"writing {wishes.past_seconds / 3600:g} hours of the past of {len(machines)} machines")
    since, until = time.time() - wishes.past_seconds, time.time()
    most_ahead = _AHEAD_SECONDS
    while True:
        began, moments = time.monotonic(), list_moments(since, until)
        past.write(moments)
        rules.write(moments)
        if time.time() <= moments[-1] + _GAP_SECONDS:
            break
        # The machines' events are known in advance, so samples can be written ahead of time.
        ahead, most_ahead = min(most_ahead, time.monotonic() - began), 2 * most_ahead
        since, until = moments[-1] + 1, _round_up(time.time() + ahead - _GAP_SECONDS)
    shutil.rmtree(directory)
    time.sleep(max(0.0, moments[-1] - time.time()))


def _round_up(moment: float) -> float:
    """Return the next sample time at or after a time, which may be in the future."""
    return -(-moment // STEP_SECONDS) * STEP_SECONDS


def _write_configuration(
    settings: Settings, machines: Sequence[Machine], ports: Sequence[int], wishes: Wishes
) -> None:
    prometheus = settings.state_dir / "config/prometheus"
    make_private(prometheus / "targets")
    shipped = (find_shipped("prometheus") / "prometheus.yml").read_text(encoding="utf-8")
    shipped = _set_seconds(shipped, "scrape_interval", wishes.scrape_seconds)
    shipped = _set_seconds(shipped, "evaluation_interval", wishes.evaluation_seconds)
    write_private(prometheus / "prometheus.yml", shipped)
    targets = (
        f'- targets: ["{HOST}:{port}"]\n  labels: {{instance: {machine.name}}}\n'
        for machine, port in zip(machines[1:], ports[1:], strict=True)
    )
    write_private(prometheus / "targets/trainvitals-demo.yml", "".join(targets))
    provisioning = settings.state_dir / "config/provisioning"
    shutil.copytree(find_shipped("grafana/provisioning"), provisioning)
    sources = provisioning / "datasources/trainvitals.yml"
    text = sources.read_text(encoding="utf-8")
    write_private(sources, _set_seconds(text, "timeInterval", _RATE_SECONDS))


def _set_seconds(text: str, setting: str, seconds: int) -> str:
    shipped = f"{setting}: {_SHIPPED_SECONDS[setting]}s"
    if shipped not in text:
        raise StackError(f"the demo expects {shipped!r} in a shipped file: correct fleet/stack.py")
    return text.replace(shipped, f"{setting}: {seconds}s")


def _plan(settings: Settings, find: Callable[[str], Path], report: Report) -> tuple[Program, ...]:
    """Plan the programs as the stack does, with the demo's provisioning and flags."""

    def shipped(name: str) -> Path:
        if name == "grafana/provisioning":
            return settings.state_dir / "config/provisioning"
        return find_shipped(name)

    programs = plan_programs(settings, Supply(find, shipped, report))
    return tuple(
        replace(each, command=(*each.command, *_FLAGS)) if each.name == "prometheus" else each
        for each in programs
    )


def _find_environment() -> dict[str, str]:
    """Return environment variables with which `python -m fleet` works in any directory."""
    given = os.environ.get("PYTHONPATH", "")
    places = [ROOT, ROOT / "exporter", *(Path(each).resolve() for each in given.split(":") if each)]
    return {**os.environ, "PYTHONPATH": ":".join(dict.fromkeys(map(str, places)))}


def _pick_ports(wishes: Wishes, count: int) -> list[int]:
    first = _pick(wishes.exporter_port, EXPORTER_PORT)
    return [first, *(_pick(None, first + number) for number in range(1, count))]


def _pick(wanted: int | None, usual: int) -> int:
    """Return the requested port; if it is None, the usual port if free, otherwise a free port."""
    if wanted is not None:
        return wanted
    return usual if is_free(usual) else find_lasting_port()


def find_lasting_port() -> int:
    """Return a port that is free and is likely to remain free until the past has been written.

    The port is outside the range from which the kernel assigns ports automatically.

    Raises:
        StackError: No port in the range is free.
    """
    for port in random.sample(_LASTING_PORTS, len(_LASTING_PORTS)):
        if is_free(port):
            return port
    raise StackError("no port of 127.0.0.1 is free: name some with --exporter-port and the like")
