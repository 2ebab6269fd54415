"""The demo's stack: the real programs with the real files, on separate ports and in a separate directory.

Three things differ from what `trainvitals up` starts. Prometheus scrapes every 15 s, as it is meant
to for several machines, and Grafana is configured so. It looks back for no longer than the moments of the
past are apart. And an alert that has held for long enough before the start does not wait again
(see `rules.py`). The demo sends no messages, whatever `.env` says.
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

_LASTING_PORTS = range(20_000, 32_000)  # the kernel begins at 32768

# Grafana takes rates over four times as long: the moments of the past are 30 s apart.
_RATE_SECONDS = 15
_SHIPPED_SECONDS = {"scrape_interval": 5, "evaluation_interval": 15, "timeInterval": 5}
_FLAGS = (f"--query.lookback-delta={LOOKBACK}", "--rules.alert.for-grace-period=15s")
_LOCK, _MARK = "lock", "made-by-the-demo"
_TIMEOUT_SECONDS = 120.0
# What happened while the past was written is written too. That takes a few seconds, and a gap so
# long between the last moment of the past and the first scrape is none that Prometheus would see.
_AHEAD_SECONDS, _GAP_SECONDS = 8.0, 8.0
# After the second evaluation of a group Prometheus takes up since when its alerts have held, and at
# the third they fire. An evaluation is counted as it begins, so the third is over at the fourth.
_ALERTS_SECONDS, _EVALUATIONS = 90.0, 4
_EVALUATIONS_TOLD = re.compile(
    r"^prometheus_rule_group_iterations_(missed_)?total\{(.*)\} (\S+)$", re.MULTILINE
)

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wishes:
    """The settings of a demo; a port that is None is a usual one, or any free one.

    Attributes:
        state_dir: Where everything is kept, an absolute path.
        past_seconds: How much past there is when the demo goes live.
        scrape_seconds: How often machines are scraped; Prometheus waits 5 s for an answer.
        evaluation_seconds: How often rules are evaluated.
        exporter_port: Of the first machine; the others have the next ones, where these are free.
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
    """Make the past, start everything and wait until it works; what runs already goes on.

    When it cannot be brought up, or is interrupted, nothing is left running.

    Args:
        wishes: Where, and how much.
        report: Called with one line at a time: what happens.
        find: Returns the path of a program by its name; None searches PATH, then Debian's packages.

    Returns:
        The programs.

    Raises:
        StackError: A program does not start, or does not work, or the directory is not the demo's.
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
    """Stop every process of the demo and remove all that it has written.

    Raises:
        StackError: A process cannot be ended, or the directory is not the demo's.
    """
    if not state_dir.is_dir():
        report("nothing is running")
        return
    _refuse_foreign_directory(state_dir)
    take_down(Settings(state_dir), report=report)
    shutil.rmtree(state_dir)


def _refuse_foreign_directory(state_dir: Path) -> None:
    """Check that a directory may be removed: it is empty, or an earlier demo has made it."""
    names = {path.name for path in state_dir.iterdir()} if state_dir.is_dir() else set()
    if names - {_LOCK} and _MARK not in names:
        raise StackError(
            f"{state_dir} has files that are not the demo's, which removes its directory at the "
            "end: choose an empty one with --state-dir"
        )


def find_running(state_dir: Path) -> tuple[Program, ...]:
    """Return the programs of a demo that runs whole; none where it does not."""
    programs = load_programs(state_dir)
    states = ask_states(state_dir) or ()
    running = {each.name for each in states if each.state in STARTED}
    return programs if programs and running == {each.name for each in programs} else ()


def wait_for_alerts(programs: Sequence[Program]) -> tuple[str, ...]:
    """Wait until all alerts fire whose time has come, and name them; none without Prometheus."""
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
    """Return whether every group of rules was evaluated often enough for its alerts to fire."""
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
    """Remove what an earlier demo has left, which is over; the lock is held."""
    (state_dir / _MARK).touch()
    for path in state_dir.iterdir():
        if path.name in {_LOCK, _MARK}:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write_past(machines: Sequence[Machine], wishes: Wishes, tools: Tools, report: Report) -> None:
    """Write the past, and what has become of it meanwhile, until it reaches the present."""
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
        # Machines whose story is known may be written ahead of time.
        ahead, most_ahead = min(most_ahead, time.monotonic() - began), 2 * most_ahead
        since, until = moments[-1] + 1, _round_up(time.time() + ahead - _GAP_SECONDS)
    shutil.rmtree(directory)
    time.sleep(max(0.0, moments[-1] - time.time()))


def _round_up(moment: float) -> float:
    """Return the next moment of the past's, which may be to come."""
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
    """Plan what the stack plans, with the demo's provisioning and flags."""

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
    """Return the environment in which `python -m fleet` is found from any directory."""
    given = os.environ.get("PYTHONPATH", "")
    places = [ROOT, ROOT / "exporter", *(Path(each).resolve() for each in given.split(":") if each)]
    return {**os.environ, "PYTHONPATH": ":".join(dict.fromkeys(map(str, places)))}


def _pick_ports(wishes: Wishes, count: int) -> list[int]:
    first = _pick(wishes.exporter_port, EXPORTER_PORT)
    return [first, *(_pick(None, first + number) for number in range(1, count))]


def _pick(wanted: int | None, usual: int) -> int:
    """Return the port that is wanted; where none is, the usual one if it is free, else a free one."""
    if wanted is not None:
        return wanted
    return usual if is_free(usual) else find_lasting_port()


def find_lasting_port() -> int:
    """Return a port that nothing listens on, nor will before the past is written.

    It is outside the range from which the kernel chooses ports itself.

    Raises:
        StackError: No port is free.
    """
    for port in random.sample(_LASTING_PORTS, len(_LASTING_PORTS)):
        if is_free(port):
            return port
    raise StackError("no port of 127.0.0.1 is free: name some with --exporter-port and the like")
