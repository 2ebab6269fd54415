"""A real Alertmanager as a process of its own.

with AlertmanagerProcess(program, config, tmp_path) as alertmanager:
    alertmanager.fire({"alertname": "TrainingStalled", "severity": "critical"})
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import requests

from tests.support.local_http import request
from tests.support.processes import ENDS_WITH_PARENT
from trainvitals.stack.programs import find_free_ports

if TYPE_CHECKING:
    from typing_extensions import Self

_START_SECONDS = 60.0
_END_SECONDS = 15.0


class AlertmanagerProcess:
    """Alertmanager with a configuration, on a free port, while its `with` block lasts.

    Args:
        program: The path of the Alertmanager program.
        config: The configuration file.
        directory: The directory for data and log.

    Attributes:
        url: The address of Alertmanager.
        log: The path of its log file.
    """

    def __init__(self, program: Path, config: Path, directory: Path) -> None:
        (self.port,) = find_free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = directory / "alertmanager.log"
        self._command = (
            str(program),
            f"--config.file={config}",
            f"--storage.path={directory / 'alertmanager-data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
            "--log.level=debug",
        )

    def fire(
        self,
        *labels: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
        ended: bool = False,
        started_seconds_ago: float = 0.0,
    ) -> None:
        """Post alerts as Prometheus does; they fire for five minutes, or end now if `ended`."""
        now = datetime.now(timezone.utc)
        ends = now if ended else now + timedelta(minutes=5)
        starts = now - timedelta(seconds=started_seconds_ago)
        times = {"startsAt": starts.isoformat(), "endsAt": ends.isoformat()}
        alerts = [{"labels": each, "annotations": annotations or {}, **times} for each in labels]
        self.ask("POST", "/api/v2/alerts", json.dumps(alerts))

    def ask(self, method: str, path: str, body: str | None = None) -> bytes:
        """Send a request and return the body of the answer, whose status must be 200."""
        headers = {"Content-Type": "application/json"}
        data = None if body is None else body.encode()
        answer = request(method, self.url + path, data=data, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.content

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                (*ENDS_WITH_PARENT, *self._command), stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(requests.RequestException, AssertionError):
                self.ask("GET", "/-/ready")
                return self
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise AssertionError(self.log.read_text(encoding="utf-8"))
            time.sleep(0.05)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
