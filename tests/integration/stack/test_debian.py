"""Programs from Debian's packages."""

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from trainvitals.errors import StackError
from trainvitals.stack.debian import find_program, find_web_assets
from trainvitals.stack.installation import install_package

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs Debian's dpkg-deb")

# apt-get and apt-cache for a repository with one package, in $REPOSITORY. They write their calls to
# a file, and `download` fails before `update`.
APT = """\
#!/bin/sh
for last; do :; done
case "$*" in
*update) echo update >>"$REPOSITORY/calls"; touch "$REPOSITORY/lists" ;;
*download*)
    if [ ! -e "$REPOSITORY/lists" ]; then echo "E: Unable to locate package" >&2; exit 100; fi
    echo download >>"$REPOSITORY/calls"
    cp "$REPOSITORY"/*.deb . ;;
*depends*) echo prometheus; echo "  Depends: libc6" ;;
esac
"""


@pytest.fixture
def repository(tmp_path):
    """Return a function that packs a prometheus package from shell scripts."""

    def pack(script):
        tree = tmp_path / "tree"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(
            "Package: prometheus\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
        )
        (tree / "usr/share/prometheus/web").mkdir(parents=True)
        (tree / "usr/share/doc/prometheus").mkdir(parents=True)
        (tree / "usr/bin").mkdir(parents=True)
        for name in ("prometheus", "promtool"):
            (tree / "usr/bin" / name).write_text(script)
            (tree / "usr/bin" / name).chmod(0o755)
        place = tmp_path / "repository"
        place.mkdir()
        command = ("dpkg-deb", "--build", tree, place / "prometheus.deb")
        subprocess.run(command, check=True, capture_output=True)
        return place

    return pack


@pytest.fixture
def environ(tmp_path):
    """Return an environment whose PATH has the simulated apt and a few tools, but no Prometheus."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("apt-get", "apt-cache"):
        (tools / name).write_text(APT)
        (tools / name).chmod(0o755)
    for name in ("dpkg-deb", "sh", "cp", "touch", "rm", "tar"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    return {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "REPOSITORY": str(tmp_path / "repository"),
    }


def test_installed_program_is_taken(environ):
    """A program on the PATH is used and nothing is fetched."""
    installed = Path(environ["PATH"]) / "prometheus"
    installed.write_text("#!/bin/sh\n")
    installed.chmod(0o755)
    assert find_program("prometheus", environ=environ) == installed
    assert find_web_assets(installed) is None
    assert not Path(environ["XDG_CACHE_HOME"]).exists()


@needs_dpkg
def test_missing_program_is_fetched_once(environ, repository):
    """The package is fetched and unpacked on the first call and found on the next."""
    place = repository("#!/bin/sh\necho 1\n")
    told = []
    program = find_program("prometheus", environ=environ, report=told.append)
    cache = Path(environ["XDG_CACHE_HOME"]) / "trainvitals/debian"
    assert program == cache / "prometheus/usr/bin/prometheus"
    assert find_web_assets(program) == cache / "prometheus/usr/share/prometheus/web"
    assert not (cache / "prometheus/usr/share/doc").exists()
    assert told == [f"downloading Debian's package prometheus to {cache}"]
    assert find_program("promtool", environ=environ, report=told.append).name == "promtool"
    assert (place / "calls").read_text() == "update\ndownload\n"
    assert len(told) == 1


@needs_dpkg
def test_lists_are_fetched_only_when_they_do_not_do(environ, repository):
    """`apt-get update` is not run if the package lists already name the package."""
    place = repository("#!/bin/sh\necho 1\n")
    (place / "lists").touch()
    find_program("prometheus", environ=environ)
    assert (place / "calls").read_text() == "download\n"


@needs_dpkg
def test_interrupted_fetch_is_done_again(environ, repository):
    """A package that an interrupted run left partly unpacked is fetched again."""
    repository("#!/bin/sh\necho 1\n")
    half = Path(environ["XDG_CACHE_HOME"]) / "trainvitals/debian/prometheus.partial/usr/bin"
    half.mkdir(parents=True)
    (half / "promtool").touch()
    program = find_program("promtool", environ=environ)
    assert program.read_text() == "#!/bin/sh\necho 1\n"
    assert not half.exists()


@needs_dpkg
def test_program_that_does_not_run_is_refused(environ, repository):
    """A program that does not run on this machine is not kept, and the error quotes its output."""
    repository("#!/bin/sh\necho 'GLIBC_2.99 not found' >&2\nexit 1\n")
    with pytest.raises(StackError, match=r"does not run on this machine: .*GLIBC_2\.99 not found"):
        find_program("prometheus", environ=environ)
    assert not (Path(environ["XDG_CACHE_HOME"]) / "trainvitals/debian/prometheus").exists()


def test_machine_without_apt(environ):
    """The error on a machine without apt-get says which package to install."""
    (Path(environ["PATH"]) / "apt-get").unlink()
    with pytest.raises(StackError, match="no apt-get to fetch it: install prometheus"):
        find_program("prometheus", environ=environ)


def test_program_under_the_name_of_its_project(environ):
    """An Alertmanager that is installed as `alertmanager` is found."""
    installed = Path(environ["PATH"]) / "alertmanager"
    installed.write_text("#!/bin/sh\n")
    installed.chmod(0o755)
    assert find_program("prometheus-alertmanager", environ=environ) == installed


def test_program_of_no_package(environ):
    """A program that is in none of the known packages is reported as not installed."""
    with pytest.raises(StackError, match="node_exporter is not installed"):
        find_program("node_exporter", environ=environ)


def test_alertmanager_is_installed_where_that_is_wanted(environ, tmp_path):
    """With an `install` function, Alertmanager's package is installed instead of unpacked."""
    install = functools.partial(install_package, policy=tmp_path / "policy-rc.d")
    told, tools = [], Path(environ["PATH"])
    (tools / "apt-get").write_text(
        "#!/bin/sh\ncase \"$*\" in *' install prometheus-alertmanager')\n"
        f"printf '#!/bin/sh\\n' >{tools}/prometheus-alertmanager\n"
        f"chmod 755 {tools}/prometheus-alertmanager; esac\n"
    )
    (tools / "chmod").symlink_to(shutil.which("chmod"))
    name = "prometheus-alertmanager"
    found = find_program(name, environ=environ, report=told.append, install=install)
    assert found == tools / name
    assert told == [f"installing Debian's package {name}, with its service disabled"]


def test_alertmanager_that_cannot_be_installed_is_fetched(environ, repository, tmp_path):
    """If apt cannot install Alertmanager, its error is reported and the package is downloaded."""
    place, told = repository("#!/bin/sh\necho 1\n"), []
    (place / "lists").touch()
    (Path(environ["PATH"]) / "apt-get").write_text(
        APT.replace('case "$*" in', 'case "$*" in\n*install*) echo "E: no" >&2; exit 100 ;;')
    )
    install = functools.partial(install_package, policy=tmp_path / "policy-rc.d")
    with pytest.raises(StackError, match="the downloaded prometheus-alertmanager does not run"):
        find_program(
            "prometheus-alertmanager", environ=environ, report=told.append, install=install
        )
    assert "cannot install prometheus-alertmanager, so it is unpacked instead: " in told[1]
    assert "downloading Debian's package prometheus-alertmanager" in told[2]


def test_failing_apt_is_quoted(environ):
    """The error of a failed download ends with apt's own message."""
    refuse = "#!/bin/sh\necho 'E: no route to host' >&2\nexit 100\n"
    (Path(environ["PATH"]) / "apt-get").write_text(refuse)
    Path(environ["REPOSITORY"]).mkdir()
    with pytest.raises(StackError, match=r"cannot download prometheus: .*E: no route to host$"):
        find_program("prometheus", environ=environ)


def test_cache_that_cannot_be_written(environ, tmp_path):
    """A cache path that is a file is named in the error."""
    (tmp_path / "cache").touch()
    with pytest.raises(StackError, match="set XDG_CACHE_HOME to another directory"):
        find_program("prometheus", environ=environ)


@pytest.mark.skipif(
    not os.environ.get("CI") and not os.environ.get("TRAINVITALS_TEST_LONG"),
    reason="downloads 20 MB; run it with `make test-long`",
)
def test_real_package_is_fetched_without_root_state(tmp_path):
    """Debian's own Prometheus is fetched by the real apt, with its web pages, and runs."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for directory in ("/usr/bin", "/usr/sbin"):
        for each in Path(directory).iterdir():
            if not each.name.startswith("prom") and not (tools / each.name).exists():
                (tools / each.name).symlink_to(each)
    environ = {"PATH": str(tools), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "c")}
    program = find_program("prometheus", environ=environ)
    said = subprocess.run((program, "--version"), capture_output=True, text=True, check=True)
    assert said.stdout.startswith("prometheus, version 2.")
    static = find_web_assets(program) / "static"
    assert [each for each in static.rglob("*") if not each.exists()] == []
    assert (static / "bootstrap4/js/bootstrap.min.js").is_file()
