"""A training loop that is instrumented as the documents show, and keeps its own accounts.

Run as `python instrumented_training.py FIRST_STEP`. It trains until a line comes on its standard
input, and then prints when each step ended and what its forward passes took, as JSON.
"""

import json
import select
import sys
import time

import trainvitals

BATCH, TOKENS = 32, 128
SECONDS = {"data_wait": 0.01, "forward": 0.02, "backward": 0.03, "optimizer": 0.01}


def main():
    """Train and account for it."""
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
