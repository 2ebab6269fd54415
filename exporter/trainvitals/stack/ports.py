"""Ports that the stack needs and something else has."""

from __future__ import annotations

import socket

from trainvitals.errors import StackError
from trainvitals.listen import find_port_holder
from trainvitals.stack.programs import HOST, Program


def refuse_taken_ports(programs: tuple[Program, ...]) -> None:
    """Check that every program can listen.

    Raises:
        StackError: A port is taken; the message names the process that has it.
    """
    for program in programs:
        if not _is_free(program.port):
            raise StackError(
                f"port {program.port} for the {program.name} is taken by "
                f"{_describe_holder(program.port)}: stop that, or choose another with "
                f"{program.name.upper()}_PORT"
            )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a connection that only lingers does not take the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _describe_holder(port: int) -> str:
    holder = find_port_holder(port)
    if holder is None:
        return "another user's process"
    pid, name = holder
    return f"{name} (pid {pid})"
