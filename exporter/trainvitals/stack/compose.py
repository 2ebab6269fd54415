"""The stack as containers: everything up, or nothing left behind."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.notify import write_configuration
from trainvitals.notify.checking import parse_version
from trainvitals.stack.complaints import explain
from trainvitals.stack.configuration import name_machine
from trainvitals.stack.containers import Container, list_containers, read_last_words
from trainvitals.stack.destinations import DIRECTORY, recall_destinations, remember_destinations
from trainvitals.stack.engine import (
    Lack,
    find_cards,
    find_overrides,
    find_withheld,
    look_for_engine,
)
from trainvitals.stack.grafana import keep_admin_password
from trainvitals.stack.handover import (
    hand_over_alertmanager,
    hand_over_password,
    hand_over_targets,
)
from trainvitals.stack.images import build_images, list_images, pull_images
from trainvitals.stack.lineup import find_links
from trainvitals.stack.ports import refuse_taken_ports
from trainvitals.stack.programs import (
    Program,
    answers,
    find_host,
    forget_programs,
    recall_programs,
    remember_programs,
)
from trainvitals.stack.project import Project, find_project, recall_project, remember_project
from trainvitals.stack.prometheus import PrometheusStatus, ask_prometheus
from trainvitals.stack.readiness import wait_for_prometheus
from trainvitals.stack.reloading import RELOADS, reload_program
from trainvitals.stack.settings import Settings
from trainvitals.stack.status import ProgramStatus, StackStatus
from trainvitals.stack.writing import hold_lock, refuse_full_disk

Report = Callable[[str], None]

# A Prometheus that has crashed reads its log of writes first, which takes minutes when it is large.
_HEALTH_SECONDS = 600.0
_SETTLE_SECONDS = 90.0
_RESTARTS_SEEN = 3
_ALERTS = "alerts go to"
_CULPRIT = re.compile(r"container \S+?-([a-z-]+)-\d+ (?:is unhealthy|exited)")
_HEALTHY = re.compile(r"Container \S+?-([a-z-]+)-\d+ +Healthy$")


def bring_up_compose(
    settings: Settings,
    *,
    report: Report,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> None:
    """Start what does not run yet and wait until all of it works.

    Containers that run as they should go on running and read their configuration again. When the
    stack cannot be brought up, or is interrupted, nothing is left running; volumes stay.

    Args:
        settings: Ports, directories and variables.
        report: Told in one line at a time what happens and where things are.
        environ: What `docker` inherits.
        root: Where the drivers of accelerators are looked for.

    Raises:
        ConfigurationError: A variable says something that cannot be done.
        StackError: There is no engine, an image cannot be had, a port is taken, or a container
            does not start or does not work.
    """
    engine = look_for_engine({**environ, **settings.variables})
    if isinstance(engine, Lack):
        raise StackError(engine.reason)
    overrides = find_overrides(engine, find_cards(root), environ)
    with hold_lock(settings.state_dir):
        refuse_full_disk(settings.state_dir)
        project = find_project(settings, overrides, engine=engine, environ=environ)
        programs = _list_programs(settings)
        before = list_containers(project)
        _refuse_taken_ports(project, programs, before, settings.bind_address)
        if withheld := find_withheld(find_cards(root), overrides):
            report(f"no accelerators will be seen: {withheld}")
        with ExitStack() as undo:
            undo.callback(_undo, project, report)
            _supply(project, settings, report)
            remember_project(settings.state_dir, project)
            remember_programs(settings.state_dir, programs)
            _start(project, report)
            _reload(project, programs, before)
            _wait(project, programs, report)
            undo.pop_all()
    for number, line in enumerate(recall_destinations(settings.state_dir)):
        report(f"{'' if number else _ALERTS:{len(_ALERTS)}} {line}")
    report(
        "the stack runs in Docker Compose; data is in volumes named "
        f"{project.name}_…, passwords and configuration in {settings.state_dir}"
    )


def _list_programs(settings: Settings) -> tuple[Program, ...]:
    host = find_host(settings.bind_address)
    return (
        Program("exporter", (), settings.exporter_port, "/-/healthy", host),
        Program("prometheus", (), settings.prometheus_port, "/-/ready", host),
        Program("alertmanager", (), settings.alertmanager_port, "/-/ready", host),
        Program("grafana", (), settings.grafana_port, "/api/health", host),
    )


def _refuse_taken_ports(
    project: Project,
    programs: tuple[Program, ...],
    containers: tuple[Container, ...],
    bind_address: str,
) -> None:
    ours = frozenset[int]().union(*(each.ports for each in containers if each.state == "running"))
    wanted = tuple(program for program in programs if program.port not in ours)
    for program in wanted:
        told = project.docker.ask(
            "ps", "--filter", f"publish={program.port}", "--format", "{{.Names}}"
        )
        if others := told.output.split():
            raise StackError(
                f"port {program.port} for the {program.name} is taken by the container "
                f"{others[0]}: stop that, or choose another with {program.name.upper()}_PORT"
            )
    refuse_taken_ports(wanted, bind_address)


def _supply(project: Project, settings: Settings, report: Report) -> None:
    """Have the images, the configuration and the password that the containers need."""
    images = list_images(project)
    pull_images(project, images, report)
    build_images(project, report)
    state_dir = settings.state_dir
    hand_over_targets(state_dir, machine=name_machine(settings.variables))
    rendered = write_configuration(
        settings.variables,
        state_dir / DIRECTORY,
        shipped=project.directory / "alertmanager",
        links=find_links(settings, has_grafana=True),
        version=_ask_version(project, images["alertmanager"].name),
        report=report,
    )
    remember_destinations(state_dir, rendered.destinations.describe())
    hand_over_alertmanager(state_dir, rendered.path)
    hand_over_password(keep_admin_password(state_dir, settings.variables, report=report))


def _ask_version(project: Project, image: str) -> tuple[int, int] | None:
    """Ask the image which Alertmanager it has, which decides on the receivers that it knows."""
    told = project.docker.ask("run", "--rm", "--network", "none", image, "--version")
    return parse_version(told.output + told.complaint) if not told.code else None


def _start(project: Project, report: Report) -> None:
    restarts: dict[str, int] = {}
    healthy: set[str] = set()

    def heard(line: str) -> None:
        found = _HEALTHY.search(line)
        if found and found[1] not in healthy:
            healthy.add(found[1])
            report(f"{found[1]} is healthy")

    words = ("up", "--detach", "--no-build", "--remove-orphans", "--wait")
    limit = ("--wait-timeout", f"{_HEALTH_SECONDS:.0f}")
    said = project.docker.follow(
        *project.words(*words, *limit),
        heard=heard,
        idle=lambda: _refuse_crash_loop(project, restarts, report),
    )
    if said.code:
        for service in _find_culprits(project, said.complaint):
            _quote(project, service, report)
        raise StackError(explain(said.complaint, doing="start the containers"))


def _find_culprits(project: Project, complaint: str) -> list[str]:
    if named := _CULPRIT.findall(complaint):
        return sorted(set(named))
    containers = list_containers(project)
    return [each.service for each in containers if each.state != "created" and not each.is_healthy]


def _refuse_crash_loop(project: Project, restarts: dict[str, int], report: Report) -> None:
    """Compose waits on for a container that ends and is started again and again."""
    for container in list_containers(project):
        if container.state == "restarting":
            restarts[container.service] = restarts.get(container.service, 0) + 1
        if restarts.get(container.service, 0) >= _RESTARTS_SEEN:
            _quote(project, container.service, report)
            raise StackError(
                f"{container.service} does not stay up (exit code {container.exit_code}): "
                "its last words are above"
            )


def _quote(project: Project, service: str, report: Report) -> None:
    for line in read_last_words(project, service):
        report(f"{service} | {line}")


def _reload(project: Project, programs: tuple[Program, ...], before: tuple[Container, ...]) -> None:
    """Let those read their configuration again that were not started anew."""
    known = {container.id for container in before if container.state == "running"}
    kept = {each.service: each.id for each in list_containers(project) if each.id in known}
    for program in programs:
        if program.name in RELOADS and program.name in kept:
            hang_up = functools.partial(_hang_up, project, kept[program.name])
            reload_program(program, hang_up, look=_look(project, program.name))


def _hang_up(project: Project, container: str) -> None:
    # Not by `docker kill`: whatever the signal, Docker takes it for a stop that was asked for, and
    # would not start the container again after its next end.
    said = project.docker.ask("exec", container, "kill", "-HUP", "1")
    if said.code:
        raise StackError(explain(said.complaint, doing="have a container read its configuration"))


def _wait(project: Project, programs: tuple[Program, ...], report: Report) -> None:
    deadline = time.monotonic() + _SETTLE_SECONDS
    for program in programs:
        if not answers(program):
            raise StackError(
                f"{program.name} is healthy, but {program.address} does not lead to it: "
                f"{_look(project, program.name)}"
            )
        report(f"{program.name} answers at {program.address}")
    prometheus = next(program for program in programs if program.name == "prometheus")
    wait_for_prometheus(
        prometheus, report, deadline, look=_look(project, "prometheus"), has_alertmanager=True
    )


def _look(project: Project, service: str) -> str:
    return f"read `docker compose -p {project.name} logs {service}`"


def _undo(project: Project, report: Report) -> None:
    said = project.docker.ask(*project.words("down", "--remove-orphans"), patience_seconds=180)
    report(
        explain(said.complaint, doing="stop the containers")
        if said.code
        else "nothing is left running"
    )


def take_down_compose(
    settings: Settings, *, report: Report, environ: Mapping[str, str] = os.environ
) -> None:
    """Stop and remove every container of the stack; volumes, and so all data, stay.

    Raises:
        StackError: The engine does not answer, or a container cannot be stopped.
    """
    project = recall_project(settings, environ)
    with hold_lock(settings.state_dir):
        if project is None:
            report("nothing is running")
            return
        services = sorted({container.service for container in list_containers(project)})
        said = project.docker.ask(*project.words("down", "--remove-orphans"), patience_seconds=180)
        if said.code:
            raise StackError(explain(said.complaint, doing="stop the containers"))
        forget_programs(settings.state_dir)
        report(f"stopped {', '.join(services)}" if services else "nothing is running")


def describe_compose(settings: Settings, *, environ: Mapping[str, str] = os.environ) -> StackStatus:
    """Ask the engine about every container, and every program how it is."""
    project = recall_project(settings, environ)
    containers = {each.service: each for each in list_containers(project)} if project else {}
    programs = recall_programs(settings.state_dir) or _list_programs(settings)
    described = tuple(_describe(program, containers.get(program.name)) for program in programs)
    prometheus = next(program for program in programs if program.name == "prometheus")
    told = PrometheusStatus()
    if any(each.name == "prometheus" and each.answers for each in described):
        told = ask_prometheus(prometheus.port, prometheus.host)
    return StackStatus(
        way="compose",
        state_dir=settings.state_dir,
        programs=described,
        targets=told.targets,
        rules=told.rules,
        alerts=told.alerts,
        alertmanagers=told.alertmanagers,
        notifications=recall_destinations(settings.state_dir),
    )


def _describe(program: Program, container: Container | None) -> ProgramStatus:
    runs = container is not None and container.state == "running"
    return ProgramStatus(
        name=program.name,
        state=container.condition if container else "stopped",
        pid=None,
        address=program.address,
        answers=runs and answers(program),
    )


def follow_compose_logs(
    settings: Settings, *, lines: int = 40, environ: Mapping[str, str] = os.environ
) -> None:
    """Show the end of every container's log on standard output and follow them until interrupted.

    Raises:
        StackError: There are no containers, or their logs cannot be shown.
    """
    project = recall_project(settings, environ)
    if project is None or not list_containers(project):
        raise StackError("no containers: start the stack with `trainvitals up`")
    project.docker.show(*project.words("logs", "--follow", "--tail", str(lines)))
