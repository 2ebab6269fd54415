"""A data-parallel training on CPUs that `torchrun` starts with four ranks, like a small cluster.

The argument is a directory, in which the training saves a checkpoint every 50 steps. Once the file
`die` exists there, rank 1 kills itself 30 steps after a checkpoint. After the restart, the training
does 20 more steps. Rank 3 has a slow disk.
"""

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
MOST_STEPS = 5000
STEPS_AFTER_RESTART = 20


def load_batches(rank, steps):
    """Yield `steps` batches, each after the time that loading takes on this rank."""
    for _ in range(steps):
        time.sleep(LOADING_SECONDS.get(rank, USUAL_LOADING_SECONDS))
        yield torch.ones(8, 16)


def train(directory):
    """Train from the start or, after a restart, from the last checkpoint."""
    torch.set_num_threads(1)
    rank, attempt = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    # torchrun's own store still has the addresses of the previous attempt, which gloo would try.
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{directory}/rendezvous-{attempt}",
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    checkpoint = directory / "checkpoint"
    is_first = attempt == "0"
    done = 0 if is_first else int(checkpoint.read_text())
    batches = load_batches(rank, MOST_STEPS if is_first else STEPS_AFTER_RESTART)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    with TrainingMonitor("ddp", global_step=done) as monitor:
        for step, batch in enumerate(monitor.batches(batches), done + 1):
            monitor.mark("forward")
            loss = (model(batch) ** 2).mean()
            monitor.mark("backward")
            loss.backward()
            monitor.mark("optimizer")
            optimizer.step()
            optimizer.zero_grad()
            monitor.update_batch(8, loss=loss)
            if step % 50 == 0 and rank == 0:
                with monitor.phase("checkpoint"):
                    checkpoint.write_text(str(step))
                    monitor.checkpoint_saved()
            if step % 50 == 30 and rank == 1 and is_first and (directory / "die").exists():
                os.kill(os.getpid(), signal.SIGKILL)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    train(Path(sys.argv[1]))
