"""A simulated exporter with a fixed picture, and a real terminal, to test `trainvitals top`."""

from __future__ import annotations

import base64
import contextlib
import os
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trainvitals.views.machine.document import write_document
from trainvitals.views.machine.picture import Picture

ROOT = Path(__file__).parents[4]
_WAIT_SECONDS = 60.0


class PictureServer:
    """A server of a picture at `/api/v1/overview`.

    Args:
        picture: The picture to serve, until another one is set.
        port: The port of the server; 0 chooses a free one.
        credentials: The required `user:password`; None requires no login.
        context: The TLS context; None serves plain HTTP.

    Attributes:
        picture: The served picture; requests wait without an answer while it is None.
        status: The status code of the answers.
        asked: The number of requests.
    """

    def __init__(
        self,
        picture: Picture,
        *,
        port: int = 0,
        credentials: str | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.picture: Picture | bytes | None = picture
        self.status = 200
        self.asked = 0
        self._ended = threading.Event()
        stage = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stage._answer(self, credentials)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if context is None else "https"
        self.port = self._server.server_port
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def __enter__(self) -> PictureServer:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server and end waiting requests."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler, credentials: str | None) -> None:
        self.asked += 1
        while self.picture is None and not self._ended.wait(0.02):
            pass
        status, body = self.status, b""
        if handler.path != "/api/v1/overview":
            status = 404
        elif credentials is not None:
            basic = base64.b64encode(credentials.encode()).decode()
            if handler.headers.get("Authorization") != f"Basic {basic}":
                status = 401
        if status == 200 and self.picture is not None:
            is_raw = isinstance(self.picture, bytes)
            body = self.picture if is_raw else write_document(self.picture)  # type: ignore[assignment,arg-type]
        with contextlib.suppress(OSError):
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)


class Tmux:
    """A tmux terminal in which a command runs.

    Args:
        command: The command.
        width: The number of columns.
        height: The number of lines.
        environ: Changes to the environment.
    """

    def __init__(
        self, command: str, *, width: int, height: int, environ: Mapping[str, str] | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="trainvitals-tmux-")
        variables = {"PYTHONPATH": str(ROOT / "exporter"), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
        variables |= environ or {}
        changes = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        size = ("-x", str(width), "-y", str(height))
        shell = f"env -u NO_COLOR -u LC_CTYPE {' '.join(changes)} {command}"
        self._tmux("-f", os.devnull, "new-session", "-d", *size, "exec sh")
        self._tmux("set-option", "-g", "status", "off")
        self._tmux("resize-window", *size)
        self.type(f"clear; cd {ROOT}; stty -a > /dev/null; {shell}; echo code=$?", "Enter")

    def __enter__(self) -> Tmux:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")
        self._folder.cleanup()

    def type(self, *keys: str) -> None:
        """Press keys, given by their tmux names."""
        self._tmux("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        """Make the window larger or smaller."""
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def capture(self, *, colors: bool = False) -> str:
        """Return the content of the terminal."""
        return self._tmux("capture-pane", "-p", *(["-e"] if colors else []))

    def ask(self, variable: str) -> str:
        """Return a tmux variable of the terminal, such as `cursor_flag` or `alternate_on`."""
        return self._tmux("display-message", "-p", f"#{{{variable}}}").strip()

    def wait_for(self, is_shown: Callable[[str], bool] | str, *, colors: bool = False) -> str:
        """Wait until the terminal shows a text or fulfils a condition; return its content.

        Raises:
            AssertionError: The terminal does not show it within a minute.
        """
        until = time.monotonic() + _WAIT_SECONDS
        while True:
            shown = self.capture(colors=colors)
            if is_shown in shown if isinstance(is_shown, str) else is_shown(shown):
                return shown
            assert time.monotonic() < until, f"{is_shown} is not shown:\n{shown}"
            time.sleep(0.05)

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", f"{self._folder.name}/socket", *arguments],
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode(errors="replace")


def show(
    *arguments: str, width: int = 80, height: int = 24, environ: Mapping[str, str] | None = None
) -> Tmux:
    """Run `trainvitals top` in a terminal; the test is skipped without tmux."""
    command = shlex.join([sys.executable, "-m", "trainvitals", "top", *arguments])
    return open_terminal(command, width=width, height=height, environ=environ)


def open_terminal(
    command: str, *, width: int = 80, height: int = 24, environ: Mapping[str, str] | None = None
) -> Tmux:
    """Run a command in a terminal; the test is skipped without tmux."""
    if shutil.which("tmux") is None:
        assert not os.environ.get("CI"), "needs tmux, and .ci/run installs it"
        pytest.skip("needs tmux: install it")
    return Tmux(command, width=width, height=height, environ=environ)
