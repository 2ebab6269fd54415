"""Checks the states of containers, their access to accelerators, and Docker's log settings."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from trainvitals.doctor.docker_logging import DEFAULT_FILE, LogSettings, inspect
from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, skip, warn
from trainvitals.errors import SourceError
from trainvitals.foreign_text import name_rest
from trainvitals.sources.containers.documents import (
    Document,
    as_mapping,
    get_list,
    get_mapping,
    get_number,
    get_text,
)
from trainvitals.sources.containers.engine import EngineError
from trainvitals.sources.files import read_text

_NO_ENGINE = "no container engine"
_SPECIFICATIONS = ("etc/cdi", "var/run/cdi", "run/cdi")
_MOST_SHOWN = 4
_MOST_LISTED = 20


def _check_containers(facts: Facts) -> Finding:
    client = facts.engine()
    if client is None:
        return skip(_NO_ENGINE)
    try:
        listed = client.list_containers()
    except EngineError as error:
        return _explain_error(error, facts)
    states = [(get_text(each, "State"), get_text(each, "Status"), _name(each)) for each in listed]
    ill = [
        f"{name}: {status.lower()}"
        for state, status, name in states
        if state in {"restarting", "dead"} or "(unhealthy)" in status
    ]
    running = sum(state == "running" for state, _, _ in states)
    what = f"{running} running, {len(states) - running} stopped"
    finding = ok(what)
    if ill:
        name = ill[0].partition(":")[0]
        finding = warn(f"{what}; {', '.join(ill[:_MOST_SHOWN])}", f"trainvitals diagnose {name}")
    return replace(finding, details=tuple(_list_running(listed)))


def _list_running(listed: Sequence[Document]) -> Iterator[str]:
    """Yield one line with name, status and ports for each running container."""
    running = [each for each in listed if get_text(each, "State") == "running"]
    for each in running[:_MOST_LISTED]:
        ports = ", ".join(
            dict.fromkeys(map(_describe_port, map(as_mapping, get_list(each, "Ports"))))
        )
        status = get_text(each, "Status").lower()
        yield f"{_name(each)}: {status}" + (f", ports {ports}" if ports else "")
    if len(running) > _MOST_LISTED:
        yield name_rest(len(running) - _MOST_LISTED)


def _describe_port(port: Document) -> str:
    """Format a port like `docker ps`: `0.0.0.0:80->80/tcp`, or `80/tcp` if not published."""
    inside = f"{get_number(port, 'PrivatePort')}/{get_text(port, 'Type')}"
    outside = get_number(port, "PublicPort")
    if outside is None:
        return inside
    host = get_text(port, "IP")
    return f"{f'[{host}]' if ':' in host else host}:{outside}->{inside}"


def _name(listed: object) -> str:
    names = listed.get("Names") if isinstance(listed, dict) else None
    return str(names[0]).lstrip("/") if isinstance(names, list) and names else "?"


def _explain_error(error: EngineError, facts: Facts) -> Finding:
    if "ermission" in error.why:
        return warn(
            f"this user may not use the engine: {error.why}",
            'sudo usermod --append --groups docker "$USER" && newgrp docker',
            advice="members of that group can become root; or run this with sudo",
        )
    return fail(
        f"the engine does not respond: {error.why}",
        facts.write_service_command("restart", "docker"),
        advice=error.remedy,
    )


def _check_toolkit(facts: Facts) -> Finding:
    if not facts.has_gpus and not facts.has_hpus:
        return skip("no accelerator")
    if facts.engine() is None:
        return skip(_NO_ENGINE)
    try:
        info = facts.engine_info() or {}
    except EngineError as error:
        return skip(f"the engine does not respond: {error.why}")
    runtimes = get_mapping(info, "Runtimes")
    return _judge_nvidia(runtimes, facts) if facts.has_gpus else _judge_habana(runtimes, facts)


def _judge_nvidia(runtimes: Document, facts: Facts) -> Finding:
    if "nvidia" in runtimes:
        return ok("the engine has the runtime nvidia")
    if found := _find_specification(facts, "nvidia.com/gpu"):
        return ok(f"{found} has CDI devices: `--device nvidia.com/gpu=all`")
    configure = "sudo nvidia-ctk runtime configure --runtime=docker"
    advice = "without live-restore, restarting Docker ends all running containers"
    if shutil.which("nvidia-ctk", path=facts.machine.environ.get("PATH", "")):
        return fail(
            "the NVIDIA Container Toolkit is installed, but the engine is not configured for it",
            f"{configure} && {facts.write_service_command('restart', 'docker')}",
            advice=advice,
        )
    return fail(
        "the NVIDIA Container Toolkit is not installed",
        f"sudo apt-get install -y nvidia-container-toolkit && {configure}"
        f" && {facts.write_service_command('restart', 'docker')}",
        advice=advice,
    )


def _judge_habana(runtimes: Document, facts: Facts) -> Finding:
    if "habana" in runtimes or _find_specification(facts, "habana"):
        return ok("the engine has the runtime habana")
    return fail(
        "the engine has no runtime habana",
        "sudo apt-get install -y habanalabs-container-runtime"
        f" && {facts.write_service_command('restart', 'docker')}",
        advice="then add the runtime to /etc/docker/daemon.json",
    )


def _find_specification(facts: Facts, kind: str) -> str:
    files = _list_specifications(facts.machine.roots.rootfs)
    return next((str(file) for file in files if kind in read_text(file)), "")


def _list_specifications(root: Path) -> Iterator[Path]:
    for folder in _SPECIFICATIONS:
        for suffix in ("yaml", "yml", "json"):
            yield from sorted((root / folder).glob(f"*.{suffix}"))


def _check_logging(facts: Facts) -> Finding:
    root = facts.machine.roots.rootfs
    file = root / str(DEFAULT_FILE).lstrip("/")
    if facts.engine() is None and not file.exists():
        return skip(_NO_ENGINE)
    try:
        runs_docker = bool(get_text(facts.engine_info() or {}, "DockerRootDir"))
    except SourceError:
        runs_docker = True
    if facts.engine() is not None and not runs_docker and not file.exists():
        return skip("the engine is not Docker")
    findings = inspect(file, LogSettings(), engine="none", environ=facts.machine.environ, root=root)
    command = "sudo trainvitals docker-logging --apply"
    name = str(file) if findings.before is not None else f"no {file}, so Docker's defaults apply"
    if findings.syntax_error:
        return fail(findings.syntax_error, f"sudo nano {DEFAULT_FILE}", advice="correct the file")
    wrong = [each for each in findings.problems if each.effect != "note"]
    what = f"{name}: " + "; ".join(f"{each.place}: {each.text}" for each in wrong)
    if any(each.is_fatal for each in wrong):
        return fail(what, command)
    return warn(what, command) if wrong else ok(f"{name}: correct")


_SUBJECT = "containers"
CHECKS = (
    Check(
        "container-states",
        _SUBJECT,
        "an engine that does not respond; a warning for containers that are unhealthy, restart "
        "repeatedly, or could not be removed; for each that runs its status and ports",
        "a service that the run needs (a database, a feature store) may be down",
        _check_containers,
        is_quick=True,
    ),
    Check(
        "container-toolkit",
        _SUBJECT,
        "an engine that cannot pass accelerators to containers",
        'Docker says "could not select device driver with capabilities: [[gpu]]"',
        _check_toolkit,
    ),
    Check(
        "docker-logging",
        _SUBJECT,
        "a `daemon.json` with which Docker does not start; a warning if logs grow without a limit, "
        "or containers end with the daemon",
        "the log of a run fills the disk, and an update of Docker ends every run",
        _check_logging,
    ),
)
