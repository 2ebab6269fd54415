"""Tests for the search for the programs of the stack."""

import base64
import hashlib
from pathlib import Path

import pytest

from trainvitals.errors import StackError
from trainvitals.stack.debian import find_program
from trainvitals.stack.packages import GRAFANA, PACKAGES

FORBIDDEN = {"GRAFANA_FETCH": "0"}


def install(folder: Path, name: str, says: str = "", head: bytes = b"#!/bin/sh\n") -> Path:
    """Write a program that prints a text."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_bytes(head + f"echo '{says}'\n".encode())
    program.chmod(0o755)
    return program


def test_the_order_of_path_decides(tmp_path):
    """The first folder of the PATH with either name of a program is used."""
    install(tmp_path / "usr", "prometheus-alertmanager")
    newer = install(tmp_path / "local", "alertmanager")
    environ = {"PATH": f"{tmp_path / 'local'}:{tmp_path / 'usr'}"}
    assert find_program("prometheus-alertmanager", environ=environ) == newer


def test_in_one_folder_debian_s_name_is_taken_first(tmp_path):
    """If a folder has both names of a program, Debian's name is used."""
    debian = install(tmp_path / "usr", "prometheus-alertmanager")
    install(tmp_path / "usr", "alertmanager")
    environ = {"PATH": str(tmp_path / "usr")}
    assert find_program("prometheus-alertmanager", environ=environ) == debian


TOOLS = [
    ("promtool", "prometheus"),
    ("amtool", "alertmanager"),
    ("amtool", "prometheus-alertmanager"),
]


@pytest.mark.parametrize(("tool", "program"), TOOLS)
def test_a_tool_is_the_one_beside_its_program(tmp_path, tool, program):
    """A tool is taken from the folder of its program, as it may differ from another version."""
    install(tmp_path / "other", tool)
    install(tmp_path / "own", program)
    beside = install(tmp_path / "own", tool)
    environ = {"PATH": f"{tmp_path / 'other'}:{tmp_path / 'own'}"}
    assert find_program(tool, environ=environ) == beside


@pytest.mark.parametrize(("tool", "program"), TOOLS)
def test_a_tool_is_found_where_a_link_to_its_program_leads(tmp_path, tool, program):
    """A tool is found beside the target of a link to its program."""
    release = install(tmp_path / "opt/release", program)
    beside = install(tmp_path / "opt/release", tool)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / program).symlink_to(release)
    assert find_program(tool, environ={"PATH": str(tmp_path / "bin")}) == beside


def test_no_tool_of_another_place_is_taken(tmp_path):
    """If a program has no tool beside it, the error names the program and the tool."""
    install(tmp_path / "other", "promtool")
    program = install(tmp_path / "own", "prometheus")
    environ = {"PATH": f"{tmp_path / 'other'}:{tmp_path / 'own'}"}
    with pytest.raises(StackError, match=f"there is no promtool beside {program}: install both"):
        find_program("promtool", environ=environ)


def test_a_tool_alone_is_taken(tmp_path):
    """If the program is not installed, a tool alone is used."""
    tool = install(tmp_path / "bin", "promtool")
    environ = {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert find_program("promtool", environ=environ) == tool


def test_a_tool_of_the_unpacked_program_is_taken(tmp_path):
    """If the stack runs an unpacked program, the tool beside the unpacked program is used."""
    install(tmp_path / "bin", "promtool")
    unpacked = tmp_path / "cache/trainvitals/debian/prometheus/usr/bin"
    install(unpacked, "prometheus")
    beside = install(unpacked, "promtool")
    environ = {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert find_program("promtool", environ=environ) == beside


@pytest.fixture
def find(tmp_path):
    """Return a function that finds Grafana in `tmp_path` and never downloads it."""

    def look(path="bin", told=None):
        environ = {
            "PATH": str(tmp_path / path),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            **FORBIDDEN,
        }
        report = (lambda _: None) if told is None else told.append
        return find_program("grafana", environ=environ, report=report, root=tmp_path)

    return look


def test_grafana_is_found_where_its_packages_put_it(tmp_path, find):
    """Grafana is found in `/usr/sbin`, which is not in the PATH of an ordinary user."""
    wrapper = install(tmp_path / "usr/sbin", "grafana", "grafana version 12.4.0")
    assert find() == wrapper


@pytest.mark.parametrize("wrapper", ["grafana", "grafana-server"])
@pytest.mark.parametrize("path", ["bin", "usr/sbin"])
def test_the_binary_is_taken_before_the_wrapper(tmp_path, find, wrapper, path):
    """The binary is preferred, as the wrapper reads a file that ordinary users may not read."""
    install(tmp_path / "usr/sbin", wrapper, "grafana version 12.4.0")
    binary = install(tmp_path / "usr/share/grafana/bin", "grafana", head=b"\x7fELF")
    assert find(path) == binary


def test_grafana_of_an_older_release_is_found(tmp_path, find):
    """The older program name `grafana-server` is found; the newer name is preferred."""
    older = install(tmp_path / "bin", "grafana-server", "Version 10.4.1 (commit: 5d1b2b3)")
    assert find() == older
    newer = install(tmp_path / "bin", "grafana", "grafana version 10.4.1")
    assert find() == newer


def test_grafana_that_is_too_old_is_named(tmp_path, find):
    """A Grafana that is too old is not used, and one line names the reason."""
    old = install(tmp_path / "bin", "grafana-server", "Version 9.3.2 (commit: 5d1b2b3)")
    told = []
    with pytest.raises(StackError, match="GRAFANA_FETCH=0 forbids its download"):
        find(told=told)
    assert told == [f"{old} is not used: it is grafana 9.3, and 10.4 is needed at least"]


def test_newer_grafana_in_a_later_folder_is_taken(tmp_path, find):
    """A Grafana that is too old does not hide a newer one in a later folder of the PATH."""
    install(tmp_path / "bin", "grafana", "grafana version 9.5.0")
    newer = install(tmp_path / "usr/sbin", "grafana", "grafana version 11.0.0")
    assert find() == newer


def test_grafana_that_does_not_tell_its_version_is_taken(tmp_path, find):
    """A Grafana that does not print its version is used."""
    silent = install(tmp_path / "bin", "grafana")
    assert find() == silent


def read_packets(armored: str) -> list[tuple[int, bytes]]:
    """Return the tag and the body of each packet of an OpenPGP file (RFC 4880, section 4.2)."""
    lines = armored.split("\n\n", 1)[1].split("\n=", maxsplit=1)[0]
    data, packets = base64.b64decode(lines), []
    while data:
        assert data[0] & 0xC0 == 0x80  # An old packet header, which all packets of this file have.
        width = (1, 2, 4)[data[0] & 3]
        length = int.from_bytes(data[1 : 1 + width], "big")
        packets.append(((data[0] >> 2) & 15, data[1 + width : 1 + width + length]))
        data = data[1 + width + length :]
    return packets


def test_the_shipped_key_has_the_published_fingerprint():
    """The shipped repository key is one key with the published fingerprint."""
    (file,) = GRAFANA.repository.keys.iterdir()
    packets = read_packets(file.read_text())
    (body,) = [body for tag, body in packets if tag == 6]
    # RFC 4880, section 12.2
    digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest()
    assert digest.upper() == GRAFANA.repository.fingerprint
    assert GRAFANA.repository.fingerprint == "B53AE77BADB630A683046005963FA27710458545"


def test_what_is_downloaded_can_be_used():
    """The version of each downloaded package is at least the oldest supported version."""
    for package in PACKAGES:
        if package.downloaded:
            assert package.oldest <= package.downloaded[0] < package.downloaded[1]
