"""A training loop, instrumented as the documentation shows, that also measures its own times.

Run as `python instrumented_training.py FIRST_STEP`. The loop trains until it can read a line on
standard input, and then prints the time at which each step ended and the duration of each forward
pass, as JSON.
"""

import json
import select
import sys
import time

import trainvitals

BATCH, TOKENS = 32, 128
SECONDS = {"data_wait": 0.01, "forward": 0.02, "backward": 0.03, "optimizer": 0.01}


def main():
    """Train, and print the measured times."""
    first = int(sys.argv[1])
    forward = []
    with trainvitals.TrainingMonitor(
        "instrumented", total_steps=10_000, global_step=first
    ) as monitor:
        monitor.start_epoch()
        print("trains", flush=True)
        step = first
        ended = [time.monotonic()]
        while not select.select([sys.stdin], [], [], 0)[0]:
            step += 1
            for phase, seconds in SECONDS.items():
                monitor.mark(phase)
                began = time.monotonic()
                time.sleep(seconds)
                if phase == "forward":
                    forward.append(time.monotonic() - began)
            monitor.update_batch(BATCH, TOKENS, loss=1 / step)
            ended.append(time.monotonic())
        monitor.log_validation(loss=0.25, iou=0.75)
        print(json.dumps({"ended": ended, "forward": forward}), flush=True)
        sys.stdin.readline()
        select.select([sys.stdin], [], [])


main()
