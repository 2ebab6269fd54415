"""A sine wave, in the shape of PyTorch's time series example, whose optimizer calls a closure."""

import time

import torch
from measure import Measure
from torch import nn

torch.manual_seed(0)
inputs = torch.sin(torch.arange(40).float() / 5).repeat(6, 1)
seq = nn.LSTM(1, 8, batch_first=True)
out = nn.Linear(8, 1)
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS([*seq.parameters(), *out.parameters()], lr=0.1, max_iter=5)
epochs = 60
measure = Measure(epochs)
for _ in range(epochs):

    def closure():
        optimizer.zero_grad()
        loss = criterion(out(seq(inputs[:, :-1, None])[0])[..., 0], inputs[:, 1:])
        loss.backward()
        time.sleep(0.005)
        return loss

    loss = optimizer.step(closure)
    measure.step(6, loss.item())
