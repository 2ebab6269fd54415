"""`make pictures`, with a real browser and a simple page in place of Grafana."""

from __future__ import annotations

import importlib.util
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

SCRIPT = Path(__file__).parents[3] / "docs/build/board_pictures.py"
PAGE = b"""<!doctype html><input type=checkbox role=switch aria-label=Alerts checked
onchange="fetch('/switched-' + this.checked)">"""


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Return the script as a module that writes to a directory of its own and does not wait."""
    spec = importlib.util.spec_from_file_location("board_pictures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(module, "SETTLE_MS", 0)
    return module


@pytest.fixture
def grafana(monkeypatch):
    """Serve a page for every dashboard except `trainvitals-missing`, and yield the requests."""
    asked = []

    class Boards(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(404 if "trainvitals-missing" in self.path else 200)
            self.end_headers()
            self.wfile.write(PAGE)

        def do_POST(self):
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Boards) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("GRAFANA_URL", f"http://127.0.0.1:{server.server_address[1]}/")
        yield asked
        server.shutdown()


def test_each_board_is_taken_after_a_login_with_alerts_switched_off(
    pictures, grafana, monkeypatch, tmp_path
):
    """`make pictures` logs in, switches alerts off, and writes PNG files of five dashboards."""
    monkeypatch.setenv("GRAFANA_USER", "admin")
    monkeypatch.setenv("GRAFANA_PASSWORD", "secret")
    assert pictures.main() == 0
    assert grafana[0] == '{"user":"admin","password":"secret"}'
    assert grafana.count("/switched-false") == 5
    boards = {urlsplit(path).path: parse_qs(urlsplit(path).query) for path in grafana[1:]}
    assert boards["/d/trainvitals-run"]["var-run"] == ["bert-large"]
    assert boards["/d/trainvitals-host"]["var-instance"] == ["orion"]
    names = {path.name for path in tmp_path.iterdir() if path.read_bytes().startswith(b"\x89PNG")}
    assert names == {"fleet.png", "run.png", "accelerators.png", "host.png", "containers.png"}


def test_a_board_that_is_missing_leaves_every_picture(pictures, grafana, monkeypatch, tmp_path):
    """If a dashboard is missing, no picture is written."""
    monkeypatch.setattr(pictures, "BOARDS", {"fleet": {}, "missing": {}})
    assert pictures.main() == 2
    assert list(tmp_path.iterdir()) == []
