"""A script that writes the values on its standard input to event files with a SummaryWriter.

Run as `python tensorboard_training.py FOLDER [RUN]`; with RUN, the script has a monitor too. Each
line of standard input is a step with its values, such as `3 train/loss=0.5 val_loss=0.25`. The
script prints `written` after each line, when the writer has flushed.
"""

import sys

from torch.utils.tensorboard import SummaryWriter

from trainvitals import TrainingMonitor


def main():
    """Log the values on standard input."""
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
