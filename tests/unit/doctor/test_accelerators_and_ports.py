"""Tests for finding the processes that hold accelerators and ports, with real processes."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

from tests.unit.doctor.patient import Patient
from trainvitals.doctor.network import list_listening


def test_what_is_left_of_an_earlier_run_is_named_and_can_be_ended(patient: Patient):
    """A process of the same user that holds GPU memory is named, and the command ends it."""
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
    assert finding.what.startswith("gpu0: 70.0 GiB of 79.6 GiB held by python")
    assert finding.what.endswith(f"(pid {left.pid}, user {user})")
    assert finding.command == f"kill {left.pid}"


def test_memory_that_nobody_seen_holds_is_told_as_such(patient: Patient):
    """GPU memory that no visible process holds is reported as held by invisible processes."""
    machine = patient.add_gpus(1)
    machine.gpu(0).memory_used_bytes = 70 << 30
    finding = patient.find("free-accelerators")
    assert finding.what.endswith("held by processes that cannot be seen from here")
    assert finding.command == "sudo fuser -v /dev/nvidia*"


def test_each_gpu_is_shown_with_its_memory_temperature_and_links(patient: Patient):
    """The details of each GPU are shown even if another GPU is lost."""
    machine = patient.add_gpus(2)
    machine.gpu(0).memory_used_bytes = 12 << 30
    machine.gpu(0).temperature = 63
    machine.lose(1)
    finding = patient.find("accelerator-states")
    assert finding.status == "problem"
    assert finding.details == (
        "gpu0: memory 12.0 / 79.6 GiB, temperature 63 / 89 °C, links 18 of 18 up",
        "gpu1: lost",
    )
    patient.environ["ACCELERATOR_TEMPERATURE_LIMIT"] = "80"
    assert "temperature 63 / 80 °C" in patient.find("accelerator-states").details[0]


def test_cards_are_shown_in_the_order_of_the_other_views(patient: Patient):
    """The accelerators are listed by kind and index."""
    patient.add_accelerators(gpus=1, hpus=2)
    details = patient.find("accelerator-states").details
    assert [line.partition(":")[0] for line in details] == ["gpu0", "hpu0", "hpu1"]


def test_a_gaudi_card_is_shown_with_its_network_ports(patient: Patient):
    """A Gaudi card is shown with the number of its network interfaces that have a link."""
    machine = patient.add_accelerators(gpus=0, hpus=1)
    machine.hpu(0).temperature = 51
    for name, state in (("ens1d0", "up"), ("ens1d1", "down"), ("ens1d2", "up")):
        bus = machine.hpu(0).bus_id.lower()
        patient.write(f"sys/bus/pci/devices/{bus}/net/{name}/operstate", f"{state}\n")
    (line,) = patient.find("accelerator-states").details
    assert line.startswith("hpu0: memory ")
    assert ", temperature 51 " in line
    assert line.endswith(", ports 2 of 3 up")


def test_each_running_container_is_shown_with_its_ports(patient: Patient):
    """Each running container is listed with its ports, in the format of `docker ps`."""
    published = {"PrivatePort": 8000, "PublicPort": 80, "Type": "tcp"}
    listed = [
        {
            "Names": ["/web"],
            "State": "running",
            "Status": "Up 2 hours (healthy)",
            "Ports": [
                {"IP": "0.0.0.0", **published},
                {"IP": "::", **published},
                {"PrivatePort": 9000, "Type": "udp"},
                {"PrivatePort": 9000, "Type": "udp"},
            ],
        },
        {"Names": ["/train"], "State": "running", "Status": "Up 3 days", "Ports": None},
        {"Names": ["/old"], "State": "exited", "Status": "Exited (0) 1 hour ago", "Ports": []},
    ]
    patient.start_engine().put("/containers/json", listed)
    finding = patient.find("container-states")
    assert finding.what == "2 running, 1 stopped"
    assert finding.details == (
        "web: up 2 hours (healthy), ports 0.0.0.0:80->8000/tcp, [::]:80->8000/tcp, 9000/udp",
        "train: up 3 days",
    )


def test_of_many_running_containers_the_first_twenty_are_shown(patient: Patient):
    """Only 20 running containers are listed, and the others are counted."""
    one = {"State": "running", "Status": "Up 1 second", "Ports": []}
    listed = [{"Names": [f"/w{number}"], **one} for number in range(25)]
    patient.start_engine().put("/containers/json", listed)
    details = patient.find("container-states").details
    assert len(details) == 21
    assert details[-1] == "and 5 more"


def test_who_listens_is_found_by_the_kernels_own_list(patient: Patient):
    """A listening port is read from `/proc` with the id of its user."""
    port = patient.listen()
    assert list_listening(Path("/proc"))[port] == os.getuid()


def test_a_program_of_the_stack_is_known_by_its_page(patient: Patient):
    """A port is attributed to Prometheus only if its page is that of Prometheus."""
    patient.hold(9090)
    pages = {9090: b"Prometheus Server is Healthy.\n"}
    patient.world["fetch_page"] = lambda port, *_, **__: pages.get(port)
    assert patient.find("ports").what.endswith("9090 used by Prometheus")
    pages[9090] = b"hello"
    assert patient.find("ports").status == "warning"
