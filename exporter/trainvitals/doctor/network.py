"""Checks the network: the default route, host names, addresses and ports."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, skip, warn
from trainvitals.doctor.machine import name_user
from trainvitals.foreign_numbers import read_digits
from trainvitals.http.listen import Address
from trainvitals.sources.files import read_small
from trainvitals.units import format_duration
from trainvitals.workers import Outcome, WorkerPool

_TIMEOUT_SECONDS = 2.0
_GRACE_SECONDS = 0.2
_UNKNOWN = "the name cannot be resolved"
_PAGE_SECONDS = 0.5
_LISTENING = "0A"
_LOCAL, _STATE, _USER = 1, 3, 7  # the columns of /proc/net/tcp
_LAST_PORT = 65535
_ANYWHERE, _ANYWHERE_6 = "0" * 8, "0" * 32
_COLUMNS = 10  # the number of columns in ipv6_route; the last column is the interface


class _Program(NamedTuple):
    """A program of the monitoring stack.

    Attributes:
        name: The name of the program in messages.
        path: The path of the page that identifies the program.
        words: Text that this page contains.
        variable: The environment variable that sets another port for the program.
    """

    name: str
    path: str
    words: str
    variable: str


_STACK = {
    9200: _Program("the exporter", "/-/healthy", "trainvitals", "EXPORTER_PORT"),
    9090: _Program("Prometheus", "/-/healthy", "Prometheus", "PROMETHEUS_PORT"),
    9093: _Program("Alertmanager", "/-/healthy", "OK", "ALERTMANAGER_PORT"),
    3000: _Program("Grafana", "/api/health", '"database"', "GRAFANA_PORT"),
}


def _find_route(procfs: Path) -> str:
    """Return the interface of a default route; "" if the machine has no default route."""
    for line in (read_small(procfs / "net/route") or "").splitlines()[1:]:
        name, destination, *_ = (*line.split(), "", "")
        if destination == _ANYWHERE:
            return name
    for line in (read_small(procfs / "net/ipv6_route") or "").splitlines():
        destination, length, *_, name = (*line.split(), "", "", "")[:_COLUMNS]
        if (destination, length) == (_ANYWHERE_6, "00") and name not in {"", "lo"}:
            return name
    return ""


def _check_route(facts: Facts) -> Finding:
    interface = _find_route(facts.machine.roots.procfs)
    if interface:
        return ok(f"default route through {interface}")
    return warn(
        "no default route, so nothing outside the local network can be reached",
        "ip route; ip -brief address",
        advice="ignore this on a machine without internet access",
    )


def _list_names(facts: Facts) -> list[str]:
    names = [address.host for address in facts.options.reach]
    if master := facts.machine.environ.get("MASTER_ADDR"):
        names.append(master)
    return list(dict.fromkeys([facts.machine.hostname, *names]))


def _check_names(facts: Facts) -> Finding:
    names = _list_names(facts)
    tasks = {name: partial(facts.machine.resolve, name, None) for name in names}
    outcomes = _gather(tasks, facts)
    unknown = [name for name in names if outcomes[name].late or outcomes[name].error]
    if not unknown:
        return ok(f"resolved {', '.join(names)}")
    own = facts.machine.hostname
    if unknown == [own]:
        return warn(
            f"{own}, the name of this machine, cannot be resolved",
            f'echo "127.0.1.1 {own}" | sudo tee -a /etc/hosts',
        )
    listed, name = ", ".join(unknown), next(name for name in unknown if name != own)
    if outcomes[name].late:
        return fail(
            f"the name server does not answer for {listed}",
            "cat /etc/resolv.conf",
            advice="it is down, or not reachable from here",
        )
    return fail(
        f"{listed} cannot be resolved",
        f"getent ahosts {name} || cat /etc/resolv.conf",
        advice="correct the name, or the name servers in /etc/resolv.conf",
    )


def _check_reach(facts: Facts) -> Finding:
    wanted = facts.options.reach
    if not wanted:
        return skip("no address in --reach")
    outcomes = _gather({str(each): partial(_connect, each, facts) for each in wanted}, facts)
    failed = [each for each in wanted if outcomes[str(each)].late or outcomes[str(each)].error]
    if not failed:
        return ok(
            ", ".join(
                f"{each} in {format_duration(outcomes[str(each)].seconds)}" for each in wanted
            )
        )
    reasons = {each: _explain(outcomes[str(each)]) for each in failed}
    first = failed[0]
    return fail(
        ", ".join(f"{each}: {reason}" for each, reason in reasons.items()),
        f"getent ahosts {first.host}"
        if reasons[first] == _UNKNOWN
        else f"nc -vz -w 3 {first.host} {first.port}",
        advice=_advise(reasons[first]),
    )


def _connect(address: Address, facts: Facts) -> None:
    facts.machine.connect((address.host, address.port), _TIMEOUT_SECONDS).close()


def _gather(tasks: Mapping[str, Callable[[], object]], facts: Facts) -> dict[str, Outcome[object]]:
    """Run tasks in parallel, so that a task that receives no response does not delay the others."""
    pool = WorkerPool(name="network", limit=len(tasks))
    try:
        return pool.gather(tasks, min(_TIMEOUT_SECONDS + _GRACE_SECONDS, facts.seconds_left))
    finally:
        pool.close()


def _explain(outcome: Outcome[object]) -> str:
    if outcome.late or isinstance(outcome.error, TimeoutError):
        return "no answer"
    if isinstance(outcome.error, socket.gaierror):
        return _UNKNOWN
    reason = getattr(outcome.error, "strerror", None) or str(outcome.error)
    return reason.lower()


def _advise(reason: str) -> str:
    if "refused" in reason:
        return "the host answers, but nothing listens on that port: start the program, or correct the port"
    if "no answer" in reason:
        return "a firewall drops the packets, or the host is down"
    return ""


def list_listening(procfs: Path) -> dict[int, int]:
    """Return the listening TCP ports, and the user ID of the owner of each socket."""
    found: dict[int, int] = {}
    for name in ("tcp", "tcp6"):
        try:
            text = (procfs / "net" / name).read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            columns = line.split()
            if len(columns) > _USER and columns[_STATE] == _LISTENING:
                found[int(columns[_LOCAL].rpartition(":")[2], 16)] = int(columns[_USER])
    return found


def _check_ports(facts: Facts) -> Finding:
    taken = list_listening(facts.machine.roots.procfs)
    wanted = list(facts.options.ports)
    master = read_digits(facts.machine.environ.get("MASTER_PORT", ""), _LAST_PORT)
    if master is not None:
        wanted.append(master)
    if held := [port for port in wanted if port in taken]:
        return _report_held(held, taken, facts)
    stack = [port for port in _STACK if port in taken and port not in wanted]
    if foreign := [port for port in stack if not _is_stack(port, facts)]:
        return _report_foreign(foreign, taken, facts)
    free = ", ".join(str(port) for port in (*wanted, *_STACK) if port not in taken)
    used = ", ".join(f"{port} used by {_STACK[port].name}" for port in stack)
    return ok("; ".join(filter(None, (free and f"{free} free", used))))


def _report_held(held: Sequence[int], taken: Mapping[int, int], facts: Facts) -> Finding:
    holder = facts.machine.find_holder(held[0])
    return fail(
        "; ".join(_describe(port, taken, facts) for port in held),
        f"kill {holder.pid}" if holder else f"sudo ss -ltnp 'sport = :{held[0]}'",
        advice=f"or use {_find_free(taken, held[0])}, the next free port",
    )


def _report_foreign(foreign: Sequence[int], taken: Mapping[int, int], facts: Facts) -> Finding:
    program = _STACK[foreign[0]]
    return warn(
        "; ".join(
            f"{_describe(port, taken, facts)}; {_STACK[port].name} needs it" for port in foreign
        ),
        f"{program.variable}={_find_free(taken, foreign[0])} trainvitals up",
        advice=f"starts the stack with {program.name} on the next free port",
    )


def _is_stack(port: int, facts: Facts) -> bool:
    # The program is identified by its page, because the process that holds a container's port
    # belongs to Docker.
    program = _STACK[port]
    page = facts.machine.fetch_page(port, program.path, timeout_seconds=_PAGE_SECONDS)
    return page is not None and program.words.encode() in page


def _find_free(taken: Mapping[int, int], port: int) -> int | None:
    return next((each for each in range(port + 1, _LAST_PORT + 1) if each not in taken), None)


def _describe(port: int, taken: Mapping[int, int], facts: Facts) -> str:
    holder = facts.machine.find_holder(port) or f"a process of {name_user(taken[port])}"
    return f"{port} is in use by {holder}"


_SUBJECT = "network"
CHECKS = (
    Check(
        "route",
        _SUBJECT,
        "a machine without a default route",
        "data sets and models cannot be downloaded, and other machines cannot be reached",
        _check_route,
        is_quick=True,
    ),
    Check(
        "names",
        _SUBJECT,
        "a `MASTER_ADDR` or host of `--reach` that cannot be resolved; a warning for the name of "
        "this machine",
        "torchrun and Gloo resolve both ends, and fail or wait for minutes",
        _check_names,
        on_timeout="problem",
    ),
    Check(
        "reach",
        _SUBJECT,
        "an address of `--reach` that does not accept connections",
        "the run fails when it connects: at its start, or at the end of the first epoch",
        _check_reach,
        is_quick=True,
        on_timeout="problem",
    ),
    Check(
        "ports",
        _SUBJECT,
        "a port of `--port` or `MASTER_PORT` that is in use; a warning for a port of the stack (9200, "
        "9090, 9093, 3000) that another program uses",
        'the program that needs it ends with "Address already in use"',
        _check_ports,
    ),
)
