"""A data-parallel training on CPUs, as `torchrun` starts it; four ranks of it are a small cluster.

It does 20 steps beyond the 300th, with a checkpoint every 50. What happens on the way is told by
files in the directory that is its argument: where there is `hold`, it goes on for ever; where there
is `die`, rank 1 kills itself 30 steps after a checkpoint. Rank 3 has a slow disk.
"""

import itertools
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from trainvitals import TrainingMonitor

LOADING_SECONDS = {3: 0.04}
USUAL_LOADING_SECONDS = 0.004
STEPS = 320
CHECKPOINT_STEPS = 50
DYING_AFTER = 30


def load_batches(rank):
    """Give batches for ever, each after the time that this rank's disk takes."""
    while True:
        time.sleep(LOADING_SECONDS.get(rank, USUAL_LOADING_SECONDS))
        yield torch.ones(8, 16)


def train(directory):
    """Train from the last checkpoint on."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    checkpoint = directory / "checkpoint"
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    with TrainingMonitor("ddp", total_steps=STEPS) as monitor:
        done = int(checkpoint.read_text()) if checkpoint.exists() else 0
        monitor.resume(done)
        for step, batch in zip(itertools.count(done + 1), monitor.batches(load_batches(rank))):
            monitor.mark("forward")
            loss = (model(batch) ** 2).mean()
            monitor.mark("backward")
            loss.backward()
            monitor.mark("optimizer")
            optimizer.step()
            optimizer.zero_grad()
            monitor.update_batch(8, loss=loss, global_step=step)
            if step % CHECKPOINT_STEPS == 0 and rank == 0:
                with monitor.phase("checkpoint"):
                    checkpoint.write_text(str(step))
                    monitor.checkpoint_saved()
            is_dying = step % CHECKPOINT_STEPS == DYING_AFTER and (directory / "die").exists()
            if is_dying and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                os.kill(os.getpid(), signal.SIGKILL)
            # Whoever gets there later waits for those that stop in the backward pass, so all look
            # at what the directory said at the same step.
            if step >= STEPS and not (directory / "hold").exists():
                break
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    train(Path(sys.argv[1]))
