"""Whether containers run well, get GPUs, and keep their logs within bounds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from trainvitals.dockerlogging import DEFAULT_FILE, Wanted, look
from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over, warn
from trainvitals.errors import SourceError
from trainvitals.sources.containers.documents import Document, get_mapping, get_text
from trainvitals.sources.containers.engine import EngineError

_NO_ENGINE = "no container engine here"
_SPECIFICATIONS = ("etc/cdi", "var/run/cdi", "run/cdi")
_MOST_TOLD = 4


def _examine_containers(facts: Facts) -> Finding:
    client = facts.engine()
    if client is None:
        return pass_over(_NO_ENGINE)
    try:
        listed = client.list_containers()
    except EngineError as error:
        return _tell_silence(error, facts)
    states = [(get_text(each, "State"), get_text(each, "Status"), _name(each)) for each in listed]
    ill = [
        f"{name}: {status.lower()}"
        for state, status, name in states
        if state in {"restarting", "dead"} or "(unhealthy)" in status
    ]
    running = sum(state == "running" for state, _, _ in states)
    what = f"{running} running, {len(states) - running} stopped"
    if ill:
        name = ill[0].partition(":")[0]
        return warn(f"{what}; {', '.join(ill[:_MOST_TOLD])}", f"trainvitals diagnose {name}")
    return approve(what)


def _name(listed: object) -> str:
    names = listed.get("Names") if isinstance(listed, dict) else None
    return str(names[0]).lstrip("/") if isinstance(names, list) and names else "?"


def _tell_silence(error: EngineError, facts: Facts) -> Finding:
    if "ermission" in error.why:
        return warn(
            f"the engine may not be asked: {error.why}",
            'sudo usermod --append --groups docker "$USER" && newgrp docker',
            advice="who is in that group can become root; or run this with sudo",
        )
    return complain(
        f"the engine: {error.why}", facts.write_control("restart", "docker"), advice=error.remedy
    )


def _examine_toolkit(facts: Facts) -> Finding:
    if not facts.has_gpus and not facts.has_hpus:
        return pass_over("no accelerator here")
    if facts.engine() is None:
        return pass_over(_NO_ENGINE)
    try:
        info = facts.engine_info() or {}
    except EngineError as error:
        return pass_over(f"the engine cannot be asked: {error.why}")
    runtimes = get_mapping(info, "Runtimes")
    return _judge_nvidia(runtimes, facts) if facts.has_gpus else _judge_habana(runtimes, facts)


def _judge_nvidia(runtimes: Document, facts: Facts) -> Finding:
    if "nvidia" in runtimes:
        return approve("the engine has the runtime nvidia")
    if found := _find_specification(facts, "nvidia.com/gpu"):
        return approve(f"{found} describes the GPUs (CDI): `--device nvidia.com/gpu=all`")
    configure = "sudo nvidia-ctk runtime configure --runtime=docker"
    advice = "without live-restore a restart of Docker ends running containers"
    if shutil.which("nvidia-ctk", path=facts.world.environ.get("PATH", "")):
        return complain(
            "the NVIDIA Container Toolkit is installed, and the engine does not know of it",
            f"{configure} && {facts.write_control('restart', 'docker')}",
            advice=advice,
        )
    return complain(
        "the NVIDIA Container Toolkit is not installed",
        f"sudo apt-get install -y nvidia-container-toolkit && {configure}"
        f" && {facts.write_control('restart', 'docker')}",
        advice=advice,
    )


def _judge_habana(runtimes: Document, facts: Facts) -> Finding:
    if "habana" in runtimes or _find_specification(facts, "habana"):
        return approve("the engine has the runtime habana")
    return complain(
        "the engine has no runtime habana",
        "sudo apt-get install -y habanalabs-container-runtime"
        f" && {facts.write_control('restart', 'docker')}",
        advice="and name the runtime in /etc/docker/daemon.json",
    )


def _find_specification(facts: Facts, kind: str) -> str:
    files = _list_specifications(facts.world.roots.rootfs)
    return next((str(file) for file in files if kind in _read(file)), "")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _list_specifications(root: Path) -> Iterator[Path]:
    for folder in _SPECIFICATIONS:
        for suffix in ("yaml", "yml", "json"):
            yield from sorted((root / folder).glob(f"*.{suffix}"))


def _examine_logging(facts: Facts) -> Finding:
    root = facts.world.roots.rootfs
    file = root / str(DEFAULT_FILE).lstrip("/")
    if facts.engine() is None and not file.exists():
        return pass_over(_NO_ENGINE)
    try:
        runs_docker = bool(get_text(facts.engine_info() or {}, "DockerRootDir"))
    except SourceError:
        runs_docker = True
    if facts.engine() is not None and not runs_docker and not file.exists():
        return pass_over("the engine is not Docker")
    findings = look(file, Wanted(), engine="none", environ=facts.world.environ, root=root)
    mend = "sudo trainvitals docker-logging --apply"
    name = str(file) if findings.before is not None else f"no {file}, so Docker's defaults hold"
    if findings.broken:
        return complain(findings.broken, f"sudo nano {DEFAULT_FILE}", advice="correct it by hand")
    told = [each for each in findings.problems if each.effect != "note"]
    what = f"{name}: " + "; ".join(f"{each.place}: {each.text}" for each in told)
    if any(each.is_fatal for each in told):
        return complain(what, mend)
    return warn(what, mend) if told else approve(f"{name}: right")


_SUBJECT = "containers"
CHECKS = (
    Check(
        "container-states",
        _SUBJECT,
        "an engine that does not answer; a warning for containers that are unhealthy, restart "
        "again and again, or could not be removed",
        "what the run leans on (a database, a feature store) may be down",
        _examine_containers,
        is_quick=True,
    ),
    Check(
        "container-toolkit",
        _SUBJECT,
        "an engine that cannot give accelerators to containers",
        'Docker says "could not select device driver with capabilities: [[gpu]]"',
        _examine_toolkit,
    ),
    Check(
        "docker-logging",
        _SUBJECT,
        "a `daemon.json` with which Docker does not start; a warning where logs grow without end, "
        "or containers end with the daemon",
        "a chatty run fills the disk, and an update of Docker ends every run",
        _examine_logging,
    ),
)
