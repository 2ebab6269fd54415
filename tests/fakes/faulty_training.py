"""A training loop of five steps a second whose loss becomes NaN on request.

Run as `python faulty_training.py RUN`. After the first line on standard input, the loss is NaN.
"""

import math
import select
import sys
import time

import trainvitals


def main():
    """Train until killed."""
    loss = 1.0
    with trainvitals.TrainingMonitor(sys.argv[1]) as monitor:
        monitor.start_epoch()
        while True:
            monitor.mark("forward")
            time.sleep(0.2)
            if select.select([sys.stdin], [], [], 0)[0] and sys.stdin.readline():
                loss = math.nan
            monitor.update_batch(8, loss=loss)


main()
