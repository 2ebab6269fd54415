"""Finds Prometheus, Alertmanager, Grafana and their tools, and unpacks packages without root.

If a program is not installed, apt downloads and verifies the program's package with private lists
and a private cache. The package is then unpacked instead of installed. Packages are unpacked
atomically to `$XDG_CACHE_HOME/trainvitals/debian/PACKAGE`. The packages of Prometheus and
Alertmanager are from Debian, and the Grafana package is from Grafana Labs.

If root runs the command, the Alertmanager package is installed, because an unpacked Alertmanager
finds its template only in a mount namespace.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainvitals.alerting.variables import parse_switch, read_variable
from trainvitals.errors import StackError
from trainvitals.sources import external_program
from trainvitals.stack import privateview
from trainvitals.stack.apt import Apt, run_tool
from trainvitals.stack.packages import PACKAGES, Package
from trainvitals.stack.privateview import SHARE
from trainvitals.stack.unpacking import fetch_package
from trainvitals.stack.writing import make_private

Report = Callable[[str], None]

# Debian's Alertmanager exits if this file is missing in `/usr/share`; no flag changes the path of
# the template.
_TEMPLATE = Path("prometheus/alertmanager/default.tmpl")
_TRIAL_SECONDS = 20.0


def find_program(
    name: str,
    *,
    environ: Mapping[str, str] = os.environ,
    report: Report = lambda _: None,
    install: Callable[..., None] | None = None,
    packages: tuple[Package, ...] = PACKAGES,
    root: Path = Path("/"),
    timeout_seconds: float = 10.0,
) -> Path:
    """Return the path of a program, either installed or unpacked from a package.

    A tool such as promtool is taken from the directory of its program, so that the tool and the
    program have the same version.

    Args:
        name: The name of the program, or of a tool in the same package.
        environ: The environment: `PATH`, `XDG_CACHE_HOME`, `HOME`, `GRAFANA_FETCH` and the
            variables that apt reads.
        report: Called with one line before a download, and with one line about each installed
            program that is too old.
        install: Installs a package, as `install_package` does; None to unpack packages only.
        packages: The packages that can contain the program.
        root: The root directory of the file system that is searched for installed programs.
        timeout_seconds: The maximum wait for a package server, in seconds.

    Raises:
        ConfigurationError: `GRAFANA_FETCH` is neither true nor false.
        StackError: The program is not installed and cannot be downloaded, or the downloaded program
            does not run.
    """
    package = next((each for each in packages if name in each.programs), None)
    if package is None:
        raise StackError(f"{name} is not installed")
    cache = _cache_dir(environ)
    if installed := _find_installed(name, package, cache, environ, report, root):
        return installed
    if install and package.is_better_installed:
        _install(install, package.name, cache, environ, report)
        if installed := _find_installed(name, package, cache, environ, report, root):
            return installed
    program = cache / package.name / package.folder / name
    if not _is_usable(program, package):
        _require_permission(package, environ)
        with _locked(cache):
            if not _is_usable(program, package):
                fetch_package(
                    package, cache, environ, report=report, timeout_seconds=timeout_seconds
                )
    if not program.exists():
        raise StackError(f"the package {package.name} has no program {name}: install {name}")
    return program


def _find_installed(
    name: str,
    package: Package,
    cache: Path,
    environ: Mapping[str, str],
    report: Report,
    root: Path,
) -> Path | None:
    """Return the path of an installed program or tool; None if the package must be unpacked."""
    programs = _list_installed(package, environ, root)
    program = next((each for each in programs if _is_new_enough(each, package, report)), None)
    if name == package.programs[0]:
        return program
    if program is None:
        unpacked = cache / package.name / package.folder
        found = shutil.which(name, path=environ.get("PATH", os.defpath))
        return Path(found) if found and not (unpacked / package.programs[0]).exists() else None
    for place in (program.parent, program.resolve().parent):
        if found := shutil.which(name, path=str(place)):
            return Path(found)
    raise StackError(f"there is no {name} beside {program}: install both from the same package")


def _list_installed(package: Package, environ: Mapping[str, str], root: Path) -> Iterator[Path]:
    """Yield the installed programs with the package's program name or an alias, in PATH order."""
    names = (package.programs[0], *package.aliases)
    places = [str(root / place) for place in package.places]
    for folder in (*environ.get("PATH", os.defpath).split(os.pathsep), *places):
        for name in names:
            if found := shutil.which(name, path=folder):
                yield _skip_wrapper(Path(found), names, places)


def _skip_wrapper(program: Path, names: tuple[str, ...], places: list[str]) -> Path:
    """Return the binary that a package's wrapper script starts.

    Grafana's script adds `--config=/etc/grafana/grafana.ini`, a file that ordinary users may not
    read.
    """
    if not _is_script(program):
        return program
    found = (shutil.which(name, path=place) for place in places for name in names)
    binaries = (Path(each) for each in found if each)
    return next((each for each in binaries if not _is_script(each)), program)


def _is_script(program: Path) -> bool:
    try:
        with program.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:  # An executable program is not necessarily readable.
        return False


def _is_new_enough(program: Path, package: Package, report: Report) -> bool:
    if package.oldest is None:
        return True
    version = external_program.read_version(program, ("-v",))  # all Grafana releases accept -v
    if version is None or version >= package.oldest:
        return True
    found, needed = (".".join(map(str, each)) for each in (version, package.oldest))
    report(f"{program} is not used: it is {package.name} {found}, and {needed} is needed at least")
    return False


def _is_usable(program: Path, package: Package) -> bool:
    """Return whether an unpacked program exists and is new enough to need no download."""
    main = program.with_name(package.programs[0])
    return program.exists() and _is_new_enough(main, package, lambda _: None)


def _require_permission(package: Package, environ: Mapping[str, str]) -> None:
    variable = f"{package.name.upper()}_FETCH"
    if package.repository and read_variable(environ, variable, parse_switch) is False:
        raise StackError(f"{package.name} is not installed, and {variable}=0 forbids its download")


def _install(
    install: Callable[..., None],
    package: str,
    cache: Path,
    environ: Mapping[str, str],
    report: Report,
) -> None:
    """Install a package, and report a failure; the caller then unpacks the package instead."""
    if shutil.which("apt-get", path=environ.get("PATH", os.defpath)) is None:
        return
    report(f"installing Debian's package {package}, with its service disabled")
    unattended = {**environ, "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l"}
    with _locked(cache):
        apt = Apt(cache, environ)
        apt.update()
        try:
            install(
                package,
                lambda command: run_tool(command, unattended),
                options=(*apt.options, "-o", "DPkg::Lock::Timeout=30"),
                environ=environ,
            )
        except StackError as error:
            report(f"cannot install {package}, so it is unpacked instead: {error}")


def find_web_assets(program: Path) -> Path | None:
    """Return the directory of an unpacked program's web pages.

    Returns:
        The directory of the web pages; None for an installed program, which finds the pages without
        this path.
    """
    root = program.parent.parent.parent
    assets = root / "usr/share" / program.name / "web"
    return assets if root != Path("/") and assets.is_dir() else None


def prefix_command(
    program: Path, hold: Path, *, share: Path = SHARE, python: str = sys.executable
) -> tuple[str, ...]:
    """Return the command prefix with which an unpacked Alertmanager finds its template.

    Alertmanager reads its template from `/usr/share`, which does not contain the template of an
    unpacked Alertmanager. The program therefore runs in a mount namespace that provides the
    template at that path.

    Args:
        program: The path of the Alertmanager program.
        hold: The mount point for the real `/usr/share`, which is created if it does not exist.
        share: The directory in which Alertmanager looks for the template.
        python: The Python interpreter that runs `privateview`.

    Returns:
        The prefix of the command; an empty tuple for an installed program, or if the template
        exists.

    Raises:
        StackError: The program needs a mount namespace, which this machine does not allow.
    """
    unpacked = program.parent.parent / "share"
    if unpacked == share or (share / _TEMPLATE).exists() or not (unpacked / _TEMPLATE).exists():
        return ()
    make_private(hold)
    view = (str(hold), _TEMPLATE.parts[0], str(unpacked / _TEMPLATE.parts[0]))
    # Python starts faster without site-packages, which the script does not need.
    prefix = (python, "-I", str(Path(privateview.__file__)), *view)
    _try(prefix, program)
    return prefix


def _try(prefix: tuple[str, ...], program: Path) -> None:
    try:
        tried = external_program.run(
            (*prefix, str(program), "--version"), timeout_seconds=_TRIAL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"it cannot read {SHARE / _TEMPLATE}: {error}") from error
    if tried.returncode:
        words = tried.stderr.strip().splitlines() or ["no message"]
        raise StackError(
            f"it cannot read {SHARE / _TEMPLATE} ({words[-1]}): install prometheus-alertmanager"
        )


def _cache_dir(environ: Mapping[str, str]) -> Path:
    # The XDG specification requires relative paths in these variables to be ignored.
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        home = environ.get("HOME")
        base = (Path(home) if home else Path.home()) / ".cache"
    return base / "trainvitals/debian"


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    try:
        # Programs that root has unpacked run as another user.
        cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        lock = (cache / "lock").open("w")
    except OSError as error:
        raise StackError(
            f"cannot write {cache}: {error.strerror}; set XDG_CACHE_HOME to another directory"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
