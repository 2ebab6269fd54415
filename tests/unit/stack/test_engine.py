"""Tests for the detection of a Docker engine and the choice between Compose and processes."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.stack.docker_stand_in import WORKING, install_docker
from trainvitals.errors import StackError
from trainvitals.stack.engine import (
    Accelerators,
    Engine,
    Unavailable,
    explain_missing_runtime,
    find_accelerators,
    find_engine,
    find_overrides,
)
from trainvitals.stack.settings import Settings
from trainvitals.stack.ways import bring_up, choose_way, load_way

SOCKET = Path("/run/docker.sock")
LACKS = {
    "^version": [
        (
            "permission denied while trying to connect to the Docker daemon socket",
            (
                "this user may not use the engine at /run/docker.sock: ask root to run `usermod "
                "--append --groups docker USER`, which lets USER become root, and log in again"
            ),
        ),
        (
            "Cannot connect to the Docker daemon at unix:///run/docker.sock.",
            "no engine responds at /run/docker.sock: start it with `systemctl start docker`",
        ),
        (
            "Error response from daemon: it is tired",
            (
                "the engine at /run/docker.sock does not respond: "
                "Error response from daemon: it is tired"
            ),
        ),
    ],
    "compose version": [
        (
            "docker: 'compose' is not a docker command.",
            (
                "Docker Compose is not installed: install docker-compose-plugin (Docker's packages), "
                "docker-compose-v2 (Ubuntu) or docker-compose (Debian 13)"
            ),
        )
    ],
}


@pytest.fixture
def docker(tmp_path):
    """Return the environment of a working Docker with NVIDIA's runtime."""
    return install_docker(tmp_path, WORKING)


def test_an_engine_is_found_with_its_runtimes(docker):
    """The engine is found with its socket and its runtimes."""
    runtimes = frozenset({"io.containerd.runc.v2", "nvidia", "runc"})
    assert find_engine(docker) == Engine(SOCKET, runtimes)


@pytest.mark.parametrize(
    ("pattern", "complaint", "reason"),
    [(pattern, *each) for pattern, cases in LACKS.items() for each in cases],
)
def test_what_is_missing_is_said_with_what_to_do(tmp_path, pattern, complaint, reason):
    """A missing permission, engine or Compose is reported in one line with the remedy."""
    environ = install_docker(tmp_path, {**WORKING, pattern: complaint}, failures=(pattern,))
    assert find_engine(environ) == Unavailable(reason)


def test_an_old_compose_is_refused(tmp_path):
    """Compose before version 2.17 is refused."""
    old = install_docker(tmp_path, {**WORKING, "compose version": "v2.16.0\n"})
    assert find_engine(old) == Unavailable("Docker Compose v2.16 is too old: install 2.17 or newer")
    enough = install_docker(tmp_path, {**WORKING, "compose version": "2.17.0\n"})
    assert isinstance(find_engine(enough), Engine)


def test_the_engine_of_another_machine_is_not_taken(tmp_path):
    """An engine on another machine is not used, since the ports would be that machine's."""
    answers = {**WORKING, "context inspect": "ssh://other\n"}
    found = find_engine(install_docker(tmp_path, answers))
    assert found == Unavailable("docker uses the engine of another machine (ssh://other)")


def test_a_machine_without_docker_is_not_told_about_it(tmp_path):
    """If `docker` is not installed, the reason is not reported to the user."""
    assert find_engine({"PATH": str(tmp_path)}) == Unavailable(
        "docker is not installed", is_news=False
    )


def test_drivers_are_found_by_their_devices(tmp_path):
    """The drivers of NVIDIA and Habana are found by their devices in `/dev`."""
    assert find_accelerators(tmp_path) == Accelerators(nvidia=False, gaudi=False)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    assert find_accelerators(tmp_path) == Accelerators(nvidia=True, gaudi=False)
    (tmp_path / "dev/hl0").touch()
    assert find_accelerators(tmp_path) == Accelerators(nvidia=True, gaudi=True)


@pytest.mark.parametrize(
    ("cards", "runtimes", "files"),
    [
        (Accelerators(nvidia=False, gaudi=False), {"nvidia", "habana"}, ()),
        (Accelerators(nvidia=True, gaudi=False), {"nvidia"}, ("docker-compose.nvidia.yml",)),
        (Accelerators(nvidia=False, gaudi=True), {"habana"}, ("docker-compose.gaudi.yml",)),
        (Accelerators(nvidia=True, gaudi=True), {"runc"}, ()),
    ],
)
def test_an_override_is_taken_where_card_and_runtime_are(tmp_path, cards, runtimes, files):
    """An override file is used only if both the driver and the runtime exist."""
    engine = Engine(SOCKET, frozenset(runtimes))
    assert find_overrides(engine, cards, {"PATH": str(tmp_path)}) == files


def test_the_hook_alone_hands_gpus_over_too(tmp_path):
    """NVIDIA's hook is sufficient to pass GPUs to containers without a registered runtime."""
    hook = tmp_path / "nvidia-container-runtime-hook"
    hook.write_text("")
    hook.chmod(0o755)
    engine = Engine(SOCKET, frozenset({"runc"}))
    found = find_overrides(engine, Accelerators(nvidia=True, gaudi=False), {"PATH": str(tmp_path)})
    assert found == ("docker-compose.nvidia.yml",)


def test_cards_that_a_container_would_not_see_are_named():
    """If a card cannot be passed to containers, the message names the package to install."""
    assert explain_missing_runtime(Accelerators(nvidia=False, gaudi=False), ()) is None
    assert (
        explain_missing_runtime(
            Accelerators(nvidia=True, gaudi=False), ("docker-compose.nvidia.yml",)
        )
        is None
    )
    gpus = explain_missing_runtime(Accelerators(nvidia=True, gaudi=False), ())
    assert gpus is not None
    assert "NVIDIA Container Toolkit" in gpus
    gaudi = explain_missing_runtime(Accelerators(nvidia=False, gaudi=True), ())
    assert gaudi is not None
    assert "habanalabs-container-runtime" in gaudi


def choose(settings, environ, root, way="auto"):
    """Choose a way, and return it with the reported lines."""
    told = []
    return choose_way(
        replace(settings, way=way), report=told.append, environ=environ, root=root
    ), told


@pytest.fixture
def settings(tmp_path):
    """Return settings without a way."""
    return Settings(tmp_path / "state")


def test_compose_is_taken_where_an_engine_answers(settings, docker, tmp_path):
    """Compose is used if an engine responds, unless processes were requested."""
    assert choose(settings, docker, tmp_path) == ("compose", [])
    assert choose(settings, docker, tmp_path, "native") == ("native", [])


def test_no_engine_means_processes_with_a_word(settings, tmp_path):
    """Without an engine, processes are used and the reason is reported.

    If Compose was requested, an error is raised.
    """
    answers = {**WORKING, "^version": "permission denied"}
    environ = install_docker(tmp_path, answers, failures=("^version",))
    way, told = choose(settings, environ, tmp_path)
    assert way == "native"
    assert told[0].startswith("not using Docker Compose: this user may not use the engine at ")
    with pytest.raises(
        StackError, match=r"^cannot use Docker Compose: this user may not .* --way native$"
    ):
        choose(settings, environ, tmp_path, "compose")


def test_gpus_that_docker_cannot_hand_over_mean_processes(settings, tmp_path):
    """If Docker cannot pass GPUs to containers, processes are used unless Compose was requested."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    environ = install_docker(tmp_path, {**WORKING, "^info": "runc \n"})
    environ["PATH"] = f"{tmp_path}:/usr/bin:/bin"
    way, told = choose(settings, environ, tmp_path)
    assert way == "native"
    assert told[0].startswith("not using Docker Compose: Docker cannot pass GPUs to containers")
    assert choose(settings, environ, tmp_path, "compose") == ("compose", [])


def test_a_start_that_is_refused_is_not_remembered(settings, tmp_path, monkeypatch):
    """If a start fails, its way is not saved."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="docker is not installed"):
        bring_up(replace(settings, way="compose"), report=print)
    assert load_way(settings.state_dir) == "native"
