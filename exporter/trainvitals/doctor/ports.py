"""Whether ports are free, who holds them, and which is the next one that nobody does."""

from __future__ import annotations

import http.client
import pwd
from collections.abc import Mapping
from pathlib import Path

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, warn
from trainvitals.listen import find_port_holder

# What the stack listens on: whose it is, where that says that it is well and with what words,
# and the variable that gives it another port.
_OWN = {
    9200: ("the exporter", "/-/healthy", "trainvitals", "EXPORTER_PORT"),
    9090: ("Prometheus", "/-/healthy", "Prometheus", "PROMETHEUS_PORT"),
    9093: ("Alertmanager", "/-/healthy", "OK", "ALERTMANAGER_PORT"),
    3000: ("Grafana", "/api/health", '"database"', "GRAFANA_PORT"),
}
_LISTENING = "0A"
_LOCAL, _STATE, _USER = 1, 3, 7
_LAST_PORT = 65535
_PATIENCE_SECONDS = 0.5
_OK = 200
_MOST_BYTES = 4096


def list_listening(procfs: Path) -> dict[int, int]:
    """List the TCP ports that something listens on, each with the number of its user."""
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


def find_free(taken: Mapping[int, int], port: int) -> int | None:
    """Find the next port that nobody listens on; None where there is none up to the last."""
    return next((each for each in range(port + 1, _LAST_PORT + 1) if each not in taken), None)


def _examine_ports(facts: Facts) -> Finding:
    taken = list_listening(facts.world.roots.procfs)
    wanted = list(facts.wishes.ports)
    master = facts.world.environ.get("MASTER_PORT", "")
    if master.isdecimal() and int(master) <= _LAST_PORT:
        wanted.append(int(master))
    told = [_tell(port, taken) for port in wanted if port in taken]
    if told:
        port = next(port for port in wanted if port in taken)
        holder = find_port_holder(port)
        return complain(
            "; ".join(told),
            f"kill {holder[0]}" if holder else f"sudo ss -ltnp 'sport = :{port}'",
            advice=f"or take {find_free(taken, port)}, the next one that is free",
        )
    own = [port for port in _OWN if port in taken and port not in wanted]
    strange = [port for port in own if not answers(port, *_OWN[port][1:3])]
    if strange:
        port = strange[0]
        free = find_free(taken, port)
        name, _, _, variable = _OWN[port]
        return warn(
            "; ".join(f"{_tell(each, taken)}, which {_OWN[each][0]} wants" for each in strange),
            f"{variable}={free} trainvitals up",
            advice=f"starts the stack with {name} on the next port that is free",
        )
    free_ones = ", ".join(str(port) for port in (*wanted, *_OWN) if port not in taken)
    running = ", ".join(f"{port} is {_OWN[port][0]}'s" for port in own)
    return approve("; ".join(filter(None, (free_ones and f"{free_ones} free", running))))


def _tell(port: int, taken: Mapping[int, int]) -> str:
    holder = find_port_holder(port)
    if holder is not None:
        return f"{port} is held by {holder[1]} (pid {holder[0]})"
    return f"{port} is held by a process of {_name_user(taken[port])}"


def _name_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def answers(port: int, path: str, words: str) -> bool:
    """Ask who listens whether it is well.

    Whoever's process it is: Docker holds the ports of containers itself.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return answer.status == _OK and words in body


_SUBJECT = "network"
CHECKS = (
    Check(
        "ports",
        _SUBJECT,
        "a port of `--port` or `MASTER_PORT` that something listens on; a warning for one of the "
        "stack (9200, 9090, 9093, 3000) that something else has",
        'a program that wants it ends with "Address already in use"',
        _examine_ports,
    ),
)
