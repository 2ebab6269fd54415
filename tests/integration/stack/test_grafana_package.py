"""Grafana from a repository like its own, on this machine and with a key of the test's own."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.package_repository import FileServer, SigningKey, build_package, write_index
from tests.support.privileges import NOBODY
from tests.support.trainers import as_nobody
from tests.unit.stack.conftest import STAND_IN_GRAFANA
from trainvitals.errors import ConfigurationError, StackError
from trainvitals.sources.http_client import fetch_page
from trainvitals.stack.debian import find_program
from trainvitals.stack.native import bring_up, take_down
from trainvitals.stack.packages import GRAFANA, Repository
from trainvitals.stack.status import describe

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("apt-get", "dpkg-deb", "gpg")),
    reason="needs apt, dpkg and GnuPG",
)

BINARY = "usr/share/grafana/bin/grafana"
CUT = 50_000


@pytest.fixture(scope="session")
def key(tmp_path_factory):
    """Return the key of the repository."""
    return SigningKey(tmp_path_factory.mktemp("keys") / "own")


@pytest.fixture(scope="session")
def pool(tmp_path_factory):
    """Return a directory with packages of several versions, each of 200 kB."""
    directory = tmp_path_factory.mktemp("pool") / "pool"
    directory.mkdir()
    for version in ("12.3.9", "12.4.0", "12.4.10", "12.4.2", "13.0.0"):
        script = f"#!/bin/sh\necho grafana version {version}\nexit\n{'x' * 200_000}\n"
        build_package(directory, "grafana", version, {BINARY: script})
    return directory


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    """Return a directory with this machine's programs, without a Grafana."""
    directory = tmp_path_factory.mktemp("tools")
    for place in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
        for each in Path(place).iterdir():
            link = directory / each.name
            if not each.name.startswith("grafana") and not link.is_symlink():
                link.symlink_to(each)
    return directory


@dataclass
class Stage:
    """A repository, its server, and a machine without Grafana.

    Attributes:
        root: The directory of the repository.
        server: Its server.
        key: The key that signs it.
        keys: The directory with the key that the machine trusts.
        environ: The environment of the machine.
        told: What was reported.
    """

    root: Path
    server: FileServer
    key: SigningKey
    keys: Path
    environ: dict[str, str]
    told: list[str] = field(default_factory=list)

    @property
    def cache(self) -> Path:
        """Return the directory of what was unpacked."""
        return Path(self.environ["XDG_CACHE_HOME"]) / "trainvitals/debian"

    @property
    def partial(self) -> Path:
        """Return the part of a package that was received."""
        return self.cache / "grafana.debs/grafana_12.4.10_all.deb.partial"

    def find(self, **changed: object) -> Path:
        """Find Grafana, and wait a second for the server at most."""
        repository = Repository(self.server.url, self.key.fingerprint, self.keys)
        return find_program(
            "grafana",
            environ=self.environ,
            report=self.told.append,
            packages=(replace(GRAFANA, repository=repository, **changed),),
            root=self.cache / "nothing",
            timeout_seconds=1.0,
        )

    def refuse(self, reason: str) -> None:
        """Check that Grafana cannot be had, for a reason in one line, and that nothing is unpacked."""
        with pytest.raises(StackError, match=reason) as caught:
            self.find()
        assert "\n" not in str(caught.value)
        assert not (self.cache / "grafana").exists()


@pytest.fixture
def stage(tmp_path, pool, tools, key):
    """Return a repository in order, whose key the machine trusts."""
    root = tmp_path / "repository"
    shutil.copytree(pool.parent, root)
    write_index(root, key)
    key.export(tmp_path / "trusted keys")
    environ = {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "a cache"),
    }
    with FileServer(root) as server:
        yield Stage(root, server, key, tmp_path / "trusted keys", environ)


def test_newest_fitting_version_is_fetched_once(stage):
    """It is unpacked into the cache, where the next call finds it without a request."""
    program = stage.find()
    assert program == stage.cache / "grafana" / BINARY
    said = subprocess.run((program, "-v"), capture_output=True, text=True, check=True).stdout
    assert said == "grafana version 12.4.10\n"
    assert stage.told[0] == f"downloading grafana from {stage.server.url} to {stage.cache}"
    assert re.fullmatch(r"grafana_12.4.10_all.deb: ([0-9.]+) / \1 [KM]?i?B", stage.told[-1])
    assert not stage.partial.parent.exists()
    before = len(stage.server.requests)
    assert stage.find() == program
    assert len(stage.server.requests) == before


FIND = """
import sys
from dataclasses import replace
from pathlib import Path
from trainvitals.stack.debian import find_program
from trainvitals.stack.packages import GRAFANA, Repository
url, fingerprint, keys, nowhere = sys.argv[1:]
repository = Repository(url, fingerprint, Path(keys))
packages = (replace(GRAFANA, repository=repository),)
print(find_program("grafana", packages=packages, root=Path(nowhere)))
"""


@pytest.mark.skipif(shutil.which("grafana") is not None, reason="Grafana is installed here")
def test_it_is_unpacked_without_root(pool, key):
    """Whoever starts the stack gets it into the own cache, and owns what was unpacked."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)
        shutil.copytree(pool.parent, place / "repository")
        write_index(place / "repository", key)
        key.export(place / "keys")
        (place / "home").mkdir()
        if os.geteuid() == 0:
            os.chown(place / "home", NOBODY, NOBODY)
        with FileServer(place / "repository") as server:
            given = (server.url, key.fingerprint, place / "keys", place / "nothing")
            found = subprocess.run(
                (*as_nobody(), sys.executable, "-c", FIND, *map(str, given)),
                env={"PATH": os.environ["PATH"], "HOME": str(place / "home")},
                cwd=place,
                capture_output=True,
                text=True,
                check=True,
            )
        program = Path(found.stdout.strip())
        assert program == place / "home/.cache/trainvitals/debian/grafana" / BINARY
        assert program.stat().st_uid == (place / "home").stat().st_uid != 0
        said = subprocess.run((program, "-v"), capture_output=True, text=True, check=True).stdout
        assert said == "grafana version 12.4.10\n"


def test_each_tenth_is_reported(stage):
    """As the package arrives, a line tells how much of it has."""
    stage.find()
    assert len([line for line in stage.told if " MB" in line]) <= 10


def test_too_old_download_is_replaced(stage):
    """What an earlier release of trainvitals has unpacked is fetched again where it is too old."""
    stage.find(downloaded=((12, 3), (12, 4)), oldest=None)
    stage.find(oldest=(12, 4))
    said = subprocess.run(
        (stage.cache / "grafana" / BINARY, "-v"), capture_output=True, text=True, check=True
    ).stdout
    assert said == "grafana version 12.4.10\n"


def test_no_version_fits(stage):
    """A repository that has only others is of no use."""
    for path in stage.root.glob("pool/grafana_12.4*.deb"):
        path.unlink()
    write_index(stage.root, stage.key)
    stage.refuse("grafana is not listed in a version that the stack can use")


def sign_with_another_key(stage, tmp_path):
    """Sign the index with a key that nobody trusts."""
    write_index(stage.root, SigningKey(tmp_path / "other"))


def sign_with_another_trusted_key(stage, tmp_path):
    """Sign the index with a key beside the right one, as others that a machine may have."""
    other = SigningKey(tmp_path / "other")
    other.export(stage.keys)
    write_index(stage.root, other)


def sign_nothing(stage, _):
    """Leave the index unsigned."""
    write_index(stage.root, None)


def change_the_index(stage, _):
    """Change a letter after the index was signed."""
    index = stage.root / "dists/stable/InRelease"
    index.write_text(index.read_text().replace("Suite: stable", "Suite: stabler"))


def let_the_key_expire(stage, tmp_path):
    """Sign with a key that has expired since."""
    stage.key = SigningKey(tmp_path / "old", expires="30d", now="20250101T000000")
    stage.key.export(stage.keys)
    write_index(stage.root, stage.key)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (sign_with_another_key, "NO_PUBKEY|No good signature|[Mm]issing key"),
        (sign_with_another_trusted_key, "public key is not available|No good signature"),
        (sign_nothing, "signed|NOSPLIT|NODATA|[Ss]plitting"),
        (change_the_index, "BADSIG|[Bb]ad signature|error code"),
        (let_the_key_expire, "EXPKEYSIG|[Ee]xpired|not alive"),
    ],
)
def test_wrong_signature_is_refused(stage, tmp_path, spoil, reason):
    """Only an index signed with the one key is believed, and the line has apt's reason."""
    spoil(stage, tmp_path)
    stage.refuse(reason)


def test_looser_settings_of_the_machine_change_nothing(stage, tmp_path):
    """Where the system accepts unsigned repositories, this one must be signed all the same."""
    settings = tmp_path / "apt.conf"
    settings.write_text(
        'Acquire::AllowInsecureRepositories "true"; APT::Get::AllowUnauthenticated "true";\n'
    )
    stage.environ["APT_CONFIG"] = str(settings)
    write_index(stage.root, None)
    stage.refuse("signed|NOSPLIT|NODATA|[Ss]plitting")


@pytest.mark.skipif(shutil.which("sqv") is not None, reason="apt has a verifier of its own")
def test_machine_without_a_verifier(stage, tools, tmp_path):
    """Without gpgv nothing is believed, and the line names it."""
    own = tmp_path / "tools"
    own.mkdir()
    for each in tools.iterdir():
        if not each.name.startswith("gpg"):
            (own / each.name).symlink_to(each)
    stage.environ["PATH"] = str(own)
    stage.refuse("gpgv, gpgv2 or gpgv1 required")


def test_changed_list_of_packages_is_refused(stage):
    """A list that is not the one that was signed is not used."""
    for path in stage.root.glob("dists/stable/main/*/Packages"):
        path.write_text(path.read_text().replace("12.4.10", "12.4.11"))
    stage.refuse("Hash Sum mismatch")


def test_changed_package_is_refused(stage):
    """A package that is not the listed one is deleted, and nothing of it is unpacked."""
    deb = stage.root / "pool/grafana_12.4.10_all.deb"
    deb.write_bytes(deb.read_bytes()[:-1] + b"!")
    stage.refuse("does not have the checksum of its index")
    assert not list((stage.cache / "grafana.debs").iterdir())


def test_lost_connection_is_continued(stage):
    """A connection that breaks in the middle is followed by one for the rest."""
    stage.server.cuts = [None, None, CUT]  # the index, the list, half a package
    assert stage.find().exists()
    assert stage.server.list_ranges("12.4.10_all.deb") == [None, f"bytes={CUT}-"]


def test_interrupted_download_is_resumed_by_the_next_call(stage):
    """Half a package is kept when the server goes away, and only the rest is fetched later."""
    stage.server.cuts = [None, None, CUT, 0, None, None, 0]
    stage.refuse("cannot download grafana: .*12.4.10_all.deb: the connection was closed")
    assert stage.partial.stat().st_size == CUT
    assert stage.find().exists()
    assert stage.server.list_ranges("12.4.10_all.deb")[-1] == f"bytes={CUT}-"


@pytest.mark.parametrize("held", [b"x", b"x" * 9_000_000])
def test_part_that_is_not_of_the_package(stage, held):
    """What does not fit the checksum is deleted and fetched again, whatever its size."""
    stage.partial.parent.mkdir(parents=True)
    stage.partial.write_bytes(held)
    assert stage.find().exists()
    assert stage.server.list_ranges("12.4.10_all.deb")[-1] is None


def test_server_that_sends_whole_files_alone(stage):
    """It sends all of it again, which replaces the part."""
    stage.server.continues = False
    stage.server.cuts = [None, None, CUT]
    assert stage.find().exists()


def test_redirect_is_followed(stage):
    """The package may be on another server than the index says, as it is verified."""
    with FileServer(stage.root) as other:
        stage.server.moved_to = other.url
        assert stage.find().exists()
        assert other.list_ranges("12.4.10_all.deb") == [None]


def test_no_network(stage):
    """Without a server the line names its address."""
    stage.server.stop()
    stage.refuse(rf"cannot download grafana: .*{re.escape(stage.server.url)}")


def test_server_that_says_nothing(stage):
    """It is not waited for longer than was asked."""
    stage.server.is_silent = True
    stage.refuse("cannot download grafana: ")


def test_network_that_goes_away_after_the_index(stage):
    """The list is there, the package is not; there are two attempts at most."""
    stage.server.cuts = [None, None]
    stage.find(downloaded=((12, 3), (12, 4)), oldest=None)
    stage.server.stop()
    stage.told.clear()
    with pytest.raises(StackError, match="cannot download grafana"):
        stage.find(oldest=(12, 4))


def test_no_room(stage):
    """A package that does not fit unpacked is not begun with."""
    write_index(stage.root, stage.key, Installed_Size="999999999999")
    stage.refuse(r"are free in .* are needed: free some space, or set XDG_CACHE_HOME")
    assert stage.server.list_ranges("12.4.10_all.deb") == []


def test_disk_that_fills_up(stage):
    """A write that fails is told with the file and the reason."""
    stage.partial.parent.mkdir(parents=True)
    stage.partial.symlink_to("/dev/full")
    stage.refuse(r"cannot write .*12.4.10_all.deb.partial: No space left on device")


def test_download_may_be_forbidden(stage):
    """With GRAFANA_FETCH=0 no server is asked."""
    stage.environ["GRAFANA_FETCH"] = "0"
    stage.refuse("grafana is not installed, and GRAFANA_FETCH=0 forbids its download")
    assert stage.server.requests == []


def test_what_was_downloaded_before_may_be_used(stage):
    """GRAFANA_FETCH=0 forbids the download, not the program."""
    program = stage.find()
    stage.environ["GRAFANA_FETCH"] = "0"
    assert stage.find() == program


def test_word_that_is_neither_true_nor_false(stage):
    """A variable that cannot be understood is no permission."""
    stage.environ["GRAFANA_FETCH"] = "perhaps"
    with pytest.raises(ConfigurationError, match="GRAFANA_FETCH is neither true nor false"):
        stage.find()


def test_program_that_does_not_run_is_not_kept(stage, tmp_path):
    """A package for another machine is refused with the program's last words."""
    shutil.rmtree(stage.root / "pool")
    (stage.root / "pool").mkdir()
    script = "#!/bin/sh\necho 'GLIBC_2.99 not found' >&2\nexit 1\n"
    build_package(stage.root / "pool", "grafana", "12.4.0", {BINARY: script})
    write_index(stage.root, stage.key)
    stage.refuse("the downloaded grafana does not run on this machine: .*GLIBC_2.99")


LINKERS = [Path("/lib64/ld-linux-x86-64.so.2"), Path("/lib/ld-linux-aarch64.so.1")]
MISSING_LINKER = "/lib/ld-of-no-machine.so.1"
SOURCE = '#include <stdio.h>\nint main(void) { return puts("grafana version 12.4.0") < 0; }\n'


@pytest.fixture
def linked(stage, tmp_path):
    """Put a Grafana into the repository that needs a dynamic linker which this machine lacks."""
    (tmp_path / "grafana.c").write_text(SOURCE)
    program = tmp_path / "grafana"
    subprocess.run(
        ("cc", "-o", program, tmp_path / "grafana.c", f"-Wl,--dynamic-linker={MISSING_LINKER}"),
        check=True,
    )
    shutil.rmtree(stage.root / "pool")
    (stage.root / "pool").mkdir()
    build_package(stage.root / "pool", "grafana", "12.4.0", {BINARY: program})
    write_index(stage.root, stage.key)


@pytest.fixture
def system(stage, tmp_path):
    """Return the directory of a repository that is the only one of the system's."""
    root = tmp_path / "system"
    (root / "pool").mkdir(parents=True)
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{root} stable main\n")
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{tmp_path}/sources.list"; Dir::Etc::SourceParts "/dev/null";\n'
    )
    stage.environ["APT_CONFIG"] = str(tmp_path / "apt.conf")
    return root


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("folder", ["lib", "usr/lib"])
def test_program_that_needs_another_linker(stage, linked, system, folder):
    """Grafana is linked with musl, which is unpacked beside it where the machine has none."""
    own = next(path for path in LINKERS if path.exists())
    name = Path(MISSING_LINKER).name
    build_package(system / "pool", "musl", "1.2.3", {f"{folder}/{name}": own.resolve()})
    write_index(system, None)
    program = stage.find()
    said = subprocess.run((program, "-v"), capture_output=True, text=True, check=True).stdout
    assert said == "grafana version 12.4.0\n"
    assert stage.find() == program


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_linker_that_cannot_be_had(stage, linked, system):
    """The line names the package, and what was downloaded is kept for the next call."""
    write_index(system, None)
    stage.refuse("cannot download musl: ")
    asked = stage.server.list_ranges(".deb")
    stage.refuse("cannot download musl: ")
    assert stage.server.list_ranges(".deb") == asked


@pytest.fixture
def up(stage, settings, programs, quick_up):
    """Return a function that brings the stack up with what the repository has."""

    def bring():
        def find(name):
            return stage.find() if name == "grafana" else programs(name)

        quick_up(settings, find=find, report=stage.told.append)

    return bring


def test_the_stack_runs_with_the_downloaded_grafana(stage, settings, up):
    """It is started out of the cache, with its home there, and the stack is in order."""
    shutil.rmtree(stage.root / "pool")
    (stage.root / "pool").mkdir()
    server = shlex.join((sys.executable, str(STAND_IN_GRAFANA)))
    script = f"""#!/bin/sh
case "$1" in -v|--version) echo grafana version 12.4.0; exit ;; esac
exec {server} "$@"
"""
    files = {BINARY: script, "usr/share/grafana/conf/defaults.ini": ""}
    build_package(stage.root / "pool", "grafana", "12.4.0", files)
    write_index(stage.root, stage.key)
    up()
    assert describe(settings).fine
    page = json.loads(fetch_page(settings.grafana_port, "/api/health"))
    assert page["arguments"] == ["server", f"--homepath={stage.cache}/grafana/usr/share/grafana"]


def test_the_rest_of_the_stack_runs_without_network(stage, settings, up):
    """One line tells why there is no Grafana and what there is, and nothing is out of order."""
    stage.server.stop()
    up()
    assert describe(settings).fine
    (line,) = [line for line in stage.told if "no Grafana" in line]
    assert line.startswith("no Grafana, so no boards: cannot download grafana: ")
    assert line.endswith(f"; the live page is at http://localhost:{settings.exporter_port}")


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs an installed Prometheus")
def test_the_download_may_be_forbidden_in_the_file_of_variables(
    new_settings, quick_files, tmp_path, monkeypatch
):
    """What `.env` says holds for `up`, though it is not in the environment."""
    monkeypatch.delenv("GRAFANA_FETCH", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings, told = new_settings(tmp_path / "state", GRAFANA_FETCH="0"), []
    try:
        bring_up(settings, shipped=quick_files, report=told.append)
    finally:
        take_down(settings, report=print)
    (line,) = [line for line in told if "no Grafana" in line]
    assert "GRAFANA_FETCH=0 forbids its download" in line
