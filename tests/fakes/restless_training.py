"""A training loop that only does steps, as fast as possible, until it is killed.

Run as `python -S -E restless_training.py SOURCE_ROOT DIRECTORY RUN RANK SECONDS`. The loop prints
the path of its run file. Every recorded number follows from the number of the step:

=================================== ===========================
samples, tokens                     7 and 21 times the step
loss, learning rate, gradient norm  the step, twice and three times
evaluations                         one after every 100 steps
validation loss, iou, dice          the evaluation, twice and three times
=================================== ===========================

After a line on standard input, one of the next ten steps takes SECONDS longer.
"""

import select
import sys
import time

sys.path.insert(0, sys.argv[1])

from trainvitals import TrainingMonitor

PHASES = ("data_wait", "h2d", "forward", "backward", "optimizer")


def main():
    """Train until killed."""
    _, _, directory, run, rank, seconds = sys.argv
    monitor = TrainingMonitor(run, rank=int(rank), run_dir=directory, publish_seconds=0)
    monitor.start_epoch()
    print(monitor.path, flush=True)
    step = 0
    while True:
        step += 1
        for phase in PHASES:
            monitor.mark(phase)
        if not step % 10 and select.select([sys.stdin], [], [], 0)[0] and sys.stdin.readline():
            time.sleep(float(seconds))
        monitor.update_batch(
            7, 3, loss=float(step), learning_rate=2.0 * step, gradient_norm=3.0 * step
        )
        if step % 100 == 0:
            evaluation = step // 100
            monitor.log_validation(
                loss=float(evaluation), iou=2.0 * evaluation, dice=3.0 * evaluation
            )


main()
