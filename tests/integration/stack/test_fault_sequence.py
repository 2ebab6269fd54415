"""A sequence of faults on the stack as it is shipped, each until its message arrives."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.support.fault_sequence import MOST_SECONDS, ROOT

LONGEST_SECONDS = 1800


@pytest.mark.long
@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.skipif(
    os.environ.get("TRAINVITALS_TEST_LONG") != "1",
    reason="eight minutes at real durations; tests/unit/alerting/test_delay.py works them out",
)
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mkfs.ext4") is None, reason="needs root, to mount a disk"
)
def test_each_fault_behind_another_is_a_message_within_90_seconds(
    tmp_path, prometheus, alertmanager
):
    """Each of nine faults of real processes, mounts and programs is a message within 90 seconds.

    In contrast to a drill, no series is simulated.
    """
    command = (sys.executable, "-m", "tests.support.fault_sequence", "--json")
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, check=False, timeout=LONGEST_SECONDS
    )
    outcomes = [each for each in json.loads(done.stdout) if each["alert"]]
    late = {
        each["fault"]: each["message_seconds"]
        for each in outcomes
        if each["message_seconds"] is None or each["message_seconds"] > MOST_SECONDS
    }
    assert late == {}
    assert len(outcomes) == 9
