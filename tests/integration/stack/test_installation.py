"""The installation of Debian's Alertmanager package without its service."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.errors import StackError
from trainvitals.stack.debian import find_program
from trainvitals.stack.installation import install_package

PACKAGE = "prometheus-alertmanager"


@pytest.fixture
def tools(tmp_path):
    """Return a directory with a `systemctl` that does nothing."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "bin/systemctl").chmod(0o755)
    return tmp_path / "bin"


def asked(policy):
    """Run a policy-rc.d as Debian's packages do, and return its exit code."""
    return subprocess.run((policy, PACKAGE, "start"), check=False).returncode


def test_service_is_forbidden_while_the_package_is_installed(tools, tmp_path):
    """The policy forbids services during the installation and is removed afterwards."""
    policy, ran = tmp_path / "policy-rc.d", []

    def run(command):
        ran.append((command, asked(policy)))

    install_package(
        PACKAGE, run, options=("-o", "a=b"), environ={"PATH": str(tools)}, policy=policy
    )
    assert ran == [
        (
            ("apt-get", "-qq", "-y", "--no-install-recommends", "-o", "a=b", "install", PACKAGE),
            101,
        ),
        (("systemctl", "disable", "prometheus-alertmanager.service"), 101),
    ]
    assert not policy.exists()


def test_machine_without_systemd(tools, tmp_path):
    """On a machine without systemd, update-rc.d disables the service."""
    (tools / "systemctl").rename(tools / "update-rc.d")
    ran = []
    environ = {"PATH": str(tools)}
    install_package(PACKAGE, ran.append, environ=environ, policy=tmp_path / "policy")
    assert ran[1] == ("update-rc.d", "prometheus-alertmanager", "disable")


def test_failed_installation_leaves_no_policy(tools, tmp_path):
    """The policy is also removed if the installation is interrupted."""
    policy = tmp_path / "policy"

    def fail(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install_package(PACKAGE, fail, environ={"PATH": str(tools)}, policy=policy)
    assert not policy.exists()


def test_policy_of_a_killed_installation_forbids_nothing(tools, tmp_path):
    """A policy left by a killed installation allows services, and the next one removes it."""
    policy = tmp_path / "policy"
    child = (
        "import os, sys; from pathlib import Path;"
        "from trainvitals.stack.installation import install_package\n"
        "install_package('a', lambda _: os.kill(os.getpid(), 9), policy=Path(sys.argv[1]))"
    )
    sources = Path(__file__).parents[3] / "exporter"
    subprocess.run(
        (sys.executable, "-c", child, policy),
        env={**os.environ, "PYTHONPATH": str(sources)},
        check=False,
    )
    assert asked(policy) == 0
    install_package(PACKAGE, lambda _: None, environ={"PATH": str(tools)}, policy=policy)
    assert not policy.exists()


@pytest.fixture
def foreign(tmp_path):
    """Return a function that writes another program's policy with a given exit code."""

    def write(answer):
        (tmp_path / "policy").write_text(f"#!/bin/sh\nexit {answer}\n")
        (tmp_path / "policy").chmod(0o755)
        return tmp_path / "policy"

    return write


def test_policy_of_somebody_else_that_forbids_is_enough(tools, foreign):
    """Another program's policy that forbids services is kept, and the package is installed."""
    policy, ran = foreign(101), []
    install_package(PACKAGE, ran.append, environ={"PATH": str(tools)}, policy=policy)
    assert len(ran) == 2
    assert policy.read_text() == "#!/bin/sh\nexit 101\n"


def test_policy_of_somebody_else_that_allows_is_not_changed(foreign):
    """Another program's policy that allows services is kept, and nothing is installed."""
    policy, ran = foreign(0), []
    with pytest.raises(StackError, match="would start its service"):
        install_package(PACKAGE, ran.append, policy=policy)
    assert ran == []
    assert policy.read_text() == "#!/bin/sh\nexit 0\n"


def test_policy_that_cannot_be_written(tmp_path):
    """The error for a policy that cannot be written names its path."""
    (tmp_path / "a").touch()
    with pytest.raises(StackError, match=r"cannot write .*a/policy: Not a directory"):
        install_package(PACKAGE, print, policy=tmp_path / "a/policy")


# Runs in a chroot on an overlay over this machine's root, from which the package was removed.
SCRIPT = """\
set -e
mount -t tmpfs tmpfs "$1"; mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
for each in proc sys dev; do mount --rbind "/$each" "$1/root/$each"; done
mount -t tmpfs tmpfs "$1/root/run"
chroot "$1/root" sh -c '
rm -f /usr/sbin/policy-rc.d
dpkg --purge --force-depends prometheus-alertmanager
! test -e /usr/bin/prometheus-alertmanager
cd / && PYTHONPATH="$0" HOME=/tmp/home "$1" -c "
from trainvitals.stack.debian import find_program
from trainvitals.stack.installation import install_package
print(find_program(\\"prometheus-alertmanager\\", report=print, install=install_package))
"
test -e /usr/share/prometheus/alertmanager/default.tmpl
test ! -e /usr/sbin/policy-rc.d
! ls /etc/rc?.d/S*prometheus-alertmanager /etc/systemd/system/*/prometheus-alertmanager.service
' "$2" "$3"
"""


@pytest.mark.skipif(
    os.geteuid() != 0
    or not os.environ.get("TRAINVITALS_TEST_LONG")
    or not Path("/usr/bin/prometheus-alertmanager").exists(),
    reason="installs a package as root, which takes 25 s: run it with `make test-long`",
)
def test_real_package_is_installed_without_its_service(tmp_path, tools):
    """Apt installs Debian's own package, whose service does not start, now or at the next boot."""
    sources = Path(__file__).parents[3] / "exporter"
    done = subprocess.run(
        ("unshare", "--mount", "sh", "-c", SCRIPT, "sh", tmp_path, sources, sys.executable),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installing Debian's package prometheus-alertmanager, with its service disabled" in (
        done.stdout
    )
    assert done.stdout.splitlines()[-1] == "/usr/bin/prometheus-alertmanager"
    assert find_program(PACKAGE) == Path("/usr/bin/prometheus-alertmanager")
