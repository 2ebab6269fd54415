"""A signed repository of packages on this machine, whose server can misbehave on request."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

_PACKAGES = "main/binary-{}/Packages"


class FileServer:
    """A web server for the files in a directory.

    Args:
        root: The directory.

    Attributes:
        requests: The path of each request and the value of its `Range` header, None if absent.
        cuts: The number of bytes to send before the connection is closed, for each of the next
            answers; None sends the whole file.
        continues: Whether the server honours a `Range` header.
        is_silent: Whether the server accepts connections but sends no answer.
        moved_to: The URL of another server to redirect to; None to serve the files.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.requests: list[tuple[str, str | None]] = []
        self.cuts: list[int | None] = []
        self.continues = True
        self.is_silent = False
        self.moved_to: str | None = None
        self._silence = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._make_handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop listening and release the connections that wait for an answer."""
        self._silence.set()
        self._server.shutdown()
        self._server.server_close()

    def list_ranges(self, suffix: str) -> list[str | None]:
        """Return the `Range` headers of the requests for files with this suffix, in order."""
        return [asked for path, asked in self.requests if path.endswith(suffix)]

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        asked = request.headers.get("Range")
        self.requests.append((request.path, asked))
        if self.is_silent:
            self._silence.wait()
            return
        file = self.root / request.path.lstrip("/")
        if self.moved_to is not None:
            request.send_response(302)
            request.send_header("Location", self.moved_to + request.path)
            request.end_headers()
            return
        if not file.is_file():
            request.send_error(404)
            return
        self._send(request, file.read_bytes(), asked)

    def _send(self, request: BaseHTTPRequestHandler, content: bytes, asked: str | None) -> None:
        begin = 0
        found = re.fullmatch(r"bytes=(\d+)-", asked or "")
        if found and self.continues:
            begin = int(found[1])
            if begin >= len(content):
                request.send_error(416)
                return
            request.send_response(206)
            last = len(content) - 1
            request.send_header("Content-Range", f"bytes {begin}-{last}/{len(content)}")
        else:
            request.send_response(200)
        request.send_header("Content-Length", str(len(content) - begin))
        request.end_headers()
        request.wfile.write(content[begin:][: self.cuts.pop(0) if self.cuts else None])


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the errors of clients that close their connection early."""


class SigningKey:
    """A GnuPG key that signs the index of a repository.

    Args:
        home: The path of GnuPG's home directory, which is created.
        expires: The expiry date in GnuPG's format.
        now: The faked system time, such as `20250101T000000`; None for the real time.
    """

    def __init__(self, home: Path, *, expires: str = "never", now: str | None = None) -> None:
        home.mkdir(mode=0o700)
        self._home = home
        self._now = ("--faked-system-time", now) if now else ()
        self._run(
            *("--passphrase", "", "--quick-generate-key", "Test <test@example.org>"),
            *("ed25519", "sign", expires),
        )
        listed = self._run("--list-keys", "--with-colons")
        self.fingerprint = re.findall(r":([0-9A-F]{40}):", listed)[0]

    def export(self, directory: Path) -> None:
        """Write the public key into a directory."""
        directory.mkdir(exist_ok=True)
        armored = self._run("--armor", "--export")
        (directory / f"{self.fingerprint}.asc").write_text(armored, encoding="ascii")

    def sign(self, text: str) -> str:
        """Return a text with a clear signature."""
        source = self._home / "text"
        source.write_text(text, encoding="utf-8")
        return self._run("--output", "-", "--clearsign", str(source))

    def _run(self, *words: str) -> str:
        return subprocess.run(
            ("gpg", "--homedir", self._home, "--batch", "--no-tty", *self._now, *words),
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def build_package(directory: Path, name: str, version: str, files: dict[str, str | Path]) -> Path:
    """Build a Debian package of programs.

    Args:
        directory: The directory for the package.
        name: The name of the package.
        version: The version of the package.
        files: The text of each file, or the path of a file to copy, by its path in the package.
    """
    tree = directory / f"{name}-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nInstalled-Size: 1\n"
        "Depends: adduser, musl\nMaintainer: x\nDescription: x\n"
    )
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copy(content, tree / path)
        else:
            (tree / path).write_text(content)
        (tree / path).chmod(0o755)
    package = directory / f"{name}_{version}_all.deb"
    command = ("dpkg-deb", "-Znone", "--build", tree, package)
    subprocess.run(command, check=True, capture_output=True)
    return package


def write_index(root: Path, key: SigningKey | None, **changed: str) -> None:
    """Write the index of the packages in `pool` and sign the index.

    Args:
        root: The directory of the repository.
        key: The signing key; None for an unsigned index.
        changed: Fields that the index states wrongly for every package.
    """
    suite = root / "dists/stable"
    listed = "".join(_describe(root, deb, changed) for deb in sorted(root.glob("pool/*.deb")))
    lines = ["Suite: stable", "Date: Sat, 01 Nov 2025 00:00:00 UTC", "Architectures: amd64 arm64"]
    lines += ["Components: main", "SHA256:"]
    for architecture in ("amd64", "arm64"):
        path = suite / _PACKAGES.format(architecture)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(listed)
        digest = hashlib.sha256(listed.encode()).hexdigest()
        lines.append(f" {digest} {len(listed.encode())} {_PACKAGES.format(architecture)}")
    text = "\n".join(lines) + "\n"
    (suite / "InRelease").write_text(key.sign(text) if key else text)


def _describe(root: Path, deb: Path, changed: dict[str, str]) -> str:
    control = subprocess.run(
        ("dpkg-deb", "-f", deb), capture_output=True, text=True, check=True
    ).stdout
    fields = dict(line.split(": ", 1) for line in control.strip().splitlines())
    content = deb.read_bytes()
    fields |= {
        "Filename": str(deb.relative_to(root)),
        "Size": str(len(content)),
        "SHA256": hashlib.sha256(content).hexdigest(),
    }
    fields |= {name.replace("_", "-"): value for name, value in changed.items()}
    return "".join(f"{name}: {value}\n" for name, value in fields.items()) + "\n"
