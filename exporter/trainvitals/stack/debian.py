"""Programs of the Prometheus family from Debian's packages, without root.

Where a program is not installed, apt fetches and verifies the package as it always does, but into
lists and a cache of our own, and the package is unpacked rather than installed. An unpacked
package lives in `$XDG_CACHE_HOME/trainvitals/debian/PACKAGE` and is there either whole or not.

Alertmanager alone works better installed, and is installed where the caller may and wants it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainvitals.errors import StackError

PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
}

# As the projects themselves call what Debian calls otherwise.
_ALIASES = {"prometheus-alertmanager": "alertmanager"}
# What reads files from fixed paths, see templatepath.py.
_BETTER_INSTALLED = frozenset({"prometheus-alertmanager"})
# What the web pages of a program load; the other dependencies matter to an installation only.
_WEB_PACKAGES = re.compile(r"^(?:libjs|fonts)-[a-z0-9.+-]+$", re.MULTILINE)
# Two thirds of the unpacked size, and no program or page reads it.
_UNREAD = ("usr/share/doc", "usr/share/javascript/moment-timezone/data")
_DEPENDS = (
    "--recurse",
    "--no-recommends",
    "--no-suggests",
    "--no-conflicts",
    "--no-breaks",
    "--no-replaces",
    "--no-enhances",
)
_PATIENCE_SECONDS = 600.0


def find_program(
    name: str,
    *,
    environ: Mapping[str, str] = os.environ,
    report: Callable[[str], None] = lambda _: None,
    install: Callable[..., None] | None = None,
) -> Path:
    """Give the path of a program: the installed one, else, for `PACKAGES`, one from Debian.

    Args:
        name: The program.
        environ: Where `PATH`, `XDG_CACHE_HOME` and `HOME` are read.
        report: Told when something is downloaded, because that takes a while.
        install: Installs what works better so, as `install_package`; None where that is not
            wanted, or the caller is not root.

    Raises:
        StackError: It is not installed and cannot be fetched, or what was fetched does not run.
    """
    if installed := _find_installed(name, environ):
        return installed
    if name not in PACKAGES:
        raise StackError(f"{name} is not installed")
    package = PACKAGES[name]
    cache = _cache_dir(environ)
    if install and package in _BETTER_INSTALLED:
        _install(install, package, cache, environ, report)
        if installed := _find_installed(name, environ):
            return installed
    program = cache / package / "usr/bin" / name
    if not program.exists():
        with _locked(cache):
            if not program.exists():
                report(f"fetching Debian's package {package} into {cache}")
                _fetch(package, cache, environ)
    if not program.exists():
        raise StackError(f"Debian's package {package} has no program {name}: install {name}")
    return program


def _find_installed(name: str, environ: Mapping[str, str]) -> Path | None:
    path = environ.get("PATH", os.defpath)
    found = shutil.which(name, path=path) or shutil.which(_ALIASES.get(name, name), path=path)
    return Path(found) if found else None


def _install(
    install: Callable[..., None],
    package: str,
    cache: Path,
    environ: Mapping[str, str],
    report: Callable[[str], None],
) -> None:
    """Install a package; where that cannot be, say so, and it is fetched like any other."""
    if shutil.which("apt-get", path=environ.get("PATH", os.defpath)) is None:
        return
    report(f"installing Debian's package {package}, with its service turned off")
    unattended = {**environ, "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l"}
    with _locked(cache):
        options = (*_apt_options(cache), "-o", "DPkg::Lock::Timeout=30")
        _update_lists(options, environ)
        try:
            install(
                package,
                lambda command: _run(command, unattended),
                options=options,
                environ=environ,
            )
        except StackError as error:
            report(f"{package} is not installed: {error}")


def find_web_assets(program: Path) -> Path | None:
    """Give the web pages that came along with a fetched program.

    Returns:
        The directory; None for a program that is installed and knows where its pages are.
    """
    root = program.parent.parent.parent
    assets = root / "usr/share" / program.name / "web"
    return assets if root != Path("/") and assets.is_dir() else None


def _cache_dir(environ: Mapping[str, str]) -> Path:
    # XDG: a relative path in these variables is to be ignored.
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        home = environ.get("HOME")
        base = (Path(home) if home else Path.home()) / ".cache"
    return base / "trainvitals/debian"


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (cache / "lock").open("w")
    except OSError as error:
        raise StackError(
            f"cannot write {cache}: {error.strerror}; set XDG_CACHE_HOME to another directory"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(package: str, cache: Path, environ: Mapping[str, str]) -> None:
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool, path=environ.get("PATH", os.defpath)) is None:
            raise StackError(f"no {package} here and no {tool} to fetch it with: install {package}")
    downloads, unpacked = cache / f"{package}.debs", cache / f"{package}.partial"
    for leftover in (downloads, unpacked, cache / package):
        shutil.rmtree(leftover, ignore_errors=True)
    downloads.mkdir()
    _download(package, downloads, cache, environ)
    for deb in sorted(downloads.glob("*.deb")):
        _run(("dpkg-deb", "-x", str(deb), str(unpacked)), environ)
    for unread in _UNREAD:
        shutil.rmtree(unpacked / unread, ignore_errors=True)
    for name in (name for name, source in PACKAGES.items() if source == package):
        _try_program(unpacked / "usr/bin" / name, environ)
    unpacked.rename(cache / package)
    shutil.rmtree(downloads)


def _download(package: str, downloads: Path, cache: Path, environ: Mapping[str, str]) -> None:
    options = _apt_options(cache)
    try:
        _download_listed(package, downloads, options, environ)
    except StackError:
        # There are no lists yet, or they are older than the package that they name.
        complaint = _update_lists(options, environ)
        try:
            _download_listed(package, downloads, options, environ)
        except StackError as error:
            raise StackError(f"cannot fetch {package}: {complaint or error}") from error


def _update_lists(options: tuple[str, ...], environ: Mapping[str, str]) -> StackError | None:
    """Fetch the lists; one source that fails need not be the one that has the package."""
    try:
        _run(("apt-get", "-qq", *options, "update"), environ)
    except StackError as error:
        return error
    return None


def _download_listed(
    package: str, downloads: Path, options: tuple[str, ...], environ: Mapping[str, str]
) -> None:
    listed = _run(("apt-cache", *options, "depends", *_DEPENDS, package), environ)
    names = (package, *sorted(set(_WEB_PACKAGES.findall(listed))))
    _run(("apt-get", "-qq", *options, "download", *names), environ, directory=downloads)


def _apt_options(cache: Path) -> tuple[str, ...]:
    lists, archives = cache / "apt/lists", cache / "apt/cache"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    (archives / "archives/partial").mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::State::Lists": str(lists),
        "Dir::Cache": str(archives),
        "Debug::NoLocking": "1",
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
        "Acquire::http::Timeout": "30",
        "Acquire::https::Timeout": "30",
        # The user that apt downloads as when root calls it cannot write into a private directory.
        "APT::Sandbox::User": "root",
    }
    return tuple(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))


def _try_program(program: Path, environ: Mapping[str, str]) -> None:
    try:
        _run((str(program), "--version"), environ)
    except StackError as error:
        raise StackError(
            f"Debian's {program.name} does not run on this machine: {error}; install another"
        ) from error


def _run(
    command: tuple[str, ...], environ: Mapping[str, str], *, directory: Path | None = None
) -> str:
    """Run a command to its end and give its standard output.

    Raises:
        StackError: It cannot be started, fails or takes too long; with its last words.
    """
    shown = Path(command[0]).name
    try:
        result = subprocess.run(
            command,
            cwd=directory,
            env={**environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"{shown} did not finish: {error}") from error
    if result.returncode:
        words = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
        raise StackError(f"{shown} failed with exit code {result.returncode}: {words[-1]}")
    return result.stdout
