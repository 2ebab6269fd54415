"""Tests for the readings of the network interfaces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.host.network import Interface, NetworkSource


class Clock:
    """A clock whose time a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def drop_line(roots: Roots, device: str) -> None:
    """Remove one interface from `/proc/1/net/dev`."""
    path = roots.procfs / "1/net/dev"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if f"{device}:" not in line))


def test_the_fake_machine_has_two_ports_and_a_bridge(roots: Roots):
    """The loopback and container interfaces are left out, and only physical ports are totalled."""
    reading = NetworkSource(roots=roots).read()
    assert [face.device for face in reading.interfaces] == ["eth0", "eth1", "docker0"]
    assert reading.interfaces[0] == Interface(
        device="eth0",
        physical=True,
        receive_bytes=900_000_000,
        receive_packets=700_000,
        receive_errors=3,
        receive_dropped=5,
        transmit_bytes=300_000_000,
        transmit_packets=400_000,
        transmit_errors=1,
        transmit_dropped=2,
        up=True,
        speed_bytes=3_125_000_000,
    )
    assert (reading.receive_bytes, reading.transmit_bytes) == (900_000_000, 300_000_000)
    assert reading.dropped == 0


def test_a_port_that_is_down_has_no_speed(roots: Roots):
    """The speed of an interface that is down, which the kernel shows as -1, is unknown."""
    reading = NetworkSource(roots=roots).read()
    assert (reading.interfaces[1].up, reading.interfaces[1].speed_bytes) == (False, None)


def test_a_container_counts_all_but_the_loopback(roots: Roots):
    """If no interface has a device, the totals are those of all listed interfaces."""
    for device in ("eth0", "eth1"):
        (roots.sysfs / f"class/net/{device}/device/vendor").unlink()
        (roots.sysfs / f"class/net/{device}/device").rmdir()
    reading = NetworkSource(roots=roots).read()
    assert (reading.receive_bytes, reading.transmit_bytes) == (900_700_000, 300_800_000)


def test_without_sys_the_state_is_unknown(roots: Roots):
    """Without `/sys` the counters are read, and the state of the interfaces is unknown."""
    reading = NetworkSource(roots=Roots(procfs=roots.procfs, sysfs=Path("/nowhere"))).read()
    assert [face.up for face in reading.interfaces] == [None, None, None]
    assert reading.interfaces[0].receive_bytes == 900_000_000


def test_a_driver_that_says_unknown_is_up_when_it_has_a_carrier(roots: Roots):
    """If the driver reports an unknown state, the carrier determines whether the link is up."""
    state = roots.sysfs / "class/net/eth0/operstate"
    carrier = roots.sysfs / "class/net/eth0/carrier"
    state.write_text("unknown\n")
    source = NetworkSource(roots=roots)
    assert source.read().interfaces[0].up is True
    carrier.write_text("0\n")
    assert source.read().interfaces[0].up is False


def test_the_speed_is_asked_for_seldom_and_when_the_link_comes_up(roots: Roots):
    """The speed is read again after a minute, or as soon as a link that was down comes up."""
    clock = Clock()
    source = NetworkSource(roots=roots, clock=clock)
    source.read()
    speed = roots.sysfs / "class/net/eth0/speed"
    speed.write_text("10000\n")
    clock.now += 59
    assert source.read().interfaces[0].speed_bytes == 3_125_000_000
    clock.now += 1
    assert source.read().interfaces[0].speed_bytes == 1_250_000_000
    speed.write_text("1000\n")
    (roots.sysfs / "class/net/eth0/operstate").write_text("down\n")
    assert source.read().interfaces[0].speed_bytes is None
    (roots.sysfs / "class/net/eth0/operstate").write_text("up\n")
    assert source.read().interfaces[0].speed_bytes == 125_000_000


def test_an_interface_that_goes_is_gone_and_one_that_comes_is_there(roots: Roots):
    """The list of interfaces follows the removal and the addition of an interface."""
    source = NetworkSource(roots=roots)
    path = roots.procfs / "1/net/dev"
    whole = path.read_text()
    drop_line(roots, "eth0")
    assert [face.device for face in source.read().interfaces] == ["eth1", "docker0"]
    path.write_text(whole)
    assert [face.device for face in source.read().interfaces] == ["eth0", "eth1", "docker0"]


def test_interfaces_beyond_the_bound_are_counted_and_stay_in_the_totals(roots: Roots):
    """Physical interfaces come first, and interfaces beyond the limit are counted as dropped."""
    reading = NetworkSource(roots=roots, limit=1).read()
    assert [face.device for face in reading.interfaces] == ["eth0"]
    assert reading.dropped == 2
    assert reading.receive_bytes == 900_000_000


def test_what_is_excluded_can_be_chosen(roots: Roots):
    """Another expression excludes other interfaces."""
    reading = NetworkSource(roots=roots, excluded="lo$|docker").read()
    assert [face.device for face in reading.interfaces] == ["eth0", "eth1", "veth1a2b3c"]


def test_a_machine_without_a_list_of_interfaces_is_an_error(roots: Roots):
    """If `/proc/1/net/dev` is missing, the error names the file."""
    (roots.procfs / "1/net/dev").unlink()
    with pytest.raises(SourceError, match="1/net/dev"):
        NetworkSource(roots=roots).read()


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("device/physfn", ""),
        ("device/sfnum", "88\n"),
        ("master/device", ""),
        ("phys_port_name", "pf0vf3\n"),
        ("phys_port_name", "pf1sf88\n"),
        ("phys_port_name", "c1pf0vf0\n"),
        ("phys_port_name", "pf0\n"),
    ],
)
def test_a_function_of_a_card_is_no_port_beside_it(roots: Roots, mark: str, text: str):
    """SR-IOV functions, subfunctions, their representors and hv_netvsc slaves are not physical."""
    file = roots.sysfs / "class/net/eth0" / mark
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    source = NetworkSource(roots=roots)
    reading = source.read()
    assert [(face.device, face.physical) for face in reading.interfaces] == [
        ("eth1", True),
        ("eth0", False),
        ("docker0", False),
    ]
    assert (reading.receive_bytes, reading.transmit_bytes) == (0, 0)


@pytest.mark.parametrize(("mark", "text"), [("phys_port_name", "p0\n"), ("master/bonding", "")])
def test_a_port_is_one_in_a_switch_or_a_bond_too(roots: Roots, mark: str, text: str):
    """The card's own port in switch mode and a port in a bond count as physical ports."""
    file = roots.sysfs / "class/net/eth0" / mark
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    assert NetworkSource(roots=roots).read().receive_bytes == 900_000_000


def test_a_container_that_was_given_a_function_counts_it(roots: Roots):
    """If there are only virtual functions, the totals are those of all listed interfaces."""
    for device in ("eth0", "eth1"):
        (roots.sysfs / f"class/net/{device}/device/physfn").touch()
    assert NetworkSource(roots=roots).read().receive_bytes == 900_700_000


@pytest.mark.parametrize(
    "line",
    [
        "  eth9: 1 2 3\n",
        "  eth9: x 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        "  eth9: -1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        "  eth9: 99999999999999999999999 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    ],
)
def test_a_line_that_cannot_be_understood_costs_itself_alone(roots: Roots, line: str):
    """An invalid line is counted as dropped, and the other interfaces are read."""
    before = NetworkSource(roots=roots).read()
    with (roots.procfs / "1/net/dev").open("a") as dev:
        dev.write(line)
    reading = NetworkSource(roots=roots).read()
    assert reading == replace(before, dropped=1)


def test_a_list_without_a_line_that_is_understood_is_an_error(roots: Roots):
    """If no line of `/proc/1/net/dev` is valid, the error names the file."""
    (roots.procfs / "1/net/dev").write_text("Inter-|\n face |\n  eth0: 1 2 3\n")
    with pytest.raises(SourceError, match="1/net/dev"):
        NetworkSource(roots=roots).read()


def test_this_machine_agrees_with_psutil():
    """The counters of each interface lie between psutil's values before and after the reading."""
    before = psutil.net_io_counters(pernic=True, nowrap=False)
    reading = NetworkSource().read()
    after = psutil.net_io_counters(pernic=True, nowrap=False)
    for face in reading.interfaces:
        low, high = before[face.device], after[face.device]
        assert low.bytes_recv <= face.receive_bytes <= high.bytes_recv
        assert low.packets_sent <= face.transmit_packets <= high.packets_sent
        assert face.up == psutil.net_if_stats()[face.device].isup
