"""The images of the stack: those to be pulled, and the one that is built here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict, cast

from trainvitals.errors import StackError
from trainvitals.stack.complaints import explain
from trainvitals.stack.project import Project

Report = Callable[[str], None]

# A step as BuildKit writes it, `#9 [exporter build 5/7] RUN pip …`, and what becomes of it.
_STEP = re.compile(r"^(#\d+) \[(?:\S+ )?(\S+ +\d+/\d+)\] (.{1,60})")
_NEWS = re.compile(r"^(#\d+) (CACHED|\S)")


@dataclass(frozen=True, slots=True)
class Image:
    """The image of one service.

    Attributes:
        name: Its name with the tag.
        is_built: Whether it is built here; otherwise a registry has it.
    """

    name: str
    is_built: bool


class _Service(TypedDict, total=False):
    image: str
    build: object


def list_images(project: Project) -> Mapping[str, Image]:
    """Ask Compose which image each service has.

    Raises:
        StackError: The project's files or variables are not valid.
    """
    said = project.docker.ask(*project.words("config", "--format", "json"))
    if said.code:
        raise StackError(explain(said.complaint, doing="read docker-compose.yml"))
    services = cast("dict[str, dict[str, _Service]]", json.loads(said.output))["services"]
    return {
        name: Image(service.get("image", name), is_built="build" in service)
        for name, service in services.items()
    }


def pull_images(project: Project, images: Mapping[str, Image], report: Report) -> None:
    """Pull what is neither here nor built here.

    Raises:
        StackError: An image cannot be pulled.
    """
    for image in images.values():
        if image.is_built or not project.docker.ask("image", "inspect", image.name).code:
            continue
        report(f"pulling {image.name}")
        said = project.docker.follow("pull", "--quiet", image.name, heard=lambda _: None)
        if said.code:
            raise StackError(explain(said.complaint, doing=f"pull {image.name}"))


def build_images(project: Project, report: Report) -> None:
    """Build the exporter's image; what has not changed is not built again.

    Raises:
        StackError: It cannot be built.
    """
    report("building the exporter's image")
    steps: dict[str, str] = {}

    def heard(line: str) -> None:
        if step := _STEP.match(line):
            steps[step[1]] = f"  {' '.join(step[2].split())} {step[3].strip()}"
        elif news := _NEWS.match(line):
            words = steps.pop(news[1], None)
            if words is not None and news[2] != "CACHED":  # done before, and so no news
                report(words)

    said = project.docker.follow(*project.words("build", "exporter"), heard=heard)
    if said.code:
        for line in said.complaint.splitlines()[-10:]:
            report(f"build | {line}")
        raise StackError(explain(said.complaint, doing="build the exporter's image"))
