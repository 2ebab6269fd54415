"""The template that Debian's Alertmanager reads from a fixed path."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainvitals.errors import StackError
from trainvitals.stack import privateview
from trainvitals.stack.debian import prefix_command

VIEW = privateview.__file__
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# The Python of the virtual environment may be in a home directory that other users cannot enter.
PYTHON = next(
    (path for path in (shutil.which("python3", path="/usr/bin"), sys.executable) if path), ""
)
# Hides the template in the mount namespace of this process alone.
HIDDEN = (
    "cd /usr/share && if [ -d prometheus ]; then mount -t tmpfs tmpfs prometheus; fi && "
    'cd "$OLDPWD" && exec "$@"'
)


@pytest.fixture
def place(tmp_path_factory):
    """Return a directory that every user may enter."""
    place = tmp_path_factory.mktemp("view")
    for each in (place, *place.parents):
        if each.stat().st_uid == os.geteuid() and each not in {Path("/"), Path("/tmp")}:
            each.chmod(each.stat().st_mode | 0o055)
    return place


@pytest.fixture
def unpacked(place, unpacked_alertmanager):
    """Return a directory with an Alertmanager whose package was unpacked but not installed."""
    alertmanager = unpacked_alertmanager
    share = Path("/usr/share/prometheus/alertmanager")
    if alertmanager.parent.parent != Path("/usr"):
        share = alertmanager.parent.parent / "share/prometheus/alertmanager"
    shutil.copytree(share, place / "usr/share/prometheus/alertmanager", symlinks=True)
    (place / "usr/bin").mkdir()
    shutil.copy(alertmanager, place / "usr/bin/prometheus-alertmanager")
    (place / "hold").mkdir()
    (place / "data").mkdir()
    (place / "alertmanager.yml").write_text("route: {receiver: a}\nreceivers: [{name: a}]\n")
    for each in ("hold", "data"):
        (place / each).chmod(0o777)
    return place


def run_alertmanager(place, *before):
    """Run Alertmanager for a second and return its error output."""
    command = (
        *before,
        *(shutil.which("timeout"), "1", f"{place}/usr/bin/prometheus-alertmanager"),
        f"--config.file={place}/alertmanager.yml",
        f"--storage.path={place}/data",
        "--web.listen-address=127.0.0.1:0",
        "--cluster.listen-address=",
    )
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def view(place):
    """Return the command that runs a program with a private view of /usr/share."""
    return (PYTHON, "-I", VIEW, f"{place}/hold", "prometheus", f"{place}/usr/share/prometheus")


def list_names():
    """Return the names in /usr/share."""
    return sorted(path.name for path in privateview.SHARE.iterdir())


def become(user):
    """Return the command prefix that runs a program as a user."""
    if user == "root" and os.geteuid() != 0:
        pytest.skip("only root tries what root may")
    return NOBODY if user == "nobody" and os.geteuid() == 0 else ()


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_view_lets_alertmanager_find_its_template(unpacked, user):
    """Alertmanager starts as root and as nobody with the private view, and not without it."""
    hidden = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))
    hidden += ("sh", "-c", HIDDEN, "sh", *become(user))
    assert "default.tmpl: no such file" in run_alertmanager(unpacked, *hidden)
    said = run_alertmanager(unpacked, *hidden, *view(unpacked))
    assert "default.tmpl" not in said
    assert "Received SIGTERM, exiting gracefully" in said


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_view_differs_in_one_name_alone(unpacked, user):
    """The private view adds one name to /usr/share for its own process and keeps the user."""
    before = list_names()
    script = (
        "import os; print(os.geteuid(), os.path.isfile('/usr/share/zoneinfo/UTC'), "
        "os.listdir('/usr/share/prometheus'), sorted(os.listdir('/usr/share')))"
    )
    command = (*become(user), *view(unpacked), PYTHON, "-c", script)
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    number = {"root": 0, "nobody": 65534 if os.geteuid() == 0 else os.geteuid()}[user]
    names = sorted({*before, "prometheus"})
    assert said == f"{number} True ['alertmanager'] {names}"
    assert list_names() == before


def test_view_that_the_kernel_refuses(unpacked, tmp_path):
    """If the kernel refuses a namespace, one line says so and the program is not started."""
    forbid = tmp_path / "forbid.py"
    forbid.write_text(
        f"import ctypes, sys; sys.path.insert(0, {str(Path(VIEW).parent)!r}); import privateview\n"
        "class Libc:\n"
        "    def unshare(self, flags): ctypes.set_errno(1); return -1\n"
        "ctypes.CDLL = lambda *_, **__: Libc()\n"
        "sys.exit(privateview.main(sys.argv[1:]))\n"
    )
    command = (PYTHON, forbid, *view(unpacked)[3:], "/bin/echo", "started")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "cannot create a private view of /usr/share: unshare: Operation not permitted\n"
    )


def test_wrong_words():
    """Without a program to run, `privateview` prints its usage and exits with 2."""
    done = subprocess.run((PYTHON, VIEW, "a"), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:6]) == (2, "usage:")


def test_only_an_unpacked_program_on_a_machine_without_the_template_needs_it(unpacked, tmp_path):
    """An Alertmanager needs no prefix if /usr/share has the template or its package has none."""
    program = unpacked / "usr/bin/prometheus-alertmanager"
    bare = tmp_path / "share"
    assert prefix_command(program, tmp_path / "hold", share=unpacked / "usr/share") == ()
    assert prefix_command(tmp_path / "bin/alertmanager", tmp_path / "hold", share=bare) == ()
    (bare / "prometheus/alertmanager").mkdir(parents=True)
    (bare / "prometheus/alertmanager/default.tmpl").touch()
    assert prefix_command(program, tmp_path / "hold", share=bare) == ()
    assert not (tmp_path / "hold").exists()


def test_prefix_is_tried(unpacked, tmp_path):
    """`prefix_command` returns a private view for an unpacked Alertmanager after trying it."""
    program = unpacked / "usr/bin/prometheus-alertmanager"
    prefix = prefix_command(program, tmp_path / "hold", share=tmp_path)
    assert prefix == (
        *(sys.executable, "-I", VIEW, str(tmp_path / "hold"), "prometheus"),
        str(unpacked / "usr/share/prometheus"),
    )
    assert (tmp_path / "hold").stat().st_mode & 0o777 == 0o700


def test_prefix_that_does_not_work_is_reported(unpacked, tmp_path):
    """The error for a prefix that fails names the template, the reason and what to install."""
    program = unpacked / "usr/bin/prometheus-alertmanager"
    refusing = tmp_path / "python"
    refusing.write_text("#!/bin/sh\necho 'no private view: Operation not permitted' >&2\nexit 2\n")
    refusing.chmod(0o755)
    with pytest.raises(
        StackError,
        match=r"default\.tmpl \(no private view: Operation not permitted\): install prometheus-",
    ):
        prefix_command(program, tmp_path / "hold", share=tmp_path, python=str(refusing))
    with pytest.raises(StackError, match=r"it cannot read .*default\.tmpl"):
        prefix_command(program, tmp_path / "hold", share=tmp_path, python=str(tmp_path / "none"))
