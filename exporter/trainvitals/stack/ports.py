"""Ports that the stack needs and something else has."""

from __future__ import annotations

import errno
import socket

from trainvitals.errors import StackError
from trainvitals.listen import find_port_holder
from trainvitals.stack.programs import Program

_NO_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def refuse_taken_ports(programs: tuple[Program, ...], bind_address: str) -> None:
    """Check that every program can listen.

    Raises:
        StackError: The address is none of this machine's, or a port is taken; the message names
            the process that has it.
    """
    for program in programs:
        if not _is_free(bind_address, program.port):
            raise StackError(
                f"port {program.port} for the {program.name} is taken by "
                f"{_describe_holder(program.port)}: stop that, or choose another with "
                f"{program.name.upper()}_PORT"
            )


def _is_free(bind_address: str, port: int) -> bool:
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            bind_address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as probe:
            # As servers do: a connection that only lingers does not take the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno in _NO_ADDRESS:
            raise StackError(
                f"BIND_ADDR is {bind_address}, which is no address of this machine: "
                "give one that it has, or 0.0.0.0 for all of them"
            ) from error
        return False
    return True


def _describe_holder(port: int) -> str:
    holder = find_port_holder(port)
    if holder is None:
        return "another user's process"
    pid, name = holder
    return f"{name} (pid {pid})"
