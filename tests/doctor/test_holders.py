"""Who holds accelerators and ports, by the processes and programs that really do."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

from tests.doctor.patient import Patient
from trainvitals.doctor.ports import answers, list_listening


def test_what_is_left_of_an_earlier_run_is_named_and_can_be_ended(patient: Patient):
    """A process of one's own is named with its user, and the command ends it."""
    machine = patient.add_gpus(1)
    patient.proc = Path("/proc")
    patient.world["user"] = os.getuid()
    program = [sys.executable, "-c", "input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as left:
        machine.processes(0, [(left.pid, 70 << 30)])
        machine.gpu(0).memory_used_bytes = 70 << 30
        finding = patient.find("free-accelerators")
        left.communicate(b"\n")
    user = pwd.getpwuid(os.getuid()).pw_name
    assert finding.what.startswith("gpu 0: 70.0 GiB of 79.6 GiB held by python")
    assert finding.what.endswith(f"(pid {left.pid}, user {user})")
    assert finding.mend == f"kill {left.pid}"


def test_memory_that_nobody_seen_holds_is_told_as_such(patient: Patient):
    """In a container, or after a crash, the driver names no process."""
    machine = patient.add_gpus(1)
    machine.gpu(0).memory_used_bytes = 70 << 30
    finding = patient.find("free-accelerators")
    assert finding.what.endswith("held by processes that are not seen from here")
    assert finding.mend == "sudo fuser -v /dev/nvidia*"


def test_who_listens_is_found_by_the_kernels_own_list(patient: Patient):
    """The port, and the number of the user whose it is."""
    port = patient.listen()
    assert list_listening(Path("/proc"))[port] == os.getuid()


def test_a_program_of_the_stack_is_known_by_what_it_says(patient: Patient):
    """Its port is not one that a stranger has."""
    with patient.issuer((200, "Prometheus Server is Healthy.\n")) as prometheus:
        port = int(prometheus.address.rpartition(":")[2])
        assert answers(port, "/-/healthy", "Prometheus")
        assert not answers(port, "/api/health", '"database"')
    with patient.issuer((404, "Prometheus")) as stranger:
        assert not answers(int(stranger.address.rpartition(":")[2]), "/-/healthy", "Prometheus")
    assert not answers(1, "/-/healthy", "")
