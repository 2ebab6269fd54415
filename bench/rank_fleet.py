"""Many ranks of one run on one machine without training: each is a process with a run file.

Run by `training_bench` as `python -m bench.rank_fleet DIRECTORY COUNT`. The ranks perform ten steps
a second until standard input ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from trainvitals import TrainingMonitor

PAUSE_SECONDS = 0.1


def train(directory: Path, rank: int, world_size: int) -> None:
    """Act as one rank until the parent process ends."""
    parent = os.getppid()
    monitor = TrainingMonitor("bench", rank=rank, world_size=world_size, run_dir=directory)
    monitor.start_epoch()
    while os.getppid() == parent:
        for phase in ("forward", "backward", "optimizer"):
            monitor.mark(phase)
        monitor.update_batch(32, 512, loss=1.25, learning_rate=0.001)
        monitor.mark("data_wait")
        time.sleep(PAUSE_SECONDS)


def main() -> None:
    """Start the ranks, wait for the end of standard input, and kill the ranks."""
    directory, count = Path(sys.argv[1]), int(sys.argv[2])
    ranks = []
    for rank in range(count):
        pid = os.fork()
        if pid == 0:
            train(directory, rank, count)
            os._exit(0)
        ranks.append(pid)
    sys.stdin.read()
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    for pid in ranks:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
