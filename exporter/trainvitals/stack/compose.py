"""Starts and stops the stack as containers: either all of the containers run, or none."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.sources.external_program import Version, parse_version
from trainvitals.stack.configuration import (
    configures_retention,
    ensure_admin_password,
    load_destinations,
    name_machine,
    read_retention,
    report_destinations,
    save_destinations,
    write_alertmanager_config,
)
from trainvitals.stack.container_files import (
    share_alertmanager_config,
    share_password,
    share_prometheus_config,
    share_targets,
)
from trainvitals.stack.engine import (
    Unavailable,
    explain_missing_runtime,
    find_accelerators,
    find_engine,
    find_overrides,
)
from trainvitals.stack.grafana import HEALTH
from trainvitals.stack.plan import find_links
from trainvitals.stack.programs import (
    Program,
    delete_programs,
    find_host,
    is_ready,
    load_programs,
    require_free_ports,
    save_programs,
)
from trainvitals.stack.project import Project, find_project, load_project, save_project
from trainvitals.stack.prometheus import PrometheusStatus, read_status
from trainvitals.stack.readiness import RELOADS, announce, reload_program, wait_for_prometheus
from trainvitals.stack.services import (
    Container,
    build_images,
    explain,
    list_containers,
    list_images,
    pull_images,
    read_last_lines,
)
from trainvitals.stack.settings import Settings
from trainvitals.stack.status import ProgramStatus, StackStatus
from trainvitals.stack.writing import hold_lock, require_free_space

Report = Callable[[str], None]

# After a crash, Prometheus replays its write-ahead log, which takes minutes if the log is large.
_HEALTH_SECONDS = 600.0
_SETTLE_SECONDS = 90.0
_RESTARTS_SEEN = 3
# This flag replaces the retention flags: if the variable is empty, Compose uses default flags.
_DEFAULT_FLAG = "--log.level=info"
_CULPRIT = re.compile(r"container (\S{1,200}) (?:is unhealthy|exited)")
_HEALTHY = re.compile(r"Container (\S{1,200}) {1,40}Healthy$")
# The name of the service in a container name such as `trainvitals-node-exporter-1`.
_SERVICE = re.compile(r"-([a-z][a-z-]{0,39})-[0-9]{1,4}")


def bring_up_compose(
    settings: Settings,
    *,
    report: Report,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> None:
    """Start the containers that are not running, and wait until all containers are healthy.

    Running containers whose settings have not changed reload their configuration. If the start
    fails or is interrupted, all containers are stopped; volumes are kept.

    Args:
        settings: The stack's ports, directories and variables.
        report: Called with each line of progress.
        environ: The environment in which `docker` runs.
        root: The root directory of the file system that is searched for drivers.

    Raises:
        ConfigurationError: A variable is invalid.
        StackError: The engine does not respond, an image cannot be pulled or built, a port is in
            use, or a container does not start or is unhealthy.
    """
    engine = find_engine({**environ, **settings.variables})
    if isinstance(engine, Unavailable):
        raise StackError(engine.reason)
    overrides = find_overrides(engine, find_accelerators(root), environ)
    with hold_lock(settings.state_dir):
        require_free_space(settings.state_dir)
        project = find_project(settings, overrides, engine=engine, environ=environ)
        programs = _list_programs(settings)
        before = list_containers(project)
        _require_free_ports(project, programs, before, settings.bind_address)
        if missing := explain_missing_runtime(find_accelerators(root), overrides):
            report(f"no accelerator will be monitored: {missing}")
        with ExitStack() as undo:
            undo.callback(_undo, project, report)
            project = _prepare(project, settings, report)
            save_project(settings.state_dir, project)
            save_programs(settings.state_dir, programs)
            _start(project, report)
            _reload(project, programs, before)
            _wait(project, programs, report)
            undo.pop_all()
    report_destinations(settings.state_dir, report)
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
        Program("grafana", (), settings.grafana_port, HEALTH, host),
    )


def _require_free_ports(
    project: Project,
    programs: tuple[Program, ...],
    containers: tuple[Container, ...],
    bind_address: str,
) -> None:
    ours = frozenset[int]().union(*(each.ports for each in containers if each.state == "running"))
    wanted = tuple(program for program in programs if program.port not in ours)
    for program in wanted:
        result = project.docker.call(
            "ps", "--filter", f"publish={program.port}", "--format", "{{.Names}}"
        )
        if others := result.output.split():
            raise StackError(
                f"cannot start {program.name}: port {program.port} is in use by the container "
                f"{others[0]}; stop it, or set {program.name.upper()}_PORT to another port"
            )
    require_free_ports(wanted, bind_address)


def _prepare(project: Project, settings: Settings, report: Report) -> Project:
    """Prepare the images, the configuration and the password, and return the project to start."""
    images = list_images(project)
    pull_images(project, images, report)
    build_images(project, report)
    state_dir = settings.state_dir
    share_targets(state_dir, machine=name_machine(settings.variables))
    project = _configure_prometheus(project, settings, images["prometheus"].name)
    rendered = write_alertmanager_config(
        settings,
        shipped=project.directory / "alertmanager",
        links=find_links(settings, has_grafana=True),
        version=_read_version(project, images["alertmanager"].name),
        amtool=None,
        report=report,
    )
    save_destinations(state_dir, rendered.destinations.describe())
    share_alertmanager_config(state_dir, rendered.path)
    share_password(ensure_admin_password(state_dir, settings.variables, report=report))
    return project


def _configure_prometheus(project: Project, settings: Settings, image: str) -> Project:
    """Write Prometheus' configuration; return the project with the retention flags, if needed."""
    retention = read_retention(settings.variables)
    is_in_file = share_prometheus_config(
        settings.state_dir,
        shipped=project.directory / "prometheus/prometheus.yml",
        retention=retention if configures_retention(_read_version(project, image)) else None,
    )
    flags = _DEFAULT_FLAG if is_in_file else " ".join(retention.flags)
    variables = {**project.environment, "PROMETHEUS_RETENTION_FLAGS": flags}
    return replace(project, environment=variables)


def _read_version(project: Project, image: str) -> Version | None:
    """Return the version of the program in an image; None if the version is unknown."""
    result = project.docker.call("run", "--rm", "--network", "none", image, "--version")
    return parse_version(result.output + result.error) if not result.code else None


def _start(project: Project, report: Report) -> None:
    restarts: dict[str, int] = {}
    healthy: set[str] = set()

    def on_line(line: str) -> None:
        found = _HEALTHY.search(line)
        for service in () if found is None else _SERVICE.findall(found[1]):
            if service not in healthy:
                healthy.add(service)
                report(f"{service} is healthy")

    words = ("up", "--detach", "--no-build", "--remove-orphans", "--wait")
    limit = ("--wait-timeout", f"{_HEALTH_SECONDS:.0f}")
    result = project.docker.follow(
        *project.words(*words, *limit),
        on_line=on_line,
        on_idle=lambda: _raise_for_crash_loop(project, restarts, report),
    )
    if result.code:
        for service in _find_culprits(project, result.error):
            _quote(project, service, report)
        raise StackError(explain(result.error, doing="start the containers"))


def _find_culprits(project: Project, error: str) -> list[str]:
    if named := {each for name in _CULPRIT.findall(error) for each in _SERVICE.findall(name)}:
        return sorted(named)
    containers = list_containers(project)
    return [each.service for each in containers if each.state != "created" and not each.is_healthy]


def _raise_for_crash_loop(project: Project, restarts: dict[str, int], report: Report) -> None:
    """Raise StackError if a container restarts in a loop, because Compose would wait forever."""
    for container in list_containers(project):
        if container.state == "restarting":
            restarts[container.service] = restarts.get(container.service, 0) + 1
        if restarts.get(container.service, 0) >= _RESTARTS_SEEN:
            _quote(project, container.service, report)
            raise StackError(
                f"{container.service} keeps exiting (exit code {container.exit_code}): its last log "
                "lines are above"
            )


def _quote(project: Project, service: str, report: Report) -> None:
    for line in read_last_lines(project, service):
        report(f"{service} | {line}")


def _reload(project: Project, programs: tuple[Program, ...], before: tuple[Container, ...]) -> None:
    """Reload the configuration of the containers that were not restarted."""
    known = {container.id for container in before if container.state == "running"}
    kept = {each.service: each.id for each in list_containers(project) if each.id in known}
    for program in programs:
        if program.name in RELOADS and program.name in kept:
            send_sighup = functools.partial(_send_sighup, project, kept[program.name])
            reload_program(program, send_sighup, hint=_hint(project, program.name))


def _send_sighup(project: Project, container: str) -> None:
    # `docker kill` is not used: Docker treats any signal that this command sends as a manual stop,
    # and would not restart the container after the container's next exit.
    result = project.docker.call("exec", container, "kill", "-HUP", "1")
    if result.code:
        raise StackError(explain(result.error, doing="reload the configuration of a container"))


def _wait(project: Project, programs: tuple[Program, ...], report: Report) -> None:
    deadline = time.monotonic() + _SETTLE_SECONDS
    for program in programs:
        if not is_ready(program):
            raise StackError(
                f"{program.name} is healthy, but does not respond at {program.address}: "
                f"{_hint(project, program.name)}"
            )
        announce(program, report)
    prometheus = next(program for program in programs if program.name == "prometheus")
    wait_for_prometheus(
        prometheus, report, deadline, hint=_hint(project, "prometheus"), has_alertmanager=True
    )


def _hint(project: Project, service: str) -> str:
    return f"read `docker compose -p {project.name} logs {service}`"


def _undo(project: Project, report: Report) -> None:
    result = project.docker.call(*project.words("down", "--remove-orphans"), timeout_seconds=180)
    report(
        explain(result.error, doing="stop the containers")
        if result.code
        else "nothing is left running"
    )


def take_down_compose(
    settings: Settings, *, report: Report, environ: Mapping[str, str] = os.environ
) -> None:
    """Stop and remove every container of the stack; the volumes, which contain all data, are kept.

    Raises:
        StackError: The engine does not respond, or a container cannot be stopped.
    """
    project = load_project(settings, environ)
    with hold_lock(settings.state_dir):
        if project is None:
            report("nothing is running")
            return
        services = sorted({container.service for container in list_containers(project)})
        result = project.docker.call(
            *project.words("down", "--remove-orphans"), timeout_seconds=180
        )
        if result.code:
            raise StackError(explain(result.error, doing="stop the containers"))
        delete_programs(settings.state_dir)
        report(f"stopped {', '.join(services)}" if services else "nothing is running")


def describe_compose(settings: Settings, *, environ: Mapping[str, str] = os.environ) -> StackStatus:
    """Return the status of the stack's containers, programs, targets, rules and alerts."""
    project = load_project(settings, environ)
    containers = {each.service: each for each in list_containers(project)} if project else {}
    programs = load_programs(settings.state_dir) or _list_programs(settings)
    described = tuple(_describe(program, containers.get(program.name)) for program in programs)
    prometheus = next(program for program in programs if program.name == "prometheus")
    reported = PrometheusStatus()
    if any(each.name == "prometheus" and each.answers for each in described):
        reported = read_status(prometheus.port, prometheus.host)
    return StackStatus(
        way="compose",
        state_dir=settings.state_dir,
        programs=described,
        targets=reported.targets,
        rules=reported.rules,
        alerts=reported.alerts,
        alertmanagers=reported.alertmanagers,
        files_not_understood=reported.files_not_understood,
        globs_unmatched=reported.globs_unmatched,
        notifications=load_destinations(settings.state_dir),
    )


def _describe(program: Program, container: Container | None) -> ProgramStatus:
    runs = container is not None and container.state == "running"
    return ProgramStatus(
        name=program.name,
        state=container.condition if container else "stopped",
        pid=None,
        address=program.address,
        answers=runs and is_ready(program),
    )


def follow_compose_logs(
    settings: Settings, *, lines: int = 40, environ: Mapping[str, str] = os.environ
) -> None:
    """Print the last lines of every container's log, and follow the logs until an interrupt.

    Raises:
        StackError: No container exists, or the logs cannot be shown.
    """
    project = load_project(settings, environ)
    if project is None or not list_containers(project):
        raise StackError("there are no containers: start the stack with `trainvitals up`")
    project.docker.show(*project.words("logs", "--follow", "--tail", str(lines)))
