"""A script that writes event files with torch's SummaryWriter and does what its input says.

Run as `python tensorboard_training.py FOLDER [RUN]`; with RUN it has a monitor too. Each line of its
standard input has a step and what was logged there, as `3 train/loss=0.5 val_loss=0.25`. It is
answered when the writer has flushed.
"""

import sys

from torch.utils.tensorboard import SummaryWriter

from trainvitals import TrainingMonitor


def main():
    """Log what is asked for."""
    folder, *run = sys.argv[1:]
    monitor = TrainingMonitor(*run, enabled=bool(run))
    writer = None
    print("ready", flush=True)
    for line in sys.stdin:
        step, *words = line.split()
        writer = writer or SummaryWriter(folder)
        for word in words:
            tag, value = word.split("=")
            writer.add_scalar(tag, float(value), int(step))
        writer.flush()
        monitor.update_batch(4)
        print("written", flush=True)


main()
