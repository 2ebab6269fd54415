"""The stack from an installed wheel, without a checkout, in an empty folder with an empty home."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from trainvitals.stack.programs import find_free_ports

ROOT = Path(__file__).parents[3]
SHIPPED = (
    *("alertmanager", "deploy/docker-proxy", "docs/runbooks"),
    *("grafana/dashboards", "grafana/provisioning", "prometheus"),
)
SHIPPED_FILES = ("docker-compose*.yml", "exporter/Dockerfile", "requirements*.lock")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel and return its path."""
    place = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", place, ROOT)
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode and not os.environ.get("CI"):
        pytest.skip(f"cannot build the wheel here: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    return next(place.glob("*.whl"))


@pytest.fixture
def installed(wheel, tmp_path):
    """Unpack the wheel into a folder and return it; its dependencies are in the environment."""
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # An interval of one second replaces the 15 seconds between two scrapes.
    config = site / "trainvitals/stack/files/prometheus/prometheus.yml"
    config.write_text(re.sub(r"(_interval|_timeout): \d+s", r"\1: 1s", config.read_text()))
    return site


def test_wheel_carries_what_the_stack_needs(wheel):
    """The wheel has every committed file of the configuration, and no secret or `.env` file."""
    tracked = subprocess.run(
        ("git", "-C", ROOT, "ls-files", *SHIPPED, *SHIPPED_FILES),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    prefix = "trainvitals/stack/files/"
    with zipfile.ZipFile(wheel) as archive:
        carried = {name for name in archive.namelist() if name.startswith(prefix)}
        assert "trainvitals/stack/keys/grafana.asc" in archive.namelist()
    wanted = {name for name in tracked if (ROOT / name).exists()}
    assert {f"{prefix}{name}" for name in wanted} <= carried
    assert {"prometheus/rules/training.yml", "alertmanager/alertmanager.yml"} <= wanted
    assert not any("secret" in name or name.endswith(".env") for name in carried)


@pytest.mark.skipif(
    not os.environ.get("TRAINVITALS_TEST_LONG"),
    reason="brings a whole stack up once more, which takes 15 s: run it with `make test-long`",
)
def test_up_from_an_installed_wheel(installed, prometheus, alertmanager, tmp_path):
    """`up`, `status` and `down` of an installed wheel work with an empty folder and home."""
    empty, home = tmp_path / "empty", tmp_path / "home"
    empty.mkdir()
    home.mkdir()
    names = ("exporter", "prometheus", "alertmanager", "grafana")
    ports = [f"--{name}-port={port}" for name, port in zip(names, find_free_ports(4), strict=True)]
    environ = {
        "HOME": str(home),
        "PYTHONPATH": str(installed),
        "PATH": f"{prometheus.parent}:{alertmanager.parent}:{os.environ['PATH']}",
    }

    def run(*words):
        command = (sys.executable, "-m", "trainvitals", *words, "--way=native", *ports)
        return subprocess.run(
            command, cwd=empty, env=environ, capture_output=True, text=True, check=False
        )

    up = run("up")
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        assert "alerts go to no one" in up.stdout
        status = run("status", "--json")
        told = json.loads(status.stdout)
        assert (status.returncode, told["fine"]) == (0, True)
        assert told["state_dir"] == str(home / ".local/state/trainvitals")
        rules = home / ".local/state/trainvitals/config/prometheus/rules"
        assert rules.resolve() == installed / "trainvitals/stack/files/prometheus/rules"
    finally:
        down = run("down")
    assert "stopped alertmanager, exporter, " in down.stdout
    assert list(empty.iterdir()) == []


def test_two_builds_of_a_commit_are_the_same(tmp_path):
    """Two builds in different folders, times, umasks and time zones are equal byte for byte.

    The build also writes a CycloneDX bill of materials with the locked requirements.
    """
    if importlib.util.find_spec("cyclonedx_py") is None and not os.environ.get("CI"):
        pytest.skip("cyclonedx-bom is not installed: make test-integration installs it")
    outs = []
    for name, umask, zone in (("one", 0o022, "UTC"), ("a longer name", 0o077, "Pacific/Auckland")):
        tree, out = tmp_path / name, tmp_path / f"{name}.dist"
        subprocess.run(("git", "clone", "--quiet", ROOT, tree), check=True, umask=umask)
        (tree / "exporter/trainvitals/left_over.py").write_text(f"NAME = {name!r}\n")
        environ = {**os.environ, "PYTHON": sys.executable, "TZ": zone}
        built = subprocess.run(
            (tree / ".ci/wheel", out),
            env=environ,
            umask=umask,
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode and not os.environ.get("CI"):
            pytest.skip(f"cannot build here: {built.stderr.strip().splitlines()[-1]}")
        assert built.returncode == 0, built.stderr
        outs.append({path.name: path.read_bytes() for path in out.iterdir()})
        time.sleep(2)  # the timestamps in a zip file have a resolution of two seconds
    assert outs[0] == outs[1]
    assert {name.rpartition(".")[2] for name in outs[0]} == {"json", "whl"}
    (bom,) = (json.loads(text) for name, text in outs[0].items() if name.endswith(".cdx.json"))
    assert bom["bomFormat"] == "CycloneDX"
    locked = re.findall(r"(?m)^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text())
    assert {(each["name"], each["version"]) for each in bom["components"]} == set(locked)
    assert bom["metadata"]["component"]["name"] == "trainvitals"
