"""A small language model without a loader, in the shape of nanoGPT's train.py."""

import math
import time
from contextlib import nullcontext

import torch
from measure import Measure
from torch import nn
from torch.nn import functional as F

batch_size, block_size, accumulation, max_iters, eval_interval, eval_iters = 4, 32, 2, 100, 80, 10
torch.manual_seed(1337)
data = torch.randint(0, 64, (4096,))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(64, 32), nn.Embedding(block_size, 32)
        self.h = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(2)
        )
        self.lm_head = nn.Linear(32, 64, bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def get_batch():
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = torch.zeros(eval_iters)
    for k in range(eval_iters):
        time.sleep(0.01)
        losses[k] = model(*get_batch())[1].item()
    model.train()
    return losses.mean()


def get_lr(it):
    return 1e-3 * 0.5 * (1 + math.cos(math.pi * it / max_iters))


model, ctx = GPT(), nullcontext()
scaler = torch.amp.GradScaler("cpu", enabled=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
measure = Measure(max_iters)
X, Y = get_batch()
for iter_num in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    if iter_num % eval_interval == 0 and iter_num:
        with measure.apart("validation"):
            estimate_loss()
        with measure.apart("checkpoint"):
            torch.save({"model": model.state_dict(), "iter_num": iter_num}, "ckpt.pt")
    total = 0
    for _ in range(accumulation):
        with ctx:
            _, loss = model(X, Y)
            loss = loss / accumulation
        total += loss.item()
        time.sleep(0.01)  # what a larger model would take
        X, Y = get_batch()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    measure.step(accumulation * batch_size, total)
    optimizer.zero_grad(set_to_none=True)
