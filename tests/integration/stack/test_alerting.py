"""The path from a killed training process to an alert message, with the real programs."""

import os
import signal
import time

import pytest

from tests.support.trainers import Restless
from tests.support.waiting import wait_until
from trainvitals.runfile import STEP
from trainvitals.sources.prometheus import Prometheus

# Time limit from the death to the message with the shipped intervals, which long tests use.
MOST_SECONDS = 60.0


@pytest.mark.long
def test_killed_run_becomes_a_message(stack, capsys):
    """SIGKILL of a training process leads to a message with run, rank, signal and last step."""
    prometheus = Prometheus(f"http://127.0.0.1:{stack.settings.prometheus_port}")
    with Restless(stack.run_dir, run="bert-large", rank=3) as trainer:
        wait_until(lambda: trainer.read().step[STEP["steps"]] >= 100)
        # At least one scrape sees the process alive, as for any run that lasts over five seconds.
        wait_until(lambda: prometheus.query('training_process_up{run="bert-large"} == 1'))
        killed_at = time.monotonic()
        os.kill(trainer.pid, signal.SIGKILL)
        trainer.process.wait()
        step = int(trainer.read().step[STEP["steps"]])
        message = stack.receiver.wait_for(
            lambda message: "TrainingRunLost" in message.names, seconds=MOST_SECONDS
        )
    took = message.at - killed_at
    with capsys.disabled():
        print(f"\nfrom SIGKILL to the message: {took:.1f} s")
    assert message.status == "firing"
    (alert,) = [each for each in message.alerts if each["labels"]["alertname"] == "TrainingRunLost"]
    assert (alert["labels"]["run"], alert["labels"]["rank"]) == ("bert-large", "3")
    assert (alert["labels"]["instance"], alert["labels"]["severity"]) == ("ada-1", "critical")
    description = alert["annotations"]["description"]
    assert "bert-large" in description
    assert "rank 3" in description
    assert "SIGKILL" in description or "signal 9" in description
    assert f"{step}" in description
    assert took <= MOST_SECONDS
