"""The alerts of a training run, from a real process, a real exporter and the real rules."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.exporter_process import ExporterProcess
from tests.support.prometheus_process import INSTANCE, PrometheusProcess
from tests.support.trainers import Loop

RULES = f"{Path(__file__).parents[3]}/prometheus/rules/*.yml"
RUN = '{run="instrumented",rank="0"}'
LIVES = f"training_process_up{RUN} == 1"
# After this time, rules without a `for` would have fired.
LOOKED_AT_SECONDS = 2.5


def test_a_kill_is_told_with_all_that_matters_and_an_ordinary_end_is_not(
    tmp_path: Path, prometheus: Path
):
    """`TrainingRunLost` fires with the run's details after a kill, but not after a normal end."""
    with (
        ExporterProcess(tmp_path) as exporter,
        PrometheusProcess(
            prometheus, tmp_path / "prometheus", exporter.port, interval="1s", rules=RULES
        ) as server,
    ):
        server.wait_until_it_scrapes()
        with Loop(tmp_path / "runs") as loop:
            server.wait_for(LIVES)
            loop.accounts()
            loop.process.communicate()
            assert loop.process.returncode == 0
            server.wait_for('training_process_end_timestamp_seconds{reason="finished"}')
            time.sleep(LOOKED_AT_SECONDS)
            assert server.ask('ALERTS{component="training"}') == []

        with Loop(tmp_path / "runs", 1500) as loop:
            server.wait_for(f"training_global_step{RUN} > 1510")
            loop.process.kill()
            server.wait_for('ALERTS{alertname="TrainingRunLost",alertstate="firing"}')
            step = server.ask_for_one(f"training_global_step{RUN}")
            assert step > 1510
            firing = server.list_firing("training")
            assert set(firing) == {"TrainingRunLost"}
            assert firing["TrainingRunLost"]["labels"] == {
                "alertname": "TrainingRunLost",
                "severity": "critical",
                "component": "training",
                "job": "trainvitals",
                "instance": INSTANCE,
                "run": "instrumented",
                "rank": "0",
                "reason": "signal",
            }
            texts = firing["TrainingRunLost"]["annotations"]
            assert texts["description"].startswith(
                f"Run instrumented on {INSTANCE}: rank 0 was killed by signal 9"
                " (SIGKILL: a person, a scheduler or an out-of-memory killer)"
                f" after step {step:.0f}, "
            )
            assert texts["dashboard_url"].endswith(f"?var-instance={INSTANCE}&var-run=instrumented")

        with Loop(tmp_path / "runs", 1500):
            server.wait_for(LIVES)
            server.wait_for('absent(ALERTS{alertname="TrainingRunLost"})')
