"""Two ranks that `torch.multiprocessing.spawn` starts."""

import os

import torch.multiprocessing as mp
from ddp import main


def work(rank, world_size):
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=os.environ["SHAPE_PORT"],
    )
    main(epochs=1)


if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
