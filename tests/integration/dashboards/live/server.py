"""A Prometheus that scrapes several machines, and that is queried as by Grafana."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests
import yaml

from tests.support.local_http import get, request
from tests.support.processes import ENDS_WITH_PARENT
from tests.support.waiting import wait_until
from trainvitals.stack.programs import find_free_ports

Json = dict[str, Any]

_START_SECONDS = 60.0


class Server:
    """Prometheus on a free port, while its `with` block lasts.

    Args:
        program: The path of Prometheus.
        directory: The directory for its files, whose `data` may have blocks already.
        jobs: The scraped ports on 127.0.0.1, by job and by name of the machine. A job
            `prometheus` for the server itself is added.
        rules: Its rule files.
        alertmanager: The port of an Alertmanager, if there is one.
        remote: The port of a receiver of samples, if there is one.
    """

    def __init__(
        self,
        program: Path,
        directory: Path,
        *,
        jobs: Mapping[str, Mapping[str, int]] | None = None,
        rules: Sequence[Path] = (),
        alertmanager: int | None = None,
        remote: int | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._port = find_free_ports(1)[0]
        self._url = f"http://127.0.0.1:{self._port}"
        self._log = directory / "prometheus.log"
        settings = _write_settings(jobs or {}, self._port, rules, alertmanager, remote)
        config = directory / "prometheus.yml"
        config.write_text(yaml.safe_dump(settings), encoding="utf-8")
        command = [
            *ENDS_WITH_PARENT,
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'data'}",
            "--storage.tsdb.retention.time=20y",
            "--storage.remote.flush-deadline=1s",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        """The PID of the server."""
        return self._process.pid

    def __enter__(self) -> Server:  # noqa: PYI034 - Self is not in Python 3.10
        wait_until(
            lambda: self._process.poll() is not None or self._is_ready(),
            _START_SECONDS,
            describe=self._log.read_text,
        )
        assert self._process.poll() is None, self._log.read_text()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def ask(self, path: str, method: str = "POST", **words: str | Sequence[str]) -> Json:
        """Return the API's answer to a request.

        Args:
            path: The path after `/api/v1/`.
            method: The HTTP method; Grafana uses POST for queries and GET for everything else.
            words: The parameters; `match` is a list and stands for `match[]`.

        Returns:
            The whole answer, which may be an error.
        """
        pairs = {f"{key}[]" if key == "match" else key: value for key, value in words.items()}
        where = {"params" if method == "GET" else "data": pairs}
        sent = request(method, f"{self._url}/api/v1/{path}", **where)
        try:
            answer: Json = sent.json()
        except ValueError:
            answer = {
                "status": "error",
                "error": f"HTTP {sent.status_code}: {sent.content[:200]!r}",
            }
        return answer

    def _is_ready(self) -> bool:
        try:
            return get(f"{self._url}/-/ready").ok
        except requests.RequestException:
            return False


def _write_settings(
    jobs: Mapping[str, Mapping[str, int]],
    own_port: int,
    rules: Sequence[Path],
    alertmanager: int | None,
    remote: int | None,
) -> Json:
    everyone = {**jobs, "prometheus": {"prometheus": own_port}} if jobs else {}
    scrapes = [
        {
            "job_name": job,
            "static_configs": [
                {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}}
                for name, port in ports.items()
            ],
        }
        for job, ports in everyone.items()
    ]
    settings: Json = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": scrapes,
    }
    if remote is not None:
        only_up = {"source_labels": ["__name__"], "regex": "up", "action": "keep"}
        written = {"url": f"http://127.0.0.1:{remote}/", "write_relabel_configs": [only_up]}
        settings["remote_write"] = [written]
    if alertmanager is not None:
        target = {"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}
        settings["alerting"] = {"alertmanagers": [target]}
    return settings
