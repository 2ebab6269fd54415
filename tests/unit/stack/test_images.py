"""Tests for the container images of Compose, which are pinned by digest."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.stack.docker_stand_in import install_docker

ROOT = Path(__file__).parents[3]
FILES = ("docker-compose.yml", "docker-compose.containers.yml", "exporter/Dockerfile")
IMAGE = re.compile(r"([A-Z]+_IMAGE)(?::-|=)([^\s}@]+)(?:@sha256:([0-9a-f]{64}))?(?=[\s}])")
# Tags of branches, whose images are rebuilt when their base system is fixed.
BRANCHES = {"python:3.13-slim-trixie", "haproxy:3.2-alpine"}
NEW = "sha256:" + "5" * 64


def read_images(root):
    """Return the variable, image and digest of every image that is not built from this project."""
    found = [each for name in FILES for each in IMAGE.findall((root / name).read_text())]
    return [each for each in found if each[0] != "EXPORTER_IMAGE"]


@pytest.fixture
def checkout(tmp_path):
    """Return a folder with the files that the script reads and writes."""
    for name in (*FILES, ".ci/image-digests"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def renew(checkout, answers):
    """Run the script with a stand-in for Docker."""
    directory = checkout / "bin"
    directory.mkdir()
    environ = install_docker(directory, answers)
    return subprocess.run(
        (checkout / ".ci/image-digests",),
        env={**os.environ, **environ, "PATH": f"{directory}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_images_of_a_version_have_a_digest():
    """Every image with a version tag has a digest, so a moved tag changes nothing."""
    images = read_images(ROOT)
    assert len(images) == 6
    assert {image for _, image, digest in images if not digest} <= BRANCHES


def test_compose_and_the_dockerfile_name_the_same_python():
    """Compose and the Dockerfile use the same Python image."""
    assert len({each for each in read_images(ROOT) if each[0] == "PYTHON_IMAGE"}) == 1


def test_digests_are_renewed(checkout):
    """All digests are replaced with the digests in the registry, and nothing else is changed."""
    before = {name: (checkout / name).read_text() for name in FILES}
    done = renew(checkout, {"^buildx imagetools inspect": NEW + "\n"})
    assert done.returncode == 0, done.stderr
    assert f"prom/prometheus:v3.13.2@{NEW}\n" in done.stdout
    assert {digest for _, _, digest in read_images(checkout)} == {"5" * 64}
    for name, text in before.items():
        after = (checkout / name).read_text()
        assert re.sub("@sha256:[0-9a-f]+", "", after) == re.sub("@sha256:[0-9a-f]+", "", text)
    assert "${EXPORTER_IMAGE:-trainvitals:" in before["docker-compose.yml"]


@pytest.mark.parametrize("answer", ["", "<no value>\n"])
def test_without_a_digest_nothing_changes(checkout, answer):
    """If the registry has no digest for one image, all files stay unchanged."""
    before = {name: (checkout / name).read_bytes() for name in FILES}
    answers = {"imagetools inspect .*prom/prometheus": answer, "imagetools inspect": NEW + "\n"}
    done = renew(checkout, answers)
    assert done.returncode != 0
    assert "prom/prometheus:v3.13.2 has no digest" in done.stderr
    assert {name: (checkout / name).read_bytes() for name in FILES} == before
