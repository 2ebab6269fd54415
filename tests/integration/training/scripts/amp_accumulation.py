"""Gradients of four batches for each step, scaled, with one step that the scaler skips."""

import time

import torch
from measure import Measure
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(800, 16), torch.randn(800, 1)), batch_size=4)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
parts = 4
measure = Measure(len(loader) // parts - 1)
total = samples = 0
for number, (inputs, targets) in enumerate(loader, 1):
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.mse_loss(model(inputs), targets) / parts
    if number == 20:
        loss = loss * float("inf")
    total, samples = total + loss.item(), samples + len(inputs)
    scaler.scale(loss).backward()
    time.sleep(0.003)
    if number % parts == 0:
        scale = scaler.get_scale()
        scaler.step(optimizer)
        is_taken = number != 20
        if is_taken:
            measure.step(samples, total)
            samples = 0
        scaler.update()
        assert (scaler.get_scale() >= scale) == is_taken
        optimizer.zero_grad()
        total = 0
