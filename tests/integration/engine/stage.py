"""A container on a real engine, which a test starts and ends."""

from __future__ import annotations

import contextlib
import json
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import docker
import psutil
import requests

from tests.support.waiting import wait_until

MEMORY_ROOT = Path("/sys/fs/cgroup/memory")
_PATIENCE_SECONDS = 60.0
_VERSION = "1.41"


def ask_engine(
    socket: str, path: str, method: str = "GET", body: object = None
) -> requests.Response:
    """Return an engine's answer to one request, by the session of Docker's own package."""
    # With a version, the client does not request the engine's version first.
    with contextlib.closing(
        docker.APIClient(f"unix://{socket}", version=_VERSION, timeout=_PATIENCE_SECONDS)
    ) as session:
        answer: requests.Response = session.request(
            method, f"{session.base_url}{path}", json=body, timeout=_PATIENCE_SECONDS
        )
        return answer


@dataclass(frozen=True, slots=True)
class Stage:
    """A container and the operations on it.

    Attributes:
        name: The container's name.
        environment: The environment variables of `docker`.
        image: An image with Python and a shell.
        parent: The parent control group, such as `/limited`; empty for the engine's own group.
        socket: The engine's socket.
    """

    name: str
    environment: Mapping[str, str]
    image: str
    parent: str = ""
    socket: str = "/var/run/docker.sock"

    def docker(self, *words: str, is_checked: bool = True) -> str:
        """Run `docker` and return its output.

        Raises:
            AssertionError: The command failed; the message has its error output.
        """
        said = subprocess.run(
            ("docker", *words), env=self.environment, capture_output=True, text=True, check=False
        )
        assert not is_checked or said.returncode == 0, f"docker {' '.join(words)}: {said.stderr}"
        return said.stdout.strip()

    def run(self, options: Sequence[str], command: Sequence[str]) -> str:
        """Start the container, which may fail on purpose, and return the client's error output."""
        words = ["docker", "run", "--detach", f"--name={self.name}", *options]
        if self.parent:
            words.append(f"--cgroup-parent={self.parent}")
        said = subprocess.run(
            [*words, self.image, *command],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return said.stderr

    def make_sibling(self, *command: str) -> Stage:
        """Start another container in the same parent control group, and return its stage."""
        sibling = replace(self, name=f"{self.name}-sibling")
        assert not sibling.run((), command)
        return sibling

    def ask(self, path: str) -> bytes | None:
        """Return the engine's answer to a GET, faster than `docker` does; None for an error."""
        answer = ask_engine(self.socket, path)
        return answer.content if answer.ok else None

    def inspect(self) -> dict[str, Any] | None:
        """Return the engine's description of the container; None if it was removed."""
        body = self.ask(f"/containers/{quote(self.name)}/json")
        found: dict[str, Any] | None = None if body is None else json.loads(body)
        return found

    @property
    def pid(self) -> int:
        """The PID of the container's first process on this machine."""
        found = self.inspect()
        assert found is not None
        number: int = found["State"]["Pid"]
        assert number > 1, found["State"]
        return number

    @property
    def inner_pid(self) -> int:
        """The PID of the only child of the container's first process, if that is an init."""
        children: list[psutil.Process] = []

        def has_one() -> bool:
            children[:] = psutil.Process(self.pid).children()
            return len(children) == 1

        self.wait_until(has_one)
        return children[0].pid

    @property
    def peak_bytes(self) -> int:
        """The peak of the container's memory."""
        lines = Path(f"/proc/{self.pid}/cgroup").read_text(encoding="utf-8").splitlines()
        groups = {line.split(":")[1]: line.split(":", 2)[2].lstrip("/") for line in lines}
        if "memory" in groups:
            file = MEMORY_ROOT / groups["memory"] / "memory.max_usage_in_bytes"
        else:
            file = MEMORY_ROOT.parent / groups[""] / "memory.peak"
        return int(file.read_text(encoding="ascii"))

    def says(self, text: str) -> bool:
        """Return whether the container's log has a text."""
        body = self.ask(f"/containers/{quote(self.name)}/logs?stdout=1&stderr=1")
        return body is not None and text.encode() in body

    def wait_until(self, holds: Callable[[], object], what: str = "that") -> None:
        """Wait until a condition holds.

        Raises:
            AssertionError: The condition did not hold within a minute.
        """
        wait_until(holds, _PATIENCE_SECONDS, pause=0.05, describe=lambda: f"{self.name}: {what}")

    def wait_for(self, text: str) -> None:
        """Wait until the container's log has a text."""
        self.wait_until(lambda: self.says(text), f"said {text!r}")

    def wait_for_end(self) -> None:
        """Wait until the container has ended for good, or is removed."""
        self.wait_until(self._has_ended, "ended")

    def _has_ended(self) -> bool:
        found = self.inspect()
        return found is None or found["State"]["Status"] in {"exited", "created", "dead"}


@contextlib.contextmanager
def limited_group(limit: str) -> Iterator[str]:
    """Create a memory control group of version 1 with a limit, and remove it afterwards.

    Yields:
        The group's path below the root of the hierarchy.
    """
    name = f"trainvitals-{uuid.uuid4().hex[:12]}"
    folder = MEMORY_ROOT / name
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(limit)
        yield f"/{name}"
    finally:
        # The engine creates the group in every hierarchy, and does not remove it.
        for made in MEMORY_ROOT.parent.glob(f"*/{name}"):
            for child in made.glob("*/"):
                child.rmdir()
            made.rmdir()
