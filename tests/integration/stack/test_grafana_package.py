"""Grafana's download from a local repository like its own, signed with a key of the tests."""

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
    """Return the signing key of the repository."""
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
    """Return a directory with links to this machine's programs, without Grafana."""
    directory = tmp_path_factory.mktemp("tools")
    for place in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
        for each in Path(place).iterdir():
            link = directory / each.name
            if not each.name.startswith("grafana") and not link.is_symlink():
                link.symlink_to(each)
    return directory


@dataclass
class Stage:
    """A repository, its server, and an environment without Grafana.

    Attributes:
        root: The directory of the repository.
        server: The HTTP server of the repository.
        key: The key that signs the repository.
        keys: The directory with the keys that the machine trusts.
        environ: The environment variables of the machine.
        told: The reported lines.
    """

    root: Path
    server: FileServer
    key: SigningKey
    keys: Path
    environ: dict[str, str]
    told: list[str] = field(default_factory=list)

    @property
    def cache(self) -> Path:
        """Return the directory of the unpacked packages."""
        return Path(self.environ["XDG_CACHE_HOME"]) / "trainvitals/debian"

    @property
    def partial(self) -> Path:
        """Return the path of a partly downloaded package."""
        return self.cache / "grafana.debs/grafana_12.4.10_all.deb.partial"

    def find(self, **changed: object) -> Path:
        """Find or download Grafana, with a server timeout of one second."""
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
        """Assert that Grafana's download fails with a reason in one line and unpacks nothing."""
        with pytest.raises(StackError, match=reason) as caught:
            self.find()
        assert "\n" not in str(caught.value)
        assert not (self.cache / "grafana").exists()


@pytest.fixture
def stage(tmp_path, pool, tools, key):
    """Start the server of a valid repository whose key the machine trusts."""
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
    """The newest suitable Grafana is unpacked into the cache and found there by the next call."""
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
    """An unprivileged user gets Grafana in their own cache and owns the unpacked files."""
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
    """The progress of a download is reported in at most ten lines."""
    stage.find()
    assert len([line for line in stage.told if " MB" in line]) <= 10


def test_too_old_download_is_replaced(stage):
    """A Grafana in the cache that is too old for this release is replaced."""
    stage.find(downloaded=((12, 3), (12, 4)), oldest=None)
    stage.find(oldest=(12, 4))
    said = subprocess.run(
        (stage.cache / "grafana" / BINARY, "-v"), capture_output=True, text=True, check=True
    ).stdout
    assert said == "grafana version 12.4.10\n"


def test_no_version_fits(stage):
    """A repository without a suitable version of Grafana is refused."""
    for path in stage.root.glob("pool/grafana_12.4*.deb"):
        path.unlink()
    write_index(stage.root, stage.key)
    stage.refuse("grafana is not listed in a version that the stack can use")


def sign_with_another_key(stage, tmp_path):
    """Sign the index with a key that is not trusted."""
    write_index(stage.root, SigningKey(tmp_path / "other"))


def sign_with_another_trusted_key(stage, tmp_path):
    """Sign the index with another key that is in the machine's directory of trusted keys."""
    other = SigningKey(tmp_path / "other")
    other.export(stage.keys)
    write_index(stage.root, other)


def sign_nothing(stage, _):
    """Leave the index unsigned."""
    write_index(stage.root, None)


def change_the_index(stage, _):
    """Change the index after it was signed."""
    index = stage.root / "dists/stable/InRelease"
    index.write_text(index.read_text().replace("Suite: stable", "Suite: stabler"))


def let_the_key_expire(stage, tmp_path):
    """Sign the index with a key that has expired since."""
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
    """An index without a valid signature of the right key is refused with apt's reason."""
    spoil(stage, tmp_path)
    stage.refuse(reason)


def test_looser_settings_of_the_machine_change_nothing(stage, tmp_path):
    """Grafana's repository must be signed even if the system's apt accepts unsigned ones."""
    settings = tmp_path / "apt.conf"
    settings.write_text(
        'Acquire::AllowInsecureRepositories "true"; APT::Get::AllowUnauthenticated "true";\n'
    )
    stage.environ["APT_CONFIG"] = str(settings)
    write_index(stage.root, None)
    stage.refuse("signed|NOSPLIT|NODATA|[Ss]plitting")


@pytest.mark.skipif(shutil.which("sqv") is not None, reason="apt has a verifier of its own")
def test_machine_without_a_verifier(stage, tools, tmp_path):
    """Without gpgv the repository is refused, and the error names gpgv."""
    own = tmp_path / "tools"
    own.mkdir()
    for each in tools.iterdir():
        if not each.name.startswith("gpg"):
            (own / each.name).symlink_to(each)
    stage.environ["PATH"] = str(own)
    stage.refuse("gpgv, gpgv2 or gpgv1 required")


def test_changed_list_of_packages_is_refused(stage):
    """A package list that differs from the signed index is refused."""
    for path in stage.root.glob("dists/stable/main/*/Packages"):
        path.write_text(path.read_text().replace("12.4.10", "12.4.11"))
    stage.refuse("Hash Sum mismatch")


def test_changed_package_is_refused(stage):
    """A package whose checksum differs from the list is deleted and not unpacked."""
    deb = stage.root / "pool/grafana_12.4.10_all.deb"
    deb.write_bytes(deb.read_bytes()[:-1] + b"!")
    stage.refuse("does not have the checksum of its index")
    assert not list((stage.cache / "grafana.debs").iterdir())


def test_lost_connection_is_continued(stage):
    """A download continues where the connection broke."""
    stage.server.cuts = [None, None, CUT]  # the index, the list, half a package
    assert stage.find().exists()
    assert stage.server.list_ranges("12.4.10_all.deb") == [None, f"bytes={CUT}-"]


def test_interrupted_download_is_resumed_by_the_next_call(stage):
    """The next call resumes a partial download and fetches only the rest."""
    stage.server.cuts = [None, None, CUT, 0, None, None, 0]
    stage.refuse("cannot download grafana: .*12.4.10_all.deb: the connection was closed")
    assert stage.partial.stat().st_size == CUT
    assert stage.find().exists()
    assert stage.server.list_ranges("12.4.10_all.deb")[-1] == f"bytes={CUT}-"


@pytest.mark.parametrize("held", [b"x", b"x" * 9_000_000])
def test_part_that_is_not_of_the_package(stage, held):
    """A partial file with other content is deleted, and the whole package is fetched."""
    stage.partial.parent.mkdir(parents=True)
    stage.partial.write_bytes(held)
    assert stage.find().exists()
    assert stage.server.list_ranges("12.4.10_all.deb")[-1] is None


def test_server_that_sends_whole_files_alone(stage):
    """The download succeeds from a server that ignores range requests and sends whole files."""
    stage.server.continues = False
    stage.server.cuts = [None, None, CUT]
    assert stage.find().exists()


def test_redirect_is_followed(stage):
    """A redirect to another server is followed for the package."""
    with FileServer(stage.root) as other:
        stage.server.moved_to = other.url
        assert stage.find().exists()
        assert other.list_ranges("12.4.10_all.deb") == [None]


def test_no_network(stage):
    """The error names the address of a server that cannot be reached."""
    stage.server.stop()
    stage.refuse(rf"cannot download grafana: .*{re.escape(stage.server.url)}")


def test_server_that_says_nothing(stage):
    """A server that never answers makes the download fail after the timeout."""
    stage.server.is_silent = True
    stage.refuse("cannot download grafana: ")


def test_network_that_goes_away_after_the_index(stage):
    """The download fails if the server becomes unreachable after it sent the index."""
    stage.server.cuts = [None, None]
    stage.find(downloaded=((12, 3), (12, 4)), oldest=None)
    stage.server.stop()
    stage.told.clear()
    with pytest.raises(StackError, match="cannot download grafana"):
        stage.find(oldest=(12, 4))


def test_no_room(stage):
    """A package whose unpacked size exceeds the free space is not downloaded."""
    write_index(stage.root, stage.key, Installed_Size="999999999999")
    stage.refuse(r"are free in .* are needed: free some space, or set XDG_CACHE_HOME")
    assert stage.server.list_ranges("12.4.10_all.deb") == []


def test_disk_that_fills_up(stage):
    """The error of a failed write names the file and the reason."""
    stage.partial.parent.mkdir(parents=True)
    stage.partial.symlink_to("/dev/full")
    stage.refuse(r"cannot write .*12.4.10_all.deb.partial: No space left on device")


def test_download_may_be_forbidden(stage):
    """With GRAFANA_FETCH=0 no request is sent to the repository."""
    stage.environ["GRAFANA_FETCH"] = "0"
    stage.refuse("grafana is not installed, and GRAFANA_FETCH=0 forbids its download")
    assert stage.server.requests == []


def test_what_was_downloaded_before_may_be_used(stage):
    """A Grafana that is already in the cache is used even with GRAFANA_FETCH=0."""
    program = stage.find()
    stage.environ["GRAFANA_FETCH"] = "0"
    assert stage.find() == program


def test_word_that_is_neither_true_nor_false(stage):
    """A value of GRAFANA_FETCH that is neither true nor false raises an error."""
    stage.environ["GRAFANA_FETCH"] = "perhaps"
    with pytest.raises(ConfigurationError, match="GRAFANA_FETCH is neither true nor false"):
        stage.find()


def test_program_that_does_not_run_is_not_kept(stage, tmp_path):
    """A Grafana that does not run on this machine is refused, and the error quotes its output."""
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
    """Add a Grafana to the repository that needs a dynamic linker missing on this machine."""
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
    """Configure a repository as the only one of the system's apt, and return its directory."""
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
    """The musl package is downloaded and unpacked for a Grafana that is linked with it."""
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
    """The error names the missing musl package, and Grafana's package is kept for the next call."""
    write_index(system, None)
    stage.refuse("cannot download musl: ")
    asked = stage.server.list_ranges(".deb")
    stage.refuse("cannot download musl: ")
    assert stage.server.list_ranges(".deb") == asked


@pytest.fixture
def up(stage, settings, programs, quick_up):
    """Return a function that starts the stack with Grafana from the repository."""

    def bring():
        def find(name):
            return stage.find() if name == "grafana" else programs(name)

        quick_up(settings, find=find, report=stage.told.append)

    return bring


def test_the_stack_runs_with_the_downloaded_grafana(stage, settings, up):
    """The stack starts the downloaded Grafana from the cache, with its home path there."""
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
    """Without network, one line says why Grafana is missing, and the rest of the stack runs."""
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
    """GRAFANA_FETCH=0 in `.env` applies to `up`, although the environment does not have it."""
    monkeypatch.delenv("GRAFANA_FETCH", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings, told = new_settings(tmp_path / "state", GRAFANA_FETCH="0"), []
    try:
        bring_up(settings, shipped=quick_files, report=told.append)
    finally:
        take_down(settings, report=print)
    (line,) = [line for line in told if "no Grafana" in line]
    assert "GRAFANA_FETCH=0 forbids its download" in line
