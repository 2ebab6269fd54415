"""Containers on a real engine, and the real exporter that watches them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engine.stage import Stage
from tests.support.exporter_process import ExporterProcess

_SOURCE_ROOT = Path(__file__).resolve().parents[3] / "exporter"
SOCKET = "unix:///var/run/docker.sock"


_EACH = """
import contextlib, io, json, sys
from trainvitals.cli import main
for name in sys.argv[1:]:
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = main(["diagnose", name, "--json"])
    print(json.dumps([name, code, out.getvalue(), err.getvalue()]))
"""


@dataclass(frozen=True)
class Answer:
    """The result of `trainvitals diagnose --json`.

    Attributes:
        code: The exit code.
        out: The text on standard output.
        err: The text on standard error.
    """

    code: int
    out: str
    err: str

    @property
    def told(self) -> dict[str, Any]:
        """The diagnosis.

        Raises:
            AssertionError: The command failed.
        """
        assert self.code in {0, 1}, self.err
        assert not self.err, self.err
        told: dict[str, Any] = json.loads(self.out)
        return told


@dataclass(frozen=True)
class Terminal:
    """A place to run `trainvitals` beside an engine.

    Attributes:
        environment: The environment variables of `trainvitals`.
    """

    environment: dict[str, str]

    def diagnose(self, *words: str) -> dict[str, Any]:
        """Return the output of `trainvitals diagnose WORDS --json`.

        Raises:
            AssertionError: The command failed.
        """
        said = self.run("diagnose", *words, "--json")
        return Answer(said.returncode, said.stdout, said.stderr).told

    def diagnose_each(self, names: Sequence[str]) -> dict[str, Answer]:
        """Return the result of `trainvitals diagnose` for each name, from one Python process."""
        if not names:
            return {}
        said = subprocess.run(
            (sys.executable, "-c", _EACH, *names),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert said.returncode == 0, said.stderr
        rows = [json.loads(line) for line in said.stdout.splitlines()]
        return {name: Answer(code, out, err) for name, code, out, err in rows}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `trainvitals` with these arguments."""
        return subprocess.run(
            (sys.executable, "-m", "trainvitals", *words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@dataclass(frozen=True)
class Watch(Terminal):
    """An exporter that watches an engine, and a terminal beside it.

    Attributes:
        exporter: The exporter.
    """

    exporter: ExporterProcess


def _name_places(directory: Path, address: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(_SOURCE_ROOT),
        "DOCKER_HOST": address,
        "TRAINVITALS_JOURNAL_DIR": str(directory / "deaths"),
    }


def start_watch(directory: Path, address: str, *arguments: str) -> Watch:
    """Return an exporter that watches the engine at an address, and a terminal beside it."""
    environment = _name_places(directory, address)
    journal = environment["TRAINVITALS_JOURNAL_DIR"]
    flags = (f"--containers.engine={address}", f"--containers.journal={journal}", *arguments)
    return Watch(environment, ExporterProcess(directory, arguments=flags))


@pytest.fixture
def terminal(engine: dict[str, str], tmp_path: Path) -> Terminal:
    """Return a terminal beside the machine's own engine, without an exporter."""
    return Terminal(_name_places(tmp_path, engine.get("DOCKER_HOST", SOCKET)))


@pytest.fixture
def watch(engine: dict[str, str], tmp_path: Path) -> Iterator[Watch]:
    """Yield an exporter that watches the machine's own engine."""
    watch = start_watch(tmp_path, engine.get("DOCKER_HOST", SOCKET))
    with watch.exporter:
        yield watch


@pytest.fixture
def watch_second(tmp_path: Path) -> Iterator[Callable[..., Watch]]:
    """Yield a function that returns an exporter for the engine at an address."""
    watches: list[Watch] = []

    def start(address: str, *arguments: str) -> Watch:
        watches.append(start_watch(tmp_path, address, *arguments))
        return watches[-1]

    try:
        yield start
    finally:
        for watch in watches:
            watch.exporter.end()


@pytest.fixture
def make_stage(engine: dict[str, str], python_image: str) -> Iterator[Callable[..., Stage]]:
    """Yield a function that names a container of this test; all are removed afterwards."""
    prefix = f"trainvitals-{uuid.uuid4().hex[:8]}"
    socket = engine.get("DOCKER_HOST", SOCKET).removeprefix("unix://")

    def make(title: str, parent: str = "") -> Stage:
        return Stage(f"{prefix}-{title}", engine, python_image, parent, socket)

    try:
        yield make
    finally:
        made = make("").docker("ps", "--all", "--quiet", f"--filter=name={prefix}-")
        if made:
            make("").docker("rm", "--force", "--volumes", *made.split())
