"""Two ranks, in the shape of PyTorch's tutorial of DistributedDataParallel, started by torchrun."""

import os
import time

import torch
import torch.distributed as dist
from measure import Measure
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main(epochs=2):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(480, 20), torch.randn(480, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    measure = Measure(epochs * len(loader))
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for source, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(source), targets)
            loss.backward()
            time.sleep(0.01)
            optimizer.step()
            measure.step(len(source), loss.item())
        if os.environ.get("RANK", "0") == "0":
            with measure.apart("checkpoint"):
                torch.save(model.module.state_dict(), "snapshot.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
